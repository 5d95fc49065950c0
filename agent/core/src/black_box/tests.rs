use std::collections::BTreeMap;

use super::*;
use crate::incident::{Occurred, Occurrence};
use crate::node_status::Disks;
use crate::pressure::sample::Sample;
use crate::pressure::stall::{StallReading, StallSample};
use crate::pressure::threshold::Threshold;
use crate::pressure::{Policy, Pressure, SlowDisks};
use crate::reading::{Reading, Stall};
use crate::tests::{boot, now};

const HERE: u64 = 7;
const LAST: BootId = BootId(1);
const THIS: BootId = BootId(2);

fn at(since_boot: u64, wall: u64) -> Now {
    Now {
        boot: boot(since_boot),
        ..now(wall)
    }
}

/// A record of the last boot, `seconds` after it.
fn record(number: u64, seconds: u64) -> Record {
    let range = Range {
        lowest: 1 << 20,
        highest: 2 << 20,
    };
    let signals = [("memory.available".to_owned(), range)];
    Record {
        number,
        origin: Origin {
            machine: HERE,
            boot: LAST,
            tag: 3,
        },
        at: at(seconds, 10_000 + seconds),
        marks: Marks::default(),
        readings: Readings {
            signals: BTreeMap::from(signals),
            stalls: BTreeMap::from([("memory".to_owned(), 40)]),
            kills: 1,
            disks: vec![UnhealthyDisk {
                name: "nvme0n1".to_owned(),
                health: DiskTrouble::Stalled,
            }],
            others: 2,
        },
        newest: Some(9),
    }
}

fn marked(shutdown: bool, agent_stopped: bool) -> Record {
    Record {
        marks: Marks {
            shutdown,
            agent_stopped,
        },
        ..record(200, 1_000)
    }
}

/// A file that was written `seconds` after the last boot. The last record is of 1,000.
fn file(seconds: u64, text: &str) -> WrittenFile {
    WrittenFile {
        path: "dmesg.txt".to_owned(),
        at: now(10_000 + seconds).wall,
        text: text.to_owned(),
    }
}

fn evidence() -> Evidence {
    Evidence {
        has_pstore: true,
        ..Evidence::default()
    }
}

/// The end, 60 seconds after which this boot began.
fn end(last: Record, evidence: &Evidence) -> Occurred {
    let found = LastBoot::find(&[last], HERE, THIS).unwrap();
    found.end(evidence, at(30, 11_090))
}

fn boot_end(occurred: Occurred) -> BootEnd {
    match occurred.occurrence {
        Occurrence::Boot(end) => *end,
        other => panic!("{other:?}"),
    }
}

pub fn panic() -> Occurred {
    let log = "<4>[ 1001.5] a\n<0>[ 1002.5] Kernel panic - not syncing: \u{1b}Oops\n<4>[ 1002.6] b";
    let logs = vec![file(1_003, log)];
    end(record(200, 1_000), &Evidence { logs, ..evidence() })
}

