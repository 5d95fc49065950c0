use std::time::Duration;

use super::*;
use crate::pressure::threshold::{ThresholdValue, with_allocatable};

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> BootNanos {
    BootNanos(seconds * SECOND)
}

fn hard(signal: &str, value: &str) -> Threshold {
    Threshold::parse(signal, value).unwrap().unwrap()
}

fn policy(thresholds: Vec<Threshold>) -> Policy {
    Policy {
        thresholds,
        transition_period: Duration::from_mins(5),
        slow_disks: SlowDisks::NodepulseConditionOnly,
    }
}

fn evaluator(thresholds: Vec<Threshold>) -> Evaluator {
    Evaluator::new(policy(thresholds))
}

fn seen(signal: Signal, available: i64) -> Sample {
    Sample::Read(Reading {
        signal,
        available,
        capacity: 1000,
    })
}

fn memory(available: i64) -> Sample {
    seen(Signal::MemoryAvailable, available)
}

fn over(seconds: u64) -> Pressure {
    Pressure::UnderPressure {
        last_exceeded: at(seconds),
    }
}

/// Runs a script of passes over memory alone, and compares the state after each.
fn run(evaluator: &mut Evaluator, script: &[(u64, i64, Pressure, &str)]) {
    for (seconds, available, expected, why) in script {
        evaluator.evaluate(&[memory(*available)], at(*seconds));
        assert_eq!(
            evaluator.pressure(Resource::Memory),
            *expected,
            "at {seconds} s: {why}"
        );
    }
}

#[test]
fn a_hard_threshold_raises_at_once_and_lets_go_after_the_transition_period() {
    use Pressure::Normal;
    run(
        &mut evaluator(vec![hard("memory.available", "100")]),
        &[
            (0, 100, Normal, "equal is not met"),
            (10, 99, over(10), "one less is"),
            (20, 100, over(10), "recovered, held"),
            (30, 99, over(30), "crossed again: the hold starts anew"),
            (329, 500, over(30), "one second short of the period"),
            (330, 500, Normal, "the whole period"),
        ],
    );
}

#[test]
fn a_soft_threshold_raises_before_its_grace_period() {
    let soft = hard("memory.available", "100").soft(Duration::from_mins(10));
    let mut evaluator = evaluator(vec![soft]);
    run(
        &mut evaluator,
        &[(0, 99, over(0), "grace delays no condition")],
    );
}

#[test]
fn a_fully_met_threshold_stays_met_until_its_reclaim_is_there() {
    let reclaiming = |threshold: Threshold| Threshold {
        min_reclaim: Some(ThresholdValue::Quantity(50)),
        ..threshold
    };
    let hard = reclaiming(hard("memory.available", "100"));
    run(
        &mut evaluator(vec![hard]),
        &[
            (0, 149, Pressure::Normal, "never met: no reclaim is due"),
            (10, 99, over(10), "met"),
            (20, 149, over(20), "one short of the reclaim: refreshed"),
            (30, 150, over(20), "reclaimed: only held"),
            (40, 149, over(20), "and a dip below that counts no more"),
        ],
    );
    run(
        &mut evaluator(vec![hard.soft(Duration::from_secs(30))]),
        &[
            (0, 99, over(0), "met, but within its grace period"),
            (29, 149, over(0), "so nothing is to be reclaimed"),
            (30, 99, over(30), "the dip has reset the grace clock"),
            (59, 99, over(59), "one second short of it"),
            (60, 149, over(59), "so there is still nothing to reclaim"),
            (70, 99, over(70), "a dip again"),
            (100, 99, over(100), "fully met now"),
            (110, 149, over(110), "so the reclaim counts"),
        ],
    );
}

