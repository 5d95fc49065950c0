//! Records of kills that come late, or that the kernel did not count.

use super::*;
use crate::reading::oom::Consequence;

/// Kills in a removed pod, which version 2 counts in the cgroup of all pods only.
fn counted_in_all(kills: u64) -> CountedKills {
    let mut counted = counted(kills);
    counted.cgroups.truncate(1);
    counted
}

/// Returns an account of three kills, whose counters are being read because a record was lost.
fn asked() -> KillCounters {
    let mut counters = counters(KillSource::Program);
    #[rustfmt::skip]
    play(&mut counters, vec![
        (1, recalled(PreviousAgent::Unknown, 3), &[], Idle),
        (9, In::RecordsLost, &[], Wanted),
        (9, In::Sampled, &["save 3", "KillCounters"], Asked),
        (9, In::Saved, &[], Asked),
    ]);
    counters
}

#[test]
fn a_late_record_of_a_kill_that_was_reported_by_number_is_ignored() {
    type Counted = fn(u64) -> CountedKills;
    type Effects = &'static [&'static str];
    //  what is counted, what is saved of the pod, and what is reported
    #[rustfmt::skip]
    let rows: [(&str, Counted, Effects, Effects); 2] = [
        ("in a pod", counted, &["save 3", "KillCounters"],
            &["report 1 by number, Now", "incident in aa at 12"]),
        ("in a removed pod", counted_in_all, &["save 0", "KillCounters"],
            &["report 1 by number, Now"]),
    ];
    for (name, of, saved, reported) in rows {
        let mut counters = counters(KillSource::Program);
        let recalled = In::Recalled {
            previous: PreviousAgent::Unknown,
            counted: Some(of(3)),
        };
        #[rustfmt::skip]
        let steps: Vec<Step> = vec![
            (1, recalled, &[], Idle),
            (9, In::RecordsLost, &[], Wanted),
            (9, In::Sampled, saved, Asked),
            (9, In::Counted(Some(of(4))), &[], Wanted),
            (11, In::Sampled, &["KillCounters"], Asked),
            (12, In::Counted(Some(of(4))), reported, Idle),
            (13, record(9), &[], Wanted),
            (13, record(9), &["report 1", "incident in aa at 9"], Wanted),
        ];
        play_row(name, &mut counters, steps);
    }
    let mut counters = asked();
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (9, In::Counted(Some(counted(4))), &[], Wanted),
        (11, In::Sampled, &["KillCounters"], Asked),
        (12, In::Counted(Some(counted(4))), &["report 1 by number, Now", "incident in aa at 12"], Idle),
        (13, record(10), &["report 1", "incident in aa at 10"], Wanted),
    ];
    play(&mut counters, steps);
}

#[test]
fn kills_that_are_missing_at_one_reading_only_are_not_reported_by_number() {
    #[rustfmt::skip]
    let rows: [(&str, Vec<Step>); 2] = [
        ("the record came, and another kill is missing", vec![
            (10, record(8), &["report 1", "incident in aa at 8"], Wanted),
            (11, In::Sampled, &["KillCounters"], Asked),
            (12, In::Counted(Some(counted(5))), &[], Wanted),
            (14, In::Sampled, &["KillCounters"], Asked),
            (14, In::Counted(Some(counted(5))), &["report 1 by number, Now", "incident in aa at 14"], Idle),
        ]),
        ("no record came, and another kill is missing", vec![
            (11, In::Sampled, &["KillCounters"], Asked),
            (12, In::Counted(Some(counted(5))), &["report 1 by number, Now", "incident in aa at 12"], Wanted),
            (14, In::Sampled, &["KillCounters"], Asked),
            (14, In::Counted(Some(counted(5))), &["report 1 by number, Now", "incident in aa at 14"], Idle),
        ]),
    ];
    for (name, steps) in rows {
        let mut counters = asked();
        play(
            &mut counters,
            vec![(9, In::Counted(Some(counted(4))), &[], Wanted)],
        );
        play_row(name, &mut counters, steps);
    }
}

#[test]
fn a_record_that_the_kernel_did_not_count_is_not_acknowledged_twice() {
    #[rustfmt::skip]
    let rows: [(&str, Vec<Step>); 2] = [
        ("of the moment of the query", vec![
            (9, record(9), &["report 1", "incident in aa at 9"], AskedAndWanted),
            (10, In::Counted(Some(counted(3))), &[], Wanted),
            (11, acknowledged(1), &[], Wanted),
            (13, In::Sampled, &["save 3", "KillCounters"], Asked),
        ]),
        ("after one query, and still not at the next", vec![
            (10, record(10), &["report 1", "incident in aa at 10"], AskedAndWanted),
            (10, In::Counted(Some(counted(3))), &[], Wanted),
            (12, In::Sampled, &["KillCounters"], Asked),
            (12, In::Counted(Some(counted(3))), &[], Idle),
            (13, acknowledged(1), &[], Idle),
            (14, In::Sampled, &["save 3"], Idle),
        ]),
    ];
    for (name, steps) in rows {
        play_row(name, &mut asked(), steps);
    }
}

/// A process of a container that is killed as a whole, recorded by the kernel at `seconds`.
fn record_of_group(seconds: u64, is_first: bool) -> In {
    let In::Found(mut findings) = record(seconds) else {
        unreachable!("a record");
    };
    for finding in &mut findings {
        finding.consequence = Some(Consequence::WholeContainer);
        finding.group = Some("/kubepods/podaa/c".to_owned());
        finding.cause.is_first = is_first;
    }
    In::Found(findings)
}

