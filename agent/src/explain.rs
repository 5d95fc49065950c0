//! PURE: why each condition has its status.
//!
//! Records the last reading of each signal and the last changes. Decides nothing.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::clock::{BootNanos, Now};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::{Condition, Disks, NodeStatus, Status, setters};
use crate::pressure::Pressure;
use crate::pressure::change::{PressureChange, PressureReason};
use crate::pressure::disks::DiskDetails;
use crate::pressure::evaluate::Evaluator;
use crate::pressure::oom::Grounds;
use crate::pressure::sample::Sample;
use crate::pressure::stall::StallChange;
use crate::pressure::threshold::{Strength, Threshold, ThresholdValue};
use crate::reading::{Ground, Resource, Signal, Stall};
use crate::units::Bytes;

mod disks;

/// Number of recorded changes of all conditions; the oldest is dropped first.
const CHANGES: usize = 64;

/// Recorded samples and changes.
#[derive(Debug, Default)]
pub struct Journal {
    /// The last sample of each signal, with its time.
    samples: BTreeMap<Signal, (Sample, BootNanos)>,
    changes: VecDeque<JournalEntry>,
}

#[derive(Debug)]
struct JournalEntry {
    at: SystemTime,
    ground: Ground,
    from: Pressure,
    to: Pressure,
    why: String,
}

/// State at the time of the request.
#[derive(Debug, Clone, Copy)]
pub struct CurrentState<'a> {
    /// Name of the Node.
    pub node: &'a str,
    /// Thresholds and states.
    pub evaluator: &'a Evaluator,
    /// States of the stalls.
    pub stalls: &'a BTreeMap<Stall, Pressure>,
    /// The conditions in the last answer of the API server; `None` before the first.
    pub on_node: Option<&'a [Condition]>,
    /// Unhealthy disks, and disks that are not watched.
    pub disks: &'a Disks,
    /// Every watched disk.
    pub disk_details: &'a [DiskDetails],
    /// `evictionPressureTransitionPeriod`.
    pub transition_period: Duration,
    /// Purposes of blocked calls.
    pub blocked: &'a [&'static str],
    /// Time of the request.
    pub now: Now,
    /// Formats a time.
    pub time: fn(SystemTime) -> String,
}

impl Journal {
    /// Records samples.
    pub fn record_samples(&mut self, samples: &[Sample], now: BootNanos) {
        for sample in samples {
            self.samples.insert(sample.signal(), (*sample, now));
        }
    }

    /// Records a state change of a resource.
    pub fn record_change(&mut self, change: &PressureChange, at: SystemTime) {
        let why = describe(&change.reason);
        self.push(
            Ground::Resource(change.resource),
            (change.from, change.to),
            why,
            at,
        );
    }

    /// Records a state change of a stall.
    pub fn record_stall_change(&mut self, change: &StallChange, at: SystemTime) {
        let why = match change.to {
            Pressure::Unknown => "the pressure file cannot be read".to_owned(),
            Pressure::Normal => {
                "the threshold was not exceeded for the transition period".to_owned()
            }
            Pressure::UnderPressure { .. } => {
                "stall time (avg10 and avg60) exceeded the threshold".to_owned()
            }
        };
        self.push(
            Ground::Stall(change.stall),
            (change.from, change.to),
            why,
            at,
        );
    }

