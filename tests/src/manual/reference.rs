//! Generates the reference of the keys in docs/configuration.md.

use std::io;

use nodepulse::testing::{Flag, Form, Json, KEYS, KeySpec, KubeletKey, Preset, Reload, Scalar};

use super::replaced;

/// The document with the places for the tables.
pub const PATH: &str = "docs/configuration.md";

const KEYS_BEGIN: &str =
    "<!-- Generated from agent/src/config/table.rs by `cargo xtask manual`. -->\n\n";
const SIGNALS_BEGIN: &str = "<!-- Thresholds, generated likewise. -->\n\n";
const END: &str = "\n\n<!-- End of the generated part. -->";

pub fn document(text: &str) -> io::Result<String> {
    let text = replaced(text, KEYS_BEGIN, &keys(), END)?;
    replaced(&text, SIGNALS_BEGIN, &signals(), END)
}

fn keys() -> String {
    let head =
        "| key | type, default | variable `NODEPULSE_…` | flag | meaning |\n|---|---|---|---|---|";
    KEYS.iter()
        .fold(head.to_owned(), |table, spec| table + "\n" + &row(spec))
}

fn row(spec: &KeySpec) -> String {
    let marks = match (spec.kubelet, spec.reload) {
        (KubeletKey::No, Reload::Live) => "",
        (KubeletKey::No, Reload::Restart) => " *r*",
        (KubeletKey::Shared | KubeletKey::EmptyIsUnset, Reload::Live) => " *k*",
        (KubeletKey::Shared | KubeletKey::EmptyIsUnset, Reload::Restart) => " *k* *r*",
    };
    let variable = spec.variable();
    let variable = variable.trim_start_matches("NODEPULSE_");
    let other = spec.other_variable;
    let other = other.map_or_else(String::new, |name| {
        format!(", then `{name}` without prefix")
    });
    format!(
        "| `{}`{marks} | {}; {} | `{variable}`{other} | {} | {} |",
        spec.name,
        form(spec.form),
        default(spec.preset),
        flag(spec),
        meaning(spec)
    )
}

/// Formats the help of a key as sentences.
pub fn meaning(spec: &KeySpec) -> String {
    format!("{}. {}", spec.help, spec.details).trim().to_owned()
}

fn flag(spec: &KeySpec) -> String {
    let alias = spec.alias.map(|alias| format!(", or `--{alias}`"));
    match spec.flag {
        Flag::None => String::new(),
        Flag::Switch | Flag::Value(_) => {
            format!("`--{}`{}", spec.flag_name(), alias.unwrap_or_default())
        }
    }
}

fn form(form: Form) -> String {
    match form {
        Form::One(value) => scalar(value, " or "),
        Form::List(value) => format!("list of {}", scalar(value, ", ")),
        Form::Map { names, value, .. } => {
            format!("map of {} to {}", names.of, scalar(value, " or "))
        }
        Form::Taints => "list of `{key, value, effect}`".to_owned(),
        Form::ConditionTaints => {
            "map of condition type to an effect or `{effect, key, value}`".to_owned()
        }
        Form::Disks => "map of disk to `{slow}`".to_owned(),
        Form::Webhooks(kind) => format!(
            "list of URLs or `{{url, headersFile, kinds}}`; kinds: {}",
            scalar(kind, ", ")
        ),
    }
}

/// Returns the name of a type, or its values with `last` before the last one.
fn scalar(scalar: Scalar, last: &str) -> String {
    let Json::Values(values) = scalar.json else {
        return scalar.name.to_owned();
    };
    let names: Vec<String> = values()
        .iter()
        .map(|value| quoted(value.get_name()))
        .collect();
    match names.split_last() {
        Some((end, rest)) => format!("{}{last}{end}", rest.join(", ")),
        None => String::new(),
    }
}

fn default(preset: Preset) -> String {
    match preset {
        Preset::None => "none".to_owned(),
        Preset::Text { text, .. } => quoted(text),
        Preset::List { texts, .. } => {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            texts.join(", ")
        }
        Preset::Signals { .. } => "by mode, see below".to_owned(),
        Preset::Derived(text) => text.to_owned(),
    }
}

fn signals() -> String {
    let mut table = "| signal | node mode | companion mode |\n|---|---|---|".to_owned();
    for spec in KEYS {
        if let Preset::Signals { node, companion } = spec.preset {
            for ((signal, node, _), (_, companion, _)) in node.iter().zip(companion) {
                let (signal, node, companion) = (quoted(signal), quoted(node), quoted(companion));
                table += &format!("\n| {signal} | {node} | {companion} |");
            }
        }
    }
    table
}

fn quoted(text: &str) -> String {
    format!("`{text}`")
}