#[test]
fn a_missing_observation_means_not_met_and_never_a_guessed_state() {
    let missing = [Sample::Missing(Signal::MemoryAvailable)];
    let reclaiming = Threshold {
        min_reclaim: Some(ThresholdValue::Quantity(50)),
        ..hard("memory.available", "100")
    };
    let mut evaluator = evaluator(vec![reclaiming]);
    let memory_is = |evaluator: &Evaluator| evaluator.pressure(Resource::Memory);

    assert_eq!(evaluator.evaluate(&missing, at(0)), []);
    assert_eq!(
        memory_is(&evaluator),
        Pressure::Unknown,
        "nothing ever seen"
    );

    evaluator.evaluate(&[memory(99)], at(10));
    evaluator.evaluate(&missing, at(20));
    assert_eq!(memory_is(&evaluator), over(10), "held, not refreshed");
    evaluator.evaluate(&[memory(149)], at(30));
    assert_eq!(memory_is(&evaluator), over(10), "what was met is dropped");

    evaluator.evaluate(&missing, at(309));
    assert_eq!(memory_is(&evaluator), over(10), "held to the end");
    assert_eq!(evaluator.evaluate(&missing, at(310)), []);
    assert_eq!(memory_is(&evaluator), over(10), "not known to be below");
    assert_eq!(evaluator.next_fall(), None, "nothing ends by the clock");
    let changes = evaluator.evaluate(&missing, at(329));
    assert_eq!(
        memory_is(&evaluator),
        Pressure::Unknown,
        "lost, and unknown"
    );
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].reason, PressureReason::SourceLost);

    evaluator.evaluate(&[memory(500)], at(330));
    assert_eq!(memory_is(&evaluator), Pressure::Normal);
    evaluator.evaluate(&missing, at(340));
    evaluator.evaluate(&missing, at(359));
    assert_eq!(memory_is(&evaluator), Pressure::Normal, "for a while");
    evaluator.evaluate(&missing, at(360));
    assert_eq!(memory_is(&evaluator), Pressure::Unknown, "lost again");
}

/// The looks at two signals of one resource, both with a threshold; then whether nothing can be said
/// because one is lost, and the state.
type Pair = (&'static str, Sample, Sample, &'static [Signal], Pressure);

#[test]
fn a_readable_source_that_is_exceeded_decides_and_otherwise_a_lost_one_does() {
    use Signal::{ImagefsAvailable, NodefsAvailable};
    let nodefs = |n| seen(NodefsAvailable, n);
    let lost = Sample::Missing(ImagefsAvailable);
    let rows: [Pair; 4] = [
        (
            "both are well",
            nodefs(500),
            seen(ImagefsAvailable, 500),
            &[],
            Pressure::Normal,
        ),
        (
            "there is no second one",
            nodefs(500),
            Sample::Absent(ImagefsAvailable),
            &[],
            Pressure::Normal,
        ),
        (
            "one is well, one is lost",
            nodefs(500),
            lost,
            &[ImagefsAvailable],
            Pressure::Unknown,
        ),
        ("one is over, one is lost", nodefs(99), lost, &[], over(0)),
    ];
    for (why, first, second, expected, pressure) in rows {
        let mut evaluator = evaluator(vec![
            hard("nodefs.available", "100"),
            hard("imagefs.available", "100"),
        ]);
        evaluator.evaluate(&[first, second], at(0));
        let lost = evaluator.lost();
        let lost = lost.get(&Resource::Disk).map(Vec::as_slice);
        assert_eq!(lost.unwrap_or_default(), expected, "{why}");
        assert_eq!(evaluator.pressure(Resource::Disk), pressure, "{why}");
    }
}

#[test]
fn a_source_that_no_threshold_is_set_on_cannot_be_lost() {
    let missing = [
        Sample::Missing(Signal::NodefsAvailable),
        Sample::Missing(Signal::NodefsInodesFree),
    ];
    let mut all_off = evaluator(vec![]);
    all_off.evaluate(&missing, at(0));
    assert_eq!(all_off.pressure(Resource::Disk), Pressure::Normal);
    let mut inodes_off = evaluator(vec![hard("nodefs.available", "100")]);
    inodes_off.evaluate(&missing, at(0));
    let lost = [(Resource::Disk, vec![Signal::NodefsAvailable])];
    assert_eq!(inodes_off.lost(), lost.into());
}

#[test]
fn a_hold_outlasts_the_loss_of_another_source_than_its_own() {
    let (inodes, space) = (Signal::NodefsInodesFree, Signal::NodefsAvailable);
    for (low, is_lost) in [(space, true), (inodes, false)] {
        let mut evaluator = evaluator(vec![
            hard("nodefs.available", "100"),
            hard("nodefs.inodesFree", "100"),
        ]);
        let look = |signal| seen(signal, if signal == low { 99 } else { 500 });
        evaluator.evaluate(&[look(space), look(inodes)], at(0));
        for seconds in [10, 30] {
            let looks = [Sample::Missing(space), seen(inodes, 500)];
            evaluator.evaluate(&looks, at(seconds));
        }
        assert_eq!(evaluator.pressure(Resource::Disk), over(0), "{low:?}");
        let lost = evaluator.lost().contains_key(&Resource::Disk);
        assert_eq!(lost, is_lost, "{low:?} was low, space is lost");
    }
}

