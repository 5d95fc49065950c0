//! Records and replays a whole run as a list of inputs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::*;
use crate::backoff::Jitter;
use crate::client_certificate::Certificate;
use crate::clock::{BootNanos, Stamp};
use crate::incident::BootId;
use crate::pods::Owner;
use crate::pressure::disks::{DiskSample, DiskTotals};
use crate::pressure::frequent_kills::FrequentOom;
use crate::pressure::io_wait::{IoUser, IoWait, OthersStall, StallShare};
use crate::pressure::sample::Sample;
use crate::pressure::stall::{StallSample, StallThresholds};
use crate::pressure::threshold::Threshold;
use crate::pressure::{Policy, SlowDisks};
use crate::reading::{Disk, DiskReport, DiskRole, Signal, SlowWindow, Stall, StallKind, StallOf};
use crate::record::{DiskAction, DiskChange, Side};
use crate::settings::{DiskIo, Mode, OomNodeEvents, SlowLimit};
use crate::subjects::certificate::{Attempt, Requested, Usage};
use crate::subjects::disks::{CountersRead, DiskCounters};
use crate::subjects::{
    Announced, BlockingQuery, CertificateInput, CertificateOperation, DirectSample, DiskInput,
    DiskProbe, DiskQuery, DiskSetup, IoTrigger, KillCounterSetup, KillSource, MapUpdate, NodeSetup,
    PidInput, Query, RotationSetup, SignalInput, SignalSetup, StallInput, StallSetup,
};
use crate::units::{Bytes, DeviceNumber};

mod snapshots;
mod values;

const NODE_IO: Stall = Stall::new(StallOf::Node, StallKind::Io);

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
        solid_state_slow: SlowLimit::Auto,
        rotational_slow: SlowLimit::Fixed(Duration::from_millis(100)),
        devices: BTreeMap::from([("sdb".to_owned(), SlowLimit::Fixed(Duration::from_millis(7)))]),
        window: Duration::from_secs(1),
        slow_for: Duration::from_secs(15),
        min_stall: 10.0,
        stalled_after: Duration::from_secs(10),
    };
    let node = NodeSetup {
        mode: Mode::Companion,
        page: 4096,
        counters: KillCounterSetup {
            source: KillSource::Program,
            counting: None,
            boot_known: false,
        },
        node_events: OomNodeEvents::Auto,
        frequent_oom: FrequentOom {
            incidents: 5,
            pods: 3,
            window: Duration::from_mins(10),
        },
        refused_forks: Announced::Yes,
    };
    Setup {
        boot: BootId(1),
        conditions: BTreeMap::new(),
        has_server: true,
        started: at(1).boot,
        runtime: crate::subjects::RuntimeUse::Unused,
        certificate: Some(RotationSetup {
            found: Ok(certificate(1)),
            read_at: at(1),
            jitter: Jitter::NONE,
        }),
        node,
        signals: SignalSetup {
            policy: Policy {
                thresholds: Vec::new(),
                transition_period: Duration::from_mins(5),
                slow_disks: SlowDisks::NodepulseConditionOnly,
            },
            announced: Vec::new(),
            pods_cgroup: "/kubepods".to_owned(),
        },
        disks: DiskSetup {
            settings,
            probe: DiskProbe::Attached,
            trigger: IoTrigger::Set,
        },
        stalls: StallSetup {
            thresholds: StallThresholds {
                memory: 15.0,
                io: 40.0,
            },
            transition_period: Duration::from_mins(5),
            watched: vec![(NODE_IO, true)],
        },
    }
}

/// Answers for a node with one disk, which hangs, and whose tasks wait for it.
fn answer(effect: &Effect) -> Option<Input> {
    match effect {
        Effect::Input(input) => Some((**input).clone()),
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
        Effect::BlockingQuery(BlockingQuery::Disk(DiskQuery::Counters(disks))) => {
            let read = |(device, _): &(DeviceNumber, String)| DiskCounters {
                device: *device,
                counters: CountersRead::Read(DiskSample {
                    completed: 5,
                    in_flight: 3,
                    ..DiskSample::default()
                }),
                last_completion: Some(at(4).boot),
            };
            let disks = disks.iter().map(read).collect();
            Some(Input::Disk(DiskInput::Sampled(disks)))
        }
        Effect::BlockingQuery(BlockingQuery::Disk(DiskQuery::Statistics {
            device,
            window,
            stamp,
            ..
        })) => Some(Input::Disk(DiskInput::Confirmed {
            device: *device,
            valid: true,
            window: *window,
            totals: DiskTotals::default(),
            stamp: *stamp,
        })),
        Effect::BlockingQuery(BlockingQuery::IoWait(_)) => {
            Some(Input::Disk(DiskInput::IoWaitRead(IoWait {
                users: vec![IoUser {
                    owner: Owner::Other("/system.slice/\u{1b}x".to_owned()),
                    read: Bytes::from_bytes(7),
                    written: Bytes::from_kib(900),
                }],
                waiters: Vec::new(),
                others: OthersStall::Share(StallShare::from_percent(43.21)),
            })))
        }
        Effect::Certificate(operation) => Some(Input::Certificate(performed(*operation))),
        _ => None,
    }
}

