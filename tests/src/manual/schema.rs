//! Generates the JSON Schema of a configuration file.

use std::io;

use nodepulse::testing::{
    API_VERSION, Effect, Form, Json, KEYS, KIND, KeySpec, Preset, Reload, SERVER_KEYS, Scalar,
};
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use serde_json::{Map, Value, json};

use super::reference::meaning;
use super::replaced;

/// The schema of a file, which is a part of the chart.
pub const PATH: &str = "deploy/helm/nodepulse/config.schema.json";

/// The schema of the chart's values; `config` in it is the same without the head.
pub const VALUES: &str = "deploy/helm/nodepulse/values.schema.json";

/// The keys whose change replaces the chart's pods, one in each line.
pub const RESTART: &str = "deploy/helm/nodepulse/files/restart-keys.txt";

/// The start and the end of the generated part of [`VALUES`].
const CONFIG: (&str, &str) = ("\n    \"config\": ", ",\n    \"serve\": {");

/// A number and its unit, in Go's format.
const DURATION_PART: &str = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)";

/// Returns the content of [`PATH`].
pub fn file() -> String {
    let mut schema = keys();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(KIND);
    schema["description"] = json!("Configuration of nodepulse, /etc/nodepulse/config.yaml");
    schema["required"] = json!(["apiVersion", "kind"]);
    schema["properties"]["apiVersion"] = json!({ "const": API_VERSION });
    schema["properties"]["kind"] = json!({ "const": KIND });
    format!("{schema:#}\n")
}

/// Returns [`VALUES`] with the schema of `config`. The chart is for companion mode only.
pub fn values(text: &str) -> io::Result<String> {
    let mut schema = keys();
    schema["properties"]["mode"] = json!({ "const": "companion" });
    schema["required"] = json!(["mode"]);
    let schema = format!("{schema:#}").replace('\n', "\n    ");
    replaced(text, CONFIG.0, &schema, CONFIG.1)
}

/// Returns the content of [`RESTART`]. In the chart, `mode` cannot change.
pub fn restart() -> String {
    let keys = KEYS.iter();
    let keys = keys.filter(|spec| spec.reload == Reload::Restart && spec.name != "mode");
    keys.map(|spec| format!("{}\n", spec.name)).collect()
}

/// Returns an object with every key, and those that are accepted without effect.
fn keys() -> Value {
    let mut root = object(Map::new());
    for spec in KEYS {
        insert(&mut root, spec.name, key(spec));
    }
    for name in SERVER_KEYS {
        let ignored = "Without effect: nodepulse does not have a kubelet's server";
        insert(&mut root, name, json!({ "description": ignored }));
    }
    root
}

fn insert(root: &mut Value, name: &str, schema: Value) {
    let mut properties = &mut root["properties"];
    let mut rest = name;
    while let Some((block, below)) = rest.split_once('.') {
        if properties.get(block).is_none() {
            properties[block] = optional(object(Map::new()));
        }
        properties = &mut properties[block]["properties"];
        rest = below;
    }
    properties[rest] = schema;
}

fn key(spec: &KeySpec) -> Value {
    let mut schema = optional(form(spec.form));
    let mut description = meaning(spec);
    if let Form::One(value) | Form::List(value) = spec.form {
        description += &values_text(value);
    }
    if spec.reload == Reload::Restart {
        description += " A change needs a restart.";
    }
    schema["description"] = json!(description);
    let default = match (spec.preset, spec.form) {
        (Preset::Text { text, .. }, Form::One(value)) => typed(value, text),
        (Preset::List { texts, .. }, _) => json!(texts),
        _ => Value::Null,
    };
    if !default.is_null() {
        schema["default"] = default;
    }
    schema
}

/// Describes each value of a closed set.
fn values_text(scalar: Scalar) -> String {
    let Json::Values(values) = scalar.json else {
        return String::new();
    };
    let all = values();
    let texts = all.iter().filter_map(|value| {
        let help = value.get_help()?;
        Some(format!(" `{}`: {help}.", value.get_name()))
    });
    texts.collect()
}

