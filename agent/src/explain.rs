//! PURE: why each condition has its status, for whoever asks.
//!
//! Remembers the last reading of each signal and the last few changes; everything else is looked up
//! where it is decided. Nothing here decides anything.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::clock::{BootNanos, Now};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::{Condition, Disks, NodeStatus, Status, setters};
use crate::pressure::Pressure;
use crate::pressure::change::{PressureChange, PressureReason};
use crate::pressure::evaluate::Evaluator;
use crate::pressure::oom::Grounds;
use crate::pressure::sample::Sample;
use crate::pressure::stall::StallChange;
use crate::pressure::threshold::{Strength, Threshold};
use crate::reading::{Resource, Signal, Stall};

/// Changes that are remembered, all conditions together; the oldest goes first.
const CHANGES: usize = 64;

/// What a condition follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    Resource(Resource),
    Stall(Stall),
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Journal {
    /// The last look at each signal, and when it was.
    looks: BTreeMap<Signal, (Sample, BootNanos)>,
    changes: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    at: SystemTime,
    ground: Ground,
    from: Pressure,
    to: Pressure,
    why: String,
}

/// What is true at the moment of the question.
#[derive(Debug, Clone, Copy)]
pub struct CurrentState<'a> {
    /// Name of the Node.
    pub node: &'a str,
    /// Thresholds and states.
    pub evaluator: &'a Evaluator,
    /// States of the stalls.
    pub stalls: &'a BTreeMap<Stall, Pressure>,
    /// The conditions of the Node by the last answer; `None` before the first.
    pub on_node: Option<&'a [Condition]>,
    /// The disks that are not well, and those that nobody watches.
    pub disks: &'a Disks,
    /// `evictionPressureTransitionPeriod`.
    pub transition_period: Duration,
    /// Purposes of calls to a file system that does not answer.
    pub blocked: &'a [&'static str],
    /// The moment.
    pub now: Now,
    /// How a moment is written.
    pub time: fn(SystemTime) -> String,
}

impl Journal {
    /// Takes note of what was looked at.
    pub fn record_samples(&mut self, looks: &[Sample], now: BootNanos) {
        for look in looks {
            self.looks.insert(look.signal(), (*look, now));
        }
    }

    /// Takes note of a resource's new state.
    pub fn record_change(&mut self, change: &PressureChange, at: SystemTime) {
        let why = words(&change.reason);
        self.note(
            Ground::Resource(change.resource),
            (change.from, change.to),
            why,
            at,
        );
    }

    /// Takes note of a stall's new state.
    pub fn record_stall_change(&mut self, change: &StallChange, at: SystemTime) {
        let why = match change.to {
            Pressure::Unknown => "the pressure file cannot be read".to_owned(),
            Pressure::Normal => "tasks wait little, and have for the transition period".to_owned(),
            Pressure::UnderPressure { .. } => {
                "tasks waited too much over 10 s and over 60 s".to_owned()
            }
        };
        self.note(
            Ground::Stall(change.stall),
            (change.from, change.to),
            why,
            at,
        );
    }