#[test]
fn what_was_raised_by_a_disk_that_nobody_watches_any_more_ends() {
    let sda = ["sda".to_owned()];
    let slow = DiskStates::Known {
        slow: &sda,
        stalled: &[],
        failing: &[],
    };
    let well = DiskStates::Known {
        slow: &[],
        stalled: &[],
        failing: &[],
    };
    for (other, expected) in [(None, Pressure::Normal), (Some(at(70)), over(70))] {
        let mut evaluator = Evaluator::new(Policy {
            slow_disks: SlowDisks::RaiseDiskPressure,
            ..policy(vec![hard("nodefs.available", "100")])
        });
        evaluator.evaluate(&[seen(Signal::NodefsAvailable, 500)], at(0));
        evaluator.observe_disks(slow, at(100));
        let ended = evaluator.unwatch_disks(other);
        assert_eq!(ended.is_empty(), other.is_some());
        assert!(
            ended
                .iter()
                .all(|change| change.reason == PressureReason::Unwatched)
        );
        evaluator.observe_disks(well, at(110));
        for resource in [Resource::DiskIo, Resource::Disk] {
            assert_eq!(evaluator.pressure(resource), expected, "{resource:?}");
        }
    }
    // Without any disk that is watched nothing is known, whatever is held.
    let mut evaluator = evaluator(vec![]);
    evaluator.observe_disks(slow, at(100));
    evaluator.unwatch_disks(None);
    evaluator.observe_disks(DiskStates::Unavailable, at(110));
    assert_eq!(evaluator.pressure(Resource::DiskIo), Pressure::Unknown);
    assert!(evaluator.lost().contains_key(&Resource::DiskIo));
}

#[test]
fn resources_do_not_touch_each_other() {
    let thresholds = vec![
        hard("memory.available", "100"),
        hard("nodefs.available", "100"),
        hard("nodefs.inodesFree", "100"),
        hard("imagefs.available", "100"),
        hard("imagefs.inodesFree", "100"),
        hard("pid.available", "100"),
    ];
    for low in Signal::ALL {
        let mut evaluator = evaluator(with_allocatable(thresholds.clone()));
        let looks = Signal::ALL.map(|signal| seen(signal, if signal == low { 99 } else { 100 }));
        evaluator.evaluate(&looks, at(7));
        for resource in Resource::ALL {
            if resource == Resource::DiskIo {
                continue;
            }
            let expected = if resource == low.resource() {
                over(7)
            } else {
                Pressure::Normal
            };
            assert_eq!(evaluator.pressure(resource), expected, "{low:?} is low");
        }
        assert_eq!(evaluator.pressure(Resource::DiskIo), Pressure::Unknown);
    }
}

#[test]
fn a_pods_cgroup_above_its_limit_is_below_any_threshold() {
    let mut evaluator = evaluator(with_allocatable(vec![hard("memory.available", "1")]));
    let looks = [memory(500), seen(Signal::AllocatableMemoryAvailable, -1)];
    let changes = evaluator.evaluate(&looks, at(0));
    let reason = PressureReason::Threshold {
        signal: Signal::AllocatableMemoryAvailable,
        available: -1,
        threshold: 1,
        value: ThresholdValue::Quantity(1),
    };
    assert_eq!(
        changes,
        [PressureChange {
            resource: Resource::Memory,
            from: Pressure::Unknown,
            to: over(0),
            reason,
        }]
    );
    assert_eq!(evaluator.cause(Resource::Memory), Some(reason));
}

#[test]
fn a_signal_without_a_threshold_is_never_over() {
    let mut evaluator = evaluator(vec![]);
    evaluator.evaluate(&[memory(0)], at(0));
    assert_eq!(evaluator.pressure(Resource::Memory), Pressure::Normal);
}

