use std::time::{Duration, SystemTime};

use super::*;
use crate::clock::ALIGN;
use crate::pressure::SlowDisks;
use crate::pressure::threshold::Threshold;
use crate::reading::Reading;
use crate::subjects::BlockingQuery;
use crate::tests::boot as at;
use crate::units::Bytes;

const GI: i64 = 1 << 30;
const PERIOD: Duration = Duration::from_mins(5);

fn stamp() -> Stamp {
    Stamp {
        kernel: at(1),
        read: at(2),
    }
}

/// Creates signals by which memory is short below 1 GiB, and pids below 100.
fn signals() -> Signals {
    let thresholds = [("memory.available", "1Gi"), ("pid.available", "100")];
    let thresholds = thresholds.map(|(signal, value)| Threshold::parse(signal, value).unwrap());
    let setup = SignalSetup {
        policy: Policy {
            thresholds: thresholds.into_iter().flatten().collect(),
            transition_period: PERIOD,
            slow_disks: SlowDisks::NodepulseConditionOnly,
        },
        announced: Vec::new(),
        pods_cgroup: "/kubepods".to_owned(),
    };
    Signals::new(setup, at(0))
}

fn read(signal: Signal, available: i64) -> Sample {
    Sample::Read(Reading {
        signal,
        available,
        capacity: 64 * u64::try_from(GI).unwrap(),
    })
}

fn taken(memory: i64, pids: i64, stamp: Option<Stamp>) -> SignalInput {
    SignalInput::Sampled(DirectSample {
        samples: vec![
            read(Signal::MemoryAvailable, memory),
            read(Signal::PidAvailable, pids),
        ],
        tasks: Some(7),
        pid_capacity: Some(1000),
        pods_cgroup: "/kubepods".to_owned(),
        stamp,
    })
}

fn storage(capacity: Option<Bytes>) -> SignalInput {
    SignalInput::StorageSampled(StorageSample {
        capacity,
        ..StorageSample::missing()
    })
}

fn disks(slow: &[&str], unwatched: Option<Unwatched>) -> SignalInput {
    SignalInput::Disks {
        known: Some(Disks {
            slow: slow.iter().map(|name| (*name).to_owned()).collect(),
            ..Disks::default()
        }),
        unwatched,
        stamp: Some(stamp()),
    }
}

/// Returns the effects as short texts; of facts, only those that can differ here.
fn short(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| match effect {
        Effect::Query(Query::Signals(stamp)) => {
            let cause = if stamp.is_some() { " of a record" } else { "" };
            Some(format!("sample{cause}"))
        }
        Effect::BlockingQuery(BlockingQuery::Storage) => Some("storage".to_owned()),
        Effect::Input(input) => match &**input {
            Input::Pid(PidInput::Configured { .. }) => Some("levels".to_owned()),
            Input::LargestOwners(LargestOwnersInput::Short(of)) => {
                Some(format!("name pods for {}", of.as_str()))
            }
            _ => None,
        },
        Effect::Fact(FactChange::PodsCgroup(path)) => Some(format!("cgroup {path}")),
        Effect::Fact(FactChange::Storage { capacity, .. }) => {
            Some(format!("capacity {}", capacity.is_some()))
        }
        Effect::Log(Decision::PressureChanged(change)) => {
            let (resource, reason) = (change.resource.as_str(), change.reason.as_str());
            Some(format!("{resource} {} {reason}", change.to))
        }
        Effect::Log(Decision::SourcesLost { now, .. }) => Some(format!("lost {}", now.len())),
        Effect::Caused { resource, .. } => Some(format!("caused {}", resource.as_str())),
        Effect::Publish => Some("publish".to_owned()),
        _ => None,
    };
    effects.iter().filter_map(text).collect()
}

fn run(script: Vec<(u64, SignalInput, &[&str], &str)>) {
    let mut signals = signals();
    for (seconds, input, expected, name) in script {
        let effects = signals.on(input, crate::tests::now(seconds));
        assert_eq!(short(&effects), expected, "at {seconds} s: {name}");
    }
}

