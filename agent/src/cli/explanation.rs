//! The daemon's explanation of its conditions as text.

use nodepulse_core::escape::{is_unsafe, quote};
use nodepulse_core::explain::amount;
use nodepulse_core::node_status::setters::ready;
use nodepulse_core::reading::Signal;
use serde_json::{Map, Value};

use super::terminal::{Paint, Style, wrap};

/// Width without a terminal.
const WIDTH: usize = 80;

/// Each condition with its signals, causes and changes.
pub(super) fn text(answer: &Value, style: Style) -> String {
    let mut page = Page {
        out: String::new(),
        style,
        width: style.prose().unwrap_or(WIDTH),
    };
    let blocked: Vec<String> = strings(answer, "blockedCalls").collect();
    if !blocked.is_empty() {
        page.line(
            0,
            &format!("Blocked file system calls: {}", blocked.join(", ")),
        );
    }
    let missing = answer.get("missingCredentials").and_then(Value::as_str);
    if let Some(why) = missing.filter(|why| !why.is_empty()) {
        page.line(0, &format!("No credentials for the API server: {why}"));
    }
    for condition in list(answer, "conditions") {
        if !page.out.is_empty() {
            page.out.push('\n');
        }
        page.condition(condition);
    }
    page.out
}

/// The output so far.
struct Page {
    out: String,
    style: Style,
    width: usize,
}

impl Page {
    /// A line, whose continuations are indented further.
    fn line(&mut self, indent: usize, text: &str) {
        let mut wrapped = String::new();
        wrap(&mut wrapped, text, indent, indent + 2, self.width);
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.out.push_str(wrapped.trim_start());
    }

    fn condition(&mut self, condition: &Value) {
        self.heading(condition);
        self.line(2, &field(condition, "message"));
        self.on_node(condition);
        for signal in list(condition, "signals") {
            self.signal(signal);
        }
        for stall in list(condition, "stalls") {
            self.stall(stall);
        }
        if let Some(kills) = condition.get("kills") {
            self.kills(kills);
        }
        for why in strings(condition, "because") {
            self.line(2, &format!("cause: {why}"));
        }
        for details in strings(condition, "details") {
            self.line(2, &details);
        }
        for disk in list(condition, "unwatched") {
            let disk = quote(disk.as_str().unwrap_or_default());
            let why = "is not watched: its I/O statistics are off (queue/iostats)";
            self.line(2, &format!("{disk} {why}"));
        }
        for disk in list(condition, "disks") {
            self.disk(disk);
        }
        self.end(condition);
        for change in list(condition, "changes") {
            let [at, from, to, why] = ["at", "from", "to", "why"].map(|key| field(change, key));
            self.line(2, &format!("{at} {from} to {to}: {why}"));
        }
    }

    fn heading(&mut self, condition: &Value) {
        let [type_, status, reason, since] =
            ["type", "status", "reason", "since"].map(|key| field(condition, key));
        let healthy = if type_ == ready::TYPE {
            "True"
        } else {
            "False"
        };
        let color = match status.as_str() {
            "Unknown" => Paint::Yellow,
            status if status == healthy => Paint::Green,
            _ => Paint::Red,
        };
        let (type_, status) = (
            self.style.paint(Paint::Bold, &type_),
            self.style.paint(color, &status),
        );
        // Not wrapped: colors have no width.
        let line = format!("{type_} is {status} ({reason}) since {since}\n");
        self.out.push_str(&line);
    }

    fn on_node(&mut self, condition: &Value) {
        match condition.get("onNode") {
            None => {}
            Some(Value::Null) => self.line(2, "on the Node: not set"),
            Some(stored) => {
                let [status, reason, since, message] =
                    ["status", "reason", "since", "message"].map(|key| field(stored, key));
                let text = format!("on the Node: {status} ({reason}) since {since}: {message}");
                self.line(2, &text);
            }
        }
    }

