//! Answers of a daemon as text for people.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// `value` as YAML, in the order of its keys. Texts stand in double quotes, where JSON and YAML mean
/// the same.
pub(super) fn yaml(value: &Value) -> String {
    let mut text = String::new();
    write_yaml(&mut text, value, 0, Start::Line);
    text
}

/// Where the next thing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At the begin of a line.
    Line,
    /// Behind `- `.
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

/// What stands behind a key.
fn below(text: &mut String, value: &Value, depth: usize) {
    let is_large = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if is_large {
        text.push('\n');
        // A list stands as far to the right as its key.
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

/// Plain where nothing could be made of it but a text.
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

/// Each condition with what it follows from.
pub(super) fn explanation(told: &Value) -> String {
    let mut text = String::new();
    let blocked = list(told, "blockedCalls").iter().filter_map(Value::as_str);
    let blocked: Vec<_> = blocked.map(printable).collect();
    if !blocked.is_empty() {
        // Writing to a string cannot fail.
        let _written = writeln!(
            text,
            "A file system does not answer; blocked calls: {}",
            blocked.join(", ")
        );
    }
    for condition in list(told, "conditions") {
        if !text.is_empty() {
            text.push('\n');
        }
        explain_one(&mut text, condition);
    }
    text
}

fn explain_one(text: &mut String, told: &Value) {
    let word = |key| printable(told.get(key).and_then(Value::as_str).unwrap_or_default());
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    line(format!(
        "{} is {} ({})",
        word("type"),
        word("status"),
        word("reason")
    ));
    line(format!("  since {}: {}", word("since"), word("message")));
    match told.get("onNode") {
        None => {}
        Some(Value::Null) => line("  the Node does not have it".to_owned()),
        Some(there) => {
            let word = |key| printable(there.get(key).and_then(Value::as_str).unwrap_or_default());
            line(format!(
                "  the Node says {} ({}) since {}: {}",
                word("status"),
                word("reason"),
                word("since"),
                word("message")
            ));
        }
    }
    for signal in list(told, "signals") {
        line(format!("  {}", signal_line(signal)));
    }
    for why in list(told, "because") {
        line(format!(
            "  because {}",
            printable(why.as_str().unwrap_or_default())
        ));
    }
    for disk in list(told, "unwatched") {
        line(format!(
            "  {} is not watched: its I/O statistics are off (queue/iostats)",
            printable(disk.as_str().unwrap_or_default())
        ));
    }
    if told.get("endsNotBefore").is_some() {
        line(format!(
            "  ends not before {}, later if it is over until then",
            word("endsNotBefore")
        ));
    }
    for change in list(told, "changes") {
        let word = |key| printable(change.get(key).and_then(Value::as_str).unwrap_or_default());
        let (at, from, to, why) = (word("at"), word("from"), word("to"), word("why"));
        line(format!("  {at}  {from} to {to}: {why}"));
    }
}

fn signal_line(signal: &Value) -> String {
    let name = printable(
        signal
            .get("signal")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    let number = |key| signal.get(key).and_then(Value::as_i64);
    let ago = number("secondsAgo").map_or_else(
        || "not looked at yet".to_owned(),
        |seconds| format!("{seconds} s ago"),
    );
    let (Some(available), Some(capacity), Some(threshold)) =
        (number("available"), number("capacity"), number("threshold"))
    else {
        let what = match signal.get("readable") {
            Some(Value::Bool(false)) => "cannot be read",
            Some(_) | None => "nothing to read",
        };
        return format!("{name}: {what} ({ago})");
    };
    let side = match signal.get("below") {
        Some(Value::Bool(true)) => "below",
        Some(_) | None => "not below",
    };
    let mut line = format!("{name}: {available} of {capacity}, {side} {threshold}");
    // Writing to a string cannot fail.
    let _written = write!(line, " ({ago})");
    line
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    let found = of
        .as_object()
        .and_then(|map: &Map<String, Value>| map.get(key));
    found.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Nothing in it can act on a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_says_what_json_does() {
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

    #[test]
    fn an_explanation_is_a_few_lines_that_no_name_can_disturb() {
        let told = json!({ "blockedCalls": ["nodefs", "disks"], "conditions": [{
            "type": "MemoryPressure", "status": "True", "reason": "Low", "message": "m\u{1b}[2J",
            "since": "t0",
            "signals": [
                { "signal": "memory.available", "available": -5, "capacity": 1_000,
                  "threshold": 100, "below": true, "secondsAgo": 3 },
                { "signal": "nodefs.available" },
                { "signal": "pid.available", "readable": false, "secondsAgo": 4 },
            ],
            "because": ["it was low"], "unwatched": ["sda\n"],
            "onNode": { "status": "False", "reason": "R", "message": "m", "since": "t4" },
            "changes": [{ "at": "t1", "from": "calm", "to": "pressure", "why": "w" }],
            "endsNotBefore": "t2",
        }, { "type": "Ready", "status": "True", "reason": "R", "message": "m", "since": "t3" }] });
        let expected = "\
A file system does not answer; blocked calls: nodefs, disks

MemoryPressure is True (Low)
  since t0: m[2J
  the Node says False (R) since t4: m
  memory.available: -5 of 1000, below 100 (3 s ago)
  nodefs.available: nothing to read (not looked at yet)
  pid.available: cannot be read (4 s ago)
  because it was low
  sda is not watched: its I/O statistics are off (queue/iostats)
  ends not before t2, later if it is over until then
  t1  calm to pressure: w

Ready is True (R)
  since t3: m
";
        assert_eq!(explanation(&told), expected);
    }
}
