use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::*;
use crate::pressure::disks::DiskSample;
use crate::subjects::MapUpdate;

mod listing;

fn at(seconds: u64) -> BootNanos {
    BootNanos(seconds * 1_000_000_000)
}

fn now(boot: BootNanos) -> Now {
    let wall = SystemTime::UNIX_EPOCH;
    Now { boot, wall }
}

fn number(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 8, minor }
}

fn disk(name: &str, minor: u32) -> Disk {
    Disk {
        name: name.to_owned(),
        device: number(minor),
        rotational: false,
        virtio: false,
        iostats: true,
    }
}

fn without_statistics(name: &str, minor: u32) -> Disk {
    Disk {
        iostats: false,
        ..disk(name, minor)
    }
}

fn settings() -> DiskIo {
    DiskIo {
        solid_state_slow: Duration::from_millis(20),
        rotational_slow: Duration::from_millis(100),
        devices: BTreeMap::new(),
        window: Duration::from_secs(1),
    }
}

fn watch(probe: DiskProbe, trigger: IoTrigger) -> DiskWatch {
    let setup = DiskSetup {
        settings: settings(),
        probe,
        trigger,
    };
    DiskWatch::new(setup, at(1))
}

/// A watch, and a kernel that refuses no disk.
struct Run {
    watch: DiskWatch,
}

impl Run {
    fn new(probe: DiskProbe, trigger: IoTrigger, found: Option<Vec<Disk>>) -> Self {
        let mut run = Self {
            watch: watch(probe, trigger),
        };
        run.on(1, DiskInput::Listed(found));
        run.on(1, DiskInput::Started);
        run
    }

    /// Without the probe.
    fn without_probe(found: Option<Vec<Disk>>) -> Self {
        Self::new(DiskProbe::Missing, IoTrigger::Missing, found)
    }

    fn on(&mut self, seconds: u64, input: DiskInput) -> Vec<Effect> {
        self.at(at(seconds), input)
    }

    fn at(&mut self, moment: BootNanos, input: DiskInput) -> Vec<Effect> {
        let mut effects = self.watch.on(input, now(moment));
        let watched = effects.iter().find_map(|effect| match effect {
            Effect::Map(MapUpdate::WatchDisks(disks)) => Some(disks.clone()),
            _ => None,
        });
        if let Some(disks) = watched {
            effects.extend(self.watch.on(DiskInput::Watched(disks), now(moment)));
        }
        effects
    }

    fn tick(&mut self, seconds: u64) -> Vec<DiskQuery> {
        let soon = at(seconds);
        queries(&self.on(seconds, DiskInput::Tick { soon }))
    }

    fn storage_sampled(&mut self, seconds: u64) -> Vec<DiskQuery> {
        queries(&self.on(seconds, DiskInput::StorageSampled))
    }

    fn health(&mut self, seconds: u64, minor: u32, health: Health) {
        self.watch
            .board
            .set_health(number(minor), health, at(seconds));
    }

    fn names(&self) -> Vec<&str> {
        self.watch.board.watched().map(|(_, name)| name).collect()
    }
}

fn queries(effects: &[Effect]) -> Vec<DiskQuery> {
    let query = |effect: &Effect| match effect {
        Effect::Query(Query::Disk(query)) => Some(query.clone()),
        _ => None,
    };
    effects.iter().filter_map(query).collect()
}

fn writes(effects: &[Effect]) -> Vec<String> {
    let write = |effect: &Effect| match effect {
        Effect::Map(MapUpdate::WatchDisks(disks)) => {
            let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
            Some(format!("watch {}", names.join(" ")))
        }
        Effect::Map(MapUpdate::ForgetDisk(device)) => Some(format!("forget {device}")),
        _ => None,
    };
    effects.iter().filter_map(write).collect()
}

fn facts(effects: &[Effect]) -> Option<Disks> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::Fact(FactChange::Disks(disks)) => Some(disks.clone()),
        _ => None,
    })
}

/// What was published for the evaluation: whether it is known, and what is not watched any more.
fn judged(effects: &[Effect]) -> Option<(bool, Option<Unwatched>)> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::Input(input) => match &**input {
            Input::Signal(SignalInput::Disks {
                known, unwatched, ..
            }) => Some((known.is_some(), *unwatched)),
            _ => None,
        },
        _ => None,
    })
}

fn counters(minor: u32, sample: DiskSample, probe: Option<Health>) -> DiskInput {
    DiskInput::Sampled(vec![DiskCounters {
        device: number(minor),
        counters: CountersRead::Read(sample),
        probe,
    }])
}

fn change(action: DiskAction, name: &str, minor: u32) -> DiskChange {
    DiskChange {
        action,
        device: number(minor),
        name: name.to_owned(),
    }
}