#[test]
fn the_end_of_a_boot_is_decided_by_its_traces() {
    use Certainty::{Certain, Likely, Possible};
    use End::{KernelPanic, MachineCheck, NotObserved, PowerLossOrReset, Shutdown, Watchdog};
    const LOG: &str = "[ 1002.5] Kernel panic - not syncing: Fatal exception";
    let logs = |seconds, text| Evidence {
        logs: vec![file(seconds, text)],
        ..evidence()
    };
    let watchdog = || Evidence {
        watchdogs: vec!["watchdog0".to_owned()],
        ..evidence()
    };
    let crash = |seconds| Evidence {
        crashes: vec![file(seconds, "")],
        ..evidence()
    };
    let plain = || marked(false, false);
    #[rustfmt::skip]
    let rows = [
        ("no trace", plain(), evidence(), (PowerLossOrReset, Likely)),
        ("no pstore", plain(), Evidence::default(), (PowerLossOrReset, Possible)),
        ("the agent may have died before", record(9, 10), evidence(), (PowerLossOrReset, Possible)),
        ("shutdown", marked(true, true), evidence(), (Shutdown, Likely)),
        ("not stopped in time", marked(true, false), evidence(), (Shutdown, Likely)),
        ("agent stopped", marked(false, true), evidence(), (NotObserved, Certain)),
        ("watchdog", plain(), watchdog(), (Watchdog, Certain)),
        ("watchdog without an agent", marked(false, true), watchdog(), (Watchdog, Certain)),
        ("hung shutdown", marked(true, true), watchdog(), (Shutdown, Likely)),
        ("panic", plain(), logs(1_003, LOG), (KernelPanic, Certain)),
        ("panic in a shutdown", marked(true, true), logs(1_003, LOG), (KernelPanic, Certain)),
        ("panic of an older boot", plain(), logs(900, LOG), (PowerLossOrReset, Likely)),
        ("oops", plain(), logs(1_003, "[ 1001.5] Oops: 0000"), (PowerLossOrReset, Likely)),
        ("without times", plain(), logs(1_003, "Kernel panic - not syncing: x"), (KernelPanic, Likely)),
        ("copied, of an earlier time", plain(), logs(1_003, "[    9.1] Kernel panic - not syncing: x"), (KernelPanic, Possible)),
        ("machine check", plain(), logs(1_003, "[ 1002.5] Kernel panic - not syncing: Fatal machine check"), (MachineCheck, Certain)),
        ("hardware", plain(), logs(1_003, "mce: [Hardware Error]: CPU 1: Bank 5\n[ 1002.5] Kernel panic - not syncing: x"), (MachineCheck, Certain)),
        ("crash kernel", plain(), crash(1_050), (KernelPanic, Likely)),
        ("old crash", plain(), crash(990), (PowerLossOrReset, Likely)),
    ];
    for (name, last, evidence, expected) in rows {
        let end = boot_end(end(last, &evidence));
        assert_eq!((end.end, end.certainty), expected, "{name}: {end:?}");
        let reason = end.words().reason;
        assert_eq!(reason == UNCLEAN_REBOOT, end.is_unclean(), "{name}");
    }
    let message = boot_end(panic()).words().message;
    let expected = "The last boot ended by a kernel panic: dmesg.txt: Kernel panic - not syncing: \
                    \\u{1b}Oops; the next boot began 60 s after the last record. In its last ten \
                    minutes, at least 1.0Mi of memory was available, tasks waited for memory up to \
                    40% of the time, 1 process was OOM-killed, disk nvme0n1 did not respond.";
    assert_eq!(message, expected);
}

#[test]
fn a_clock_that_was_set_back_hides_no_panic_and_makes_none_of_an_old_log() {
    use End::{KernelPanic, PowerLossOrReset, Shutdown};
    let plain = || marked(false, false);
    // The last record is of second 1,000 of its boot.
    let rows = [
        ("written before the end", plain(), 1_003, 1_002, KernelPanic),
        ("moved after this boot", plain(), 520, 1_002, KernelPanic),
        ("of a shorter boot", plain(), 520, 300, PowerLossOrReset),
        ("of a longer boot", plain(), 1_003, 5_000, PowerLossOrReset),
        ("shut down", marked(true, true), 520, 1_002, Shutdown),
    ];
    for (name, last, written, at_seconds, expected) in rows {
        let log = format!("[ {at_seconds}.5] Kernel panic - not syncing: x");
        let logs = vec![file(written, &log)];
        let found = LastBoot::find(&[last], HERE, THIS).unwrap();
        // This boot began 500 s before the last record, by its clock.
        let ended = boot_end(found.end(&Evidence { logs, ..evidence() }, at(30, 10_530)));
        assert_eq!(ended.end, expected, "{name}: {ended:?}");
        assert_ne!(ended.certainty, Certainty::Certain, "{name}");
        let last = ended.evidence.last().unwrap();
        assert_eq!(last, "the clock was set back since the last record");
    }
}

