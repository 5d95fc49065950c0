//! Unhealthy disks.

use super::*;

#[test]
fn pressure_by_a_disk_that_is_no_longer_monitored_ends() {
    let sda = ["sda".to_owned()];
    let slow = DiskStates::Known {
        slow: &sda,
        stalled: &[],
        failing: &[],
    };
    let healthy = DiskStates::Known {
        slow: &[],
        stalled: &[],
        failing: &[],
    };
    for (other, expected) in [(None, Pressure::Normal), (Some(at(70)), since(70))] {
        let mut evaluator = Evaluator::new(Policy {
            slow_disks: SlowDisks::RaiseDiskPressure,
            ..policy(vec![hard("nodefs.available", "100")])
        });
        evaluator.evaluate(&[read(Signal::NodefsAvailable, 500)], at(0));
        evaluator.observe_disks(slow, at(100));
        let ended = evaluator.unwatch_disks(other);
        assert_eq!(ended.is_empty(), other.is_some());
        assert!(
            ended
                .iter()
                .all(|change| change.reason == PressureReason::Unwatched)
        );
        evaluator.observe_disks(healthy, at(110));
        for resource in [Resource::DiskIo, Resource::Disk] {
            assert_eq!(evaluator.pressure(resource), expected, "{resource:?}");
        }
    }
    // Without a monitored disk the state is unknown, even in a transition period.
    let mut evaluator = evaluator(vec![]);
    evaluator.observe_disks(slow, at(100));
    evaluator.unwatch_disks(None);
    evaluator.observe_disks(DiskStates::Unavailable, at(110));
    assert_eq!(evaluator.pressure(Resource::DiskIo), Pressure::Unknown);
    assert!(evaluator.lost().contains_key(&Resource::DiskIo));
}

#[test]
fn a_slow_disk_is_exceeded_until_it_is_reported_healthy() {
    let sda = ["sda".to_owned()];
    let slow = DiskStates::Known {
        slow: &sda,
        stalled: &[],
        failing: &[],
    };
    let stalled = DiskStates::Known {
        slow: &sda,
        stalled: &sda,
        failing: &sda,
    };
    let failing = DiskStates::Known {
        slow: &sda,
        stalled: &[],
        failing: &sda,
    };
    let healthy = DiskStates::Known {
        slow: &[],
        stalled: &[],
        failing: &[],
    };
    let mut evaluator = evaluator(vec![hard("nodefs.available", "100")]);
    let disk_io = |evaluator: &Evaluator| evaluator.pressure(Resource::DiskIo);

    assert_eq!(evaluator.observe_disks(DiskStates::Unavailable, at(0)), []);
    assert_eq!(disk_io(&evaluator), Pressure::Unknown);
    evaluator.observe_disks(healthy, at(1));
    assert_eq!(disk_io(&evaluator), Pressure::Normal);

    let changes = evaluator.observe_disks(slow, at(10));
    assert_eq!(changes.len(), 1, "DiskPressure is not touched");
    assert_eq!(changes[0].reason, PressureReason::SlowDisk);
    evaluator.observe_disks(failing, at(15));
    assert_eq!(
        evaluator.cause(Resource::DiskIo),
        Some(PressureReason::DiskErrors)
    );
    evaluator.observe_disks(stalled, at(20));
    assert_eq!(
        evaluator.cause(Resource::DiskIo),
        Some(PressureReason::StalledDisk)
    );

    evaluator.evaluate(&[], at(1000));
    assert_eq!(
        disk_io(&evaluator),
        since(20),
        "still stalled, without a report"
    );
    assert_eq!(evaluator.next_fall(), None);

    evaluator.observe_disks(healthy, at(1000));
    assert_eq!(
        disk_io(&evaluator),
        since(1000),
        "the transition period begins now"
    );
    assert_eq!(evaluator.next_fall(), Some(at(1300)));
    evaluator.evaluate(&[], at(1300));
    assert_eq!(disk_io(&evaluator), Pressure::Normal);

    let changes = evaluator.observe_disks(DiskStates::Unavailable, at(1400));
    assert_eq!(changes[0].reason, PressureReason::SourceLost);
    assert_eq!(disk_io(&evaluator), Pressure::Unknown);
}

#[test]
fn slow_disks_raise_disk_pressure_only_if_configured() {
    let sda = ["sda".to_owned()];
    let slow = DiskStates::Known {
        slow: &sda,
        stalled: &[],
        failing: &[],
    };
    for (slow_disks, expected) in [
        (SlowDisks::NodepulseConditionOnly, Pressure::Normal),
        (SlowDisks::RaiseDiskPressure, since(10)),
    ] {
        let mut evaluator = Evaluator::new(Policy {
            slow_disks,
            ..policy(vec![hard("nodefs.available", "100")])
        });
        evaluator.evaluate(&[read(Signal::NodefsAvailable, 500)], at(0));
        evaluator.observe_disks(slow, at(10));
        assert_eq!(evaluator.pressure(Resource::Disk), expected);
        evaluator.evaluate(&[read(Signal::NodefsAvailable, 500)], at(1000));
        assert_eq!(
            evaluator.pressure(Resource::Disk),
            expected,
            "space cannot end the pressure of a slow disk: {slow_disks:?}"
        );
    }
}