#[test]
fn the_state_is_unavailable_only_if_no_disk_can_be_measured() {
    let rows = [
        (None, false, "not listed"),
        (Some(vec![]), true, "there is none"),
        (
            Some(vec![without_statistics("sda", 0)]),
            false,
            "all are off",
        ),
        (
            Some(vec![without_statistics("sda", 0), disk("sdb", 16)]),
            true,
            "one is on",
        ),
    ];
    for (found, known, name) in rows {
        let mut run = Run::without_probe(Some(vec![disk("sdz", 99)]));
        let effects = run.on(2, DiskInput::Listed(found.clone()));
        let expected = known || found.is_none();
        assert_eq!(judged(&effects), Some((expected, None)), "{name}: later");
        let mut run = Run::without_probe(found);
        let effects = run.on(1, DiskInput::Started);
        assert_eq!(judged(&effects), Some((known, None)), "{name}");
    }
}

#[test]
fn nothing_is_published_before_the_other_signals_were_read() {
    let mut watch = watch(DiskProbe::Missing, IoTrigger::Missing);
    let listed = DiskInput::Listed(Some(vec![disk("sda", 0)]));
    let effects = watch.on(listed, now(at(1)));
    let [Effect::Map(MapUpdate::WatchDisks(disks))] = &effects[..] else {
        panic!("{effects:?}");
    };
    let effects = watch.on(DiskInput::Watched(disks.clone()), now(at(1)));
    assert_eq!((facts(&effects), judged(&effects)), (None, None));
    let effects = watch.on(DiskInput::Started, now(at(1)));
    assert_eq!(facts(&effects), Some(Disks::default()));
}

/// Disks by their minor number, how they are, and since when.
type Healths = &'static [(u32, Health, u64)];

#[test]
fn what_a_disk_raised_that_is_not_watched_any_more_is_not_what_others_raised() {
    let all = || Some(vec![disk("sda", 0), disk("sdb", 16)]);
    let off = || DiskInput::Listed(Some(vec![without_statistics("sda", 0), disk("sdb", 16)]));
    let others = |seconds| {
        Some(Unwatched {
            others: Some(at(seconds)),
        })
    };
    let rows: [(&str, Healths, Option<Unwatched>); 4] = [
        ("none was slow", &[], None),
        (
            "the other one was",
            &[(16, Health::Slow, 5), (16, Health::Healthy, 6)],
            None,
        ),
        (
            "both were",
            &[
                (16, Health::Slow, 5),
                (16, Health::Healthy, 6),
                (0, Health::Slow, 7),
            ],
            others(6),
        ),
        (
            "the other one is",
            &[(16, Health::Slow, 5), (0, Health::Slow, 7)],
            others(8),
        ),
    ];
    for (name, healths, expected) in rows {
        let mut run = Run::without_probe(all());
        for (minor, health, seconds) in healths {
            run.health(*seconds, *minor, *health);
        }
        let effects = run.on(8, off());
        assert_eq!(judged(&effects), Some((true, expected)), "{name}");
    }

    // A removed disk has raised what it raised.
    let mut run = Run::without_probe(all());
    run.health(5, 16, Health::Slow);
    run.health(7, 0, Health::Slow);
    run.on(8, DiskInput::Listed(Some(vec![disk("sda", 0)])));
    let off = DiskInput::Listed(Some(vec![without_statistics("sda", 0)]));
    let effects = run.on(9, off);
    assert_eq!(judged(&effects), Some((false, others(8))));
}

#[test]
fn statistics_are_checked_with_storage_and_a_switch_lists_the_disks() {
    let both = Some(vec![disk("sda", 0), without_statistics("sdb", 16)]);
    let mut run = Run::without_probe(both);
    let known = vec![("sda".to_owned(), true), ("sdb".to_owned(), false)];
    let asked = [DiskQuery::Switched(known)];
    assert_eq!(run.storage_sampled(1), asked);
    assert_eq!(run.storage_sampled(11), [], "one at a time");
    let switched = false;
    let effects = run.on(11, DiskInput::StatisticsChecked { switched });
    assert_eq!(queries(&effects), []);
    assert_eq!(run.storage_sampled(12), asked, "with the next sample");
    let switched = true;
    let effects = run.on(12, DiskInput::StatisticsChecked { switched });
    assert_eq!(queries(&effects), [DiskQuery::List]);

    let mut none = Run::without_probe(Some(Vec::new()));
    assert_eq!(none.storage_sampled(1), [], "no disks");
}

