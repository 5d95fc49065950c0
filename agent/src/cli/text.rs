//! Answers of the daemon as YAML.

use serde_json::Value;

/// Formats `value` as YAML, in the order of its keys. Strings are in double quotes, which YAML and
/// JSON parse alike.
pub(super) fn yaml(value: &Value) -> String {
    let mut text = String::new();
    write_yaml(&mut text, value, 0, Start::Line);
    text
}

/// Position of the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Line,
    /// Position after `- `.
    Element,
}

fn write_yaml(text: &mut String, value: &Value, depth: usize, start: Start) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (n, (key, value)) in map.iter().enumerate() {
                if start == Start::Line || n > 0 {
                    indent(text, depth);
                }
                text.push_str(&key_text(key));
                text.push(':');
                below(text, value, depth);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (n, value) in list.iter().enumerate() {
                if start == Start::Line || n > 0 {
                    indent(text, depth);
                }
                text.push_str("- ");
                write_yaml(text, value, depth + 1, Start::Element);
            }
        }
        scalar => {
            text.push_str(&scalar.to_string());
            text.push('\n');
        }
    }
}

/// Writes the value of a key.
fn below(text: &mut String, value: &Value, depth: usize) {
    let is_large = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if is_large {
        text.push('\n');
        // A list has the indentation of its key.
        let depth = depth + usize::from(value.is_object());
        write_yaml(text, value, depth, Start::Line);
    } else {
        text.push(' ');
        write_yaml(text, value, depth, Start::Line);
    }
}

fn indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

/// Formats a key, unquoted if it can only be parsed as a string.
fn key_text(key: &str) -> String {
    let plain = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.len() > 3
        && !["null", "true", "false"].contains(&key.to_ascii_lowercase().as_str())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-./".contains(c));
    if plain || key == "cpu" {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_has_the_content_of_the_json() {
        let value = json!({
            "capacity": { "cpu": "8", "example.com/gpu": "2" },
            "conditions": [
                { "type": "Ready", "message": "a: \"b\"\n\u{1b}# c" },
                { "list": ["yes", 1, true, null] },
            ],
            "empty": {}, "none": [], "nested": [[1, 2], []],
            "yes": "no", "": "", "1e3": 1, "null": 2,
        });
        let text = yaml(&value);
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, value, "{text}");
        assert!(text.starts_with("\"\": \"\"\n"), "{text}");
        assert!(text.contains("\nconditions:\n- message: \"a: "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