    fn push(
        &mut self,
        ground: Ground,
        (from, to): (Pressure, Pressure),
        why: String,
        at: SystemTime,
    ) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(JournalEntry {
            at,
            ground,
            from,
            to,
            why,
        });
    }

    /// The stored condition if it differs from the desired one; null if it does not exist.
    fn difference(condition: &Condition, current: CurrentState<'_>) -> Option<Value> {
        let all = current.on_node?;
        let stored = all.iter().find(|stored| stored.type_ == condition.type_);
        let content = |c: &Condition| (c.status, c.reason.clone(), c.message.clone());
        if stored.map(content) == Some(content(condition)) {
            return None;
        }
        Some(stored.map_or(Value::Null, |stored| {
            json!({
                "status": stored.status.as_str(),
                "reason": stored.reason,
                "message": stored.message,
                "since": (current.time)(stored.last_transition_time),
            })
        }))
    }

    /// Explains every condition of `status`.
    pub fn explain(&self, status: &NodeStatus, current: CurrentState<'_>) -> Value {
        let conditions = status.conditions.iter();
        let conditions: Vec<Value> = conditions
            .map(|condition| self.condition(condition, current))
            .collect();
        json!({
            "node": current.node,
            "at": (current.time)(current.now.wall),
            "transitionPeriodSeconds": current.transition_period.as_secs(),
            "blockedCalls": current.blocked,
            "conditions": conditions,
        })
    }

    fn condition(&self, condition: &Condition, current: CurrentState<'_>) -> Value {
        let grounds = grounds(&condition.type_);
        let mut explanation = Map::new();
        let mut insert = |key: &str, value: Value| explanation.insert(key.to_owned(), value);
        insert("type", json!(condition.type_));
        insert("status", json!(condition.status.as_str()));
        insert("reason", json!(condition.reason));
        insert("message", json!(condition.message));
        insert(
            "since",
            json!((current.time)(condition.last_transition_time)),
        );
        if let Some(difference) = Self::difference(condition, current) {
            insert("onNode", difference);
        }
        let thresholds = current.evaluator.thresholds();
        let about = |threshold: &&Threshold| {
            grounds.contains(&Ground::Resource(threshold.signal.resource()))
        };
        let signals: Vec<Value> = thresholds
            .filter(about)
            .map(|threshold| self.signal(threshold, current.now.boot))
            .collect();
        insert("signals", Value::Array(signals));
        let causes = grounds.iter().filter_map(|ground| match ground {
            Ground::Resource(resource) => current.evaluator.cause(*resource),
            Ground::Stall(_) => None,
        });
        let causes: Vec<String> = causes.map(|reason| describe(&reason)).collect();
        insert("because", json!(causes));
        let unwatched = &current.disks.unwatched;
        if grounds.contains(&Ground::Resource(Resource::DiskIo)) && !unwatched.is_empty() {
            insert("unwatched", json!(unwatched));
        }
        for ground in &grounds {
            if let Ground::Resource(resource) = ground
                && let Some(disks) = disks::explain(*resource, current.disk_details)
            {
                insert("disks", Value::Array(disks));
            }
        }
        let changes = self.changes.iter().rev();
        let changes = changes.filter(|entry| grounds.contains(&entry.ground));
        let changes: Vec<Value> = changes.map(|entry| change(entry, current)).collect();
        insert("changes", Value::Array(changes));
        if condition.status == Status::True
            && let Some(end) = earliest_end(&grounds, current)
        {
            insert("endsNotBefore", json!((current.time)(end)));
        }
        Value::Object(explanation)
    }

    fn signal(&self, threshold: &Threshold, now: BootNanos) -> Value {
        let mut explanation = json!({
            "signal": threshold.signal.as_str(),
            "strength": match threshold.strength {
                Strength::Hard => "hard",
                Strength::Soft => "soft",
            },
        });
        let more = match self.samples.get(&threshold.signal) {
            Some((Sample::Read(reading), at)) => json!({
                "available": reading.available,
                "capacity": reading.capacity,
                "threshold": threshold.value.amount(reading.capacity),
                "below": threshold.is_met(reading),
                "secondsAgo": now.since(*at).as_secs(),
            }),
            Some((Sample::Absent(_), at)) => json!({ "secondsAgo": now.since(*at).as_secs() }),
            Some((Sample::Missing(_), at)) => json!({
                "readable": false,
                "secondsAgo": now.since(*at).as_secs(),
            }),
            None => json!({}),
        };
        if let (Value::Object(explanation), Value::Object(more)) = (&mut explanation, more) {
            explanation.extend(more);
            let computed = self.computation(threshold);
            explanation.extend(computed.map(|how| ("computed".to_owned(), json!(how))));
        }
        explanation
    }

    /// How a threshold with a cap is computed from the capacity.
    fn computation(&self, threshold: &Threshold) -> Option<String> {
        match (threshold.value, self.samples.get(&threshold.signal)?) {
            (ThresholdValue::Capped { .. }, (Sample::Read(reading), _))
                if threshold.signal.is_in_bytes() =>
            {
                let capacity = Bytes::from_bytes(reading.capacity);
                threshold.value.computation(capacity)
            }
            _ => None,
        }
    }
}