fn certificate(fingerprint: u64) -> Certificate {
    Certificate {
        fingerprint,
        not_before: at(1).wall,
        not_after: at(3600).wall,
        stored: None,
    }
}

/// The result of an operation on the certificate, all of which succeed.
fn performed(operation: CertificateOperation) -> CertificateInput {
    match operation {
        CertificateOperation::Request(..) | CertificateOperation::Poll(_) => {
            CertificateInput::Requested(Requested::Stored(certificate(2)))
        }
        CertificateOperation::Try(_) => CertificateInput::Tried(Attempt::Accepted),
        CertificateOperation::Use(_) => CertificateInput::Used(Usage::Used),
        CertificateOperation::Read | CertificateOperation::Probe => {
            CertificateInput::Read(Ok(certificate(3)))
        }
    }
}

/// Returns the inputs of a bad minute: the pid level is crossed, a disk is slow, hangs and is
/// removed, tasks wait.
fn bad_minute() -> Vec<(Now, Input)> {
    let disk = Disk {
        name: "sda".to_owned(),
        device: sda(),
        rotational: false,
        virtio: true,
        iostats: true,
        role: DiskRole::Node,
    };
    let stamp = Stamp {
        kernel: at(4).boot,
        read: at(5).boot,
    };
    let slow = DiskReport::SlowWindow(SlowWindow {
        judged: 65,
        slow: 61,
        length: Duration::from_secs(16),
        longest: Duration::from_micros(120_500),
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
        (at(2), Input::Certificate(CertificateInput::FilesChanged)),
        (at(2), Input::Certificate(CertificateInput::Rejected(true))),
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
        (at(16), disks(DiskInput::Tick { soon: at(16).boot })),
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

/// Lines of text, of which the test keeps a clone.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl RunRecorder for Lines {
    fn start(&mut self, header: &Header<&Subjects>) {
        self.0
            .lock()
            .unwrap()
            .push(checked_line::line(header).unwrap());
    }

    fn record(&mut self, step: &Step) -> ControlFlow<()> {
        self.0
            .lock()
            .unwrap()
            .push(checked_line::line(step).unwrap());
        ControlFlow::Continue(())
    }
}

/// Returns the lines of a recorded run, with the answers to its effects as inputs.
fn record(inputs: Vec<(Now, Input)>) -> Vec<String> {
    let lines = Lines::default();
    let mut subjects = RecordedSubjects::new(&setup());
    subjects.attach(Box::new(lines.clone()), "1.2.3");
    for (now, input) in inputs {
        let mut queue = VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            let effects = subjects.on(input, now);
            queue.extend(effects.iter().filter_map(answer));
        }
    }
    lines.0.lock().unwrap().clone()
}

fn replayed(lines: &[String]) -> Result<Replayed, ReplayError> {
    replay(lines, |_| {})
}

#[test]
fn a_recorded_run_gives_the_same_effects_byte_for_byte_when_it_is_replayed() {
    let recorded = record(bad_minute());
    let text = recorded.concat();
    for effect in [
        "WatchDisks",
        "EndPidState",
        "Counters",
        "stalled\":[\"sda\"]",
        "ForgetDisk",
        "UnderPressure",
    ] {
        assert!(text.contains(effect), "{effect} in {text}");
    }
    let replayed = replayed(&recorded).unwrap();
    assert_eq!(replayed.steps, recorded.len() - 1);
    assert!(replayed.steps > bad_minute().len(), "answers are inputs");
}

/// Returns lines with the checksums of what they are now.
fn resealed(lines: &str) -> String {
    let lines = lines.split_inclusive('\n');
    lines
        .map(|line| {
            let object = line
                .rsplit_once(",\"sum\":")
                .map_or(line, |(object, _)| object);
            checked_line::with_checksum(format!("{object}}}"))
        })
        .collect()
}

#[test]
fn the_first_line_that_differs_is_named_with_both_texts() {
    type Change = Box<dyn Fn(&mut Vec<String>)>;
    let good = record(bad_minute());
    let is = |line: &String, what: &str| line.contains(what);
    let find = |what: &str| good.iter().position(|line| is(line, what)).unwrap();
    let effect = find("\"stalled\":[\"sda\"]");
    let reported = find("{\"Reported\":{\"device\"");
    let dropped = find("\"input\":{\"Disk\":{\"Watched\"");
    // Change, number of the line in the error.
    let rows: [(&str, Change, usize); 4] = [
        (
            "an effect",
            Box::new(move |lines| {
                lines[effect] = lines[effect].replace("[\"sda\"]", "[\"sdb\"]");
            }),
            effect + 1,
        ),
        (
            "an effect less",
            Box::new(move |lines| {
                let at = lines[effect].find("\"effects\":").unwrap();
                lines[effect].replace_range(at.., "\"effects\":[],\"sum\":0}\n");
            }),
            effect + 1,
        ),
        (
            "an input less",
            Box::new(move |lines| {
                lines.remove(dropped);
            }),
            reported,
        ),
        (
            "another threshold",
            Box::new(|lines| {
                lines[0] = lines[0].replace("\"io\":40.0", "\"io\":99.0");
            }),
            find("{\"Stall\":{\"Sampled\"") + 1,
        ),
    ];
    for (what, change, expected) in rows {
        let mut lines = good.clone();
        change(&mut lines);
        assert_ne!(lines, good, "{what}");
        let lines: Vec<String> = lines.iter().map(|line| resealed(line)).collect();
        let err = replayed(&lines).unwrap_err();
        let number = match &err {
            ReplayError::Differs {
                line,
                recorded,
                replayed,
            } => {
                assert_eq!(recorded, &lines[line - 1], "{what}");
                assert_ne!(recorded, replayed, "{what}");
                *line
            }
            ReplayError::Invalid { line, .. } => *line,
            _ => 0,
        };
        assert_eq!(number, expected, "{what}: {err}");
        let name = format!("line {expected} ");
        assert!(err.to_string().starts_with(&name), "{what}: {err}");
    }
}

#[test]
fn what_no_recorder_writes_is_refused_with_its_line() {
    let good = record(bad_minute());
    assert!(matches!(replayed(&[]), Err(ReplayError::Empty)));
    let spaced = resealed(
        &good[0]
            .replace(':', ": ")
            .replace(",\"sum\": ", ",\"sum\":"),
    );
    let rows = [
        (
            vec![good[1].clone()],
            "line 1 of the recording is not valid",
        ),
        (vec![spaced], "line 1 differs"),
        (
            vec![good[0].clone(), "{}\n".to_owned()],
            "line 2 of the recording was changed",
        ),
        (
            vec![good[0].clone(), good[0].clone()],
            "line 2 of the recording is not valid",
        ),
    ];
    for (lines, expected) in rows {
        let err = replayed(&lines).unwrap_err().to_string();
        assert!(err.starts_with(expected), "{err}");
    }
}

#[test]
fn the_next_moment_is_that_of_the_subject_that_is_due_first() {
    let mut subjects = Subjects::new(&setup());
    assert_eq!(subjects.due(), BootNanos(0), "nothing is sampled yet");
    let sampled = Input::Signal(SignalInput::Sampled(DirectSample {
        samples: vec![Sample::Absent(Signal::MemoryAvailable)],
        tasks: None,
        pid_capacity: None,
        pods_cgroup: "/kubepods".to_owned(),
        stamp: None,
    }));
    let over = Input::Pid(PidInput::Crossed {
        side: Side::Over,
        ids: 9,
        tasks: None,
    });
    let stalled = Input::Stall(StallInput::Sampled {
        stall: NODE_IO,
        sample: Some(StallSample {
            avg10: 50.0,
            avg60: 50.0,
        }),
    });
    // At s, input, due at s.
    let script = [
        (3, sampled, 0, "storage was never sampled"),
        (
            3,
            Input::Signal(SignalInput::StorageRequested),
            13,
            "the next sample",
        ),
        (6, over, 11, "tasks are counted"),
        (0, stalled.clone(), 10, "the pressure file comes first"),
        (4, stalled, 11, "it was read meanwhile"),
    ];
    for (seconds, input, due, name) in script {
        subjects.on(input, at(seconds));
        assert_eq!(subjects.due(), at(due).boot, "{name}");
    }
}
