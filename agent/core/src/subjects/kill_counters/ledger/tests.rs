use super::*;
use crate::pods::PodId;

use Step::{Acknowledged, Asked, Begin, Count, Report, Resume, Seen};

/// The cgroup of all pods is `*`; `-` is outside of them, and `node` is the node.
fn owner(name: &str) -> KillOwner {
    match name {
        "*" => KillOwner::Pods,
        "-" => KillOwner::NoPod,
        "node" => KillOwner::Node,
        uid => KillOwner::Pod(PodId::Uid(uid.to_owned())),
    }
}

/// Owner, id of the cgroup, kills.
type Counts = &'static [(&'static str, u64, u64)];
/// Acknowledged kills by the id of the cgroup.
type Saved = &'static [(u64, u64)];
/// Owner and kills.
type Kills = &'static [(&'static str, u64)];

fn counters(counts: Counts) -> Counters {
    let counter = |(name, id, kills): &(&str, u64, u64)| {
        let (id, kills) = (CgroupId(*id), *kills);
        (owner(name), Counter { id, kills })
    };
    counts.iter().map(counter).collect()
}

fn of(name: &str, kills: u64) -> ReportedKills {
    ReportedKills::of(owner(name), kills)
}

/// What happens to the account.
#[derive(Debug, Clone, Copy)]
enum Step {
    Begin(Counts),
    Resume(Counts, Saved),
    Asked,
    /// In a pod; whether the kernel counted it before the counters were asked for.
    Seen(&'static str, bool),
    Acknowledged(&'static str, u64),
    /// What is missing then.
    Count(Counts, Kills),
    Report(&'static str, u64),
}

fn play(name: &str, nested: bool, steps: &[Step], acknowledged: Saved) {
    let mut ledger = KillLedger::new(nested);
    for (n, step) in steps.iter().enumerate() {
        match *step {
            Begin(counts) => ledger.begin(&counters(counts)),
            Resume(counts, known) => {
                let known = known.iter().map(|(id, kills)| (CgroupId(*id), *kills));
                ledger.resume(&counters(counts), &known.collect());
            }
            Asked => ledger.asked(BootNanos(0)),
            Seen(pod, counted) => ledger.seen(&owner(pod), counted),
            Acknowledged(pod, kills) => ledger.acknowledge(of(pod, kills), Position(1)),
            Count(counts, expected) => {
                let missing = ledger.count(&counters(counts)).missing;
                let expected = expected.iter().map(|(name, kills)| (owner(name), *kills));
                assert_eq!(missing, expected.collect(), "{name}: step {n}, {step:?}");
            }
            Report(pod, kills) => ledger.report(&owner(pod), kills),
        }
    }
    let known = acknowledged
        .iter()
        .map(|(id, kills)| (CgroupId(*id), *kills));
    assert_eq!(ledger.acknowledged().cgroups, known.collect(), "{name}");
}

const FLAT: bool = false;
const NESTED: bool = true;

#[test]
fn what_was_counted_is_acknowledged_pending_or_missing() {
    #[rustfmt::skip]
    let rows: &[(&str, bool, &[Step], Saved)] = &[
        ("a record comes, then its acknowledgement", NESTED, &[
            Begin(&[("*", 1, 3), ("aa", 2, 3)]),
            Seen("aa", true),
            Count(&[("*", 1, 4), ("aa", 2, 4)], &[]),
            Acknowledged("aa", 1),
        ], &[(1, 4), (2, 4)]),
        ("no record comes", NESTED, &[
            Begin(&[("*", 1, 3), ("aa", 2, 3)]),
            Count(&[("*", 1, 5), ("aa", 2, 5)], &[("aa", 2)]),
            Report("aa", 2),
            Count(&[("*", 1, 5), ("aa", 2, 5)], &[]),
        ], &[(1, 3), (2, 3)]),
        ("in a pod that is removed", NESTED, &[
            Begin(&[("*", 1, 3), ("aa", 2, 3)]),
            Count(&[("*", 1, 5)], &[("*", 2)]),
        ], &[(1, 3)]),
        ("the same without a sum", FLAT, &[
            Begin(&[("*", 1, 0), ("aa", 2, 3)]),
            Count(&[("*", 1, 5)], &[]),
        ], &[(1, 0)]),
        ("reported without the name of its pod", NESTED, &[
            Begin(&[("*", 1, 0), ("aa", 2, 0)]),
            Seen("*", true),
            Count(&[("*", 1, 1), ("aa", 2, 1)], &[]),
        ], &[(1, 0), (2, 0)]),
        ("more is acknowledged than is pending", FLAT, &[Begin(&[("aa", 2, 3)]), Acknowledged("aa", 9)], &[(2, 3)]),
        ("the kernel does not count every record", FLAT, &[
            Begin(&[("aa", 2, 3)]),
            Seen("aa", true),
            Count(&[("aa", 2, 3)], &[]),
            Acknowledged("aa", 1),
            Count(&[("aa", 2, 4)], &[("aa", 1)]),
        ], &[(2, 3)]),
        ("it may count one later that came after the query", FLAT, &[
            Begin(&[("aa", 2, 3)]),
            Asked,
            Seen("aa", false),
            Count(&[("aa", 2, 3)], &[]),
            Acknowledged("aa", 1),
            Asked,
            Count(&[("aa", 2, 4)], &[]),
        ], &[(2, 4)]),
        ("but not after the next query", FLAT, &[
            Begin(&[("aa", 2, 3)]),
            Seen("aa", false),
            Asked,
            Count(&[("aa", 2, 3)], &[]),
        ], &[(2, 2)]),
        ("a record before the first counts", FLAT, &[
            Seen("aa", true),
            Seen("aa", false),
            Begin(&[("aa", 2, 3)]),
        ], &[(2, 2)]),
        ("what the previous agent acknowledged", NESTED, &[
            Resume(&[("*", 1, 7), ("aa", 2, 5), ("bb", 3, 2)], &[(1, 4), (2, 4)]),
            Count(&[("*", 1, 7), ("aa", 2, 5), ("bb", 3, 2)], &[("aa", 1), ("bb", 2)]),
        ], &[(1, 4), (2, 4), (3, 0)]),
    ];
    for (name, nested, steps, acknowledged) in rows {
        play(name, *nested, steps, acknowledged);
    }
}

#[test]
fn version_1_counts_on_the_node_what_it_counts_in_no_pod() {
    #[rustfmt::skip]
    let rows: &[(&str, &[Step], Saved)] = &[
        ("a pod has one of two", &[
            Begin(&[("aa", 2, 1), ("node", 0, 9)]),
            Count(&[("aa", 2, 2), ("node", 0, 11)], &[("aa", 1), ("node", 1)]),
            Report("aa", 1),
            Report("node", 1),
            Count(&[("aa", 2, 2), ("node", 0, 11)], &[]),
            Acknowledged("aa", 1),
            Acknowledged("node", 1),
        ], &[(2, 2), (0, 11)]),
        ("in a pod that is removed", &[
            Begin(&[("aa", 2, 1), ("node", 0, 9)]),
            Count(&[("node", 0, 10)], &[("node", 1)]),
        ], &[(0, 9)]),
        ("a record of each", &[
            Begin(&[("aa", 2, 1), ("node", 0, 9)]),
            Seen("aa", true),
            Seen("-", true),
            Count(&[("aa", 2, 2), ("node", 0, 11)], &[]),
            Acknowledged("aa", 1),
            Acknowledged("-", 1),
        ], &[(2, 2), (0, 11)]),
        ("the kernel does not count every record", &[
            Begin(&[("node", 0, 9)]),
            Seen("-", true),
            Count(&[("node", 0, 9)], &[]),
            Acknowledged("-", 1),
            Count(&[("node", 0, 10)], &[("node", 1)]),
        ], &[(0, 9)]),
        ("the counter of the node is not read at times", &[
            Begin(&[("node", 0, 9)]),
            Count(&[], &[]),
            Count(&[("node", 0, 10)], &[("node", 1)]),
        ], &[(0, 9)]),
        ("what the previous agent acknowledged", &[
            Resume(&[("aa", 2, 2), ("node", 0, 12)], &[(2, 1), (0, 9)]),
            Count(&[("aa", 2, 2), ("node", 0, 12)], &[("aa", 1), ("node", 2)]),
        ], &[(2, 1), (0, 9)]),
        ("an older agent did not save it", &[
            Resume(&[("aa", 2, 2), ("node", 0, 12)], &[(2, 1)]),
            Count(&[("aa", 2, 2), ("node", 0, 12)], &[("aa", 1)]),
        ], &[(2, 1), (0, 12)]),
    ];
    for (name, steps, acknowledged) in rows {
        play(name, FLAT, steps, acknowledged);
    }
}

#[test]
fn cgroups_that_are_removed_or_created_again_are_accounted_for() {
    #[rustfmt::skip]
    let rows: &[(&str, &[Step], Saved)] = &[
        ("created again, it counts from zero", &[
            Begin(&[("aa", 2, 5)]),
            Count(&[("aa", 9, 2)], &[("aa", 2)]),
        ], &[(9, 0)]),
        ("what is pending is not of the new one", &[
            Begin(&[("aa", 2, 5)]),
            Seen("aa", true),
            Count(&[("aa", 9, 1)], &[("aa", 1)]),
            Acknowledged("aa", 1),
        ], &[(9, 0)]),
        ("a removed one is kept while something is pending", &[
            Begin(&[("aa", 2, 1)]),
            Seen("aa", true),
            Count(&[], &[]),
            Count(&[("aa", 2, 2)], &[]),
        ], &[(2, 1)]),
        ("and is forgotten else", &[Begin(&[("aa", 2, 1)]), Count(&[], &[])], &[]),
    ];
    for (name, steps, acknowledged) in rows {
        play(name, FLAT, steps, acknowledged);
    }
}