/// The earliest end of a True condition.
fn earliest_end(grounds: &[Ground], current: CurrentState<'_>) -> Option<SystemTime> {
    let exceeded = grounds.iter().filter_map(|ground| {
        let pressure = match ground {
            Ground::Resource(resource) => current.evaluator.pressure(*resource),
            Ground::Stall(stall) => *current.stalls.get(stall)?,
        };
        match pressure {
            Pressure::UnderPressure { last_exceeded } => Some(last_exceeded),
            Pressure::Unknown | Pressure::Normal => None,
        }
    });
    let end = exceeded.max()?.plus(current.transition_period);
    // A state that is reported only when it changes lasts at least until now.
    Some(current.now.wall_at(end.max(current.now.boot)))
}

fn grounds(type_: &str) -> Vec<Ground> {
    let Some(condition) = NodepulseCondition::parse(type_) else {
        return setters::resource(type_)
            .map(Ground::Resource)
            .into_iter()
            .collect();
    };
    let pods = (condition == NodepulseCondition::PidsLow).then_some(Resource::PodsPids);
    let resources = condition.resource().into_iter().chain(pods);
    let stall = condition.stall().map(Ground::Stall);
    resources.map(Ground::Resource).chain(stall).collect()
}

fn change(entry: &JournalEntry, current: CurrentState<'_>) -> Value {
    json!({
        "at": (current.time)(entry.at),
        "from": state(entry.from),
        "to": state(entry.to),
        "why": entry.why,
    })
}

const fn state(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::Unknown => Status::Unknown.as_str(),
        Pressure::Normal => Status::False.as_str(),
        Pressure::UnderPressure { .. } => Status::True.as_str(),
    }
}

fn describe(reason: &PressureReason) -> String {
    let text = match reason {
        PressureReason::Threshold {
            signal,
            available,
            threshold,
            ..
        } => {
            let threshold = i64::try_from(*threshold).unwrap_or(i64::MAX);
            return format!(
                "{} was {}, below the threshold {}",
                signal.as_str(),
                amount(*signal, *available),
                amount(*signal, threshold),
            );
        }
        PressureReason::Unresolved {
            signal, available, ..
        } => {
            return format!(
                "{} was {}, below the threshold plus its minimum reclaim",
                signal.as_str(),
                amount(*signal, *available),
            );
        }
        PressureReason::SlowDisk => "slow disk",
        PressureReason::StalledDisk => "stalled disk: requests do not complete",
        PressureReason::DiskErrors => "a disk returned errors",
        PressureReason::ReadOnlyFilesystem => "a file system became read-only",
        PressureReason::OomKill(Grounds::ConfirmedGlobal) => {
            "the kernel killed a process because the node was out of memory"
        }
        PressureReason::OomKill(Grounds::PodsLimit) => {
            "the kernel killed a process at the limit of all pods"
        }
        PressureReason::Stored => "the condition was True at the API server when the agent started",
        PressureReason::Below => "no threshold was exceeded for the whole transition period",
        PressureReason::Restored => "a threshold was exceeded before the agent restarted",
        PressureReason::Unwatched => "the disk is no longer watched",
        PressureReason::SourceLost => "a required source cannot be read",
    };
    text.to_owned()
}

