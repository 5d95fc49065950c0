//! Tests with unhealthy disks.

use super::*;
use crate::reading::NodeFilesystem;

fn sda() -> Vec<String> {
    vec!["sda".to_owned()]
}

fn slow_disk() -> Disks {
    Disks {
        slow: sda(),
        ..Disks::default()
    }
}

#[test]
fn pressure_by_a_disk_that_is_no_longer_monitored_ends() {
    let slow = slow_disk();
    let healthy = Disks::default();
    for (other, expected) in [(None, Pressure::Normal), (Some(at(70)), since(70))] {
        let mut evaluator = Evaluator::new(Policy {
            slow_disks: SlowDisks::RaiseDiskPressure,
            ..policy(vec![hard("nodefs.available", "100")])
        });
        evaluator.evaluate(&[read(Signal::NodefsAvailable, 500)], at(0));
        evaluator.observe_disks(Some(&slow), at(100));
        let ended = evaluator.unwatch_disks(other);
        assert_eq!(ended.is_empty(), other.is_some());
        assert!(
            ended
                .iter()
                .all(|change| change.reason == PressureReason::Unwatched)
        );
        evaluator.observe_disks(Some(&healthy), at(110));
        for resource in [Resource::DiskIo, Resource::Disk] {
            assert_eq!(evaluator.pressure(resource), expected, "{resource:?}");
        }
    }
    // Without a monitored disk the state is unknown, even in a transition period.
    let mut evaluator = evaluator(vec![]);
    evaluator.observe_disks(Some(&slow), at(100));
    evaluator.unwatch_disks(None);
    evaluator.observe_disks(None, at(110));
    assert_eq!(evaluator.pressure(Resource::DiskIo), Pressure::Unknown);
    assert_eq!(evaluator.cause(Resource::DiskIo), None);
    assert!(evaluator.lost().contains_key(&Resource::DiskIo));
}

#[test]
fn a_slow_disk_is_exceeded_until_it_is_reported_healthy_and_a_failing_one_is_another_condition() {
    let healthy = Disks::default();
    let slow = slow_disk();
    let mut evaluator = evaluator(vec![hard("nodefs.available", "100")]);
    let both = [Resource::DiskIo, Resource::DiskFailing];
    let states = |evaluator: &Evaluator| both.map(|resource| evaluator.pressure(resource));

    evaluator.observe_disks(None, at(0));
    assert_eq!(states(&evaluator), [Pressure::Unknown; 2]);
    evaluator.observe_disks(Some(&healthy), at(1));
    assert_eq!(states(&evaluator), [Pressure::Normal; 2]);

    let changes = evaluator.observe_disks(Some(&slow), at(10));
    assert_eq!(changes.len(), 1, "DiskPressure is not touched");
    assert_eq!(changes[0].reason, PressureReason::SlowDisk);
    assert_eq!(states(&evaluator), [since(10), Pressure::Normal]);

    evaluator.evaluate(&[], at(1000));
    assert_eq!(
        states(&evaluator),
        [since(10), Pressure::Normal],
        "still slow"
    );
    assert_eq!(evaluator.next_fall(), None);

    let stalled = Disks {
        stalled: sda(),
        failing: sda(),
        read_only: vec![NodeFilesystem::Nodefs],
        ..Disks::default()
    };
    evaluator.observe_disks(Some(&stalled), at(1000));
    assert_eq!(states(&evaluator), [since(1000); 2]);
    assert_eq!(evaluator.next_fall(), Some(at(1300)), "of DiskIOPressure");
    evaluator.evaluate(&[], at(1300));
    assert_eq!(states(&evaluator), [Pressure::Normal, since(1000)]);

    evaluator.observe_disks(Some(&healthy), at(1400));
    evaluator.evaluate(&[], at(1700));
    assert_eq!(states(&evaluator), [Pressure::Normal; 2]);
    let changes = evaluator.observe_disks(None, at(1800));
    assert_eq!(changes[0].reason, PressureReason::SourceLost);
    assert_eq!(states(&evaluator), [Pressure::Unknown; 2]);
}

#[test]
fn a_stall_ranks_above_errors_and_those_above_file_systems() {
    let (some, none) = (sda(), Vec::new());
    let rows = [
        ([&some, &some, &some], PressureReason::StalledDisk),
        ([&none, &some, &some], PressureReason::DiskErrors),
        ([&none, &none, &some], PressureReason::FilesystemShutdown),
        ([&none, &none, &none], PressureReason::ReadOnlyFilesystem),
    ];
    for (names, expected) in rows {
        let mut evaluator = evaluator(vec![]);
        let [stalled, failing, failed_filesystems] = names.map(Vec::clone);
        let disks = Disks {
            stalled,
            failing,
            read_only: vec![NodeFilesystem::Root],
            failed_filesystems,
            ..slow_disk()
        };
        evaluator.observe_disks(Some(&disks), at(1));
        assert_eq!(evaluator.cause(Resource::DiskFailing), Some(expected));
        assert_eq!(
            evaluator.cause(Resource::DiskIo),
            Some(PressureReason::SlowDisk)
        );
    }
}

#[test]
fn slow_disks_raise_disk_pressure_only_if_configured() {
    let slow = slow_disk();
    for (slow_disks, expected) in [
        (SlowDisks::NodepulseConditionOnly, Pressure::Normal),
        (SlowDisks::RaiseDiskPressure, since(10)),
    ] {
        let mut evaluator = Evaluator::new(Policy {
            slow_disks,
            ..policy(vec![hard("nodefs.available", "100")])
        });
        evaluator.evaluate(&[read(Signal::NodefsAvailable, 500)], at(0));
        evaluator.observe_disks(Some(&slow), at(10));
        assert_eq!(evaluator.pressure(Resource::Disk), expected);
        evaluator.evaluate(&[read(Signal::NodefsAvailable, 500)], at(1000));
        assert_eq!(
            evaluator.pressure(Resource::Disk),
            expected,
            "space cannot end the pressure of a slow disk: {slow_disks:?}"
        );
    }
}
