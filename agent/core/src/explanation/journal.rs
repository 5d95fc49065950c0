//! Records the last readings of each signal and the last changes, and explains the conditions with
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::{
    EarlierSample, ExplainedChange, ExplainedCondition, ExplainedKills, ExplainedShortage,
    ExplainedSignal, ExplainedSink, ExplainedStall, Explanation, OnNode, SignalReading,
    StoredCondition, disks,
};
use crate::clock::{BootNanos, Now};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::{Condition, Disks, NodeStatus, Status, setters};
use crate::pressure::Pressure;
use crate::pressure::change::{PressureChange, PressureReason};
use crate::pressure::disks::DiskDetails;
use crate::pressure::evaluate::Evaluator;
use crate::pressure::frequent_kills::IncidentCounts;
use crate::pressure::oom::Grounds;
use crate::pressure::sample::Sample;
use crate::pressure::shortage::{ShortageReading, ShortageVerdict};
use crate::pressure::stall::{StallChange, StallReading};
use crate::pressure::threshold::{Strength, Threshold};
use crate::reading::{Ground, Resource, Signal, Stall};
use crate::units::Bytes;

/// Maximum number of recorded changes of all conditions; the oldest is dropped first.
const CHANGES: usize = 64;

/// The reason for a change from Unknown to False.
const READABLE: &str = "its source can be read, and no threshold is exceeded";

/// Maximum number of recorded samples of each signal.
const SAMPLES: usize = 4;

#[derive(Debug, Default)]
pub struct Journal {
    /// The last samples of each signal with their times, the newest first.
    samples: BTreeMap<Signal, VecDeque<(Sample, BootNanos)>>,
    changes: VecDeque<JournalEntry>,
    /// Numbers and causes in the Events of the last changes to True.
    details: BTreeMap<Ground, String>,
}

#[derive(Debug)]
struct JournalEntry {
    at: SystemTime,
    ground: Ground,
    from: Pressure,
    to: Pressure,
    why: String,
}

#[derive(Debug, Clone, Copy)]
pub struct CurrentState<'a> {
    pub node: &'a str,
    /// Thresholds and states.
    pub evaluator: &'a Evaluator,
    /// States and last samples of the stalls.
    pub stalls: &'a [StallReading],
    /// The shortage of memory when the node's tasks last waited for it.
    pub shortage: Option<&'a ShortageReading>,
    /// Recent OOM incidents in pods, if they are counted.
    pub kills: Option<IncidentCounts>,
    /// The conditions in the last answer of the API server; `None` before the first.
    pub on_node: Option<&'a [Condition]>,
    /// Unhealthy disks, and disks that are not watched.
    pub disks: &'a Disks,
    pub disk_details: &'a [DiskDetails],
    pub transition_period: Duration,
    pub blocked: &'a [&'static str],
    /// The reason for missing credentials for the API server; empty if there are credentials.
    pub missing_credentials: &'a str,
    pub sinks: &'a [ExplainedSink],
    pub now: Now,
    pub time: fn(SystemTime) -> String,
}

impl Journal {
    pub fn record_samples(&mut self, samples: &[Sample], now: BootNanos) {
        for sample in samples {
            let samples = self.samples.entry(sample.signal()).or_default();
            samples.truncate(SAMPLES - 1);
            samples.push_front((*sample, now));
        }
    }

    pub fn record_change(&mut self, change: &PressureChange, at: SystemTime) {
        let why = match (change.from, change.to) {
            (Pressure::Unknown, Pressure::Normal) => READABLE.to_owned(),
            _ => describe(&change.reason),
        };
        self.push(
            Ground::Resource(change.resource),
            (change.from, change.to),
            why,
            at,
        );
    }