#[test]
fn a_sample_is_evaluated_and_changes_are_published_at_once() {
    let short_of_pids = SignalInput::Sampled(DirectSample {
        samples: vec![read(Signal::PidAvailable, 50)],
        tasks: Some(950),
        pid_capacity: Some(2000),
        pods_cgroup: "/kubepods.slice".to_owned(),
        stamp: Some(stamp()),
    });
    #[rustfmt::skip]
    run(vec![
        (1, taken(9 * GI, 900, None),
            &["levels", "memory False NotExceeded", "pids False NotExceeded", "publish"],
            "the first sample, with the capacity"),
        (2, taken(9 * GI, 900, None), &["publish"], "nothing changed"),
        (3, taken(GI / 2, 900, None), &["memory True ThresholdMet", "name pods for memory", "publish"],
            "memory is short"),
        (4, taken(GI / 2, 900, None), &["publish"], "it still is"),
        (5, short_of_pids,
            &["cgroup /kubepods.slice", "levels", "pids True ThresholdMet", "caused pids", "name pods for pids", "publish"],
            "another capacity and another cgroup, and a record is the cause"),
        (400, taken(9 * GI, 900, None),
            &["cgroup /kubepods", "levels", "memory False NotExceeded", "pids False NotExceeded", "publish"],
            "the transition periods are over"),
    ]);
}

#[test]
fn samples_are_requested_when_they_are_due_or_when_an_event_requires_them() {
    let tick = |seconds, count_tasks| SignalInput::Tick {
        soon: at(seconds),
        count_tasks,
    };
    let requested = |stamp| SignalInput::Requested { stamp };
    #[rustfmt::skip]
    run(vec![
        (1, tick(1, false), &["sample", "storage"], "both are due"),
        (1, tick(1, false), &["sample"], "storage is being read"),
        (1, SignalInput::StorageRequested, &[], "it is requested once"),
        (1, taken(60 * GI, 900_000, None),
            &["levels", "memory False NotExceeded", "pids False NotExceeded", "publish"], "first sample"),
        (2, tick(2, false), &[], "nothing is due"),
        (2, tick(2, true), &["sample"], "tasks have to be counted"),
        (2, requested(Some(stamp())), &["sample of a record"], "a record"),
        (3, SignalInput::MemoryMayBeShort, &[], "a hint"),
        (3, tick(3, false), &["sample"], "after the hint"),
        (4, storage(None), &["capacity false", "disk False NotExceeded", "publish"], "the file system does not answer"),
        (4, SignalInput::StorageRequested, &["storage"], "requested again"),
    ]);
}

#[test]
fn until_the_first_capacity_storage_is_sampled_often() {
    let mut signals = signals();
    let mut on = |seconds, input| {
        signals.on(input, crate::tests::now(seconds));
        signals.storage.due()
    };
    let soon = |seconds| Some(at(seconds).plus(Duration::from_millis(250)));
    let later = |seconds: u64| Some(at(seconds + 10));
    let known = Some(Bytes::from_bytes(1));
    // At s, capacity, next sample.
    let rows = [
        (1, None, soon(1), "the first sample"),
        (2, None, soon(2), "not ready yet"),
        (121, None, later(121), "the start is over"),
        (130, known, later(130), "the first capacity"),
        (140, known, later(140), "no other one"),
        (150, None, later(150), "it stays known"),
    ];
    for (seconds, capacity, due, name) in rows {
        on(seconds, SignalInput::StorageRequested);
        assert_eq!(on(seconds, storage(capacity)), due, "{name}");
    }
}

/// A node of which every query is answered, storage a little later.
struct Simulated {
    signals: Signals,
    memory: i64,
    storage_samples: usize,
}

impl Simulated {
    fn new(memory: i64) -> Self {
        Self {
            signals: signals(),
            memory,
            storage_samples: 0,
        }
    }

