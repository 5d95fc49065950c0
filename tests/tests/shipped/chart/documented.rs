//! Checks that every value has a description, and every permission its purpose.

use std::collections::BTreeSet;

use nodepulse_tests::helm::Helm;
use serde_json::{Value, json};

use super::{render, yaml};

const VALUES: &str = include_str!("../../../../deploy/helm/nodepulse/values.yaml");
const README: &str = include_str!("../../../../deploy/helm/nodepulse/README.md");

/// Returns the values without a row for them or for one above them.
fn undocumented(name: &str, value: &Value) -> Vec<String> {
    if README.contains(&format!("\n| `{name}` | ")) {
        return Vec::new();
    }
    match value.as_object() {
        Some(map) if !map.is_empty() => {
            let below = map.iter();
            let below =
                below.flat_map(|(key, value)| undocumented(&format!("{name}.{key}"), value));
            below.collect()
        }
        _ => vec![name.to_owned()],
    }
}

#[test]
fn each_value_has_a_row_in_the_readme() {
    let values = yaml(VALUES);
    let all = values.as_object().unwrap().iter();
    let missing = all.flat_map(|(key, value)| undocumented(key, value));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_schema_has_each_value_and_no_other() {
    let schema = include_str!("../../../../deploy/helm/nodepulse/values.schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let values = yaml(VALUES);
    // Helm passes `global` to every chart.
    let known = properties.keys().filter(|key| *key != "global");
    let mut known: Vec<_> = known.collect();
    let mut there: Vec<_> = values.as_object().unwrap().keys().collect();
    known.sort();
    there.sort();
    assert_eq!(known, there);
}

/// Formats the verbs and resources of a rule, one text for each resource.
fn rule(rule: &Value) -> Vec<String> {
    let texts = |key: &str| -> Vec<String> { serde_json::from_value(rule[key].clone()).unwrap() };
    let verbs = texts("verbs").join(", ");
    let resources = texts("resources").into_iter();
    resources
        .map(|resource| format!("{resource}: {verbs}"))
        .collect()
}

#[test]
fn the_permissions_in_the_documents_are_those_of_the_roles() {
    let Some(helm) = Helm::find() else { return };
    let document = include_str!("../../../../docs/permissions.md");
    let (document, _) = document.split_once("\n## On the node").unwrap();
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<String> = rows
        .map(|row| {
            let mut cells = row.split('|').map(|cell| cell.trim().replace('`', ""));
            let resource = cells.nth(1).unwrap();
            format!("{resource}: {}", cells.next().unwrap())
        })
        .collect();
    let taints = json!({"config": {"mode": "companion", "taints": {"MemoryLow": "NoSchedule"}}});
    let granted: BTreeSet<String> = render(&helm, &taints)
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .flat_map(|role| role["rules"].as_array().unwrap())
        .flat_map(rule)
        .collect();
    assert!(granted.len() > 5, "{granted:?}");
    assert_eq!(documented, granted);
}
