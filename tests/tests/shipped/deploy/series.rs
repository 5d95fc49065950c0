//! Checks that alerts and panels query existing series and labels.

use std::collections::{BTreeMap, BTreeSet};

use nodepulse_core::units::latency::DiskLatency;

use nodepulse::testing::{MetricDescription, Metrics};
use nodepulse_tests::openmetrics::Exposition;
use serde_json::Value;

use super::{text, yaml};

/// Labels that Prometheus and the pod monitor add.
const ADDED: [&str; 4] = ["job", "instance", "pod", "namespace"];

/// Returns all metrics, with one series of each that has labels.
fn all_metrics() -> Metrics {
    let metrics = Metrics::new("1", "btf", "worker-1");
    let (kernel, node, api) = (&metrics.kernel, &metrics.node, &metrics.api);
    // One of each, so that all are written.
    drop(kernel.events_received.of(["a"]));
    drop(kernel.events_lost.of(["a", "b"]));
    drop(kernel.probe_attached.of(["a", "b"]));
    drop(kernel.bpf_run_seconds.of(["a"]));
    drop(kernel.bpf_runs.of(["a"]));
    drop(node.condition_status.of(["a", "b"]));
    drop(node.condition_omitted.of(["a", "b"]));
    drop(node.disk_unhealthy.of(["a", "b"]));
    drop(node.condition_transitions.of(["a"]));
    drop(node.signal_value.of(["a"]));
    drop(node.signal_threshold.of(["a"]));
    drop(node.oom_kills.of(["a", "b"]));
    drop(node.pod_oom_kills.of(["a", "b"]));
    drop(api.status_patches.of(["a"]));
    drop(api.taint_patches.of(["a"]));
    drop(api.lease_renewals.of(["a"]));
    drop(api.events.of(["a"]));
    drop(api.requests.of(["a", "b", "c"]));
    drop(api.client_certificate_expiration.of::<&str>([]));
    drop(metrics.process.blocked_calls.of(["a"]));
    drop(metrics.process.history_revisions.of(["a"]));
    drop(metrics.process.sink_delivered.of(["a"]));
    drop(metrics.process.sink_lost.of(["a", "b"]));
    drop(metrics.process.sink_lag.of(["a"]));
    drop(metrics.process.sink_failing.of(["a"]));
    drop(metrics.process.wakeups.of(["a"]));
    drop(metrics.process.config_reloads.of(["a"]));
    metrics
}

fn scraped(metrics: &Metrics) -> Exposition {
    Exposition::parse(&metrics.text(&[("sda", &DiskLatency::default())])).unwrap()
}

/// Returns every series and its labels, as a scraper finds them.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = all_metrics();
    let read = scraped(&metrics);
    let mut series: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for metric in &Metrics::descriptions() {
        let name = &metric.name;
        for sample in &read
            .family(name)
            .unwrap_or_else(|| panic!("{name}"))
            .samples
        {
            let labels = series.entry(sample.name.clone()).or_default();
            labels.extend(sample.labels.keys().cloned());
        }
    }
    series
}

/// Returns names of series in an expression, with the labels that it requires of them.
fn asked(expression: &str) -> Vec<(String, Vec<String>)> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_series = |word: &str| word.starts_with("nodepulse_") || word.starts_with("process_");
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(part) {
        rest = &rest[start..];
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        rest = &rest[end..];
        if is_series(word) {
            let matchers = rest
                .strip_prefix('{')
                .and_then(|inside| inside.split_once('}'));
            let matchers = matchers.map_or("", |(inside, _)| inside);
            let keys = matchers
                .split(", ")
                .filter_map(|m| m.split(['=', '!']).next());
            let keys = keys.filter(|key| !key.is_empty()).map(str::to_owned);
            found.push((word.to_owned(), keys.collect()));
            rest = rest.strip_prefix('{').map_or(rest, |inside| {
                inside.split_once('}').map_or("", |(_, behind)| behind)
            });
        }
    }
    found
}

/// Returns the labels after every `by`.
fn grouped(expression: &str) -> Vec<&str> {
    let groups = expression.split("by (").skip(1);
    let groups = groups.filter_map(|group| group.split_once(')'));
    groups.flat_map(|(labels, _)| labels.split(", ")).collect()
}