#[test]
fn only_the_first_start_after_a_boot_of_this_machine_decides() {
    let of = |machine, boot| {
        let mut one = record(5, 100);
        one.origin.machine = machine;
        one.origin.boot = boot;
        one
    };
    let find = |records: &[Record]| LastBoot::find(records, HERE, THIS).is_some();
    assert!(!find(&[]), "the first start of all");
    assert!(find(&[of(HERE, LAST)]));
    assert!(!find(&[of(HERE, LAST), of(HERE, THIS)]), "the second start");
    assert!(!find(&[of(8, LAST)]), "the disk of another machine");
    assert!(
        find(&[of(HERE, LAST), of(8, THIS)]),
        "foreign records are skipped"
    );
}

#[test]
fn the_last_ten_minutes_are_reported_minute_by_minute() {
    let records: Vec<_> = (0..256).map(|n| record(n + 1, 5 * n)).collect();
    let found = LastBoot::find(&records, HERE, THIS).unwrap();
    let end = boot_end(found.end(&evidence(), now(11_300)));
    assert_eq!(end.minutes.len(), 10);
    let readings = end.readings();
    assert_eq!(readings.kills, 120);
    assert_eq!(readings.stalls["memory"], 40);
}

#[test]
fn a_ring_is_read_whatever_a_power_cut_left_of_it() {
    let mut ring = vec![0; RING];
    let records: Vec<_> = (250..=300).map(|n| record(n, n)).collect();
    for record in &records {
        let begin = usize::try_from(offset(record.number)).unwrap();
        ring[begin..begin + RECORD].copy_from_slice(&record.encode());
    }
    assert_eq!(Record::decode_ring(&ring), records);
    assert_eq!(next_number(&records), 301);
    assert_eq!(next_number(&[]), 1);

    // Each changed byte costs one record, each cut all behind it.
    let mut random = 0x1234_5678_u64;
    for _ in 0..2_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let place = usize::try_from(random >> 33).unwrap() % RING;
        let mut torn = ring.clone();
        torn[place] ^= 1 << (random % 8);
        let read = Record::decode_ring(&torn);
        let hit = Record::decode(&ring[place / RECORD * RECORD..][..RECORD]);
        let left = records.iter().filter(|one| Some(*one) != hit.as_ref());
        assert_eq!(read, left.cloned().collect::<Vec<_>>(), "{place}");
        torn.truncate(place);
        assert!(Record::decode_ring(&torn).len() <= records.len());
    }
}

/// Observes available memory, of 1000 with a threshold of 100. The next samples are due two seconds
/// later.
fn observe(recorder: &mut Recorder, seconds: u64, available: i64, stall: f32) {
    observe_at(recorder, boot(seconds), boot(seconds + 2), available, stall);
}

fn observe_at(recorder: &mut Recorder, at: BootNanos, next: BootNanos, available: i64, stall: f32) {
    let policy = Policy {
        thresholds: vec![
            Threshold::parse("memory.available", "100")
                .unwrap()
                .unwrap(),
        ],
        transition_period: Duration::from_mins(5),
        slow_disks: SlowDisks::NodepulseConditionOnly,
    };
    let sample = Sample::Read(Reading {
        signal: Signal::MemoryAvailable,
        available,
        capacity: 1_000,
    });
    let read = StallSample {
        avg10: stall,
        avg60: 0.0,
    };
    let stall = StallReading {
        stall: Stall::NODE_MEMORY,
        pressure: Pressure::Normal,
        threshold: 15.0,
        last: Some((read, at)),
    };
    let waited = StallSample {
        avg10: 90.0,
        avg60: 90.0,
    };
    let observed = Observed {
        samples: &[sample],
        policy: &policy,
        stalls: &[stall],
        waits: &[(StallKind::Io, waited)],
        disks: &Disks::default(),
        next,
    };
    let now = Now { boot: at, ..now(0) };
    recorder.observe(&observed, now);
}

