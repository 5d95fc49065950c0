//! Kills outside of the pods, and on version 1 those in cgroups that are not known.

use super::*;

/// One kill in the pod, and `outside` elsewhere.
fn counted_on_node(outside: u64) -> CountedKills {
    CountedKills {
        node: Some(1 + outside),
        ..counted(1)
    }
}

/// A kill in a service, recorded by the kernel at `seconds`.
fn record_outside(seconds: u64) -> In {
    let In::Found(mut findings) = record(seconds) else {
        unreachable!()
    };
    let path = "/system.slice/hog.service";
    findings[0].owner = VictimOwner::NoPod;
    findings[0].counter = VictimOwner::NoPod.counter(Some(path), PODS);
    findings[0].cgroup = Some(path.to_owned());
    In::Found(findings)
}

#[test]
fn kills_outside_the_pods_are_accounted_for_by_the_counter_of_the_node() {
    let start = |previous, outside| In::Recalled {
        previous,
        counted: Some(counted_on_node(outside)),
    };
    let count = |outside| In::Counted(Some(counted_on_node(outside)));
    let lost: &[&str] = &["report 1 by number, Now"];
    let mut counters = self::counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, start(PreviousAgent::Unknown, 5), &[], Idle),
        (2, In::Due, &["save 1"], Idle),
        (3, In::Saved, &[], Idle),
        // One of two records is lost.
        (9, record_outside(9), &["report 1"], Wanted),
        (9, In::RecordsLost, &[], Wanted),
        (9, In::Sampled, &["KillCounters"], Asked),
        (9, count(7), &[], Wanted),
        (12, In::Sampled, &["KillCounters"], Asked),
        (12, count(7), lost, Idle),
    ];
    play(&mut counters, steps);

    // A kill in a pod that the kernel had counted on the node only.
    let then = CountedKills {
        node: Some(7),
        ..counted(2)
    };
    let mut counters = self::counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, start(PreviousAgent::Unknown, 5), &[], Idle),
        (2, In::Due, &["save 1"], Idle),
        (3, In::Saved, &[], Idle),
        (9, In::RecordsLost, &[], Wanted),
        (9, In::Sampled, &["KillCounters"], Asked),
        (9, count(6), &[], Wanted),
        (9, record(9), &["report 1", "incident in aa at 9"], Wanted),
        (12, In::Sampled, &["KillCounters"], Asked),
        (12, In::Counted(Some(then)), &[], Idle),
    ];
    play(&mut counters, steps);

    let saved = |outside: Option<u64>| {
        let outside = outside.map(|kills| (CgroupId(0), kills));
        let pods = [(CgroupId(1), 1), (CgroupId(2), 1)];
        PreviousAgent::Acknowledged(pods.into_iter().chain(outside).collect())
    };
    let down: &[&str] = &["report 2 by number, WhileDown"];
    for (previous, expected, name) in [
        (saved(Some(5)), down, "while the agent was down"),
        (saved(None), &[], "saved by an older agent"),
    ] {
        let mut counters = self::counters(KillSource::Program);
        let wanted = if expected.is_empty() { Idle } else { Wanted };
        counters.on(start(previous, 7), at(1));
        assert_eq!(counters.reading, wanted, "{name}");
        counters.on(In::RecordsLost, at(4));
        counters.on(In::Sampled, at(4));
        assert_eq!(
            short(&counters.on(count(7), at(4)))[..],
            *expected,
            "{name}"
        );
    }
}

/// Kills in the pod and on the node, as version 1 counts them.
fn counted_flat(in_pod: u64, on_node: u64) -> CountedKills {
    let mut counted = CountedKills {
        node: Some(on_node),
        ..counted(in_pod)
    };
    counted.cgroups[0].kills = 0;
    counted
}