/// Also allows null, which means that the key is not set.
fn optional(mut schema: Value) -> Value {
    if let Some(types) = schema.get_mut("type") {
        let before = types.take();
        let mut all = match before {
            Value::Array(all) => all,
            one => vec![one],
        };
        all.push(json!("null"));
        *types = Value::Array(all);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    schema
}

fn form(form: Form) -> Value {
    match form {
        Form::One(value) => scalar(value),
        Form::List(value) => json!({ "type": "array", "items": scalar(value) }),
        Form::Map { names, value, .. } => map(&(names.known)(), &scalar(value)),
        Form::Taints => {
            let mut taint = taint(&effects());
            taint["required"] = json!(["key", "effect"]);
            json!({ "type": "array", "items": taint })
        }
        Form::ConditionTaints => {
            let all = NodepulseCondition::ALL.into_iter();
            let all =
                all.map(|condition| (condition.type_().to_owned(), condition_taint(condition)));
            object(all.collect())
        }
        Form::Disks => map(&[], &object(Map::from_iter([like("slow", ".slow")]))),
        Form::Webhooks(kind) => {
            let kinds = json!({ "type": ["array", "null"], "items": scalar(kind) });
            let mut webhook = object(Map::from_iter([
                like("url", ".otlp.endpoint"),
                like("headersFile", ".headersFile"),
                ("kinds".to_owned(), kinds),
            ]));
            webhook["required"] = json!(["url"]);
            let (_, url) = like("url", ".otlp.endpoint");
            json!({ "type": "array", "maxItems": 4, "items": {"anyOf": [url, webhook]} })
        }
    }
}

/// Describes a member like the key that ends so.
fn like(name: &str, end: &str) -> (String, Value) {
    let value = KEYS.iter().find_map(|spec| match spec.form {
        Form::One(value) if spec.name.ends_with(end) => Some(scalar(value)),
        _ => None,
    });
    (name.to_owned(), value.unwrap_or_default())
}

/// Describes a map with these names, or with any.
fn map(names: &[&str], value: &Value) -> Value {
    if names.is_empty() {
        return json!({ "type": "object", "additionalProperties": value });
    }
    let named = names.iter().map(|name| ((*name).to_owned(), value.clone()));
    object(named.collect())
}

fn object(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// Describes a taint of this condition.
fn condition_taint(condition: NodepulseCondition) -> Value {
    let mut effects = effects();
    effects.retain(|effect| effect != "NoExecute" || condition.permits_no_execute());
    let pattern = format!("(^|:)({})?$", effects.join("|"));
    json!({ "anyOf": [{ "type": "string", "pattern": pattern }, taint(&effects)] })
}

fn taint(effects: &[String]) -> Value {
    object(Map::from_iter([
        ("effect".to_owned(), json!({ "enum": effects })),
        ("key".to_owned(), json!({ "type": "string" })),
        (
            "value".to_owned(),
            json!({ "type": ["string", "number", "boolean"] }),
        ),
    ]))
}

fn effects() -> Vec<String> {
    names(Effect::values)
}

fn scalar(scalar: Scalar) -> Value {
    match scalar.json {
        // The agent reads texts, in quotes or not.
        Json::Boolean => json!({ "type": ["boolean", "string"], "pattern": "^(true|false)$" }),
        Json::Integer { min, max } => json!({
            "type": ["integer", "string"],
            "minimum": min,
            "maximum": max,
            "pattern": r"^\+?[0-9]+$",
        }),
        Json::Text { types, pattern } => {
            let mut text = match types {
                [one] => json!({ "type": one }),
                several => json!({ "type": several }),
            };
            if !pattern.is_empty() {
                text["pattern"] = json!(pattern);
            }
            text
        }
        Json::Duration { zero: true } => json!({
            "type": ["string", "integer"],
            "minimum": 0,
            "maximum": 0,
            "pattern": format!(r"^([+-]?0|\+?({DURATION_PART})+)$"),
        }),
        Json::Duration { zero: false } => json!({
            "type": "string",
            "pattern": format!(r"^\+?({DURATION_PART})+$"),
        }),
        Json::Values(values) => json!({ "enum": names(values) }),
    }
}

fn names(values: fn() -> Vec<clap::builder::PossibleValue>) -> Vec<String> {
    let all = values();
    all.iter()
        .map(|value| value.get_name().to_owned())
        .collect()
}

/// Converts a default to its type.
fn typed(scalar: Scalar, text: &str) -> Value {
    match scalar.json {
        Json::Boolean | Json::Integer { .. } => text.parse().unwrap_or_default(),
        Json::Text { .. } | Json::Duration { .. } | Json::Values(_) => json!(text),
    }
}
