use super::*;
use crate::incident::Position;
use crate::kube_event::VictimOwner;
use crate::pods::{CgroupKind, PodId};
use crate::subjects::{IncidentInput, Input, StateInput};
use crate::tests::now as at;
use crate::units::CgroupId;

mod no_pod;
mod records;

use CounterReading::{Asked, AskedAndWanted, Idle, Wanted};
use KillCounterInput as In;

const PODS: &str = "/kubepods";
const POD: &str = "/kubepods/podaa";

fn counters(source: KillSource) -> KillCounters {
    let setup = KillCounterSetup {
        source,
        counting: Some(Counting::Nested),
        boot_known: true,
    };
    KillCounters::new(setup, at(0).boot)
}

/// Kills in the pod, which version 2 counts in the cgroup of all pods too.
fn counted(kills: u64) -> CountedKills {
    let of = |id, cgroup: &str| CgroupKills {
        id: CgroupId(id),
        cgroup: cgroup.to_owned(),
        kills,
    };
    CountedKills {
        pods: PODS.to_owned(),
        cgroups: vec![of(1, PODS), of(2, POD)],
        node: None,
    }
}

fn recalled(previous: PreviousAgent, kills: u64) -> In {
    In::Recalled {
        previous,
        counted: Some(counted(kills)),
    }
}

/// A kill in the pod, recorded by the kernel at `seconds`.
fn record(seconds: u64) -> In {
    let owner = VictimOwner::of(CgroupKind::Pod {
        pod: PodId::Uid("aa".to_owned()),
    });
    In::Found(vec![Finding {
        stamp: crate::tests::stamp(at(seconds).boot),
        cgroup: Some(POD.to_owned()),
        counter: owner.counter(Some(POD), PODS),
        owner,
        ..crate::tests::finding(7)
    }])
}

fn acknowledged(kills: u64) -> In {
    let owner = KillOwner::Pod(PodId::Uid("aa".to_owned()));
    In::Recorded {
        kills: ReportedKills::of(owner, kills),
        until: Position(1),
    }
}

/// What follows, in short.
fn short(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| match effect {
        Effect::Query(query) => format!("{query:?}"),
        Effect::BlockingQuery(query) => format!("{query:?}"),
        Effect::Input(input) => match &**input {
            Input::Incident(IncidentInput::Happened(incidents)) => reported(incidents),
            Input::OomIncident { pod, at } => {
                format!("incident in {} at {}", pod.as_str(), at.0 / 1_000_000_000)
            }
            Input::State(StateInput::Acknowledged(kills)) => {
                let of_pod = kills.cgroups.get(&CgroupId(2)).copied().unwrap_or_default();
                format!("save {of_pod}")
            }
            other => panic!("unexpected: {other:?}"),
        },
        Effect::Log(decision) => format!("log {decision:?}"),
        other => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

fn reported(incidents: &[Occurred]) -> String {
    let all = incidents.iter().map(|incident| match &incident.occurrence {
        Occurrence::Kills(kills) => format!("report {}", kills.count()),
        Occurrence::UnidentifiedKills(counted) => {
            format!("report {} by number, {:?}", counted.kills, counted.period)
        }
        other => panic!("unexpected: {other:?}"),
    });
    all.collect::<Vec<_>>().join(", ")
}

/// Seconds, input, what follows, state of the reading.
type Step = (u64, In, &'static [&'static str], CounterReading);

fn play(counters: &mut KillCounters, steps: Vec<Step>) {
    play_row("", counters, steps);
}

fn play_row(row: &str, counters: &mut KillCounters, steps: Vec<Step>) {
    for (seconds, input, expected, reading) in steps {
        let name = format!("{row}: {input:?} at {seconds} s");
        let effects = counters.on(input, at(seconds));
        assert_eq!(short(&effects), expected, "{name}");
        assert_eq!(counters.reading, reading, "{name}");
    }
}

#[test]
fn a_kill_without_a_record_is_reported_by_number_at_the_second_reading() {
    let mut counters = counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, recalled(PreviousAgent::Unknown, 3), &[], Idle),
        (2, In::Due, &["save 3"], Idle),
        (2, In::Saved, &[], Idle),
        (10, In::Sampled, &[], Idle),
        (20, In::RecordsLost, &[], Wanted),
        (20, In::Sampled, &["KillCounters"], Asked),
        (21, In::Counted(Some(counted(5))), &[], Wanted),
        (22, In::Sampled, &[], Wanted),
        (23, In::Sampled, &["KillCounters"], Asked),
        (23, record(19), &["report 1", "incident in aa at 19"], AskedAndWanted),
        (24, In::Counted(Some(counted(5))), &["report 1 by number, Now", "incident in aa at 24"], Wanted),
        (25, record(19), &[], Wanted),
        (26, acknowledged(2), &[], Wanted),
        (26, In::Sampled, &["save 5", "KillCounters"], Asked),
        (27, In::Counted(Some(counted(5))), &[], Idle),
    ];
    play(&mut counters, steps);
}