fn check(what: &str, expression: &str, series: &BTreeMap<String, BTreeSet<String>>) {
    let mut labels: BTreeSet<&str> = ADDED.into();
    for (name, keys) in asked(expression) {
        let has = series
            .get(&name)
            .unwrap_or_else(|| panic!("{what}: there is no {name}"));
        labels.extend(has.iter().map(String::as_str));
        for key in keys {
            let known = has.contains(&key) || ADDED.contains(&&*key);
            assert!(known, "{what}: {name} has no {key}");
        }
    }
    for key in grouped(expression) {
        assert!(labels.contains(key), "{what}: nothing has {key}");
    }
}

fn each<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

#[test]
fn each_metric_is_served_as_its_description_states() {
    let metrics = all_metrics();
    let (read, text) = (scraped(&metrics), metrics.text(&[]));
    assert!(Metrics::descriptions().len() > 20);
    for metric in &Metrics::descriptions() {
        let MetricDescription {
            name,
            kind,
            labels,
            help,
        } = metric;
        let family = read.family(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(family.kind, *kind, "{name}");
        let served = family
            .samples
            .iter()
            .flat_map(|sample| sample.labels.keys());
        let served: BTreeSet<&str> = served.map(String::as_str).collect();
        let mut expected: BTreeSet<&str> = labels.iter().copied().collect();
        expected.insert("node");
        if *kind == "histogram" {
            expected.insert("le");
        }
        assert_eq!(served, expected, "{name}");
        let line = format!("# HELP {name} {help}.");
        // Without disks, their latency is not served.
        assert!(
            text.contains(&line) || name.contains("disk_latency"),
            "{line}"
        );
    }
}

#[test]
fn each_alert_queries_existing_series() {
    let series = series();
    let rules = yaml(&text("helm/nodepulse/files/alerts.yaml"));
    let mut count = 0;
    for rule in each(&rules, "groups").flat_map(|group| each(group, "rules")) {
        let (name, expression) = (&rule["alert"], rule["expr"].as_str().unwrap());
        check(&name.to_string(), expression, &series);
        for annotation in rule["annotations"].as_object().unwrap().values() {
            let annotation = annotation.as_str().unwrap();
            check(&name.to_string(), annotation, &series);
            // A label in an annotation must still exist after the expression has grouped.
            for label in annotation.split("$labels.").skip(1) {
                let label = label.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                let kept = grouped(expression).contains(&label) || label == "node";
                assert!(kept, "{name} uses {label}");
            }
        }
        count += 1;
    }
    assert!(count > 5, "{count}");
}

#[test]
fn each_alert_has_a_section_in_the_runbooks() {
    let rules = yaml(&text("helm/nodepulse/files/alerts.yaml"));
    let rules = each(&rules, "groups").flat_map(|group| each(group, "rules"));
    let alerts: BTreeSet<&str> = rules.map(|rule| rule["alert"].as_str().unwrap()).collect();
    let runbooks = text("../docs/runbooks.md");
    let sections = runbooks.lines().filter_map(|line| line.strip_prefix("## "));
    let sections = sections.filter(|section| section.starts_with("Nodepulse"));
    assert_eq!(sections.collect::<BTreeSet<_>>(), alerts);
}

#[test]
fn each_panel_queries_existing_series() {
    let series = series();
    let dashboard: Value =
        serde_json::from_str(&text("helm/nodepulse/files/dashboard.json")).unwrap();
    let mut shown = BTreeSet::new();
    for panel in each(&dashboard, "panels") {
        for target in each(panel, "targets") {
            let expression = target["expr"].as_str().unwrap();
            check(&panel["title"].to_string(), expression, &series);
            shown.extend(asked(expression).into_iter().map(|(name, _)| name));
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend
                .split("{{")
                .skip(1)
                .filter_map(|part| part.split_once("}}"))
            {
                assert!(grouped(expression).contains(&label.0), "{legend}");
            }
        }
    }
    assert!(shown.len() > 15, "{shown:?}");
}

#[test]
fn an_expression_is_parsed_into_series_and_labels() {
    let expression =
        r#"sum by (le, node) (rate(nodepulse_a_bucket{b="c", e!~"f"}[5m])) / process_g"#;
    let keys = ["b", "e"].map(str::to_owned).to_vec();
    let expected = [
        ("nodepulse_a_bucket".to_owned(), keys),
        ("process_g".to_owned(), vec![]),
    ];
    assert_eq!(asked(expression), expected);
    assert_eq!(grouped(expression), ["le", "node"]);
}
