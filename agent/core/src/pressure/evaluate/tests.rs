use std::time::Duration;

use super::*;
use crate::pressure::threshold::{ThresholdValue, with_allocatable};
use crate::tests::boot as at;

mod disks;
mod sources;

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

fn read(signal: Signal, available: i64) -> Sample {
    Sample::Read(Reading {
        signal,
        available,
        capacity: 1000,
    })
}

fn memory(available: i64) -> Sample {
    read(Signal::MemoryAvailable, available)
}

fn since(seconds: u64) -> Pressure {
    Pressure::UnderPressure {
        last_exceeded: at(seconds),
    }
}

/// Runs a script of evaluations of memory alone, and compares the state after each.
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
fn a_hard_threshold_raises_at_once_and_falls_after_the_transition_period() {
    use Pressure::Normal;
    run(
        &mut evaluator(vec![hard("memory.available", "100")]),
        &[
            (0, 100, Normal, "equal is not met"),
            (10, 99, since(10), "one less is"),
            (20, 100, since(10), "recovered, kept"),
            (
                30,
                99,
                since(30),
                "crossed again: the transition period restarts",
            ),
            (329, 500, since(30), "one second short of the period"),
            (330, 500, Normal, "the whole period"),
        ],
    );
}

#[test]
fn a_fully_met_threshold_stays_met_until_its_reclaim_is_available() {
    let reclaiming = |threshold: Threshold| Threshold {
        min_reclaim: Some(ThresholdValue::Quantity(50)),
        ..threshold
    };
    let hard = reclaiming(hard("memory.available", "100"));
    run(
        &mut evaluator(vec![hard]),
        &[
            (0, 149, Pressure::Normal, "never met: no reclaim is due"),
            (10, 99, since(10), "met"),
            (20, 149, since(20), "one short of the reclaim: refreshed"),
            (30, 150, since(20), "reclaimed: transition period"),
            (
                40,
                149,
                since(20),
                "a fall below the reclaim no longer counts",
            ),
        ],
    );
    run(
        &mut evaluator(vec![hard.soft(Duration::from_secs(30))]),
        &[
            (0, 99, since(0), "met, but within its grace period"),
            (29, 149, since(0), "so nothing is to be reclaimed"),
            (30, 99, since(30), "the gap has reset the grace period"),
            (59, 99, since(59), "one second short of it"),
            (60, 149, since(59), "so there is still nothing to reclaim"),
            (70, 99, since(70), "another gap"),
            (100, 99, since(100), "fully met now"),
            (110, 149, since(110), "so the reclaim counts"),
        ],
    );
}

#[test]
fn a_pods_cgroup_above_its_limit_is_below_any_threshold() {
    let mut evaluator = evaluator(with_allocatable(vec![hard("memory.available", "1")]));
    let samples = [memory(500), read(Signal::AllocatableMemoryAvailable, -1)];
    let changes = evaluator.evaluate(&samples, at(0));
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
            to: since(0),
            reason,
        }]
    );
    assert_eq!(evaluator.cause(Resource::Memory), Some(reason));
}

#[test]
fn a_signal_without_a_threshold_is_never_exceeded() {
    let mut evaluator = evaluator(vec![]);
    evaluator.evaluate(&[memory(0)], at(0));
    assert_eq!(evaluator.pressure(Resource::Memory), Pressure::Normal);
}

#[test]
fn an_evaluation_changes_only_the_sampled_signals() {
    let mut evaluator = evaluator(vec![
        hard("nodefs.available", "100"),
        hard("imagefs.available", "100"),
    ]);
    let nodefs = |n| read(Signal::NodefsAvailable, n);
    let imagefs = |n| read(Signal::ImagefsAvailable, n);
    evaluator.evaluate(&[nodefs(99), imagefs(500)], at(0));

    evaluator.evaluate(&[imagefs(500)], at(400));
    let disk = |evaluator: &Evaluator| evaluator.pressure(Resource::Disk);
    assert_eq!(
        disk(&evaluator),
        since(0),
        "nodefs was exceeded by its last sample"
    );
    assert_eq!(evaluator.next_fall(), None, "so no end is known");

    evaluator.evaluate(&[imagefs(99)], at(500));
    assert_eq!(disk(&evaluator), since(500));
    evaluator.evaluate(&[nodefs(500), imagefs(500)], at(501));
    assert_eq!(evaluator.next_fall(), Some(at(800)));
    evaluator.evaluate(&[], at(800));
    assert_eq!(
        disk(&evaluator),
        Pressure::Normal,
        "an evaluation without samples"
    );
}