fn taken(recorder: &mut Recorder, seconds: u64) -> Vec<Record> {
    if !recorder.is_due(now(seconds)) {
        return Vec::new();
    }
    let batch = recorder.take(now(seconds));
    let decoded = batch
        .iter()
        .map(|(_, bytes)| Record::decode(bytes).unwrap());
    decoded.collect()
}

#[test]
fn records_are_written_once_a_minute_and_every_ten_seconds_near_a_threshold() {
    let mut recorder = Recorder::new(record(1, 0).origin, 41);
    let mut written = Vec::new();
    for second in (100..=400).step_by(2) {
        // Near from 200 on, a stall from 250 on, calm from 300 on.
        let available = if (200..250).contains(&second) {
            190
        } else {
            900
        };
        let stall = if (250..300).contains(&second) {
            8.0
        } else {
            0.0
        };
        observe(&mut recorder, second, available, stall);
        let records = taken(&mut recorder, second);
        if !records.is_empty() {
            written.push((second, records));
        }
    }
    let times: Vec<u64> = written.iter().map(|(second, _)| *second).collect();
    let near: Vec<u64> = times
        .iter()
        .copied()
        .filter(|at| (200..300).contains(at))
        .collect();
    let first = [100, 110, 170];
    assert_eq!(
        times[..3],
        first,
        "at once, after ten seconds, then after a minute"
    );
    assert!(9 <= near.len(), "{times:?}");
    assert!(
        times.iter().filter(|at| **at > 320).count() <= 2,
        "{times:?}"
    );
    let all: Vec<&Record> = written.iter().flat_map(|(_, records)| records).collect();
    let numbers: Vec<u64> = all.iter().map(|record| record.number).collect();
    assert_eq!(numbers, (41..41 + numbers.len() as u64).collect::<Vec<_>>());
    let apart = all
        .windows(2)
        .map(|two| two[1].at.boot.since(two[0].at.boot));
    // A batch ends with a record, in which everything before it is.
    let early = apart.filter(|apart| *apart < Duration::from_secs(5));
    assert!(early.count() <= written.len());
    let lowest = all
        .iter()
        .map(|record| record.readings.signals["memory.available"].lowest);
    assert_eq!(lowest.min(), Some(190));
    // What no condition depends on is recorded too, and hastens nothing.
    let io = all.iter().map(|record| record.readings.stalls.get("io"));
    assert!(io.into_iter().all(|share| share == Some(&90)));
}

#[test]
fn near_a_threshold_the_newest_record_on_the_disk_is_never_older_than_ten_seconds() {
    const MILLI: u64 = 1_000_000;
    // The milliseconds between samples, in turn; the greatest age, and the least time between two
    // writes.
    let rows: [(&[u64], u64, u64); 6] = [
        (&[250], 10_000, 8_500),
        (&[1_000], 10_000, 8_000),
        (&[2_000], 10_000, 7_000),
        (&[3_700, 250, 9_000, 1_300], 10_000, 4_000),
        (&[5_000], 10_000, 5_000),
        // There is no record between two samples.
        (&[10_000], 10_000, 10_000),
    ];
    for (waits, oldest, apart) in rows {
        let mut recorder = Recorder::new(record(1, 0).origin, 1);
        let (mut at, mut on_disk, mut writes) = (boot(100), boot(100), 0);
        for wait in waits.iter().cycle().take(400) {
            let next = at.plus(Duration::from_millis(*wait));
            observe_at(&mut recorder, at, next, 190, 0.0);
            let now = Now { boot: at, ..now(0) };
            if recorder.is_due(now) {
                let (_, newest) = recorder.take(now).pop().unwrap();
                on_disk = Record::decode(&newest).unwrap().at.boot;
                writes += 1;
            }
            at = next;
            let age = at.since(on_disk).as_millis();
            assert!(age <= u128::from(oldest), "{waits:?}: {age} ms");
        }
        let most = (at.0 / MILLI - 100_000) / apart + 2;
        assert!(writes <= most, "{waits:?}: {writes} of {most}");
    }
}

