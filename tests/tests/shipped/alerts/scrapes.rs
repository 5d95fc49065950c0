//! Records the series that Prometheus stores of an agent, as input of promtool.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse_tests::node::{Running, pass};
use nodepulse_tests::openmetrics::MetricSample;
use serde_json::{Value, json};

/// Time between two scrapes.
const INTERVAL: Duration = Duration::from_secs(60);

/// Series by their text, and the values of each scrape.
#[derive(Default)]
pub struct Scrapes {
    series: BTreeMap<String, Vec<Option<f64>>>,
    count: usize,
}

impl Scrapes {
    /// Scrapes the agent for a number of minutes.
    pub async fn of(&mut self, node: &Running, minutes: usize) {
        for _ in 0..minutes {
            pass(INTERVAL).await;
            let read = node.scrape().await;
            let families = read.families().iter();
            for sample in families.flat_map(|family| &family.samples) {
                self.add(text(sample), sample.value);
            }
            self.add(
                r#"up{job="nodepulse",instance="10.0.0.1:20260"}"#.to_owned(),
                1.0,
            );
            self.count += 1;
        }
    }

    fn add(&mut self, series: String, value: f64) {
        let values = self.series.entry(series).or_default();
        values.resize(self.count, None);
        values.push(Some(value));
    }

    /// Writes a test by which exactly the alerts with the labels `expected` fire at some time.
    pub fn test(&self, expected: &[&str]) -> String {
        let series = self.series.iter().map(|(series, values)| {
            let values = values.iter().map(|value| match value {
                Some(value) => value.to_string(),
                None => "_".to_owned(),
            });
            json!({"series": series, "values": values.collect::<Vec<_>>().join(" ")})
        });
        let samples = expected
            .iter()
            .map(|labels| json!({"labels": format!("{{{labels}}}"), "value": 1}));
        let fired =
            r#"group by (alertname, type) (count_over_time(ALERTS{alertstate="firing"}[2h]))"#;
        let test = json!({
            "interval": "1m",
            "input_series": series.collect::<Vec<Value>>(),
            "promql_expr_test": [{
                "expr": fired,
                "eval_time": format!("{}m", self.count),
                "exp_samples": samples.collect::<Vec<Value>>(),
            }],
        });
        json!({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": [test]})
            .to_string()
    }
}

/// Formats a series with the labels of the target.
fn text(sample: &MetricSample) -> String {
    let target = [("job", "nodepulse"), ("instance", "10.0.0.1:20260")];
    let target = target.map(|(key, value)| format!("{key}={value:?}"));
    let labels = sample.labels.iter();
    let labels = labels.map(|(key, value)| format!("{key}={value:?}"));
    let labels: Vec<String> = labels.chain(target).collect();
    format!("{}{{{}}}", sample.name, labels.join(","))
}