/// An amount of `signal` for people: `63.9Mi`, or a number of inodes or pids.
pub fn amount(signal: Signal, n: i64) -> String {
    if !signal.is_in_bytes() {
        return n.to_string();
    }
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes::from_bytes(n.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::{Policy, SlowDisks};
    use crate::reading::{Reading, StallKind, StallOf};

    const PERIOD: Duration = Duration::from_mins(5);

    fn at(seconds: u64) -> Now {
        Now {
            boot: BootNanos(seconds * 1_000_000_000),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + seconds),
        }
    }

    fn seconds(time: SystemTime) -> String {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        since.as_secs().to_string()
    }

    fn memory(available: i64) -> Sample {
        Sample::Read(Reading {
            signal: Signal::MemoryAvailable,
            available,
            capacity: 1_000,
        })
    }

    fn condition(type_: &str, status: Status) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status,
            reason: "Reason".to_owned(),
            message: "message".to_owned(),
            last_transition_time: at(0).wall,
            last_heartbeat_time: at(0).wall,
        }
    }

    #[test]
    fn an_explanation_has_signals_causes_changes_and_the_earliest_end() {
        let threshold = |text| Threshold::parse("memory.available", text).unwrap().unwrap();
        let mut evaluator = Evaluator::new(Policy {
            thresholds: vec![threshold("10%"), threshold("min(10%,50)").soft(PERIOD)],
            transition_period: PERIOD,
            slow_disks: SlowDisks::NodepulseConditionOnly,
        });
        let mut journal = Journal::default();
        for (second, available) in [(0, 500), (10, 99), (20, 400)] {
            let samples = [memory(available)];
            journal.record_samples(&samples, at(second).boot);
            for change in evaluator.evaluate(&samples, at(second).boot) {
                journal.record_change(&change, at(second).wall);
            }
        }
        let status = NodeStatus {
            conditions: vec![
                condition("MemoryPressure", Status::True),
                condition("Ready", Status::True),
            ],
            ..NodeStatus::default()
        };
        let current = CurrentState {
            node: "worker-1",
            evaluator: &evaluator,
            stalls: &BTreeMap::new(),
            on_node: None,
            disks: &Disks::default(),
            disk_details: &[],
            transition_period: PERIOD,
            blocked: &["nodefs"],
            now: at(25),
            time: seconds,
        };
        let explained = journal.explain(&status, current);
        let expected = json!({
            "type": "MemoryPressure", "status": "True", "reason": "Reason", "message": "message",
            "since": "1000",
            "signals": [{
                "signal": "memory.available", "strength": "hard", "available": 400,
                "capacity": 1_000, "threshold": 100, "below": false, "secondsAgo": 5,
            }, {
                "signal": "memory.available", "strength": "soft", "available": 400,
                "capacity": 1_000, "threshold": 50, "below": false, "secondsAgo": 5,
                "computed": "min(10% of 1000, 50)",
            }],
            "because": ["memory.available was 99, below the threshold 100"],
            "changes": [
                { "at": "1010", "from": "False", "to": "True",
                  "why": "memory.available was 99, below the threshold 100" },
                { "at": "1000", "from": "Unknown", "to": "False",
                  "why": "no threshold was exceeded for the whole transition period" },
            ],
            "endsNotBefore": "1310",
        });
        assert_eq!(explained["conditions"][0], expected);
        let ready = &explained["conditions"][1];
        assert_eq!(ready["signals"], json!([]));
        assert_eq!(
            ready.get("endsNotBefore"),
            None,
            "True is the healthy status"
        );
        assert_eq!(explained["transitionPeriodSeconds"], 300);
    }

    #[test]
    fn recorded_changes_are_bounded() {
        let mut journal = Journal::default();
        let change = StallChange {
            stall: Stall::new(StallOf::Pods, StallKind::Io),
            from: Pressure::Unknown,
            to: Pressure::Normal,
        };
        for n in 0..1_000 {
            journal.record_stall_change(&change, at(n).wall);
        }
        assert_eq!(journal.changes.len(), CHANGES);
        assert_eq!(journal.changes[0].at, at(1_000 - 64).wall, "the newest");
    }

    #[test]
    fn every_nodepulse_condition_but_one_depends_on_a_resource_or_stall() {
        let without = NodepulseCondition::ALL
            .into_iter()
            .filter(|condition| grounds(condition.type_()).is_empty());
        assert_eq!(
            without.collect::<Vec<_>>(),
            [NodepulseCondition::FrequentOomKills],
            "it counts"
        );
        assert_eq!(grounds("DiskPressure"), [Ground::Resource(Resource::Disk)]);
        assert_eq!(grounds("KernelDeadlock"), []);
    }
}