#[test]
fn an_announced_shutdown_is_written_at_once_until_it_is_cancelled() {
    let mut recorder = Recorder::new(record(1, 0).origin, 1);
    observe(&mut recorder, 100, 900, 0.0);
    assert_eq!(taken(&mut recorder, 100).len(), 1);
    recorder.shut_down(true, now(101));
    assert!(taken(&mut recorder, 101)[0].marks.shutdown);
    recorder.shut_down(false, now(102));
    assert_eq!(taken(&mut recorder, 102)[0].marks, Marks::default());
    for (shutdown, agent_stopped) in [(false, true), (true, true), (false, false)] {
        let marks = Marks {
            shutdown,
            agent_stopped,
        };
        let recorder = Recorder::new(record(1, 0).origin, 1);
        let (_, last) = recorder.stop(marks, now(103)).pop().unwrap();
        assert_eq!(Record::decode(&last).unwrap().marks, marks);
    }
}

#[test]
fn while_the_disk_hangs_the_newest_records_wait() {
    let mut recorder = Recorder::new(record(1, 0).origin, 1);
    for second in 0..2_000 {
        observe(&mut recorder, 100 + 5 * second, 900, 0.0);
    }
    let batch = recorder.take(now(20_000));
    assert_eq!(batch.len(), 256);
    let (_, last) = batch.last().unwrap();
    assert_eq!(Record::decode(last).unwrap().number, 2_000);
}

#[test]
fn a_gap_is_found_unless_the_agent_was_stopped_and_started_again_at_once() {
    let (stopped, running) = (marked(false, true), marked(false, false));
    // The last record is of 1,000 seconds after the boot.
    let rows = [
        (&stopped, (HERE, LAST), 1_059, None, "an upgrade"),
        (
            &stopped,
            (HERE, LAST),
            1_060,
            Some((true, 60)),
            "it was off",
        ),
        (
            &running,
            (HERE, LAST),
            1_003,
            Some((false, 3)),
            "it was killed",
        ),
        (&running, (HERE, LAST), 1_000, Some((false, 1)), "just now"),
        (&running, (HERE, THIS), 1_003, None, "in the last boot"),
        (
            &running,
            (HERE + 1, LAST),
            1_003,
            None,
            "on another machine",
        ),
    ];
    for (last, of, seconds, expected, why) in rows {
        let records = [record(199, 990), last.clone()];
        assert_eq!(
            gap(&records, of, LastAgent::default(), seconds),
            expected,
            "{why}"
        );
    }
    assert_eq!(gap(&[], (HERE, LAST), LastAgent::default(), 1_000), None);
}

#[test]
fn an_agent_that_wrote_no_records_and_one_that_fails_again_and_again_have_no_gap() {
    let wall = |seconds: u64| Some(now(10_000 + seconds).wall);
    let rows = [
        (
            wall(1_120),
            None,
            true,
            "the state may be a bit newer than the record",
        ),
        (wall(1_121), None, false, "an agent ran without a black box"),
        (wall(900), None, true, "the state was not written again"),
        (None, wall(1_401), false, "the last gap ended 599 s ago"),
        (None, wall(1_400), true, "the last gap ended 600 s ago"),
        (None, wall(2_500), true, "the clock was set back"),
    ];
    for (saved, last, expected, why) in rows {
        let last_agent = LastAgent { saved, gap: last };
        let found = gap(&[marked(false, true)], (HERE, LAST), last_agent, 2_000);
        assert_eq!(found.is_some(), expected, "{why}");
    }
}

fn gap(
    records: &[Record],
    of: (u64, BootId),
    last: LastAgent,
    seconds: u64,
) -> Option<(bool, u64)> {
    let found = AgentGap::find(records, of, last, at(seconds, 10_000 + seconds))?;
    match found.occurrence {
        Occurrence::Gap(gap) => Some((gap.stopped, gap.seconds)),
        other => panic!("{other:?}"),
    }
}