    fn signal(&mut self, signal: &Value) {
        let name = field(signal, "signal");
        let number = |key| signal.get(key).and_then(Value::as_i64);
        let ago = ago(signal);
        let (Some(available), Some(capacity), Some(threshold)) =
            (number("available"), number("capacity"), number("threshold"))
        else {
            let what = match signal.get("readable") {
                Some(Value::Bool(false)) => "cannot be read",
                None if name.starts_with("imagefs.") && signal.get("secondsAgo").is_some() => {
                    "no separate file system"
                }
                None if name.starts_with("allocatable") && signal.get("secondsAgo").is_some() => {
                    "no cgroup of the pods"
                }
                Some(_) | None => "no value",
            };
            return self.line(2, &format!("{name}: {what} ({ago})"));
        };
        let amount = |n| shown(&name, n);
        let percent = percent(available, capacity);
        let percent = percent.map_or_else(String::new, |percent| format!(" ({percent}%)"));
        let (has, of) = (amount(available), amount(capacity));
        self.line(
            2,
            &format!("{name}: {has} of {of} available{percent}, {ago}"),
        );
        let below = match signal.get("below") {
            Some(Value::Bool(true)) => "below the ",
            Some(_) | None => "",
        };
        let soft = match signal.get("strength").and_then(Value::as_str) {
            Some("soft") => "soft ",
            Some(_) | None => "",
        };
        let how = match signal.get("computed").and_then(Value::as_str) {
            Some(computed) => printable(computed),
            None => "as configured".to_owned(),
        };
        self.line(
            4,
            &format!("{below}{soft}threshold {}: {how}", amount(threshold)),
        );
        let before = list(signal, "before").iter().filter_map(|sample| {
            let available = sample.get("available").and_then(Value::as_i64)?;
            let seconds = sample.get("secondsAgo").and_then(Value::as_i64)?;
            Some(format!("{} ({seconds} s ago)", amount(available)))
        });
        let before: Vec<String> = before.collect();
        if !before.is_empty() {
            self.line(4, &format!("before: {}", before.join(", ")));
        }
    }

    fn stall(&mut self, stall: &Value) {
        let number = |key| stall.get(key).and_then(Value::as_f64);
        let [of, kind] = ["of", "kind"].map(|key| field(stall, key));
        let name = format!("PSI some of {kind}, {of}");
        let threshold = number("threshold").unwrap_or_default();
        match (number("avg10"), number("avg60")) {
            (Some(avg10), Some(avg60)) => self.line(
                2,
                &format!("{name}: avg10 {avg10}%, avg60 {avg60}%, {}", ago(stall)),
            ),
            _ => self.line(2, &format!("{name}: {}", ago(stall))),
        }
        let rule = "starts if both averages reach it, ends if avg60 is below";
        self.line(4, &format!("threshold {threshold}%: {rule}"));
        if let Some(shortage) = stall.get("shortage") {
            self.shortage(shortage);
        }
    }

    fn shortage(&mut self, shortage: &Value) {
        if let Some(reclaim) = shortage.get("reclaim").and_then(Value::as_str) {
            self.line(4, &format!("{reclaim}, {}", ago(shortage)));
        }
        let units = list(shortage, "units").iter().filter_map(Value::as_str);
        let units: Vec<&str> = units.collect();
        if !units.is_empty() {
            self.line(4, &format!("waiting most: {}", units.join(", ")));
        }
        if let Some(why) = shortage.get("withheld").and_then(Value::as_str) {
            self.line(4, &format!("not a condition of the node: {why}"));
        }
    }

    fn kills(&mut self, kills: &Value) {
        let number = |key| kills.get(key).and_then(Value::as_u64).unwrap_or_default();
        let [incidents, pods] = ["incidents", "pods"].map(number);
        let [most, of_pods] = ["incidentsThreshold", "podsThreshold"].map(number);
        let window = number("windowSeconds");
        self.line(
            2,
            &format!(
                "OOM incidents in the last {window} s: {incidents} of {most}, in {pods} of {of_pods} \
                 different pods"
            ),
        );
    }

    fn disk(&mut self, disk: &Value) {
        let of = match disk.get("role").and_then(Value::as_str) {
            Some("volume") => " (volumes of pods)",
            Some(_) | None => "",
        };
        let name = quote(disk.get("name").and_then(Value::as_str).unwrap_or_default());
        let health = field(disk, "health");
        self.line(2, &format!("disk {name}{of}: {health}"));
        for what in strings(disk, "lines") {
            self.line(4, &what);
        }
    }

    fn end(&mut self, condition: &Value) {
        if condition.get("endsNotBefore").is_none() {
            return;
        }
        let left = condition.get("endsInSeconds").and_then(Value::as_u64);
        let left = left.map_or_else(String::new, |left| format!(", in {left} s"));
        let at = field(condition, "endsNotBefore");
        let text = format!("earliest end {at}{left}; extended while the threshold is exceeded");
        self.line(2, &text);
    }
}