    fn on(&mut self, input: SignalInput, boot: BootNanos) {
        let wall = SystemTime::UNIX_EPOCH;
        for effect in self.signals.on(input, Now { boot, wall }) {
            match effect {
                Effect::Query(Query::Signals(stamp)) => {
                    self.on(taken(self.memory, 900_000, stamp), boot);
                }
                Effect::BlockingQuery(BlockingQuery::Storage) => {
                    self.storage_samples += 1;
                    let answer = StorageSample {
                        samples: vec![read(Signal::NodefsAvailable, 60 * GI)],
                        capacity: Some(Bytes::from_bytes(1)),
                        read_only: Vec::new(),
                        filesystem_errors: 0,
                        volumes: None,
                    };
                    let later = boot.plus(Duration::from_millis(5));
                    self.on(SignalInput::StorageSampled(answer), later);
                }
                _ => {}
            }
        }
    }

    /// Runs up to `end`. Returns the number of wake-ups by the alarm.
    fn run(&mut self, end: BootNanos) -> usize {
        let mut wakeups = 0;
        while self.signals.due() <= end {
            let now = self.signals.due();
            wakeups += 1;
            let soon = now.plus(ALIGN);
            let count_tasks = false;
            self.on(SignalInput::Tick { soon, count_tasks }, now);
        }
        wakeups
    }
}

#[test]
fn an_idle_node_wakes_once_for_memory_and_storage_whatever_was_sampled_in_between() {
    let record = || SignalInput::Requested {
        stamp: Some(stamp()),
    };
    // Memory, event 6 s after a sample, wake-ups in a minute, samples of storage in it, name.
    #[rustfmt::skip]
    let rows = [
        (60 * GI, None, 6, 6, "nothing"),
        (60 * GI, Some(SignalInput::StorageRequested), 6, 6, "tasks wait for I/O"),
        (60 * GI, Some(SignalInput::MemoryMayBeShort), 6, 6, "a kill"),
        (60 * GI, Some(record()), 6, 6, "a record about pids"),
        (9 * GI, Some(SignalInput::StorageRequested), 15, 7, "memory is sampled every 4 s"),
    ];
    for (memory, event, wakeups, storage_samples, name) in rows {
        let mut node = Simulated::new(memory);
        node.run(at(16));
        if let Some(event) = event {
            node.on(event, at(16));
        }
        node.run(at(57));
        node.storage_samples = 0;
        assert_eq!(node.run(at(117)), wakeups, "{name}");
        assert_eq!(node.storage_samples, storage_samples, "{name}");
    }
}

#[test]
fn events_about_memory_do_not_sample_storage() {
    let mut node = Simulated::new(60 * GI);
    node.run(at(20));
    node.storage_samples = 0;
    for seconds in 21..=80 {
        node.on(SignalInput::MemoryMayBeShort, at(seconds));
        node.run(at(seconds));
    }
    assert_eq!(node.storage_samples, 6, "once in ten seconds");
}

#[test]
fn unhealthy_disks_and_confirmed_kills_are_pressure_without_a_sample() {
    let forced = SignalInput::Forced {
        resource: Resource::Memory,
        why: Grounds::ConfirmedGlobal,
        at: at(5),
        stamp: stamp(),
    };
    #[rustfmt::skip]
    run(vec![
        (1, disks(&[], None), &["diskIO False NotExceeded", "diskFailing False NotExceeded", "publish"],
            "all are healthy"),
        (2, disks(&["vda"], None), &["diskIO True SlowDisk", "caused diskIO", "publish"], "one is slow"),
        (3, disks(&["vda", "vdb"], None), &["publish"], "another one"),
        (4, disks(&[], Some(Unwatched { others: None })),
            &["diskIO Unknown DiskNotMonitored", "diskIO False NotExceeded", "publish"],
            "it is not watched any more"),
        (5, forced, &["memory True GlobalOOMKill", "caused memory", "name pods for memory", "publish"], "a kill"),
    ]);
}
