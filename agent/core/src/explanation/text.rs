//! An explanation as text.

use super::{
    ExplainedCondition, ExplainedDisk, ExplainedKills, ExplainedShortage, ExplainedSignal,
    ExplainedSink, ExplainedStall, Explanation, OnNode, amount,
};
use crate::escape::{is_unsafe, quote};
use crate::node_status::setters::ready;
use crate::reading::Signal;

/// A line of text. It contains no control characters, whatever the document contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Begins a condition: `TYPE is STATUS (REASON) since TIME`.
    Condition {
        type_: String,
        status: String,
        tone: Tone,
        rest: String,
    },
    /// A sentence, to be indented by this many spaces, and its continuations by two more.
    Text {
        indent: usize,
        text: String,
    },
    Gap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Healthy,
    Unknown,
    Problem,
}

impl Explanation {
    /// Words each condition with its signals, causes and changes.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Lines(Vec::new());
        if !self.blocked_calls.is_empty() {
            let blocked = self.blocked_calls.join(", ");
            lines.text(0, &format!("Blocked file system calls: {blocked}"));
        }
        if !self.missing_credentials.is_empty() {
            let why = &self.missing_credentials;
            lines.text(0, &format!("No credentials for the API server: {why}"));
        }
        for ExplainedSink { name, lag, failing } in &self.sinks {
            let end = if *failing {
                "; the last attempt failed"
            } else {
                ""
            };
            lines.text(
                0,
                &format!("Sink {name}: {lag} revisions to be delivered{end}"),
            );
        }
        for condition in &self.conditions {
            if !lines.0.is_empty() {
                lines.0.push(Line::Gap);
            }
            lines.condition(condition);
        }
        lines.0
    }
}

struct Lines(Vec<Line>);

impl Lines {
    fn text(&mut self, indent: usize, text: &str) {
        let text = printable(text);
        self.0.push(Line::Text { indent, text });
    }

    fn condition(&mut self, condition: &ExplainedCondition) {
        self.heading(condition);
        self.text(2, &condition.message);
        self.on_node(condition);
        for signal in &condition.signals {
            self.signal(signal);
        }
        for stall in &condition.stalls {
            self.stall(stall);
        }
        if let Some(kills) = &condition.kills {
            self.kills(*kills);
        }
        for why in &condition.because {
            self.text(2, &format!("cause: {why}"));
        }
        for details in &condition.details {
            self.text(2, details);
        }
        for disk in &condition.unwatched {
            let why = "is not watched: its I/O statistics are off (queue/iostats)";
            self.text(2, &format!("{} {why}", quote(disk)));
        }
        for disk in condition.disks.iter().flatten() {
            self.disk(disk);
        }
        if let Some(at) = &condition.ends_not_before {
            let left = condition.ends_in_seconds;
            let left = left.map_or_else(String::new, |left| format!(", in {left} s"));
            let rule = "extended while the threshold is exceeded";
            self.text(2, &format!("earliest end {at}{left}; {rule}"));
        }
        for change in &condition.changes {
            let (at, from, to, why) = (&change.at, &change.from, &change.to, &change.why);
            self.text(2, &format!("{at} {from} to {to}: {why}"));
        }
    }

    fn heading(&mut self, condition: &ExplainedCondition) {
        let healthy = if condition.type_ == ready::TYPE {
            "True"
        } else {
            "False"
        };
        let rest = format!("({}) since {}", condition.reason, condition.since);
        self.0.push(Line::Condition {
            type_: printable(&condition.type_),
            status: printable(&condition.status),
            tone: match condition.status.as_str() {
                "Unknown" => Tone::Unknown,
                status if status == healthy => Tone::Healthy,
                _ => Tone::Problem,
            },
            rest: printable(&rest),
        });
    }

    fn on_node(&mut self, condition: &ExplainedCondition) {
        match &condition.on_node {
            OnNode::Same => {}
            OnNode::NotSet => self.text(2, "on the Node: not set"),
            OnNode::Different(stored) => {
                let (status, reason, since) = (&stored.status, &stored.reason, &stored.since);
                let message = &stored.message;
                let text = format!("on the Node: {status} ({reason}) since {since}: {message}");
                self.text(2, &text);
            }
        }
    }

