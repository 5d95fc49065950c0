use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::*;
use crate::pressure::disks::{DiskSample, DiskTotals};
use crate::pressure::io_wait::{IoWait, OthersStall, StallShare};
use crate::reading::DiskError;
use crate::settings::SlowLimit;
use crate::subjects::MapUpdate;
use crate::units::latency::Buckets;

mod auto_limits;
mod details;
mod filesystems;
mod listing;
mod reasons;
mod sampling;
mod unread;

fn at(seconds: u64) -> BootNanos {
    BootNanos((1000 + seconds) * 1_000_000_000)
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
        role: DiskRole::Node,
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
        solid_state_slow: SlowLimit::Auto,
        rotational_slow: SlowLimit::Fixed(Duration::from_millis(100)),
        devices: BTreeMap::new(),
        window: Duration::from_secs(1),
        slow_for: Duration::from_secs(15),
        min_stall: 10.0,
        stalled_after: Duration::from_secs(10),
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
        queries(&self.on(seconds, storage(&[])))
    }

    /// Makes a disk stalled, or lets it complete requests again.
    fn stalled(&mut self, seconds: u64, minor: u32, stalled: bool) {
        let (device, now) = (number(minor), at(seconds));
        let board = &mut self.watch.board;
        board.suspect(now.minus(Duration::from_mins(1)));
        for _ in 0..2 {
            board.apply_sample(device, busy(7, stalled.into()), None, now);
        }
    }

    fn names(&self) -> Vec<&str> {
        self.watch.board.watched().map(|(_, name)| name).collect()
    }
}

fn storage(read_only: &[(NodeFilesystem, bool)]) -> DiskInput {
    DiskInput::StorageSampled {
        read_only: read_only.to_vec(),
        errors: 0,
    }
}

fn busy(completed: u64, in_flight: u64) -> DiskSample {
    DiskSample {
        completed,
        in_flight,
        ..DiskSample::default()
    }
}