#[test]
fn a_pass_judges_only_what_it_looked_at() {
    let mut evaluator = evaluator(vec![
        hard("nodefs.available", "100"),
        hard("imagefs.available", "100"),
    ]);
    let nodefs = |n| seen(Signal::NodefsAvailable, n);
    let imagefs = |n| seen(Signal::ImagefsAvailable, n);
    evaluator.evaluate(&[nodefs(99), imagefs(500)], at(0));

    evaluator.evaluate(&[imagefs(500)], at(400));
    let disk = |evaluator: &Evaluator| evaluator.pressure(Resource::Disk);
    assert_eq!(disk(&evaluator), over(0), "nodefs was over when last seen");
    assert_eq!(evaluator.next_fall(), None, "so no end is in sight");

    evaluator.evaluate(&[imagefs(99)], at(500));
    assert_eq!(disk(&evaluator), over(500));
    evaluator.evaluate(&[nodefs(500), imagefs(500)], at(501));
    assert_eq!(evaluator.next_fall(), Some(at(800)));
    evaluator.evaluate(&[], at(800));
    assert_eq!(disk(&evaluator), Pressure::Normal, "a pass without looks");
}

#[test]
fn changes_are_edges_and_name_what_moved_them() {
    let mut evaluator = evaluator(vec![
        hard("memory.available", "100"),
        hard("memory.available", "200").soft(Duration::from_secs(30)),
    ]);
    let low = |available, threshold| PressureReason::Threshold {
        signal: Signal::MemoryAvailable,
        available,
        threshold,
        value: ThresholdValue::Quantity(threshold),
    };
    let change = |from, to, reason| {
        vec![PressureChange {
            resource: Resource::Memory,
            from,
            to,
            reason,
        }]
    };
    let (unread, relieved) = (Pressure::Unknown, Pressure::Normal);
    let script = [
        (
            0,
            500,
            change(unread, relieved, PressureReason::Below),
            "first look",
        ),
        (10, 500, vec![], "nothing new"),
        (20, 150, change(relieved, over(20), low(150, 200)), "soft"),
        (30, 50, vec![], "worse, but no edge"),
        (40, 500, vec![], "held"),
        (
            330,
            500,
            change(over(30), relieved, PressureReason::Below),
            "let go",
        ),
        (340, 50, change(relieved, over(340), low(50, 100)), "hard"),
    ];
    for (seconds, available, expected, why) in script {
        let changes = evaluator.evaluate(&[memory(available)], at(seconds));
        assert_eq!(changes, expected, "at {seconds} s: {why}");
    }
    assert_eq!(evaluator.cause(Resource::Memory), Some(low(50, 100)));
    assert_eq!(evaluator.cause(Resource::Pids), None);
}

#[test]
fn a_stored_true_is_held_from_the_start() {
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    evaluator.seed(Resource::Memory, at(100));
    assert_eq!(
        evaluator.cause(Resource::Memory),
        Some(PressureReason::Stored)
    );
    run(
        &mut evaluator,
        &[
            (100, 500, over(100), "the first look changes nothing"),
            (399, 500, over(100), "one second short of the period"),
            (400, 500, Pressure::Normal, "the whole period"),
        ],
    );
}

#[test]
fn a_stored_true_that_is_learnt_of_late_is_held_from_when_we_first_saw_the_resource_well() {
    let learnt = |at_first: i64, seconds: u64| {
        let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
        evaluator.evaluate(&[memory(at_first)], at(100));
        evaluator.evaluate(&[memory(500)], at(110));
        evaluator.evaluate(&[memory(500)], at(seconds));
        evaluator.seed(Resource::Memory, at(seconds));
        evaluator
    };
    let of = |evaluator: &Evaluator| evaluator.pressure(Resource::Memory);
    assert_eq!(of(&learnt(500, 399)), over(100));
    assert_eq!(of(&learnt(500, 400)), Pressure::Normal, "long enough");
    let own = learnt(50, 399);
    assert_eq!(of(&own), over(100), "not prolonged");
    assert_ne!(
        own.cause(Resource::Memory),
        Some(PressureReason::Stored),
        "known better"
    );
    assert_eq!(of(&learnt(50, 400)), Pressure::Normal);

    // What cannot be seen in between was not well all the time.
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    evaluator.evaluate(&[memory(500)], at(100));
    for seconds in [200, 220] {
        evaluator.evaluate(&[Sample::Missing(Signal::MemoryAvailable)], at(seconds));
    }
    evaluator.evaluate(&[memory(500)], at(300));
    evaluator.seed(Resource::Memory, at(450));
    assert_eq!(of(&evaluator), over(300));
}

