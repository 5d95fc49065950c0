//! The JSON Schema of configuration files accepts what the agent accepts, and no unknown key.

use std::fs;

use regex::Regex;
use serde_json::Value;

use super::*;

/// The schema, which `cargo xtask manual` writes.
fn schema() -> Value {
    json("deploy/helm/nodepulse/config.schema.json")
}

fn json(path: &str) -> Value {
    serde_json::from_str(&text(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// Returns why the schema refuses a file.
pub(super) fn faults(yaml: &str) -> Vec<String> {
    let value: Value = serde_saphyr::from_str(yaml).unwrap_or_else(|err| panic!("{yaml}: {err}"));
    let mut faults = Vec::new();
    validate(&schema(), &value, "", &mut faults);
    faults
}

/// The keywords that the schema uses; any other is a fault of the schema.
fn validate(schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    // A schema that is only `true` accepts everything.
    for (keyword, wanted) in schema.as_object().into_iter().flatten() {
        let ok = match keyword.as_str() {
            "type" => types(wanted).iter().any(|wanted| is_of(value, wanted)),
            "enum" => wanted.as_array().unwrap().contains(value),
            "const" => wanted == value,
            "minimum" => value.as_i64() >= wanted.as_i64() || !value.is_number(),
            "maxItems" => {
                value.as_array().map(Vec::len) <= wanted.as_u64().and_then(|n| n.try_into().ok())
            }
            "maximum" => value.as_i64() <= wanted.as_i64() || !value.is_number(),
            "pattern" => {
                let pattern = Regex::new(wanted.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "anyOf" => wanted.as_array().unwrap().iter().any(|one| {
                let mut faults = Vec::new();
                validate(one, value, at, &mut faults);
                faults.is_empty()
            }),
            "required" => types(wanted).iter().all(|key| value.get(*key).is_some()),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    validate(wanted, item, &format!("{at}[]"), faults);
                }
                true
            }
            // The first two are below.
            "properties"
            | "additionalProperties"
            | "$schema"
            | "title"
            | "description"
            | "default" => true,
            other => panic!("{at}: the test does not know {other}"),
        };
        if !ok {
            faults.push(format!("{at}: {value} is not {keyword} {wanted}"));
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        let known = schema.get("properties").and_then(|known| known.get(name));
        match (known, schema.get("additionalProperties")) {
            (Some(known), _) => validate(known, value, &at, faults),
            (None, Some(Value::Bool(false))) => faults.push(format!("{at} is unknown")),
            (None, Some(any)) => validate(any, value, &at, faults),
            (None, None) => {}
        }
    }
}

fn types(of: &Value) -> Vec<&str> {
    match of {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

fn is_of(value: &Value, type_: &str) -> bool {
    match type_ {
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("no type {other}"),
    }
}

#[test]
fn the_schema_refuses_every_unknown_key_and_value() {
    for (text, _) in table::BAD {
        let unknown = match load_file(text).unwrap_err() {
            ConfigError::UnknownKey { .. } | ConfigError::RemovedKey { .. } => true,
            ConfigError::Value { why, .. } => why.starts_with("is not one of"),
            ConfigError::Read { .. } | ConfigError::Syntax { .. } => false,
        };
        let faults = || faults(&format!("{HEAD}{text}"));
        assert!(!unknown || !faults().is_empty(), "{text} is accepted");
    }
}

#[test]
fn the_schema_has_the_keys_of_the_table() {
    let schema = schema();
    for spec in KEYS {
        let path = spec.name.replace('.', "/properties/");
        let found = schema.pointer(&format!("/properties/{path}/description"));
        let found = found.and_then(Value::as_str).unwrap_or_default();
        assert!(found.starts_with(spec.help), "{}: {found:?}", spec.name);
    }
}

#[test]
fn the_schema_accepts_every_example_and_default() {
    for spec in KEYS {
        let example = spec.example();
        assert_eq!(faults(&format!("{HEAD}{example}")), [""; 0], "{example}");
    }
    for mode in ["companion", "node"] {
        let defaults = defaults(Some(mode.to_owned())).unwrap().to_yaml();
        assert_eq!(faults(&defaults), [""; 0], "{defaults}");
    }
}

#[test]
fn the_schema_accepts_a_number_or_a_boolean_in_quotes() {
    let config = file("maxPods: '5'\ntakeOver: 'true'\nnodeName: 7\n");
    assert_eq!((config.allocation.max_pods, config.take_over), (5, true));
}

#[test]
fn the_schema_accepts_a_duration_of_zero_wherever_the_agent_does() {
    let soft = "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: ";
    let soft = format!("{soft}{{memory.available: {{}}}}");
    let rows = [
        ("evictionPressureTransitionPeriod: {}", true),
        ("nodeStatusUpdateFrequency: {}", true),
        ("nodeStatusReportFrequency: {}", true),
        (&*soft, true),
        ("diskIO: {solidState: {slow: {}}}", false),
        ("diskIO: {rotational: {slow: {}}}", false),
        ("diskIO: {devices: {sda: {slow: {}}}}", false),
        ("diskIO: {window: {}}", false),
    ];
    for (key, is_valid) in rows {
        for zero in ["0", "'0'", "+0", "-0", "5"] {
            let text = key.replace("{}", zero);
            // Loading compares with the schema what the agent accepts.
            let is_accepted = load_file(&text).is_ok();
            let expected = is_valid && zero != "5";
            assert_eq!(is_accepted, expected, "{text}");
            let faults = faults(&format!("{HEAD}{text}"));
            assert_eq!(faults.is_empty(), expected, "{text}: {faults:?}");
        }
    }
}

#[test]
fn example_files_are_valid_and_name_their_schema() {
    let systemd = "deploy/systemd/config.yaml";
    let example = text(systemd);
    assert_eq!(faults(&example), [""; 0], "{systemd}");
    assert!(Given::default().load_text(Some(&example)).is_ok());
    let documentation = text("docs/configuration.md");
    let snippets = documentation.split("```yaml\n").skip(1);
    let snippets = snippets.filter_map(|rest| rest.split("```").next());
    let whole: Vec<&str> = snippets.filter(|text| text.contains(KIND)).collect();
    assert!(!whole.is_empty());
    for snippet in whole {
        assert_eq!(faults(snippet), [""; 0], "{snippet}");
        let comment = "# yaml-language-server: $schema=config.schema.json\n";
        assert!(snippet.starts_with(comment), "{snippet}");
    }
    for (path, schema) in [
        (systemd, "../helm/nodepulse/config.schema.json"),
        ("deploy/helm/nodepulse/values.yaml", "values.schema.json"),
    ] {
        let comment = format!("# yaml-language-server: $schema={schema}\n");
        assert!(text(path).starts_with(&comment), "{path}");
        let folder = Path::new(path).parent().unwrap();
        json(folder.join(schema).to_str().unwrap());
    }
}

#[test]
fn the_values_of_the_chart_have_the_schema_of_a_file() {
    let values = json("deploy/helm/nodepulse/values.schema.json");
    let config = &values["properties"]["config"];
    let mut file = schema();
    let properties = file["properties"].as_object_mut().unwrap();
    // The chart's template writes the head, and it is for companion mode only.
    properties.retain(|key, _| key != "apiVersion" && key != "kind");
    properties["mode"] = config["properties"]["mode"].clone();
    assert_eq!(file["properties"], config["properties"]);
    assert_eq!(config["additionalProperties"], false);
    assert_eq!(config["properties"]["mode"]["const"], "companion");
}