    fn signal(&mut self, signal: &ExplainedSignal) {
        let name = &signal.signal;
        let ago = ago(signal.seconds_ago);
        let Some(reading) = signal.reading else {
            let what = match signal.readable {
                Some(false) => "cannot be read",
                None if name.starts_with("imagefs.") && signal.seconds_ago.is_some() => {
                    "no separate file system"
                }
                None if name.starts_with("allocatable") && signal.seconds_ago.is_some() => {
                    "no cgroup of the pods"
                }
                Some(true) | None => "no value",
            };
            return self.text(2, &format!("{name}: {what} ({ago})"));
        };
        let amount = |n| shown(name, n);
        let percent = percent(reading.available, reading.capacity);
        let percent = percent.map_or_else(String::new, |percent| format!(" ({percent}%)"));
        let has = amount(reading.available.into());
        let of = amount(reading.capacity.into());
        self.text(
            2,
            &format!("{name}: {has} of {of} available{percent}, {ago}"),
        );
        let below = if reading.below { "below the " } else { "" };
        let soft = match signal.strength.as_str() {
            "soft" => "soft ",
            _ => "",
        };
        let how = signal.computed.as_deref().unwrap_or("as configured");
        let threshold = amount(reading.threshold.into());
        self.text(4, &format!("{below}{soft}threshold {threshold}: {how}"));
        let before = signal.before.iter();
        let before = before.map(|sample| {
            let available = amount(sample.available.into());
            format!("{available} ({} s ago)", sample.seconds_ago)
        });
        let before: Vec<String> = before.collect();
        if !before.is_empty() {
            self.text(4, &format!("before: {}", before.join(", ")));
        }
    }

    fn stall(&mut self, stall: &ExplainedStall) {
        let name = format!("PSI some of {}, {}", stall.kind, stall.of);
        let ago = ago(stall.seconds_ago);
        match (stall.avg10, stall.avg60) {
            (Some(avg10), Some(avg60)) => {
                self.text(2, &format!("{name}: avg10 {avg10}%, avg60 {avg60}%, {ago}"));
            }
            _ => self.text(2, &format!("{name}: {ago}")),
        }
        let rule = "starts if both averages reach it, ends if avg60 is below";
        self.text(4, &format!("threshold {}%: {rule}", stall.threshold));
        if let Some(shortage) = &stall.shortage {
            self.shortage(shortage);
        }
    }

    fn shortage(&mut self, shortage: &ExplainedShortage) {
        if let Some(reclaim) = &shortage.reclaim {
            let ago = ago(Some(shortage.seconds_ago));
            self.text(4, &format!("{reclaim}, {ago}"));
        }
        if !shortage.units.is_empty() {
            let units = shortage.units.join(", ");
            self.text(4, &format!("waiting most: {units}"));
        }
        if let Some(why) = &shortage.withheld {
            self.text(4, &format!("not a condition of the node: {why}"));
        }
    }

    fn kills(&mut self, kills: ExplainedKills) {
        let window = kills.window_seconds;
        let incidents = format!("{} of {}", kills.incidents, kills.incidents_threshold);
        let pods = format!("{} of {} different pods", kills.pods, kills.pods_threshold);
        let text = format!("OOM incidents in the last {window} s: {incidents}, in {pods}");
        self.text(2, &text);
    }

    fn disk(&mut self, disk: &ExplainedDisk) {
        let of = match disk.role.as_str() {
            "volume" => " (other volumes)",
            _ => "",
        };
        let name = quote(&disk.name);
        self.text(2, &format!("disk {name}{of}: {}", disk.health));
        for line in &disk.lines {
            self.text(4, line);
        }
    }
}

fn ago(seconds: Option<u64>) -> String {
    seconds.map_or_else(
        || "not sampled yet".to_owned(),
        |seconds| format!("{seconds} s ago"),
    )
}

/// Formats an amount of the signal with this name.
fn shown(name: &str, n: i128) -> String {
    let signal = Signal::ALL.into_iter().find(|one| one.as_str() == name);
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    signal.map_or_else(|| n.to_string(), |signal| amount(signal, n))
}

/// Returns the share of `whole`, rounded to percent.
fn percent(n: i64, whole: u64) -> Option<i128> {
    let (n, whole) = (i128::from(n), i128::from(whole));
    (n * 200 + whole).checked_div(whole * 2)
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
    fn the_text_has_every_value_and_no_control_characters() {
        let answer = json!({ "node": "n", "at": "t", "transitionPeriodSeconds": 300,
            "missingCredentials": "", "blockedCalls": ["nodefs", "disks"],
            "sinks": [{"name": "otlp", "lag": 3, "failing": true}], "conditions": [{
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
Sink otlp: 3 revisions to be delivered; the last attempt failed

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
  disk \"v: healthy\" (other volumes): healthy
  earliest end t2, in 285 s; extended while the threshold is exceeded
  t1 False to True: w

Ready is True (R) since t3
  m
";
        let answer: Explanation = serde_json::from_value(answer).unwrap();
        let lines = answer.lines();
        assert_eq!(lines.iter().map(plain).collect::<String>(), expected);
        let tones = lines.iter().filter_map(|line| match line {
            Line::Condition { tone, .. } => Some(*tone),
            Line::Text { .. } | Line::Gap => None,
        });
        let tones: Vec<_> = tones.collect();
        assert_eq!(
            tones,
            [Tone::Problem, Tone::Healthy],
            "Ready is healthy if True"
        );
    }

    fn plain(line: &Line) -> String {
        match line {
            Line::Condition {
                type_,
                status,
                rest,
                ..
            } => format!("{type_} is {status} {rest}\n"),
            Line::Text { indent, text } => format!("{}{text}\n", " ".repeat(*indent)),
            Line::Gap => "\n".to_owned(),
        }
    }
}