#[test]
fn a_confirmed_kill_forces_pressure_for_the_transition_period() {
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    evaluator.evaluate(&[memory(500)], at(0));
    let reason = PressureReason::OomKill(Grounds::ConfirmedGlobal);

    let changes = evaluator.force(Resource::Memory, Grounds::ConfirmedGlobal, at(5));
    assert_eq!(
        changes,
        [PressureChange {
            resource: Resource::Memory,
            from: Pressure::Normal,
            to: over(5),
            reason,
        }]
    );
    assert_eq!(evaluator.next_fall(), Some(at(305)));

    let again = evaluator.force(Resource::Memory, Grounds::PodsLimit, at(4));
    assert_eq!(again, [], "a second kill is no edge");
    assert_eq!(
        evaluator.pressure(Resource::Memory),
        over(5),
        "and one out of order shortens nothing"
    );
    run(
        &mut evaluator,
        &[
            (304, 500, over(5), "one second short"),
            (305, 500, Pressure::Normal, "the whole period"),
        ],
    );
    assert_eq!(evaluator.cause(Resource::Memory), None);
}

#[test]
fn a_slow_disk_is_over_until_it_is_told_to_be_well() {
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
    let well = DiskStates::Known {
        slow: &[],
        stalled: &[],
        failing: &[],
    };
    let mut evaluator = evaluator(vec![hard("nodefs.available", "100")]);
    let disk_io = |evaluator: &Evaluator| evaluator.pressure(Resource::DiskIo);

    assert_eq!(evaluator.observe_disks(DiskStates::Unavailable, at(0)), []);
    assert_eq!(disk_io(&evaluator), Pressure::Unknown);
    evaluator.observe_disks(well, at(1));
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
    assert_eq!(disk_io(&evaluator), over(20), "still stalled, unheard of");
    assert_eq!(evaluator.next_fall(), None);

    evaluator.observe_disks(well, at(1000));
    assert_eq!(disk_io(&evaluator), over(1000), "the hold begins now");
    assert_eq!(evaluator.next_fall(), Some(at(1300)));
    evaluator.evaluate(&[], at(1300));
    assert_eq!(disk_io(&evaluator), Pressure::Normal);

    let changes = evaluator.observe_disks(DiskStates::Unavailable, at(1400));
    assert_eq!(changes[0].reason, PressureReason::SourceLost);
    assert_eq!(disk_io(&evaluator), Pressure::Unknown);
}

#[test]
fn slow_disks_raise_disk_pressure_only_where_configured() {
    let sda = ["sda".to_owned()];
    let slow = DiskStates::Known {
        slow: &sda,
        stalled: &[],
        failing: &[],
    };
    for (slow_disks, expected) in [
        (SlowDisks::NodepulseConditionOnly, Pressure::Normal),
        (SlowDisks::RaiseDiskPressure, over(10)),
    ] {
        let mut evaluator = Evaluator::new(Policy {
            slow_disks,
            ..policy(vec![hard("nodefs.available", "100")])
        });
        evaluator.evaluate(&[seen(Signal::NodefsAvailable, 500)], at(0));
        evaluator.observe_disks(slow, at(10));
        assert_eq!(evaluator.pressure(Resource::Disk), expected);
        evaluator.evaluate(&[seen(Signal::NodefsAvailable, 500)], at(1000));
        assert_eq!(
            evaluator.pressure(Resource::Disk),
            expected,
            "space cannot end what a slow disk holds: {slow_disks:?}"
        );
    }
}

#[test]
fn the_earliest_hold_to_end_is_the_next_fall() {
    let mut evaluator = evaluator(vec![
        hard("memory.available", "100"),
        hard("pid.available", "100"),
    ]);
    assert_eq!(evaluator.next_fall(), None, "nothing is held");
    evaluator.evaluate(&[memory(99), seen(Signal::PidAvailable, 500)], at(0));
    assert_eq!(evaluator.next_fall(), None, "still over");
    evaluator.evaluate(&[memory(500), seen(Signal::PidAvailable, 99)], at(10));
    assert_eq!(evaluator.next_fall(), Some(at(300)), "memory's");
    evaluator.evaluate(&[memory(500), seen(Signal::PidAvailable, 500)], at(20));
    assert_eq!(evaluator.next_fall(), Some(at(300)), "before pids'");
    evaluator.evaluate(&[memory(500), seen(Signal::PidAvailable, 500)], at(300));
    assert_eq!(evaluator.next_fall(), Some(at(310)), "pids'");
}

