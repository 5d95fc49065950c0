//! A whole run as a list of inputs, recorded and replayed.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::disks::{CountersRead, DiskCounters, DiskReport, Window};
use super::*;
use crate::config::DiskIo;
use crate::pressure::disks::{DiskSample, Health};
use crate::pressure::stall::StallSample;
use crate::pressure::threshold::Threshold;
use crate::reading::{Disk, StallKind, StallOf};
use crate::record::{DiskAction, DiskChange};

const NODE_IO: Stall = Stall::new(StallOf::Node, StallKind::Io);

/// One line of a recorded run.
#[derive(Debug, Serialize, Deserialize)]
struct Step {
    now: Now,
    input: Input,
    effects: Vec<Effect>,
}

fn at(seconds: u64) -> Now {
    Now {
        boot: BootNanos(seconds * 1_000_000_000),
        wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds),
    }
}

fn sda() -> DeviceNumber {
    DeviceNumber { major: 8, minor: 0 }
}

fn setup() -> Setup {
    let settings = DiskIo {
        solid_state_slow: Duration::from_millis(20),
        rotational_slow: Duration::from_millis(100),
        devices: BTreeMap::from([("sdb".to_owned(), Duration::from_millis(7))]),
        window: Duration::from_secs(1),
    };
    let node = NodeSetup {
        page: 4096,
        counters: KillCounterSetup {
            source: KillSource::Program,
            counting: None,
            boot_known: false,
        },
        node_events: NodeEvents::Companion,
        refused_forks: Announced::Yes,
    };
    Setup {
        started: at(1).boot,
        node,
        disks: DiskSetup {
            settings,
            probe: DiskProbe::Attached,
            trigger: IoTrigger::Set,
        },
        stalls: StallSetup {
            threshold: 40.0,
            transition_period: Duration::from_mins(5),
            watched: vec![(NODE_IO, true)],
        },
    }
}

/// A node with one disk, which hangs, and whose tasks wait for it.
fn answer(effect: &Effect) -> Option<Input> {
    match effect {
        Effect::Map(MapUpdate::WatchDisks(disks)) => {
            Some(Input::Disk(DiskInput::Watched(disks.clone())))
        }
        Effect::Query(Query::Stall(stall)) => Some(Input::Stall(StallInput::Sampled {
            stall: *stall,
            sample: Some(StallSample {
                avg10: 61.25,
                avg60: 43.1,
            }),
        })),
        Effect::Query(Query::Disk(DiskQuery::Counters(disks))) => {
            let read = |(device, _): &(DeviceNumber, String)| DiskCounters {
                device: *device,
                counters: CountersRead::Read(DiskSample {
                    completed: 5,
                    in_flight: 3,
                    ..DiskSample::default()
                }),
                probe: Some(Health::Slow),
            };
            let disks = disks.iter().map(read).collect();
            Some(Input::Disk(DiskInput::Sampled(disks)))
        }
        Effect::Query(Query::Disk(DiskQuery::Statistics { device, stamp, .. })) => {
            Some(Input::Disk(DiskInput::Confirmed {
                device: *device,
                valid: true,
                probe: Some(Health::Slow),
                stamp: *stamp,
            }))
        }
        _ => None,
    }
}

/// A bad minute: the pid level is crossed, a disk is slow, hangs and is removed, tasks wait.
fn bad_minute() -> Vec<(Now, Input)> {
    let disk = Disk {
        name: "sda".to_owned(),
        device: sda(),
        rotational: false,
        virtio: true,
        iostats: true,
    };
    let stamp = Stamp {
        kernel: at(4).boot,
        read: at(5).boot,
    };
    let slow = DiskReport::Slow(Window {
        total: 65,
        slow: 61,
        max: Duration::from_micros(120_500),
    });
    let thresholds = Threshold::parse("pid.available", "12.5%").unwrap();
    let crossed = |side, tasks| {
        let ids = 31_000;
        Input::Pid(PidInput::Crossed { side, ids, tasks })
    };
    let disks = Input::Disk;
    vec![
        (at(1), disks(DiskInput::Listed(Some(vec![disk])))),
        (at(1), disks(DiskInput::Started)),
        (
            at(1),
            Input::Pid(PidInput::Configured {
                thresholds: thresholds.into_iter().collect(),
                capacity: Some(32_768),
            }),
        ),
        (at(2), crossed(Side::Over, Some(28_000))),
        (at(3), crossed(Side::Over, Some(30_000))),
        (
            at(5),
            disks(DiskInput::Reported {
                device: sda(),
                report: slow,
                stamp,
            }),
        ),
        (at(6), Input::Stall(StallInput::Reported(NODE_IO))),
        (at(6), disks(DiskInput::IoStalled)),
        (at(8), disks(DiskInput::Tick { soon: at(8).boot })),
        (at(12), Input::Stall(StallInput::Tick { soon: at(17).boot })),
        (
            at(20),
            disks(DiskInput::Announced(DiskChange {
                action: DiskAction::Removed,
                device: sda(),
                name: "sda".to_owned(),
            })),
        ),
        (at(40), crossed(Side::Under, None)),
    ]
}

/// The run as JSON lines, with the answers to its effects as inputs.
fn record(inputs: Vec<(Now, Input)>) -> String {
    let mut subjects = Subjects::new(&setup());
    let mut lines = String::new();
    for (now, input) in inputs {
        let mut queue = VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            let effects = subjects.on(input.clone(), now);
            queue.extend(effects.iter().filter_map(answer));
            lines += &line(now, input, effects);
        }
    }
    lines
}

fn line(now: Now, input: Input, effects: Vec<Effect>) -> String {
    let step = Step {
        now,
        input,
        effects,
    };
    serde_json::to_string(&step).unwrap() + "\n"
}

#[test]
fn a_recorded_run_gives_the_same_effects_byte_for_byte_when_it_is_replayed() {
    let recorded = record(bad_minute());
    for effect in [
        "WatchDisks",
        "EndPidState",
        "Counters",
        "stalled\":[\"sda\"]",
        "ForgetDisk",
        "UnderPressure",
    ] {
        assert!(recorded.contains(effect), "{effect} in {recorded}");
    }
    let mut subjects = Subjects::new(&setup());
    let mut replayed = String::new();
    for recorded in recorded.lines() {
        let step: Step = serde_json::from_str(recorded).unwrap();
        let effects = subjects.on(step.input.clone(), step.now);
        replayed += &line(step.now, step.input, effects);
    }
    assert_eq!(replayed, recorded);
}

#[test]
fn the_next_moment_is_that_of_the_subject_that_is_due_first() {
    let mut subjects = Subjects::new(&setup());
    assert_eq!(subjects.due(), None);
    let over = PidInput::Crossed {
        side: Side::Over,
        ids: 9,
        tasks: None,
    };
    let stalled = Input::Stall(StallInput::Sampled {
        stall: NODE_IO,
        sample: Some(StallSample {
            avg10: 50.0,
            avg60: 50.0,
        }),
    });
    subjects.on(Input::Pid(over), at(10));
    assert_eq!(subjects.due(), Some(at(15).boot), "tasks are counted");
    subjects.on(stalled.clone(), at(1));
    assert_eq!(subjects.due(), Some(at(11).boot), "the file comes first");
    subjects.on(stalled, at(8));
    assert_eq!(subjects.due(), Some(at(15).boot), "it was read meanwhile");
}
