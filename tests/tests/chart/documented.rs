//! Every value has a description.

use serde_json::Value;

use super::yaml;

const VALUES: &str = include_str!("../../../deploy/helm/nodepulse/values.yaml");
const README: &str = include_str!("../../../deploy/helm/nodepulse/README.md");

/// The values that have neither a row nor one above them.
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
    let schema = include_str!("../../../deploy/helm/nodepulse/values.schema.json");
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