#[test]
fn the_first_victim_of_a_group_kill_is_not_missing_if_the_kernel_counts_it_twice() {
    const NEW: &[&str] = &["report 1", "incident in aa at 5"];
    const ONE: &[&str] = &["report 1 by number, Now"];
    // What the kernel counts of two processes at the first reading and later, what follows from the
    // next sample after the first, and what is reported.
    type Effects = &'static [&'static str];
    let rows: [(u64, u64, Effects, Effects); 4] = [
        (2, 2, &["KillCounters"], &[]),
        (3, 3, &["KillCounters"], &[]),
        // Read while the kernel killed them.
        (2, 3, &["KillCounters"], &[]),
        (3, 4, &["KillCounters"], ONE),
    ];
    for (first, later, saved, reported) in rows {
        let name = format!("{first}, then {later}");
        let mut counters = counters(KillSource::Program);
        // As long as a kill may be counted twice, one that is missing later would be taken for it.
        let after_first = if first == 2 { Wanted } else { Idle };
        #[rustfmt::skip]
        let steps: Vec<Step> = vec![
            (1, recalled(PreviousAgent::Unknown, 0), &[], Idle),
            (5, record_of_group(5, true), NEW, Wanted),
            (5, record_of_group(5, false), &["report 1"], Wanted),
            (5, acknowledged(3), &[], Wanted),
            (5, In::Sampled, &["save 3", "KillCounters"], Asked),
            (5, In::Saved, &[], Asked),
            (5, In::Counted(Some(counted(first))), &[], after_first),
            (9, In::RecordsLost, &[], Wanted),
            (9, In::Sampled, saved, Asked),
        ];
        play_row(&name, &mut counters, steps);
        let mut effects = counters.on(In::Counted(Some(counted(later))), at(9));
        if counters.reading == Wanted {
            effects.extend(counters.on(In::Sampled, at(12)));
            effects.extend(counters.on(In::Counted(Some(counted(later))), at(12)));
        }
        let effects = short(&effects);
        let shown = |effect: &&String| effect.contains("by number");
        let shown: Vec<_> = effects.iter().filter(shown).collect();
        assert_eq!(shown, reported, "{name}");
        assert_eq!(counters.reading, Idle, "{name}");
    }
}

#[test]
fn what_the_kernel_counts_twice_in_a_group_is_not_missing_at_the_next_start() {
    // How often two processes were counted when the counters were last read, if they were; how many
    // kills their incident reports, before or after that; what is counted at the next start; and
    // what that reports.
    type Effects = &'static [&'static str];
    let rows: [(Option<u64>, u64, u64, Effects); 8] = [
        (None, 3, 3, &[]),
        // It did not count one twice.
        (None, 3, 2, &[]),
        (None, 3, 5, &["report 2 by number, WhileDown"]),
        (None, 0, 3, &["report 3 by number, WhileDown"]),
        (Some(3), 3, 3, &[]),
        (Some(3), 0, 3, &["report 3 by number, WhileDown"]),
        (Some(2), 3, 4, &["report 1 by number, WhileDown"]),
        (Some(3), 3, 4, &["report 1 by number, WhileDown"]),
    ];
    for (read, recorded, count, expected) in rows {
        for reads_first in [false, true] {
            let mut before = counters(KillSource::Program);
            before.on(recalled(PreviousAgent::Unknown, 0), at(1));
            before.on(record_of_group(5, true), at(5));
            before.on(record_of_group(5, false), at(5));
            let mut steps = vec![acknowledged(recorded)];
            if let Some(read) = read {
                let reading = [In::Sampled, In::Counted(Some(counted(read)))];
                let place = usize::from(!reads_first);
                steps.splice(place..place, reading);
            }
            for step in steps {
                before.on(step, at(5));
            }
            let saved = PreviousAgent::Acknowledged(before.ledger.acknowledged());
            let mut after = counters(KillSource::Program);
            after.on(recalled(saved, count), at(7));
            after.on(In::Sampled, at(10));
            let effects = short(&after.on(In::Counted(Some(counted(count))), at(10)));
            let shown = |effect: &&String| effect.contains("by number");
            let shown: Vec<_> = effects.iter().filter(shown).collect();
            assert_eq!(
                shown, expected,
                "{read:?}, {recorded}, {count}, {reads_first}"
            );
        }
    }
}

#[test]
fn a_suspected_kill_that_was_counted_twice_is_not_reported_when_others_are_missing() {
    let mut counters = counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, recalled(PreviousAgent::Unknown, 0), &[], Idle),
        (5, In::RecordsLost, &[], Wanted),
        (5, In::Sampled, &["save 0", "KillCounters"], Asked),
        (5, In::Counted(Some(counted(3))), &[], Wanted),
        (6, record_of_group(5, true), &["report 1", "incident in aa at 5"], Wanted),
        (6, record_of_group(5, false), &["report 1"], Wanted),
        (8, In::Sampled, &["KillCounters"], Asked),
        (8, In::Counted(Some(counted(6))), &[], Wanted),
        (10, In::Sampled, &["KillCounters"], Asked),
        (10, In::Counted(Some(counted(6))), &["report 3 by number, Now", "incident in aa at 10"], Idle),
    ];
    play(&mut counters, steps);
}