#[test]
fn a_new_policy_judges_anew_and_keeps_what_is_held() {
    let kept = hard("memory.available", "100");
    let mut evaluator = evaluator(vec![kept, hard("pid.available", "100")]);
    evaluator.evaluate(&[memory(99), seen(Signal::PidAvailable, 99)], at(0));

    evaluator.set_policy(Policy {
        transition_period: Duration::from_mins(1),
        ..policy(vec![hard("pid.available", "50"), kept])
    });
    assert_eq!(evaluator.next_fall(), Some(at(60)), "pids: no longer over");
    evaluator.evaluate(&[seen(Signal::PidAvailable, 99)], at(60));
    assert_eq!(evaluator.pressure(Resource::Pids), Pressure::Normal);
    assert_eq!(
        evaluator.pressure(Resource::Memory),
        over(0),
        "memory is over by the same threshold as before"
    );
}

#[test]
fn what_is_lost_is_so_also_while_it_is_held_unless_by_a_kill() {
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    let lost = |evaluator: &Evaluator| evaluator.lost().contains_key(&Resource::Memory);
    let pods = seen(Signal::AllocatableMemoryAvailable, 500);
    let missing = Sample::Missing(Signal::MemoryAvailable);
    //  at s, looks, lost, pressure
    let script = [
        (0, vec![memory(500), pods], false, Pressure::Normal),
        (10, vec![missing, pods], false, Pressure::Normal),
        (30, vec![missing, pods], true, Pressure::Unknown),
        (40, vec![memory(50)], false, over(40)),
        (50, vec![missing, pods], false, over(40)),
        (70, vec![missing, pods], true, over(40)),
        (80, vec![memory(500)], false, over(40)),
        (90, vec![missing, pods], false, over(40)),
        (110, vec![missing, pods], true, over(40)),
    ];
    for (seconds, looks, expected, pressure) in script {
        evaluator.evaluate(&looks, at(seconds));
        assert_eq!(lost(&evaluator), expected, "at {seconds} s");
        assert_eq!(
            evaluator.pressure(Resource::Memory),
            pressure,
            "at {seconds} s"
        );
    }
    evaluator.force(Resource::Memory, Grounds::ConfirmedGlobal, at(120));
    assert!(!lost(&evaluator), "the kernel has told of it");
}

#[test]
fn a_cause_names_the_threshold_as_configured_and_a_kill_outlasts_it() {
    let mut evaluator = evaluator(vec![
        hard("memory.available", "10%"),
        hard("memory.available", "20%").soft(Duration::from_secs(30)),
    ]);
    let cause = |evaluator: &Evaluator| evaluator.causes().get(&Resource::Memory).copied();
    let below = |share| Cause::Below {
        signal: Signal::MemoryAvailable,
        threshold: ThresholdValue::Share(share),
    };
    let kill = Cause::OomKill(Grounds::PodsLimit);
    assert_eq!(cause(&evaluator), None);
    evaluator.seed(Resource::Memory, at(0));
    assert_eq!(cause(&evaluator), Some(Cause::Stored));
    evaluator.evaluate(&[memory(150)], at(10));
    assert_eq!(cause(&evaluator), Some(below(0.2)));
    evaluator.evaluate(&[memory(50)], at(20));
    assert_eq!(cause(&evaluator), Some(below(0.1)));
    evaluator.force(Resource::Memory, Grounds::PodsLimit, at(30));
    evaluator.evaluate(&[memory(50)], at(40));
    assert_eq!(cause(&evaluator), Some(kill), "not overwritten");
    evaluator.evaluate(&[memory(500)], at(340));
    assert_eq!(cause(&evaluator), None, "over");
    evaluator.evaluate(&[memory(50)], at(350));
    assert_eq!(cause(&evaluator), Some(below(0.1)), "and forgotten");
}