#[test]
fn version_1_reports_kills_that_neither_a_record_nor_a_pod_accounts_for() {
    let count = |in_pod, on_node| In::Counted(Some(counted_flat(in_pod, on_node)));
    let one: &[&str] = &["report 1 by number, Now"];
    let both: &[&str] = &[
        "report 1 by number, Now, report 1 by number, Now",
        "incident in aa at 12",
    ];
    #[rustfmt::skip]
    let rows: [(&str, Vec<Step>); 3] = [
        ("one of three has a record, and one is counted in its pod", vec![
            (9, record_outside(9), &["report 1"], Wanted),
            (9, In::Sampled, &["KillCounters"], Asked),
            (9, count(2, 13), &[], Wanted),
            (12, In::Sampled, &["KillCounters"], Asked),
            (12, count(2, 13), both, Idle),
            // Their records were late.
            (13, record(9), &[], Wanted),
            (13, record_outside(9), &[], Wanted),
            (13, record_outside(9), &["report 1"], Wanted),
        ]),
        ("its record is on the way", vec![
            (9, In::RecordsLost, &[], Wanted),
            (9, In::Sampled, &["KillCounters"], Asked),
            (9, count(1, 11), &[], Wanted),
            (10, record_outside(9), &["report 1"], Wanted),
            (12, In::Sampled, &["KillCounters"], Asked),
            (12, count(1, 11), &[], Idle),
        ]),
        ("its container is removed before the second reading", vec![
            (9, In::RecordsLost, &[], Wanted),
            (9, In::Sampled, &["KillCounters"], Asked),
            (9, count(2, 11), &[], Wanted),
            (12, In::Sampled, &["KillCounters"], Asked),
            (12, count(1, 11), &[], Wanted),
            (15, In::Sampled, &["KillCounters"], Asked),
            (15, count(1, 11), one, Idle),
        ]),
    ];
    for (name, steps) in rows {
        let setup = KillCounterSetup {
            source: KillSource::Program,
            counting: Some(Counting::Flat),
            boot_known: true,
        };
        let mut counters = KillCounters::new(setup, at(0).boot);
        let start = In::Recalled {
            previous: PreviousAgent::Unknown,
            counted: Some(counted_flat(1, 10)),
        };
        #[rustfmt::skip]
        play_row(name, &mut counters, vec![
            (1, start, &[], Idle),
            (2, In::Due, &["save 1"], Idle),
            (3, In::Saved, &[], Idle),
        ]);
        play_row(name, &mut counters, steps);
    }
}

#[test]
fn a_kill_of_an_unknown_cgroup_is_reported_by_the_counters_if_they_have_all_kills() {
    let unknown = || {
        let In::Found(mut findings) = record(9) else {
            unreachable!()
        };
        findings[0].owner = VictimOwner::NoPod;
        findings[0].counter = KillOwner::NoPod;
        findings[0].cgroup = None;
        In::Found(findings)
    };
    let all = |kills| CountedKills {
        node: Some(5 + kills),
        ..counted(kills)
    };
    let before = |counted| In::Recalled {
        previous: PreviousAgent::Unknown,
        counted: Some(counted),
    };
    let by_number: &[&str] = &["report 1 by number, Now", "incident in aa at 12"];
    let mut counters = self::counters(KillSource::Log);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, before(all(1)), &[], Idle),
        (2, In::Due, &["save 1"], Idle),
        (3, In::Saved, &[], Idle),
        (9, unknown(), &[], Wanted),
        (9, In::Sampled, &["KillCounters"], Asked),
        (9, In::Counted(Some(all(2))), &[], Wanted),
        (12, In::Sampled, &["KillCounters"], Asked),
        (12, In::Counted(Some(all(2))), by_number, Idle),
    ];
    play(&mut counters, steps);

    // The counters of the pods do not have all kills.
    let mut counters = self::counters(KillSource::Log);
    let steps: Vec<Step> = vec![
        (1, before(counted(1)), &[], Idle),
        (9, unknown(), &["report 1"], Wanted),
    ];
    play(&mut counters, steps);
}