#[test]
fn changes_are_transitions_and_contain_their_reason() {
    let mut evaluator = evaluator(vec![
        hard("memory.available", "100"),
        hard("memory.available", "200").soft(Duration::from_secs(30)),
    ]);
    let exceeded = |available, threshold| PressureReason::Threshold {
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
    let (unknown, normal) = (Pressure::Unknown, Pressure::Normal);
    #[rustfmt::skip]
    let script = [
        (0, 500, change(unknown, normal, PressureReason::Below), "first sample"),
        (10, 500, vec![], "nothing new"),
        (20, 150, change(normal, since(20), exceeded(150, 200)), "soft"),
        (30, 50, vec![], "worse, but no transition"),
        (40, 500, vec![], "kept"),
        (330, 500, change(since(30), normal, PressureReason::Below), "transition period over"),
        (340, 50, change(normal, since(340), exceeded(50, 100)), "hard"),
    ];
    for (seconds, available, expected, why) in script {
        let changes = evaluator.evaluate(&[memory(available)], at(seconds));
        assert_eq!(changes, expected, "at {seconds} s: {why}");
    }
    assert_eq!(evaluator.cause(Resource::Memory), Some(exceeded(50, 100)));
    assert_eq!(evaluator.cause(Resource::Pids), None);
}

#[test]
fn a_stored_true_is_kept_from_the_start() {
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    evaluator.seed(Resource::Memory, at(100));
    assert_eq!(
        evaluator.cause(Resource::Memory),
        Some(PressureReason::Stored)
    );
    run(
        &mut evaluator,
        &[
            (100, 500, since(100), "the first sample changes nothing"),
            (399, 500, since(100), "one second short of the period"),
            (400, 500, Pressure::Normal, "the whole period"),
        ],
    );
}

#[test]
fn a_stored_true_that_becomes_known_late_is_kept_from_the_first_normal_sample() {
    let seeded = |at_first: i64, seconds: u64| {
        let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
        evaluator.evaluate(&[memory(at_first)], at(100));
        evaluator.evaluate(&[memory(500)], at(110));
        evaluator.evaluate(&[memory(500)], at(seconds));
        evaluator.seed(Resource::Memory, at(seconds));
        evaluator
    };
    let of = |evaluator: &Evaluator| evaluator.pressure(Resource::Memory);
    assert_eq!(of(&seeded(500, 399)), since(100));
    assert_eq!(of(&seeded(500, 400)), Pressure::Normal, "long enough");
    let sampled = seeded(50, 399);
    assert_eq!(of(&sampled), since(100), "not extended");
    assert_ne!(
        sampled.cause(Resource::Memory),
        Some(PressureReason::Stored),
        "the agent's samples take precedence"
    );
    assert_eq!(of(&seeded(50, 400)), Pressure::Normal);

    // A resource that could not be sampled in between was not normal all the time.
    let mut evaluator = evaluator(vec![hard("memory.available", "100")]);
    evaluator.evaluate(&[memory(500)], at(100));
    for seconds in [200, 220] {
        evaluator.evaluate(&[Sample::Missing(Signal::MemoryAvailable)], at(seconds));
    }
    evaluator.evaluate(&[memory(500)], at(300));
    evaluator.seed(Resource::Memory, at(450));
    assert_eq!(of(&evaluator), since(300));
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
            to: since(5),
            reason,
        }]
    );
    assert_eq!(evaluator.next_fall(), Some(at(305)));

    let again = evaluator.force(Resource::Memory, Grounds::PodsLimit, at(4));
    assert_eq!(again, [], "a second kill is no transition");
    assert_eq!(
        evaluator.pressure(Resource::Memory),
        since(5),
        "and one out of order shortens nothing"
    );
    run(
        &mut evaluator,
        &[
            (304, 500, since(5), "one second short"),
            (305, 500, Pressure::Normal, "the whole period"),
        ],
    );
    assert_eq!(evaluator.cause(Resource::Memory), None);
}

#[test]
fn the_transition_period_that_ends_first_is_the_next_fall() {
    let mut evaluator = evaluator(vec![
        hard("memory.available", "100"),
        hard("pid.available", "100"),
    ]);
    assert_eq!(evaluator.next_fall(), None, "no transition period");
    evaluator.evaluate(&[memory(99), read(Signal::PidAvailable, 500)], at(0));
    assert_eq!(evaluator.next_fall(), None, "still exceeded");
    evaluator.evaluate(&[memory(500), read(Signal::PidAvailable, 99)], at(10));
    assert_eq!(evaluator.next_fall(), Some(at(300)), "memory's");
    evaluator.evaluate(&[memory(500), read(Signal::PidAvailable, 500)], at(20));
    assert_eq!(evaluator.next_fall(), Some(at(300)), "before pids'");
    evaluator.evaluate(&[memory(500), read(Signal::PidAvailable, 500)], at(300));
    assert_eq!(evaluator.next_fall(), Some(at(310)), "pids'");
}

#[test]
fn a_new_policy_applies_at_once_and_keeps_transition_periods() {
    let kept = hard("memory.available", "100");
    let mut evaluator = evaluator(vec![kept, hard("pid.available", "100")]);
    evaluator.evaluate(&[memory(99), read(Signal::PidAvailable, 99)], at(0));

    evaluator.set_policy(Policy {
        transition_period: Duration::from_mins(1),
        ..policy(vec![hard("pid.available", "50"), kept])
    });
    assert_eq!(
        evaluator.next_fall(),
        Some(at(60)),
        "pids: no longer exceeded"
    );
    evaluator.evaluate(&[read(Signal::PidAvailable, 99)], at(60));
    assert_eq!(evaluator.pressure(Resource::Pids), Pressure::Normal);
    assert_eq!(
        evaluator.pressure(Resource::Memory),
        since(0),
        "memory exceeds the same threshold as before"
    );
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
    assert_eq!(cause(&evaluator), None, "ended");
    evaluator.evaluate(&[memory(50)], at(350));
    assert_eq!(cause(&evaluator), Some(below(0.1)), "and forgotten");
}