#[test]
fn an_incident_in_a_pod_is_counted_with_the_first_kill_of_its_cause() {
    let kill = |is_first, owner| {
        let In::Found(mut findings) = record(1) else {
            panic!("no record");
        };
        findings[0].cause.is_first = is_first;
        if let Some(owner) = owner {
            findings[0].owner = owner;
        }
        findings
    };
    //  the batches, then the number of incidents
    let rows = [
        (
            "one batch",
            vec![[kill(true, None), kill(false, None)].concat()],
            1,
        ),
        ("two batches", vec![kill(true, None), kill(false, None)], 1),
        ("two causes", vec![kill(true, None), kill(true, None)], 2),
        (
            "names that only claim to be a pod's",
            vec![kill(true, Some(VictimOwner::UnknownPod))],
            0,
        ),
    ];
    for (name, batches, expected) in rows {
        let mut counters = counters(KillSource::Program);
        let effects = batches.into_iter();
        let effects = effects.flat_map(|findings| counters.on(In::Found(findings), at(9)));
        let is_incident = |effect: &Effect| match effect {
            Effect::Input(input) => matches!(**input, Input::OomIncident { .. }),
            _ => false,
        };
        assert_eq!(effects.filter(is_incident).count(), expected, "{name}");
    }
}

#[test]
fn kills_while_the_agent_was_down_are_reported_by_the_next_one() {
    let previous =
        || PreviousAgent::Acknowledged([(CgroupId(1), 3), (CgroupId(2), 3)].into_iter().collect());
    let mut counters = counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (3, recalled(previous(), 5), &["save 3"], Wanted),
        (4, In::Saved, &[], Wanted),
        (5, In::Sampled, &["KillCounters"], Asked),
        (5, In::Counted(Some(counted(5))), &["report 2 by number, WhileDown"], Idle),
    ];
    play(&mut counters, steps);
    let log = [Effect::Log(Decision::StateOfOtherBoot)];
    let other = recalled(PreviousAgent::OtherBoot, 5);
    let mut counters = self::counters(KillSource::Program);
    assert_eq!(counters.on(other, at(1)), log, "what it counted is not new");
}

#[test]
fn if_counters_are_the_only_source_they_are_read_when_that_of_all_pods_moved() {
    let all = |kills| In::PodsCounter(PodsCounter::Counted(Some(kills)));
    let failed = In::PodsCounter(PodsCounter::Failed);
    let mut counters = counters(KillSource::Counters);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, recalled(PreviousAgent::Unknown, 3), &[], Idle),
        (9, In::Sampled, &["save 3"], Idle),
        (9, In::Saved, &[], Idle),
        (10, In::Sampled, &["PodsKillCounter"], Idle),
        (10, all(3), &[], Idle),
        (11, In::Sampled, &["PodsKillCounter"], Idle),
        (11, all(4), &["KillCounters"], Asked),
        (11, In::Counted(Some(counted(4))), &["report 1 by number, Now", "incident in aa at 11"], Idle),
        (20, failed, &["KillCounters"], Asked),
        (20, In::Counted(None), &["log KillCountersFailed"], Wanted),
        (29, In::Sampled, &["KillCounters"], Asked),
        (29, In::Counted(None), &[], Wanted),
    ];
    play(&mut counters, steps);
    assert!(counters.is_unavailable());
}

#[test]
fn the_end_of_the_log_and_of_the_agent_leave_nothing_for_later() {
    let mut counters = counters(KillSource::Log);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (3, recalled(PreviousAgent::Unknown, 0), &["save 0"], Idle),
        (3, In::Saved, &[], Idle),
        (4, In::LogEnded, &["log KillLogEnded", "KillCounters"], Asked),
        (4, In::LogEnded, &[], Asked),
        (4, In::Counted(Some(counted(1))), &["report 1 by number, Now", "incident in aa at 4"], Idle),
        (5, In::Stopping, &["KillCounters"], Asked),
        (5, In::Counted(Some(counted(3))), &["report 2 by number, Now", "incident in aa at 5"], Idle),
        (5, acknowledged(2), &[], Idle),
        (5, In::Stopped, &["save 2"], Idle),
    ];
    play(&mut counters, steps);
    assert!(counters.is_saving());
}

#[test]
fn nothing_is_saved_before_the_counters_are_known_or_if_the_boot_is_not() {
    let mut counters = counters(KillSource::Program);
    assert_eq!(counters.on(acknowledged(1), at(1)), []);
    assert_eq!(
        (counters.due(), counters.on(In::Stopped, at(9))),
        (None, vec![])
    );

    let setup = KillCounterSetup {
        source: KillSource::Program,
        counting: None,
        boot_known: false,
    };
    let mut counters = KillCounters::new(setup, at(0).boot);
    counters.on(recalled(PreviousAgent::Unknown, 0), at(1));
    counters.on(acknowledged(1), at(1));
    assert_eq!(
        (counters.due(), counters.on(In::Stopped, at(9))),
        (None, vec![])
    );
}

