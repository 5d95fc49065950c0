//! Reads and writes YAML, through JSON values. Keys are sorted, as by Helm's `toYaml`.

use anyhow::Result;
use serde_json::Value;

/// One document.
pub fn parse(text: &str) -> Result<Value> {
    Ok(serde_saphyr::from_str(text)?)
}

/// In block style, without a line end behind the last line.
pub fn text(value: &Value) -> String {
    let mut lines = Vec::new();
    block(value, &mut lines);
    lines.join("\n")
}

fn block(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                match nested(value) {
                    None => lines.push(format!("{}: {}", plain(key), scalar(value))),
                    Some(inner) => {
                        lines.push(format!("{}:", plain(key)));
                        lines.extend(inner.iter().map(|line| format!("  {line}")));
                    }
                }
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                let inner = nested(value).unwrap_or_else(|| vec![scalar(value)]);
                for (n, line) in inner.iter().enumerate() {
                    let mark = if n == 0 { "- " } else { "  " };
                    lines.push(format!("{mark}{line}"));
                }
            }
        }
        other => lines.push(scalar(other)),
    }
}

/// Its lines, if it does not fit after its key.
fn nested(value: &Value) -> Option<Vec<String>> {
    let fits = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    (!fits).then(|| {
        let mut lines = Vec::new();
        block(value, &mut lines);
        lines
    })
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        // JSON is YAML: numbers, booleans, null, and what is empty.
        other => other.to_string(),
    }
}

/// Without quotes only if no parser could take it for another type.
fn plain(text: &str) -> String {
    const WORDS: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "y"];
    let ordinary = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let safe = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(ordinary)
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
        && text != "n";
    if safe {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}
