use std::time::{Duration, SystemTime};

use super::*;
use crate::clock::Stamp;
use crate::kube_event::VictimOwner;
use crate::pods::{CgroupKind, PodId};
use crate::pressure::oom::{Doubt, KillVerdict};
use crate::reading::oom::{LimitOwner, OomScope};
use crate::subjects::{IncidentInput, Input};
use crate::units::{CgroupId, Pid};

use KillCounterInput as In;
use Reading::{Asked, AskedAndWanted, Idle, Wanted};

const PODS: &str = "/kubepods";
const POD: &str = "/kubepods/podaa";

fn at(seconds: u64) -> Now {
    Now {
        boot: BootNanos(seconds * 1_000_000_000),
        wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    }
}

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
    let time = at(seconds).boot;
    let owner = VictimOwner::of(CgroupKind::Pod {
        pod: PodId::Uid("aa".to_owned()),
    });
    In::Found(vec![Finding {
        stamp: Stamp {
            kernel: time,
            read: time,
        },
        victim: Pid(7),
        comm: "victim".to_owned(),
        uid: None,
        cgroup: Some(POD.to_owned()),
        counter: owner.counter(Some(POD), PODS),
        owner,
        scope: OomScope::Unknown,
        resident: None,
        trigger: None,
        verdict: KillVerdict::EventOnly {
            why: Doubt::LocalLimit(LimitOwner::Pod),
        },
    }])
}

fn acknowledged(kills: u64) -> In {
    let owner = KillOwner::Pod(PodId::Uid("aa".to_owned()));
    In::Settled(KillOutcomes {
        acknowledged: ReportedKills::of(owner, kills),
        ..KillOutcomes::default()
    })
}

/// What follows, in short.
fn short(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| match effect {
        Effect::Query(query) => format!("{query:?}"),
        Effect::Input(input) => match &**input {
            Input::Incident(IncidentInput::Happened(incidents)) => reported(incidents),
            Input::KilledInPods { kills, .. } => format!("count {kills}"),
            Input::State(StateInput::Acknowledged(kills)) => {
                let of_pod = kills.get(&CgroupId(2)).copied().unwrap_or_default();
                format!("save {of_pod}")
            }
            other => panic!("unexpected: {other:?}"),
        },
        Effect::Log(decision) => match decision {
            Decision::KillsReportedByNumber { kills, .. } => format!("log {kills} by number"),
            other => format!("log {other:?}"),
        },
        other => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

fn reported(incidents: &[Incident]) -> String {
    let all = incidents.iter().map(|incident| match &incident.occurrence {
        Occurrence::Kills(kills) => format!("report {}", kills.len()),
        Occurrence::UnidentifiedKills(counted) => {
            format!("report {} by number, {:?}", counted.kills, counted.period)
        }
        Occurrence::RefusedForks(_) => "forks".to_owned(),
    });
    all.collect::<Vec<_>>().join(", ")
}

/// Seconds, input, what follows, state of the reading.
type Step = (u64, In, &'static [&'static str], Reading);

fn play(counters: &mut KillCounters, steps: Vec<Step>) {
    for (seconds, input, expected, reading) in steps {
        let name = format!("{input:?} at {seconds} s");
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
        (23, record(19), &["report 1"], AskedAndWanted),
        (24, In::Counted(Some(counted(5))), &["log 1 by number", "report 1 by number, Now"], Wanted),
        (25, record(19), &[], Wanted),
        (26, acknowledged(2), &[], Wanted),
        (26, In::Sampled, &["save 5", "KillCounters"], Asked),
        (27, In::Counted(Some(counted(5))), &[], Idle),
    ];
    play(&mut counters, steps);
}

#[test]
fn kills_while_the_agent_was_down_are_reported_by_the_next_one() {
    let previous = || PreviousAgent::Acknowledged([(CgroupId(1), 3), (CgroupId(2), 3)].into());
    let mut counters = counters(KillSource::Program);
    #[rustfmt::skip]
    let steps: Vec<Step> = vec![
        (3, recalled(previous(), 5), &["save 3"], Wanted),
        (4, In::Saved, &[], Wanted),
        (5, In::Sampled, &["KillCounters"], Asked),
        (5, In::Counted(Some(counted(5))), &["log 2 by number", "report 2 by number, WhileDown"], Idle),
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
        (11, In::Counted(Some(counted(4))), &["log 1 by number", "report 1 by number, Now", "count 1"], Idle),
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
        (4, In::Counted(Some(counted(1))), &["log 1 by number", "report 1 by number, Now", "count 1"], Idle),
        (5, In::Stopping, &["KillCounters"], Asked),
        (5, In::Counted(Some(counted(3))), &["log 2 by number", "report 2 by number, Now", "count 2"], Idle),
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
