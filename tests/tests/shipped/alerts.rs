//! Evaluates the alerts of the chart with promtool: each fires on a series with its problem, and
//! none on series of healthy agents.

use nodepulse_tests::skip;
use serde_json::Value;

mod healthy;
mod promtool;
mod scrapes;

use promtool::Promtool;

const RULES: &str = include_str!("../../../deploy/helm/nodepulse/files/alerts.yaml");
const FIRING: &str = include_str!("../../fixtures/alerts/firing.yaml");

/// Returns `None`, and counts the test as skipped, if promtool is not installed.
fn promtool() -> Option<Promtool> {
    let found = Promtool::find();
    if found.is_none() {
        skip("no promtool", "`cargo xtask setup` installs it");
    }
    found
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn each<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

#[test]
fn each_alert_fires_on_its_problem_with_its_summary() {
    let Some(promtool) = promtool() else { return };
    promtool
        .test(RULES, FIRING)
        .unwrap_or_else(|why| panic!("{why}"));
}

/// Also checks that the file above contains every alert.
#[test]
fn each_alert_is_tested_while_it_fires_and_while_it_does_not() {
    let firing = yaml(FIRING);
    let tests: Vec<&Value> = each(&firing, "tests")
        .flat_map(|test| each(test, "alert_rule_test"))
        .collect();
    let rules = yaml(RULES);
    let alerts: Vec<&Value> = each(&rules, "groups")
        .flat_map(|group| each(group, "rules"))
        .map(|rule| &rule["alert"])
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        for fires in [true, false] {
            let is = |test: &Value| {
                test["alertname"] == *alert && (each(test, "exp_alerts").count() > 0) == fires
            };
            assert!(tests.iter().any(|&test| is(test)), "{alert} fires: {fires}");
        }
    }
}

#[test]
fn prometheus_accepts_the_configuration_in_the_recipes() {
    let Some(promtool) = promtool() else { return };
    let recipes = include_str!("../../../docs/recipes.md");
    let (_, recipe) = recipes
        .split_once("\n## Prometheus without the operator\n")
        .unwrap();
    let (_, recipe) = recipe.split_once("```yaml\n").unwrap();
    let (config, _) = recipe.split_once("```").unwrap();
    assert!(
        config.contains("job_name: nodepulse\n"),
        "as the alerts require"
    );
    let discovery = "kubernetes_sd_configs:
      - role: pod
        namespaces: {names: [nodepulse]}
";
    // The promtool of `cargo xtask setup` is built without discovery.
    let fixed = config.replace(discovery, "static_configs: [{targets: [a]}]\n");
    assert_ne!(config, fixed);
    promtool
        .check_config(RULES, &fixed)
        .unwrap_or_else(|why| panic!("{why}"));
}