#[test]
fn a_report_counts_if_statistics_are_on() {
    let window = Window {
        judged: 65,
        slow: 61,
        length: Duration::from_secs(1),
        longest: Duration::from_millis(120),
    };
    let stamp = Stamp {
        kernel: at(5),
        read: at(5),
    };
    let reported = |report| DiskInput::Reported {
        device: number(0),
        report,
        stamp,
    };
    let confirmed = |valid, probe| DiskInput::Confirmed {
        device: number(0),
        valid,
        probe,
        stamp,
    };
    let slow = |disks: Disks| !disks.slow.is_empty();
    //  valid, probe, slow by the facts, name
    let rows = [
        (true, Some(Health::Slow), Some(true), "confirmed"),
        (true, None, Some(true), "the map cannot be read"),
        (
            true,
            Some(Health::Healthy),
            Some(true),
            "it ended, and counts",
        ),
        (false, Some(Health::Slow), Some(false), "statistics are off"),
    ];
    for (valid, probe, expected, name) in rows {
        let sda = Some(vec![disk("sda", 0)]);
        let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, sda);
        let asked = run.on(5, reported(DiskReport::SlowWindow(window)));
        let query = DiskQuery::Statistics {
            device: number(0),
            name: "sda".to_owned(),
            stamp,
        };
        assert_eq!(queries(&asked), [query], "{name}");
        let effects = run.on(6, confirmed(valid, probe));
        assert_eq!(facts(&effects).map(slow), expected, "{name}");
        let has_stamp = effects.iter().all(|effect| match effect {
            Effect::Input(input) => match &**input {
                Input::Signal(SignalInput::Disks { stamp: of, .. }) => *of == Some(stamp),
                _ => true,
            },
            _ => true,
        });
        assert!(has_stamp, "{name}: {effects:?}");
    }

    let sda = Some(vec![disk("sda", 0)]);
    let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, sda);
    let error = DiskReport::Error(DiskError {
        write: true,
        errno: 5,
    });
    let failing = facts(&run.on(5, reported(error)));
    let failing = failing.map(|disks| disks.failing);
    assert_eq!(failing, Some(vec!["sda".to_owned()]), "errors need none");
    let quick = DiskReport::SlowWindow(Window { slow: 0, ..window });
    let healthy = facts(&run.on(6, reported(quick)));
    assert_eq!(healthy, Some(Disks::default()));
    let again = run.on(7, reported(quick));
    assert_eq!(facts(&again), None, "no change");
}

#[test]
fn without_the_probe_all_disks_are_sampled_every_ten_seconds() {
    let mut run = Run::without_probe(Some(vec![disk("sda", 0)]));
    let late = |n: u64| {
        let sample = DiskSample {
            completed: 10 * n,
            answered: 10 * n,
            waited: Duration::from_secs(n),
            in_flight: 0,
        };
        counters(0, sample, None)
    };
    let asked = vec![DiskQuery::Counters(vec![(number(0), "sda".to_owned())])];
    assert_eq!(run.tick(10), asked);
    assert_eq!(run.tick(20), [], "the last one is not answered");
    assert_eq!(facts(&run.on(20, late(1))), None);
    assert_eq!(run.tick(29), []);
    assert_eq!(run.tick(30), asked);
    let slow = facts(&run.on(30, late(2))).map(|disks| disks.slow);
    assert_eq!(slow, Some(vec!["sda".to_owned()]), "100 ms each");
    assert_eq!(run.watch.due(), Some(at(32)));
}

#[test]
fn with_probe_and_trigger_nothing_is_sampled_before_tasks_wait() {
    let sda = Some(vec![disk("sda", 0)]);
    let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, sda);
    let asked = vec![DiskQuery::Counters(vec![(number(0), "sda".to_owned())])];
    assert_eq!(run.tick(100), []);
    assert_eq!(queries(&run.on(100, DiskInput::IoStalled)), asked);
    let busy = |completed, in_flight| {
        let sample = DiskSample {
            completed,
            in_flight,
            ..DiskSample::default()
        };
        counters(0, sample, Some(Health::Healthy))
    };
    assert_eq!(run.on(101, busy(5, 3)), []);
    assert_eq!(run.watch.due(), Some(at(102)));
    assert_eq!(run.tick(102), asked);
    let stalled = facts(&run.on(102, busy(5, 3))).map(|disks| disks.stalled);
    assert_eq!(stalled, Some(vec!["sda".to_owned()]));
    assert_eq!(run.tick(104), asked, "while it is unhealthy");
}

#[test]
fn a_disk_that_idles_is_healthy_whatever_the_probe_has() {
    let idle = DiskSample {
        completed: 5,
        ..DiskSample::default()
    };
    let rows = [
        (Some(Health::Slow), "the probe cannot see it"),
        (Some(Health::Healthy), "the probe has it as healthy"),
        (None, "the map cannot be read"),
    ];
    for (probe, name) in rows {
        let sda = Some(vec![disk("sda", 0)]);
        let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, sda);
        run.health(1, 0, Health::Slow);
        run.on(3, counters(0, idle, Some(Health::Slow)));
        let effects = run.on(5, counters(0, idle, probe));
        assert_eq!(facts(&effects), Some(Disks::default()), "{name}");
    }
}