    fn note(
        &mut self,
        ground: Ground,
        (from, to): (Pressure, Pressure),
        why: String,
        at: SystemTime,
    ) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(Entry {
            at,
            ground,
            from,
            to,
            why,
        });
    }

    /// What the Node says of a condition, where that is not what it should say: nothing, where it does
    /// not have it.
    fn otherwise(condition: &Condition, present: CurrentState<'_>) -> Option<Value> {
        let all = present.on_node?;
        let there = all.iter().find(|there| there.type_ == condition.type_);
        let said = |c: &Condition| (c.status, c.reason.clone(), c.message.clone());
        if there.map(said) == Some(said(condition)) {
            return None;
        }
        Some(there.map_or(Value::Null, |there| {
            json!({
                "status": there.status.as_str(),
                "reason": there.reason,
                "message": there.message,
                "since": (present.time)(there.last_transition_time),
            })
        }))
    }

    /// Every condition of `status`, and why it is so.
    #[must_use]
    pub fn explain(&self, status: &NodeStatus, present: CurrentState<'_>) -> Value {
        let conditions = status.conditions.iter();
        let conditions: Vec<Value> = conditions
            .map(|condition| self.condition(condition, present))
            .collect();
        json!({
            "node": present.node,
            "at": (present.time)(present.now.wall),
            "transitionPeriodSeconds": present.transition_period.as_secs(),
            "blockedCalls": present.blocked,
            "conditions": conditions,
        })
    }

    fn condition(&self, condition: &Condition, present: CurrentState<'_>) -> Value {
        let grounds = grounds(&condition.type_);
        let mut told = Map::new();
        let mut tell = |key: &str, value: Value| told.insert(key.to_owned(), value);
        tell("type", json!(condition.type_));
        tell("status", json!(condition.status.as_str()));
        tell("reason", json!(condition.reason));
        tell("message", json!(condition.message));
        tell(
            "since",
            json!((present.time)(condition.last_transition_time)),
        );
        if let Some(otherwise) = Self::otherwise(condition, present) {
            tell("onNode", otherwise);
        }
        let thresholds = present.evaluator.thresholds();
        let about = |threshold: &&Threshold| {
            grounds.contains(&Ground::Resource(threshold.signal.resource()))
        };
        let signals: Vec<Value> = thresholds
            .filter(about)
            .map(|threshold| self.signal(threshold, present.now.boot))
            .collect();
        tell("signals", Value::Array(signals));
        let causes = grounds.iter().filter_map(|ground| match ground {
            Ground::Resource(resource) => present.evaluator.cause(*resource),
            Ground::Stall(_) => None,
        });
        let causes: Vec<String> = causes.map(|why| words(&why)).collect();
        tell("because", json!(causes));
        let unwatched = &present.disks.unwatched;
        if grounds.contains(&Ground::Resource(Resource::DiskIo)) && !unwatched.is_empty() {
            tell("unwatched", json!(unwatched));
        }
        let changes = self.changes.iter().rev();
        let changes = changes.filter(|entry| grounds.contains(&entry.ground));
        let changes: Vec<Value> = changes.map(|entry| change(entry, present)).collect();
        tell("changes", Value::Array(changes));
        if condition.status == Status::True
            && let Some(ends) = ends(&grounds, present)
        {
            tell("endsNotBefore", json!((present.time)(ends)));
        }
        Value::Object(told)
    }

    fn signal(&self, threshold: &Threshold, now: BootNanos) -> Value {
        let mut told = json!({
            "signal": threshold.signal.as_str(),
            "strength": match threshold.strength {
                Strength::Hard => "hard",
                Strength::Soft => "soft",
            },
        });
        let more = match self.looks.get(&threshold.signal) {
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
        if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
            told.extend(more);
        }
        told
    }
}

/// When a True condition can end at the earliest: a look that is over moves it.
fn ends(grounds: &[Ground], present: CurrentState<'_>) -> Option<SystemTime> {
    let held = grounds.iter().filter_map(|ground| {
        let pressure = match ground {
            Ground::Resource(resource) => present.evaluator.pressure(*resource),
            Ground::Stall(stall) => *present.stalls.get(stall)?,
        };
        match pressure {
            Pressure::UnderPressure { last_exceeded } => Some(last_exceeded),
            Pressure::Unknown | Pressure::Normal => None,
        }
    });
    let ends = held.max()?.plus(present.transition_period);
    // What is told of by its edges alone is over until the other edge.
    Some(present.now.wall_at(ends.max(present.now.boot)))
}

fn grounds(type_: &str) -> Vec<Ground> {
    let Some(own) = NodepulseCondition::parse(type_) else {
        return setters::resource(type_)
            .map(Ground::Resource)
            .into_iter()
            .collect();
    };
    let pods = (own == NodepulseCondition::PidsLow).then_some(Resource::PodsPids);
    let resources = own.resource().into_iter().chain(pods);
    let stall = own.stall().map(Ground::Stall);
    resources.map(Ground::Resource).chain(stall).collect()
}