    pub fn record_stall_change(&mut self, change: &StallChange, at: SystemTime) {
        let why = match change.to {
            Pressure::Normal if change.from == Pressure::Unknown => READABLE.to_owned(),
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

    /// Records the text that the Event about a change to True has in addition to the condition;
    /// `None` if nothing is known yet.
    pub fn set_details(&mut self, of: Ground, details: Option<&str>) {
        self.details
            .insert(of, details.unwrap_or_default().to_owned());
    }

    /// Returns what is recorded about a condition that is True.
    pub fn details(&self, type_: &str) -> Vec<String> {
        let grounds = grounds(type_).into_iter();
        let details = grounds.filter_map(|of| self.details.get(&of));
        details.filter(|text| !text.is_empty()).cloned().collect()
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

    fn on_node(condition: &Condition, current: CurrentState<'_>) -> OnNode {
        let Some(all) = current.on_node else {
            return OnNode::Same;
        };
        let stored = all.iter().find(|stored| stored.type_ == condition.type_);
        let content = |c: &Condition| (c.status, c.reason.clone(), c.message.clone());
        if stored.map(content) == Some(content(condition)) {
            return OnNode::Same;
        }
        stored.map_or(OnNode::NotSet, |stored| {
            OnNode::Different(StoredCondition {
                status: stored.status.as_str().to_owned(),
                reason: stored.reason.clone(),
                message: stored.message.clone(),
                since: (current.time)(stored.last_transition_time),
            })
        })
    }

    pub fn explain(&self, status: &NodeStatus, current: CurrentState<'_>) -> Explanation {
        let conditions = status.conditions.iter();
        Explanation {
            node: current.node.to_owned(),
            at: (current.time)(current.now.wall),
            transition_period_seconds: current.transition_period.as_secs(),
            blocked_calls: current.blocked.iter().map(ToString::to_string).collect(),
            missing_credentials: current.missing_credentials.to_owned(),
            sinks: current.sinks.to_vec(),
            conditions: conditions
                .map(|condition| self.condition(condition, current))
                .collect(),
        }
    }

    fn condition(&self, condition: &Condition, current: CurrentState<'_>) -> ExplainedCondition {
        let grounds = grounds(&condition.type_);
        let thresholds = current.evaluator.thresholds();
        let about = |threshold: &&Threshold| {
            grounds.contains(&Ground::Resource(threshold.signal.resource()))
        };
        let stalls = current.stalls.iter();
        let stalls = stalls.filter(|reading| grounds.contains(&Ground::Stall(reading.stall)));
        let is_frequent = condition.type_ == NodepulseCondition::FrequentOomKills.type_();
        let causes = grounds.iter().filter_map(|ground| match ground {
            Ground::Resource(resource) => current.evaluator.cause(*resource),
            Ground::Stall(_) => None,
        });
        let mut because: Vec<String> = causes.map(|reason| describe(&reason)).collect();
        because.dedup();
        let is_true = condition.status == Status::True;
        let details = is_true.then(|| self.details(&condition.type_));
        let unwatched = if grounds.contains(&Ground::Resource(Resource::DiskIo)) {
            current.disks.unwatched.clone()
        } else {
            Vec::new()
        };
        let disks = grounds.iter().find_map(|ground| match ground {
            Ground::Resource(resource) => disks::explain(*resource, current.disk_details),
            Ground::Stall(_) => None,
        });
        let changes = self.changes.iter().rev();
        let changes = changes.filter(|entry| grounds.contains(&entry.ground));
        let mut changes: Vec<_> = changes.map(|entry| change(entry, current)).collect();
        // The grounds of a condition can change together, and each change is recorded.
        changes.dedup();
        let end = is_true.then(|| earliest_end(&grounds, current)).flatten();
        ExplainedCondition {
            type_: condition.type_.clone(),
            status: condition.status.as_str().to_owned(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: (current.time)(condition.last_transition_time),
            on_node: Self::on_node(condition, current),
            signals: thresholds
                .filter(about)
                .map(|threshold| self.signal(threshold, current.now.boot))
                .collect(),
            stalls: stalls.map(|reading| stall(reading, current)).collect(),
            kills: current.kills.filter(|_| is_frequent).map(kills),
            because,
            details: details.unwrap_or_default(),
            unwatched,
            disks,
            changes,
            ends_not_before: end.map(current.time),
            ends_in_seconds: end.map(|end| {
                let left = end.duration_since(current.now.wall);
                left.unwrap_or_default().as_secs()
            }),
        }
    }

    fn signal(&self, threshold: &Threshold, now: BootNanos) -> ExplainedSignal {
        let mut samples = self.samples.get(&threshold.signal).into_iter().flatten();
        let last = samples.next();
        ExplainedSignal {
            signal: threshold.signal.as_str().to_owned(),
            strength: match threshold.strength {
                Strength::Hard => "hard",
                Strength::Soft => "soft",
            }
            .to_owned(),
            reading: last.and_then(|(sample, _)| match sample {
                Sample::Read(reading) => Some(SignalReading {
                    available: reading.available,
                    capacity: reading.capacity,
                    threshold: threshold.value.amount(reading.capacity),
                    below: threshold.is_met(reading),
                }),
                Sample::Absent(_) | Sample::Missing(_) => None,
            }),
            computed: self.computation(threshold),
            readable: matches!(last, Some((Sample::Missing(_), _))).then_some(false),
            seconds_ago: last.map(|(_, at)| now.since(*at).as_secs()),
            before: samples.filter_map(|past| earlier(past, now)).collect(),
        }
    }

    fn computation(&self, threshold: &Threshold) -> Option<String> {
        let (signal, value) = (threshold.signal, threshold.value);
        match self.samples.get(&signal)?.front()? {
            (Sample::Read(reading), _) if signal.is_in_bytes() => {
                value.computation(Bytes::from_bytes(reading.capacity))
            }
            (Sample::Read(reading), _) => value.computation_of_count(reading.capacity),
            (Sample::Absent(_) | Sample::Missing(_), _) => None,
        }
    }
}

fn earlier((sample, at): &(Sample, BootNanos), now: BootNanos) -> Option<EarlierSample> {
    match sample {
        Sample::Read(reading) => Some(EarlierSample {
            available: reading.available,
            seconds_ago: now.since(*at).as_secs(),
        }),
        Sample::Absent(_) | Sample::Missing(_) => None,
    }
}

fn stall(reading: &StallReading, current: CurrentState<'_>) -> ExplainedStall {
    let now = current.now.boot;
    let percent = |value: f32| (f64::from(value) * 100.0).round() / 100.0;
    let observed = current
        .shortage
        .filter(|_| reading.stall == Stall::NODE_MEMORY && reading.last.is_some());
    ExplainedStall {
        of: reading.stall.of.as_str().to_owned(),
        kind: reading.stall.kind.as_str().to_owned(),
        threshold: percent(reading.threshold),
        avg10: reading.last.map(|(sample, _)| percent(sample.avg10)),
        avg60: reading.last.map(|(sample, _)| percent(sample.avg60)),
        seconds_ago: reading.last.map(|(_, at)| now.since(at).as_secs()),
        shortage: observed.map(|observed| shortage(observed, now)),
    }
}

fn shortage(observed: &ShortageReading, now: BootNanos) -> ExplainedShortage {
    let ShortageReading {
        evidence,
        verdict,
        at,
    } = observed;
    let units = evidence.units.units().iter().map(ToString::to_string);
    ExplainedShortage {
        reclaim: evidence.reclaim.map(|reclaim| reclaim.to_string()),
        units: units.collect(),
        withheld: match verdict {
            ShortageVerdict::Short => None,
            ShortageVerdict::Withheld(why) => Some(why.as_str().to_owned()),
        },
        seconds_ago: now.since(*at).as_secs(),
    }
}

fn kills(counts: IncidentCounts) -> ExplainedKills {
    ExplainedKills {
        incidents: counts.incidents,
        incidents_threshold: counts.limits.incidents,
        pods: counts.pods,
        pods_threshold: counts.limits.pods,
        window_seconds: counts.limits.window.as_secs(),
    }
}

fn earliest_end(grounds: &[Ground], current: CurrentState<'_>) -> Option<SystemTime> {
    let exceeded = grounds.iter().filter_map(|ground| {
        let pressure = match ground {
            Ground::Resource(resource) => current.evaluator.pressure(*resource),
            Ground::Stall(stall) => {
                let mut stalls = current.stalls.iter();
                stalls.find(|reading| reading.stall == *stall)?.pressure
            }
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

fn change(entry: &JournalEntry, current: CurrentState<'_>) -> ExplainedChange {
    ExplainedChange {
        at: (current.time)(entry.at),
        from: entry.from.to_string(),
        to: entry.to.to_string(),
        why: entry.why.clone(),
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
        PressureReason::FilesystemShutdown => "a file system returned errors",
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

/// Formats an amount of `signal` for people: `63.9Mi`, or a number of inodes or pids.
pub fn amount(signal: Signal, n: i64) -> String {
    if !signal.is_in_bytes() {
        return n.to_string();
    }
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes::from_bytes(n.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::Owner;
    use crate::pressure::frequent_kills::FrequentOom;
    use crate::pressure::io_wait::StallShare;
    use crate::pressure::shortage::{Reclaim, ShortageEvidence, StalledUnit, UnitStalls, Withheld};
    use crate::pressure::stall::StallSample;
    use crate::pressure::{Policy, SlowDisks};
    use crate::reading::{Reading, Stall, StallKind, StallOf};

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
    #[expect(clippy::too_many_lines, reason = "one document")]
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
        for resource in [Resource::Pids, Resource::PodsPids] {
            let change = PressureChange {
                resource,
                from: Pressure::Unknown,
                to: Pressure::Normal,
                reason: PressureReason::Below,
            };
            journal.record_change(&change, at(0).wall);
        }
        let pids = Ground::Resource(Resource::Pids);
        journal.set_details(pids, Some("most tasks: pod a/b (64)"));
        let status = NodeStatus {
            conditions: vec![
                condition("MemoryPressure", Status::True),
                condition("Ready", Status::True),
                condition("MemoryStallPressure", Status::False),
                condition("FrequentOOMKills", Status::False),
                condition("PIDsLow", Status::True),
                condition("PIDPressure", Status::False),
            ],
            ..NodeStatus::default()
        };
        let sample = StallSample {
            avg10: 1.25,
            avg60: 0.5,
        };
        let shortage = ShortageReading {
            evidence: ShortageEvidence {
                reclaim: Some(Reclaim {
                    rose: true,
                    intervals: 10,
                    direct: 3,
                }),
                units: UnitStalls::Read {
                    units: vec![StalledUnit {
                        owner: Owner::from_path("/a.slice/b.service", "/kubepods"),
                        share: StallShare::from_percent(97.0),
                        at_its_limit: true,
                    }],
                    unlimited: StallShare::default(),
                },
            },
            verdict: ShortageVerdict::Withheld(Withheld::AtLimits),
            at: at(20).boot,
        };
        let current = CurrentState {
            node: "worker-1",
            evaluator: &evaluator,
            stalls: &[StallReading {
                stall: Stall::new(StallOf::Node, StallKind::Memory),
                pressure: Pressure::Normal,
                threshold: 15.0,
                last: Some((sample, at(21).boot)),
            }],
            shortage: Some(&shortage),
            kills: Some(IncidentCounts {
                incidents: 3,
                pods: 2,
                limits: FrequentOom {
                    incidents: 5,
                    pods: 3,
                    window: Duration::from_mins(10),
                },
            }),
            on_node: None,
            disks: &Disks::default(),
            disk_details: &[],
            transition_period: PERIOD,
            blocked: &["nodefs"],
            missing_credentials: "",
            sinks: &[],
            now: at(25),
            time: seconds,
        };
        let explained = journal.explain(&status, current);
        let read: Explanation = serde_json::from_str(&json!(explained).to_string()).unwrap();
        assert_eq!(read, explained, "a reader gets what was written");
        let explained = json!(explained);
        let before = json!([
            { "available": 99, "secondsAgo": 15 },
            { "available": 500, "secondsAgo": 25 },
        ]);
        let expected = json!({
            "type": "MemoryPressure", "status": "True", "reason": "Reason", "message": "message",
            "since": "1000",
            "signals": [{
                "signal": "memory.available", "strength": "hard", "available": 400,
                "capacity": 1_000, "threshold": 100, "below": false, "secondsAgo": 5,
                "computed": "10% of 1000", "before": before,
            }, {
                "signal": "memory.available", "strength": "soft", "available": 400,
                "capacity": 1_000, "threshold": 50, "below": false, "secondsAgo": 5,
                "computed": "min(10% of 1000, 50)", "before": before,
            }],
            "because": ["memory.available was 99, below the threshold 100"],
            "changes": [
                { "at": "1010", "from": "False", "to": "True",
                  "why": "memory.available was 99, below the threshold 100" },
                { "at": "1000", "from": "Unknown", "to": "False",
                  "why": "its source can be read, and no threshold is exceeded" },
            ],
            "endsNotBefore": "1310",
            "endsInSeconds": 285,
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
        let stall = json!([{
            "of": "node", "kind": "memory", "threshold": 15.0, "avg10": 1.25, "avg60": 0.5,
            "secondsAgo": 4,
            "shortage": {
                "reclaim": "the node reclaimed memory within 10 s, in 3 of them its tasks did so \
                            themselves",
                "units": ["b.service (97% of the time, at its own limit)"],
                "withheld": Withheld::AtLimits.as_str(),
                "secondsAgo": 5,
            },
        }]);
        assert_eq!(explained["conditions"][2]["stalls"], stall);
        let kills = json!({
            "incidents": 3, "incidentsThreshold": 5, "pods": 2, "podsThreshold": 3,
            "windowSeconds": 600,
        });
        assert_eq!(explained["conditions"][3]["kills"], kills);
        let read = json!([{ "at": "1000", "from": "Unknown", "to": "False", "why": READABLE }]);
        assert_eq!(
            explained["conditions"][4]["changes"], read,
            "once for both limits"
        );
        let details = [4, 5].map(|n| explained["conditions"][n].get("details"));
        let named = json!(["most tasks: pod a/b (64)"]);
        assert_eq!(details, [Some(&named), None], "only while it is True");
    }

    #[test]
    fn recorded_samples_are_bounded() {
        let mut journal = Journal::default();
        for second in 0..100 {
            journal.record_samples(&[memory(500)], at(second).boot);
        }
        let samples = &journal.samples[&Signal::MemoryAvailable];
        assert_eq!(samples.len(), SAMPLES);
        assert_eq!(samples[0].1, at(99).boot, "the newest");
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