fn ago(of: &Value) -> String {
    let seconds = of.get("secondsAgo").and_then(Value::as_i64);
    seconds.map_or_else(
        || "not sampled yet".to_owned(),
        |seconds| format!("{seconds} s ago"),
    )
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

/// A text that can be printed.
fn field(value: &Value, key: &str) -> String {
    printable(value.get(key).and_then(Value::as_str).unwrap_or_default())
}

/// The texts in a list.
fn strings<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = String> + use<'a> {
    list(of, key)
        .iter()
        .filter_map(Value::as_str)
        .map(printable)
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    let found = of
        .as_object()
        .and_then(|map: &Map<String, Value>| map.get(key));
    found.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Removes control characters, which a terminal could interpret, and invisible ones.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !is_unsafe(*c)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_fits_80_columns_and_contains_no_control_characters() {
        let answer = json!({ "blockedCalls": ["nodefs", "disks"], "conditions": [{
            "type": "MemoryPressure", "status": "True", "reason": "Low", "message": "m\u{1b}[2J\u{202e}",
            "since": "t0",
            "signals": [
                { "signal": "memory.available", "available": 22_454_870_016_i64,
                  "capacity": 25_276_502_016_i64, "threshold": 1_263_825_100, "below": false,
                  "computed": "5% of 23.5Gi", "secondsAgo": 3,
                  "before": [{ "available": 22_454_870_016_i64, "secondsAgo": 13 },
                             { "available": 1_263_825_100, "secondsAgo": 23 }] },
                { "signal": "allocatableMemory.available", "available": -5, "capacity": 1_000,
                  "threshold": 100, "below": true, "strength": "soft", "secondsAgo": 3 },
                { "signal": "nodefs.available" },
                { "signal": "imagefs.available", "secondsAgo": 4 },
                { "signal": "imagefs.inodesFree" },
                { "signal": "pid.available", "readable": false, "secondsAgo": 4 },
            ],
            "stalls": [{ "of": "node", "kind": "memory", "threshold": 15.0, "avg10": 1.25,
                         "avg60": 0.5, "secondsAgo": 4, "shortage": {
                             "reclaim": "reclaimed", "units": ["a", "b"], "withheld": "why",
                             "secondsAgo": 5 } },
                       { "of": "pods", "kind": "io", "threshold": 40.0 }],
            "kills": { "incidents": 3, "incidentsThreshold": 5, "pods": 2, "podsThreshold": 3,
                       "windowSeconds": 600 },
            "because": ["it was low, which is a sentence that is longer than a line can be"],
            "details": ["most tasks: pod a/b (64)"],
            "unwatched": ["sda\n"],
            "disks": [
                { "name": "vda", "role": "node", "health": "slow", "lines": ["late", "a\u{7}b"] },
                { "name": "v: healthy", "role": "volume", "health": "healthy", "lines": [] },
            ],
            "onNode": { "status": "False", "reason": "R", "message": "m", "since": "t4" },
            "changes": [{ "at": "t1", "from": "False", "to": "True", "why": "w" }],
            "endsNotBefore": "t2", "endsInSeconds": 285,
        }, { "type": "Ready", "status": "True", "reason": "R", "message": "m", "since": "t3" }] });
        let expected = "\
Blocked file system calls: nodefs, disks

MemoryPressure is True (Low) since t0
  m[2J
  on the Node: False (R) since t4: m
  memory.available: 20.9Gi of 23.5Gi available (89%), 3 s ago
    threshold 1.1Gi: 5% of 23.5Gi
    before: 20.9Gi (13 s ago), 1.1Gi (23 s ago)
  allocatableMemory.available: -5 of 1000 available (0%), 3 s ago
    below the soft threshold 100: as configured
  nodefs.available: no value (not sampled yet)
  imagefs.available: no separate file system (4 s ago)
  imagefs.inodesFree: no value (not sampled yet)
  pid.available: cannot be read (4 s ago)
  PSI some of memory, node: avg10 1.25%, avg60 0.5%, 4 s ago
    threshold 15%: starts if both averages reach it, ends if avg60 is below
    reclaimed, 5 s ago
    waiting most: a, b
    not a condition of the node: why
  PSI some of io, pods: not sampled yet
    threshold 40%: starts if both averages reach it, ends if avg60 is below
  OOM incidents in the last 600 s: 3 of 5, in 2 of 3 different pods
  cause: it was low, which is a sentence that is longer than a line can be
  most tasks: pod a/b (64)
  sda\\n is not watched: its I/O statistics are off (queue/iostats)
  disk vda: slow
    late
    ab
  disk \"v: healthy\" (volumes of pods): healthy
  earliest end t2, in 285 s; extended while the threshold is exceeded
  t1 False to True: w

Ready is True (R) since t3
  m
";
        assert_eq!(text(&answer, Style::PLAIN), expected);
        let narrow = Style {
            width: Some(50),
            ..Style::PLAIN
        };
        let lines = text(&answer, narrow);
        assert!(lines.contains("\n  cause: it was low, which is a sentence that is\n    longer"));
        assert!(
            lines.lines().all(|line| line.chars().count() <= 50),
            "{lines}"
        );
        let colors = Style {
            colors: true,
            ..Style::PLAIN
        };
        let colored = text(&answer, colors);
        assert!(
            colored.contains("is \u{1b}[1;31mTrue\u{1b}[0m (Low)"),
            "{colored}"
        );
        assert!(
            colored.contains("is \u{1b}[1;32mTrue\u{1b}[0m (R)"),
            "{colored}"
        );
    }
}
