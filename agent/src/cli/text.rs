//! Answers of the daemon as text.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::explain::amount;
use crate::reading::Signal;

/// `value` as YAML, in the order of its keys. Strings are in double quotes, which YAML and JSON
/// parse alike.
pub(super) fn yaml(value: &Value) -> String {
    let mut text = String::new();
    write_yaml(&mut text, value, 0, Start::Line);
    text
}

/// Position of the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At the start of a line.
    Line,
    /// After `- `.
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

/// A key, unquoted if it can only be parsed as a string.
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

/// Each condition with its signals, causes and changes.
pub(super) fn explanation(answer: &Value) -> String {
    let mut text = String::new();
    let blocked = list(answer, "blockedCalls")
        .iter()
        .filter_map(Value::as_str);
    let blocked: Vec<_> = blocked.map(printable).collect();
    if !blocked.is_empty() {
        // Writing to a string cannot fail.
        let _written = writeln!(text, "Blocked file system calls: {}", blocked.join(", "));
    }
    for condition in list(answer, "conditions") {
        if !text.is_empty() {
            text.push('\n');
        }
        explain_condition(&mut text, condition);
    }
    text
}

fn explain_condition(text: &mut String, condition: &Value) {
    let field = |key| printable(text_of(condition, key));
    let mut line = |content: String| {
        text.push_str(&content);
        text.push('\n');
    };
    line(format!(
        "{} is {} ({})",
        field("type"),
        field("status"),
        field("reason")
    ));
    line(format!("  since {}: {}", field("since"), field("message")));
    match condition.get("onNode") {
        None => {}
        Some(Value::Null) => line("  on the Node: not set".to_owned()),
        Some(stored) => {
            let field = |key| printable(text_of(stored, key));
            line(format!(
                "  on the Node: {} ({}) since {}: {}",
                field("status"),
                field("reason"),
                field("since"),
                field("message")
            ));
        }
    }
    for signal in list(condition, "signals") {
        line(format!("  {}", signal_line(signal)));
    }
    for why in list(condition, "because") {
        line(format!(
            "  cause: {}",
            printable(why.as_str().unwrap_or_default())
        ));
    }
    for disk in list(condition, "unwatched") {
        line(format!(
            "  {} is not watched: its I/O statistics are off (queue/iostats)",
            printable(disk.as_str().unwrap_or_default())
        ));
    }
    for disk in list(condition, "disks") {
        let name = printable(text_of(disk, "name"));
        let of = match text_of(disk, "role") {
            "volume" => " (volumes of pods)",
            _ => "",
        };
        line(format!(
            "  disk {name}{of}: {}",
            printable(text_of(disk, "health"))
        ));
        for what in list(disk, "lines") {
            line(format!(
                "    {}",
                printable(what.as_str().unwrap_or_default())
            ));
        }
    }
    if condition.get("endsNotBefore").is_some() {
        line(format!(
            "  earliest end {}; extended while the threshold is exceeded",
            field("endsNotBefore")
        ));
    }
    for change in list(condition, "changes") {
        let field = |key| printable(text_of(change, key));
        let (at, from, to, why) = (field("at"), field("from"), field("to"), field("why"));
        line(format!("  {at}  {from} to {to}: {why}"));
    }
}

fn signal_line(signal: &Value) -> String {
    let name = printable(text_of(signal, "signal"));
    let number = |key| signal.get(key).and_then(Value::as_i64);
    let ago = number("secondsAgo").map_or_else(
        || "not sampled yet".to_owned(),
        |seconds| format!("{seconds} s ago"),
    );
    let (Some(available), Some(capacity), Some(threshold)) =
        (number("available"), number("capacity"), number("threshold"))
    else {
        let what = match signal.get("readable") {
            Some(Value::Bool(false)) => "cannot be read",
            None if name.starts_with("imagefs.") && signal.get("secondsAgo").is_some() => {
                "no separate file system"
            }
            Some(_) | None => "no value",
        };
        return format!("{name}: {what} ({ago})");
    };
    let below = match signal.get("below") {
        Some(Value::Bool(true)) => "below the ",
        Some(_) | None => "",
    };
    let how = match signal.get("computed").and_then(Value::as_str) {
        Some(computed) => Some(printable(computed)),
        None => percent(threshold, capacity).map(|percent| format!("{percent}%")),
    };
    let how = how.map_or_else(String::new, |how| format!(" ({how})"));
    let shown = |n| shown(&name, n);
    let (available, capacity, threshold) = (shown(available), shown(capacity), shown(threshold));
    format!("{name}: {available} of {capacity} available, {below}threshold {threshold}{how}, {ago}")
}