fn change(entry: &Entry, present: CurrentState<'_>) -> Value {
    json!({
        "at": (present.time)(entry.at),
        "from": state(entry.from),
        "to": state(entry.to),
        "why": entry.why,
    })
}

const fn state(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure::Unknown => "unread",
        Pressure::Normal => "calm",
        Pressure::UnderPressure { .. } => "pressure",
    }
}

fn words(why: &PressureReason) -> String {
    let fixed = match why {
        PressureReason::Threshold {
            signal,
            available,
            threshold,
            ..
        } => return format!("{} was {available}, below {threshold}", signal.as_str()),
        PressureReason::Unresolved {
            signal, available, ..
        } => {
            return format!(
                "{} was {available}, short of its minimum reclaim",
                signal.as_str()
            );
        }
        PressureReason::SlowDisk => "a disk answers late",
        PressureReason::StalledDisk => "a disk does not answer",
        PressureReason::DiskErrors => "a disk answers with errors",
        PressureReason::OomKill(Grounds::ConfirmedGlobal) => {
            "the kernel killed a process because the node was out of memory"
        }
        PressureReason::OomKill(Grounds::PodsLimit) => {
            "the kernel killed a process at the limit of all pods"
        }
        PressureReason::Stored => "it was True at the API server when the agent started",
        PressureReason::Below => "nothing was over for the transition period",
        PressureReason::Restored => "it was over before the agent was started again",
        PressureReason::Unwatched => "the disk that raised it is not watched any more",
        PressureReason::SourceLost => "a source that it is judged by cannot be read",
    };
    fixed.to_owned()
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
    fn a_condition_is_explained_by_signal_threshold_reading_change_and_end() {
        let mut evaluator = Evaluator::new(Policy {
            thresholds: Vec::from_iter(Threshold::parse("memory.available", "10%").unwrap()),
            transition_period: PERIOD,
            slow_disks: SlowDisks::NodepulseConditionOnly,
        });
        let mut journal = Journal::default();
        for (second, available) in [(0, 500), (10, 99), (20, 400)] {
            let looks = [memory(available)];
            journal.record_samples(&looks, at(second).boot);
            for change in evaluator.evaluate(&looks, at(second).boot) {
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
        let present = CurrentState {
            node: "worker-1",
            evaluator: &evaluator,
            stalls: &BTreeMap::new(),
            on_node: None,
            disks: &Disks::default(),
            transition_period: PERIOD,
            blocked: &["nodefs"],
            now: at(25),
            time: seconds,
        };
        let explained = journal.explain(&status, present);
        let expected = json!({
            "type": "MemoryPressure", "status": "True", "reason": "Reason", "message": "message",
            "since": "1000",
            "signals": [{
                "signal": "memory.available", "strength": "hard", "available": 400,
                "capacity": 1_000, "threshold": 100, "below": false, "secondsAgo": 5,
            }],
            "because": ["memory.available was 99, below 100"],
            "changes": [
                { "at": "1010", "from": "calm", "to": "pressure",
                  "why": "memory.available was 99, below 100" },
                { "at": "1000", "from": "unread", "to": "calm",
                  "why": "nothing was over for the transition period" },
            ],
            "endsNotBefore": "1310",
        });
        assert_eq!(explained["conditions"][0], expected);
        let ready = &explained["conditions"][1];
        assert_eq!(ready["signals"], json!([]));
        assert_eq!(ready.get("endsNotBefore"), None, "True is well here");
        assert_eq!(explained["transitionPeriodSeconds"], 300);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
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
    fn every_condition_of_ours_but_one_has_something_that_it_follows_from() {
        let without = NodepulseCondition::ALL
            .into_iter()
            .filter(|own| grounds(own.type_()).is_empty());
        assert_eq!(
            without.collect::<Vec<_>>(),
            [NodepulseCondition::FrequentOomKills],
            "it counts"
        );
        assert_eq!(grounds("DiskPressure"), [Ground::Resource(Resource::Disk)]);
        assert_eq!(grounds("KernelDeadlock"), []);
    }
}
