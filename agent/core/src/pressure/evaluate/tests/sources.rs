//! Tests with sources that are missing or lost.

use super::*;

#[test]
fn a_missing_sample_means_not_met_and_never_a_guessed_state() {
    let missing = Sample::Missing(Signal::MemoryAvailable);
    let reclaiming = Threshold {
        min_reclaim: Some(ThresholdValue::Quantity(50)),
        ..hard("memory.available", "100")
    };
    let mut evaluator = evaluator(vec![reclaiming]);
    let (kept, unknown) = (since(10), Pressure::Unknown);
    // At s, sample, pressure, number of changes, why.
    #[rustfmt::skip]
    let script = [
        (0, missing, unknown, 0, "never sampled"),
        (10, memory(99), kept, 1, "exceeded"),
        (20, missing, kept, 0, "kept, not extended"),
        (30, memory(149), kept, 0, "the reclaim no longer applies"),
        (309, missing, kept, 0, "kept to the end"),
        (310, missing, kept, 0, "not known to be normal"),
        (329, missing, unknown, 1, "lost, and unknown"),
        (330, memory(500), Pressure::Normal, 1, "read again"),
        (340, missing, Pressure::Normal, 0, "for a while"),
        (359, missing, Pressure::Normal, 0, "for a while"),
        (360, missing, unknown, 1, "lost again"),
    ];
    for (seconds, sample, expected, count, why) in script {
        let changes = evaluator.evaluate(&[sample], at(seconds));
        let pressure = evaluator.pressure(Resource::Memory);
        assert_eq!(
            (pressure, changes.len()),
            (expected, count),
            "at {seconds} s: {why}"
        );
        if seconds == 310 {
            assert_eq!(
                evaluator.next_fall(),
                None,
                "nothing ends by the passage of time"
            );
        }
        if let [change] = &changes[..]
            && expected == unknown
        {
            assert_eq!(change.reason, PressureReason::SourceLost, "{why}");
        }
    }
}

/// Samples of two signals of one resource, both with a threshold; then the lost signals and the
/// state.
type Pair = (&'static str, Sample, Sample, &'static [Signal], Pressure);

#[test]
fn a_readable_source_that_is_exceeded_decides_and_otherwise_a_lost_one_does() {
    use Signal::{ImagefsAvailable, NodefsAvailable};
    let nodefs = |n| read(NodefsAvailable, n);
    let lost = Sample::Missing(ImagefsAvailable);
    #[rustfmt::skip]
    let rows: [Pair; 4] = [
        ("both are normal", nodefs(500), read(ImagefsAvailable, 500), &[], Pressure::Normal),
        ("the second one does not exist", nodefs(500), Sample::Absent(ImagefsAvailable), &[], Pressure::Normal),
        ("one is normal, one is lost", nodefs(500), lost, &[ImagefsAvailable], Pressure::Unknown),
        ("one is exceeded, one is lost", nodefs(99), lost, &[], since(0)),
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
fn a_source_without_a_threshold_cannot_be_lost() {
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
fn a_transition_period_outlasts_the_loss_of_another_source() {
    let (inodes, space) = (Signal::NodefsInodesFree, Signal::NodefsAvailable);
    for (exceeded, is_lost) in [(space, true), (inodes, false)] {
        let mut evaluator = evaluator(vec![
            hard("nodefs.available", "100"),
            hard("nodefs.inodesFree", "100"),
        ]);
        let sample = |signal| read(signal, if signal == exceeded { 99 } else { 500 });
        evaluator.evaluate(&[sample(space), sample(inodes)], at(0));
        for seconds in [10, 30] {
            let samples = [Sample::Missing(space), read(inodes, 500)];
            evaluator.evaluate(&samples, at(seconds));
        }
        assert_eq!(evaluator.pressure(Resource::Disk), since(0), "{exceeded:?}");
        let lost = evaluator.lost().contains_key(&Resource::Disk);
        assert_eq!(lost, is_lost, "{exceeded:?} was exceeded, space is lost");
    }
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
    for exceeded in Signal::ALL {
        let mut evaluator = evaluator(with_allocatable(thresholds.clone()));
        let samples =
            Signal::ALL.map(|signal| read(signal, if signal == exceeded { 99 } else { 100 }));
        evaluator.evaluate(&samples, at(7));
        for resource in Resource::ALL {
            if matches!(resource, Resource::DiskIo | Resource::DiskFailing) {
                assert_eq!(evaluator.pressure(resource), Pressure::Unknown);
                continue;
            }
            let expected = if resource == exceeded.resource() {
                since(7)
            } else {
                Pressure::Normal
            };
            assert_eq!(
                evaluator.pressure(resource),
                expected,
                "{exceeded:?} is low"
            );
        }
    }
}

#[test]
fn a_lost_source_is_reported_in_a_transition_period_unless_a_kill_started_it() {
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    let lost = |evaluator: &Evaluator| evaluator.lost().contains_key(&Resource::Memory);
    let pods = read(Signal::AllocatableMemoryAvailable, 500);
    let missing = Sample::Missing(Signal::MemoryAvailable);
    // At s, samples, lost, pressure.
    let script = [
        (0, vec![memory(500), pods], false, Pressure::Normal),
        (10, vec![missing, pods], false, Pressure::Normal),
        (30, vec![missing, pods], true, Pressure::Unknown),
        (40, vec![memory(50)], false, since(40)),
        (50, vec![missing, pods], false, since(40)),
        (70, vec![missing, pods], true, since(40)),
        (80, vec![memory(500)], false, since(40)),
        (90, vec![missing, pods], false, since(40)),
        (110, vec![missing, pods], true, since(40)),
    ];
    for (seconds, samples, expected, pressure) in script {
        evaluator.evaluate(&samples, at(seconds));
        assert_eq!(lost(&evaluator), expected, "at {seconds} s");
        assert_eq!(
            evaluator.pressure(Resource::Memory),
            pressure,
            "at {seconds} s"
        );
    }
    evaluator.force(Resource::Memory, Grounds::ConfirmedGlobal, at(120));
    assert!(!lost(&evaluator), "the kernel reported a kill");
}