/// An amount of a signal with this name.
fn shown(name: &str, n: i64) -> String {
    let signal = Signal::ALL.into_iter().find(|one| one.as_str() == name);
    signal.map_or_else(|| n.to_string(), |signal| amount(signal, n))
}

/// A share of `whole`, rounded to percent.
fn percent(n: i64, whole: i64) -> Option<i128> {
    let (n, whole) = (i128::from(n), i128::from(whole));
    (n * 200 + whole).checked_div(whole * 2)
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    let found = of
        .as_object()
        .and_then(|map: &Map<String, Value>| map.get(key));
    found.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Removes control characters, which a terminal could interpret.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
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

    #[test]
    fn an_explanation_contains_no_control_characters() {
        let answer = json!({ "blockedCalls": ["nodefs", "disks"], "conditions": [{
            "type": "MemoryPressure", "status": "True", "reason": "Low", "message": "m\u{1b}[2J",
            "since": "t0",
            "signals": [
                { "signal": "memory.available", "available": 22_454_870_016_i64, "capacity": 25_276_502_016_i64,
                  "threshold": 1_263_825_100, "below": false, "secondsAgo": 3 },
                  { "signal": "allocatableMemory.available", "available": -5, "capacity": 1_000,
                  "threshold": 100, "below": true, "secondsAgo": 3 },
                { "signal": "memory.available", "available": 26_843_545_600_i64,
                  "capacity": 549_755_813_888_i64, "threshold": 2_147_483_648_i64, "below": false,
                  "computed": "min(5% of 512.0Gi, 2.0Gi)", "secondsAgo": 3 },
                { "signal": "nodefs.available" },
                { "signal": "imagefs.available", "secondsAgo": 4 },
                { "signal": "imagefs.inodesFree" },
                { "signal": "pid.available", "readable": false, "secondsAgo": 4 },
            ],
            "because": ["it was low"], "unwatched": ["sda\n"],
            "disks": [
                { "name": "vda", "role": "node", "health": "slow", "lines": ["late", "a\u{7}b"] },
                { "name": "vdb", "role": "volume", "health": "healthy", "lines": [] },
            ],
            "onNode": { "status": "False", "reason": "R", "message": "m", "since": "t4" },
            "changes": [{ "at": "t1", "from": "False", "to": "True", "why": "w" }],
            "endsNotBefore": "t2",
        }, { "type": "Ready", "status": "True", "reason": "R", "message": "m", "since": "t3" }] });
        let expected = "\
Blocked file system calls: nodefs, disks

MemoryPressure is True (Low)
  since t0: m[2J
  on the Node: False (R) since t4: m
  memory.available: 20.9Gi of 23.5Gi available, threshold 1.1Gi (5%), 3 s ago
  allocatableMemory.available: -5 of 1000 available, below the threshold 100 (10%), 3 s ago
  memory.available: 25.0Gi of 512.0Gi available, threshold 2.0Gi (min(5% of 512.0Gi, 2.0Gi)), 3 s ago
  nodefs.available: no value (not sampled yet)
  imagefs.available: no separate file system (4 s ago)
  imagefs.inodesFree: no value (not sampled yet)
  pid.available: cannot be read (4 s ago)
  cause: it was low
  sda is not watched: its I/O statistics are off (queue/iostats)
  disk vda: slow
    late
    ab
  disk vdb (volumes of pods): healthy
  earliest end t2; extended while the threshold is exceeded
  t1  False to True: w

Ready is True (R)
  since t3: m
";
        assert_eq!(explanation(&answer), expected);
    }
}