fn queries(effects: &[Effect]) -> Vec<DiskQuery> {
    let query = |effect: &Effect| match effect {
        Effect::BlockingQuery(BlockingQuery::Disk(query)) => Some(query.clone()),
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

/// Returns true if the published state is known, and the disk that is no longer watched.
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

fn counters(minor: u32, sample: DiskSample) -> DiskInput {
    DiskInput::Sampled(vec![DiskCounters {
        device: number(minor),
        counters: CountersRead::Read(sample),
        last_completion: None,
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
    #[rustfmt::skip]
    let rows = [
        (None, false, "not listed"),
        (Some(vec![]), true, "there is none"),
        (Some(vec![without_statistics("sda", 0)]), false, "all are off"),
        (Some(vec![without_statistics("sda", 0), disk("sdb", 16)]), true, "one is on"),
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

/// Disks by their minor number, true if they are stalled, and the start of the stall.
type Healths = &'static [(u32, bool, u64)];

#[test]
fn if_a_disk_is_no_longer_watched_only_the_problems_of_others_count() {
    let all = || Some(vec![disk("sda", 0), disk("sdb", 16)]);
    let off = || DiskInput::Listed(Some(vec![without_statistics("sda", 0), disk("sdb", 16)]));
    let others = |seconds| {
        Some(Unwatched {
            others: Some(at(seconds)),
        })
    };
    #[rustfmt::skip]
    let rows: [(&str, Healths, Option<Unwatched>); 4] = [
        ("none was stalled", &[], None),
        ("the other one was", &[(16, true, 5), (16, false, 6)], None),
        ("both were", &[(16, true, 5), (16, false, 6), (0, true, 7)], others(6)),
        ("the other one is", &[(16, true, 5), (0, true, 7)], others(8)),
    ];
    for (name, healths, expected) in rows {
        let mut run = Run::without_probe(all());
        for (minor, health, seconds) in healths {
            run.stalled(*seconds, *minor, *health);
        }
        let effects = run.on(8, off());
        assert_eq!(judged(&effects), Some((true, expected)), "{name}");
    }

    // The problem of a removed disk still counts.
    let mut run = Run::without_probe(all());
    run.stalled(5, 16, true);
    run.stalled(7, 0, true);
    run.on(8, DiskInput::Listed(Some(vec![disk("sda", 0)])));
    let off = DiskInput::Listed(Some(vec![without_statistics("sda", 0)]));
    let effects = run.on(9, off);
    assert_eq!(judged(&effects), Some((false, others(8))));
}

#[test]
fn statistics_are_checked_with_every_sixth_sample_of_storage_and_a_switch_lists_the_disks() {
    let both = Some(vec![disk("sda", 0), without_statistics("sdb", 16)]);
    let mut run = Run::without_probe(both);
    let known = vec![("sda".to_owned(), true), ("sdb".to_owned(), false)];
    let asked = [DiskQuery::Switched(known)];
    assert_eq!(run.storage_sampled(1), asked);
    assert_eq!(run.storage_sampled(61), [], "one at a time");
    let switched = false;
    let effects = run.on(62, DiskInput::StatisticsChecked { switched });
    assert_eq!(queries(&effects), []);
    assert_eq!(run.storage_sampled(71), asked, "with the next sample");
    let switched = true;
    let effects = run.on(71, DiskInput::StatisticsChecked { switched });
    assert_eq!(queries(&effects), [DiskQuery::List]);
    for seconds in [81, 91, 101, 111, 121] {
        assert_eq!(run.storage_sampled(seconds), [], "{seconds} s");
    }
    assert_eq!(run.storage_sampled(131), asked, "a minute later");

    let mut none = Run::without_probe(Some(Vec::new()));
    assert_eq!(none.storage_sampled(1), [], "no disks");
}

const WINDOW: SlowWindow = SlowWindow {
    judged: 65,
    slow: 61,
    length: Duration::from_secs(1),
    longest: Duration::from_millis(120),
};

fn stamp(seconds: u64) -> Stamp {
    crate::tests::stamp(at(seconds))
}

fn reported(seconds: u64, report: DiskReport) -> DiskInput {
    DiskInput::Reported {
        device: number(0),
        report,
        stamp: stamp(seconds),
    }
}

fn error() -> DiskReport {
    DiskReport::Error(DiskError {
        write: true,
        errno: 5,
    })
}

fn confirmed(seconds: u64, valid: bool) -> DiskInput {
    confirmed_of(0, seconds, valid)
}

fn confirmed_of(minor: u32, seconds: u64, valid: bool) -> DiskInput {
    DiskInput::Confirmed {
        device: number(minor),
        valid,
        window: WINDOW,
        totals: totals(seconds),
        stamp: stamp(seconds),
    }
}

/// Returns the counters of a disk that completes [`WINDOW`] and transfers 12 MB each second.
fn totals(seconds: u64) -> DiskTotals {
    let mut judged = Buckets::default();
    judged[11] = 65 * seconds;
    DiskTotals {
        bytes: Some(12_000_000 * seconds),
        judged: Some(judged),
    }
}

fn io_wait(percent: f32) -> DiskInput {
    DiskInput::IoWaitRead(IoWait {
        others: OthersStall::Share(StallShare::from_percent(percent)),
        ..IoWait::default()
    })
}

fn with_probe() -> Run {
    let sda = Some(vec![disk("sda", 0)]);
    Run::new(DiskProbe::Attached, IoTrigger::Set, sda)
}

/// Returns true if the I/O wait was queried.
fn asks_for_stalls(effects: &[Effect]) -> bool {
    effects.contains(&Effect::BlockingQuery(BlockingQuery::IoWait(number(0))))
}

/// Returns the logged reason for the state of a disk.
fn reason(effects: &[Effect]) -> Option<String> {
    effects.iter().find_map(|effect| match effect {
        Effect::Log(Decision::Disk(DiskDecision::HealthChanged { details, .. })) => {
            Some(details.clone())
        }
        _ => None,
    })
}

fn slow(effects: &[Effect]) -> Option<Vec<String>> {
    facts(effects).map(|disks| disks.slow)
}

#[test]
fn slow_windows_count_while_statistics_are_on_and_others_wait() {
    let mut run = with_probe();
    let report = reported(1, DiskReport::SlowWindow(WINDOW));
    let query = DiskQuery::Statistics {
        device: number(0),
        name: "sda".to_owned(),
        window: WINDOW,
        stamp: stamp(1),
    };
    assert_eq!(queries(&run.on(1, report)), [query]);
    for second in 1..=12 {
        let effects = run.on(second, confirmed(second, true));
        assert_eq!(effects, [], "{second} s of slow windows");
    }
    assert!(asks_for_stalls(&run.on(13, confirmed(13, true))));
    assert_eq!(run.on(14, confirmed(14, true)), [], "in progress");
    assert_eq!(slow(&run.on(14, io_wait(9.0))), None, "too early");
    assert_eq!(
        slow(&run.on(15, confirmed(15, true))),
        None,
        "others hardly wait"
    );
    assert!(
        asks_for_stalls(&run.on(19, confirmed(19, true))),
        "once in 5 s"
    );
    let effects = run.on(20, io_wait(10.0));
    assert_eq!(slow(&effects), Some(vec!["sda".to_owned()]));
    let details = reason(&effects);
    let expected = "976 of 1040 latency-sensitive requests took 20 ms or longer in 16 s of the last 20 s \
                    (median 101 ms, largest 120 ms), 12 MB/s";
    assert_eq!(details.as_deref(), Some(expected));

    // No window was slow from then on.
    assert_eq!(run.watch.due(), Some(at(22)));
    let asked = vec![DiskQuery::Counters(vec![(number(0), "sda".to_owned())])];
    assert_eq!(run.tick(33), asked);
    assert_eq!(slow(&run.on(33, counters(0, busy(9, 0)))), Some(Vec::new()));
}

#[test]
fn a_window_of_a_disk_without_statistics_ends_its_watch() {
    let mut run = with_probe();
    let effects = run.on(1, confirmed(1, false));
    let unwatched = facts(&effects).map(|disks| disks.unwatched);
    assert_eq!(unwatched, Some(vec!["sda".to_owned()]));
    let unknown = run.on(2, reported(2, DiskReport::SlowWindow(WINDOW)));
    assert_eq!(queries(&unknown), [], "not watched");
}

#[test]
fn three_errors_are_a_failing_disk_and_each_asks_for_the_file_systems() {
    let mut run = with_probe();
    let first = run.on(1, reported(1, error()));
    assert_eq!(queries(&first), [DiskQuery::Filesystems]);
    assert_eq!((facts(&first), reason(&first)), (None, None));
    assert_eq!(
        queries(&run.on(1, reported(1, error()))),
        [],
        "again in a second"
    );
    assert_eq!(run.watch.due(), Some(at(2)));
    assert_eq!(run.tick(2), [DiskQuery::Filesystems]);
    let third = run.on(3, reported(3, error()));
    let failing = facts(&third).map(|disks| disks.failing);
    assert_eq!(failing, Some(vec!["sda".to_owned()]));
    let rule = "at least 3 failed requests within a minute";
    assert_eq!(reason(&third).as_deref(), Some(rule));
    run.on(61, counters(0, busy(9, 0)));
    assert_eq!(run.watch.board.health(number(0)), Some(Health::Healthy));
}

#[test]
fn a_disk_that_only_pods_use_sets_no_condition() {
    let volume = Disk {
        role: DiskRole::Volume,
        ..disk("sdb", 16)
    };
    let found = Some(vec![disk("sda", 0), volume]);
    let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, found);
    run.stalled(1, 16, true);
    run.stalled(1, 0, true);
    assert_eq!(run.watch.board.named(Health::Stalled), ["sda"]);
    assert_eq!(run.watch.board.health(number(16)), Some(Health::Stalled));
    let all = Some(vec![disk("sda", 0), disk("sdb", 16)]);
    let effects = run.on(2, DiskInput::Listed(all));
    assert_eq!(writes(&effects), ["watch sdb"], "swap was added to it");
    assert_eq!(run.watch.board.named(Health::Stalled), ["sda", "sdb"]);
}