#[test]
fn kills_counted_in_another_cgroup_or_boot_are_not_reported() {
    let elsewhere = || {
        let mut counted = counted(9);
        "/kubepods.slice".clone_into(&mut counted.pods);
        for cgroup in &mut counted.cgroups {
            cgroup.cgroup = cgroup.cgroup.replace(PODS, "/kubepods.slice");
        }
        counted
    };
    //  how it starts, what is counted then
    let rows = [
        ("another boot", PreviousAgent::OtherBoot, counted(3)),
        (
            "another cgroup of pods",
            PreviousAgent::Unknown,
            elsewhere(),
        ),
    ];
    for (name, previous, then) in rows {
        let mut counters = counters(KillSource::Program);
        counters.on(recalled(previous, 3), at(1));
        counters.on(In::RecordsLost, at(2));
        for seconds in [5, 8, 11] {
            let effects = counters.on(In::Counted(Some(then.clone())), at(seconds));
            let reported = short(&effects)
                .iter()
                .any(|text| text.starts_with("report"));
            assert!(!reported, "{name} at {seconds} s: {effects:?}");
            counters.on(In::RecordsLost, at(seconds));
            counters.on(In::Sampled, at(seconds + 2));
        }
    }
}

#[test]
fn counters_are_asked_for_once_and_saved_two_seconds_apart() {
    let all = |kills| In::PodsCounter(PodsCounter::Counted(Some(kills)));
    let mut counters = counters(KillSource::Log);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (3, recalled(PreviousAgent::Unknown, 0), &["save 0"], Idle),
        (3, In::Saved, &[], Idle),
        (4, record(3), &["report 1", "incident in aa at 3"], Wanted),
        (5, In::Sampled, &["KillCounters"], Asked),
        (5, In::LogEnded, &["log KillLogEnded"], AskedAndWanted),
        (5, all(9), &[], AskedAndWanted),
        (5, In::Counted(Some(counted(1))), &[], Wanted),
        (6, acknowledged(1), &[], Wanted),
    ];
    play(&mut counters, steps);
    assert_eq!(counters.due(), Some(at(5).boot), "2 s after the last one");
    assert_eq!(short(&counters.on(In::Due, at(6))), ["save 1"]);
    counters.on(In::Saved, at(6));
    counters.on(acknowledged(1), at(7));
    assert_eq!(counters.due(), Some(at(8).boot));

    let mut counters = self::counters(KillSource::Counters);
    let none = In::Recalled {
        previous: PreviousAgent::Unknown,
        counted: Some(CountedKills {
            pods: PODS.to_owned(),
            cgroups: Vec::new(),
            node: None,
        }),
    };
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (3, none, &["save 0"], Idle),
        (12, In::Sampled, &["PodsKillCounter"], Idle),
        (12, In::PodsCounter(PodsCounter::NoPods), &[], Idle),
        (21, In::Sampled, &["PodsKillCounter"], Idle),
        (21, all(1), &["KillCounters"], Asked),
    ];
    play(&mut counters, steps);
}

#[test]
fn many_acknowledged_kills_are_saved_at_once() {
    let mut counters = counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (3, recalled(PreviousAgent::Acknowledged([(CgroupId(1), 3), (CgroupId(2), 3)].into_iter().collect()), 50), &["save 3"], Wanted),
        (3, In::Saved, &[], Wanted),
        (5, In::Sampled, &["KillCounters"], Asked),
        (5, In::Counted(Some(counted(50))), &["report 47 by number, WhileDown"], Idle),
        (5, acknowledged(7), &[], Idle),
        (5, acknowledged(1), &["save 11"], Idle),
        // One write at a time.
        (5, acknowledged(30), &[], Idle),
        (5, In::Saved, &["save 41"], Idle),
        (5, In::Saved, &[], Idle),
        (5, acknowledged(7), &[], Idle),
    ];
    play(&mut counters, steps);
    assert_eq!(counters.due(), Some(at(7).boot), "2 s after the last write");
}

#[test]
fn two_cgroups_of_one_pod_are_added() {
    let mut both = counted(2);
    both.cgroups.push(CgroupKills {
        id: CgroupId(3),
        cgroup: "/kubepods/besteffort/podaa".to_owned(),
        kills: 5,
    });
    both.cgroups[0].kills = 7;
    let mut all = both.clone();
    all.cgroups[0].kills = 8;
    all.cgroups[2].kills = 6;
    let start = In::Recalled {
        previous: PreviousAgent::Unknown,
        counted: Some(both),
    };
    let mut counters = counters(KillSource::Counters);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (1, start, &[], Idle),
        (3, In::Stopping, &["KillCounters"], Asked),
        (3, In::Counted(Some(all)), &["report 1 by number, Now", "incident in aa at 3", "save 7"], Idle),
    ];
    play(&mut counters, steps);
}
