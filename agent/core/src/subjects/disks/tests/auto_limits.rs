//! Tests of limits that are computed from the latency of a disk.

use super::*;
use crate::subjects::Query;
use crate::subjects::disks::ComputedLimit;
use crate::units::latency::Buckets;

const HOUR: u64 = 3600;
const FIXED: Duration = Duration::from_millis(20);

/// Returns requests half of which take from 134 to 268 ms.
fn latency(minor: u32, requests: u64) -> DiskInput {
    let mut counters = Buckets::default();
    (counters[0], counters[12]) = (requests / 2, requests / 2);
    DiskInput::LatencyRead(vec![(number(minor), counters)])
}

fn asked(effects: &[Effect]) -> Option<Vec<DeviceNumber>> {
    effects.iter().find_map(|effect| match effect {
        Effect::Query(Query::JudgedLatency(disks)) => Some(disks.clone()),
        _ => None,
    })
}

fn written(effects: &[Effect]) -> Vec<(DeviceNumber, Duration)> {
    let write = |effect: &Effect| match effect {
        Effect::Map(MapUpdate::DiskLimit { device, limit }) => Some((*device, *limit)),
        _ => None,
    };
    effects.iter().filter_map(write).collect()
}

fn rotational(name: &str, minor: u32) -> Disk {
    Disk {
        rotational: true,
        ..disk(name, minor)
    }
}

fn listed(disks: &[Disk]) -> DiskInput {
    DiskInput::Listed(Some(disks.to_vec()))
}

fn run() -> Run {
    let disks = vec![disk("sda", 0), rotational("sdb", 16)];
    Run::new(DiskProbe::Attached, IoTrigger::Set, Some(disks))
}

#[test]
fn the_counters_are_read_once_an_hour_when_file_systems_are_sampled() {
    let mut run = run();
    assert_eq!(asked(&run.on(10, storage(&[]))), None, "too early");
    assert_eq!(asked(&run.on(9 + HOUR, storage(&[]))), None);
    assert_eq!(run.watch.due(), None, "nothing wakes up for it");
    let sda = vec![number(0)];
    let read = run.on(10 + HOUR, storage(&[]));
    assert_eq!(asked(&read), Some(sda.clone()), "sdb has a fixed limit");
    assert_eq!(asked(&run.on(11 + HOUR, storage(&[]))), None);
    let next = run.on(10 + 2 * HOUR, storage(&[]));
    assert_eq!(asked(&next), Some(sda));
}

#[test]
fn a_changed_limit_is_written_and_logged_with_its_computation() {
    let mut run = run();
    let effects = run.on(5, latency(0, 10_000));
    assert_eq!(written(&effects), [(number(0), FIXED * 10)]);
    let logged = effects.iter().find_map(|effect| match effect {
        Effect::Log(Decision::Disk(DiskDecision::LimitComputed(computed))) => Some(computed),
        _ => None,
    });
    let Some(ComputedLimit {
        name,
        fixed,
        percentile: Some(usual),
        requests: 10_000,
        ..
    }) = logged
    else {
        panic!("{logged:?}");
    };
    assert_eq!((name.as_str(), *fixed), ("sda", FIXED));
    assert!(*usual > Duration::from_millis(134), "{usual:?}");

    assert_eq!(run.on(6, latency(0, 20_000)), [], "the same limit");
    assert_eq!(run.on(6, latency(16, 10_000)), [], "its limit is fixed");
}

#[test]
fn a_limit_survives_that_the_disk_is_watched_again_but_no_other_limit_or_disk() {
    let mut run = run();
    run.on(5, latency(0, 10_000));
    let same = || listed(&[disk("sda", 0)]);
    assert_eq!(writes(&run.on(6, same())), ["forget 8:16"]);

    let mut other = settings();
    other.window = Duration::from_secs(2);
    run.on(7, DiskInput::Configured(other.clone()));
    let again = run.on(7, same());
    assert_eq!(writes(&again), ["watch sda"]);
    assert_eq!(written(&again), [(number(0), FIXED * 10)], "is kept");

    other.solid_state_slow = SlowLimit::Fixed(FIXED);
    run.on(8, DiskInput::Configured(other.clone()));
    let fixed = run.on(8, same());
    assert_eq!(writes(&fixed), ["watch sda"], "by the fixed limit");
    assert_eq!(written(&fixed), []);

    other.solid_state_slow = SlowLimit::Auto;
    run.on(9, DiskInput::Configured(other));
    let auto = run.on(9, same());
    assert_eq!(writes(&auto), ["watch sda"]);
    assert_eq!(written(&auto), [], "nothing is known of it");

    run.on(10, latency(0, 10_000));
    let replaced = run.on(11, listed(&[disk("sdc", 0)]));
    assert_eq!(written(&replaced), [], "another disk, same number");
}

#[test]
fn a_limit_ends_with_the_disk_or_with_the_fixed_limit_that_it_is_based_on() {
    let mut run = run();
    run.on(5, latency(0, 10_000));
    run.on(6, listed(&[rotational("sdb", 16)]));
    let again = run.on(7, listed(&[disk("sda", 0)]));
    assert_eq!(writes(&again), ["forget 8:16", "watch sda"]);
    assert_eq!(written(&again), [], "a new disk");

    let mut other = settings();
    other.rotational_slow = SlowLimit::Auto;
    run.on(8, DiskInput::Configured(other));
    run.on(8, latency(0, 10_000));
    let rotates = run.on(9, listed(&[rotational("sda", 0)]));
    assert_eq!(writes(&rotates), ["watch sda"]);
    assert_eq!(written(&rotates), [], "by another fixed limit");
}
