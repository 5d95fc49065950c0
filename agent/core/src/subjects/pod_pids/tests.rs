use super::*;
use crate::pods::{CgroupKind, PodId};
use crate::tests::now as at;

use PodPidInput as In;

const PODS: &str = "/kubepods";
const CONTAINER: &str = "/kubepods/podaa/c";

/// Cgroup, max, current.
type Limit = (&'static str, u64, u64);

fn counted(forks: u64) -> In {
    In::Counted(Some(vec![(CgroupId(3), CONTAINER.to_owned(), forks)]))
}

fn limit((cgroup, max, current): Limit) -> PidLimit {
    PidLimit {
        cgroup: cgroup.to_owned(),
        current,
        max,
    }
}

fn limits(limits: &[Limit]) -> In {
    In::PidLimits {
        pods: PODS.to_owned(),
        limits: limits.iter().copied().map(limit).collect(),
        containers: Vec::new(),
    }
}

/// Returns the effects as short texts.
fn short(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| match effect {
        Effect::Query(Query::PidLimits(cgroup)) => format!("limits of {cgroup}"),
        Effect::Query(query) => format!("{query:?}"),
        Effect::Input(input) => match &**input {
            Input::Incident(IncidentInput::Happened(occurred)) => match &occurred[..] {
                [
                    Occurred {
                        occurrence: Occurrence::RefusedForks(refused),
                        ..
                    },
                ] => format!("report {}: {}", refused.forks, refused.limit_of_cgroup()),
                other => panic!("unexpected: {other:?}"),
            },
            other => panic!("unexpected: {other:?}"),
        },
        other => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

#[test]
fn refused_forks_are_reported_with_their_limit_at_once_and_then_once_a_minute() {
    let ask: &[&str] = &["RefusedForks"];
    let ask_limits: &[&str] = &["limits of /kubepods/podaa/c"];
    #[rustfmt::skip]
    let script: Vec<(u64, In, &[&str])> = vec![
        (0, counted(5), &[]),
        (1, In::CgroupsChanged, ask),
        (1, counted(7), ask_limits),
        (1, limits(&[(CONTAINER, 9, 9)]), &["report 2: its limit is 9 tasks"]),
        (2, In::CgroupsChanged, ask),
        (2, counted(8), &[]),
        (30, In::Sampled, &[]),
        (61, In::Sampled, ask_limits),
        (61, limits(&[]), &["report 1: its limit is not known"]),
        (62, limits(&[]), &[]),
        (63, In::Counted(None), &[]),
    ];
    let mut pids = PodPids::new(Announced::Yes, at(0).boot);
    for (seconds, input, expected) in script {
        let name = format!("{input:?} at {seconds} s");
        assert_eq!(short(&pids.on(input, at(seconds))), expected, "{name}");
    }
}

#[test]
fn forks_that_no_kernel_announces_are_counted_at_samples() {
    let mut pids = PodPids::new(Announced::No, at(0).boot);
    for (seconds, expected) in [(9, vec![]), (10, vec!["RefusedForks"])] {
        let effects = pids.on(In::Sampled, at(seconds));
        assert_eq!(short(&effects), expected, "at {seconds} s");
    }
    let ask_limits = ["limits of /kubepods/podaa/c"];
    #[rustfmt::skip]
    let script: Vec<(u64, In, &[&str])> = vec![
        (10, counted(0), &[]),
        (19, In::Sampled, &[]),
        (20, In::Sampled, &["RefusedForks"]),
        (20, counted(1), &ask_limits),
        (75, counted(2), &[]),
        (79, In::Sampled, &[]),
        (80, In::Sampled, &ask_limits),
        (84, In::Sampled, &[]),
        (85, In::Sampled, &["RefusedForks"]),
    ];
    for (seconds, input, expected) in script {
        let name = format!("{input:?} at {seconds} s");
        assert_eq!(short(&pids.on(input, at(seconds))), expected, "{name}");
    }
}

#[test]
fn the_limit_that_refused_is_the_one_with_least_room() {
    let pod = "/kubepods/podaa";
    // Limits from the container upwards (max, current), the cgroup that refused.
    #[rustfmt::skip]
    let rows: [(&[Limit], Option<&str>); 5] = [
        (&[(pod, 10, 10)], Some(pod)),
        (&[(CONTAINER, 5, 5), (pod, 10, 9)], Some(CONTAINER)),
        (&[(CONTAINER, 5, 4), (pod, 10, 8), (PODS, 9, 9)], Some(PODS)),
        (&[(CONTAINER, 5, 5), (pod, 5, 5), (PODS, 9, 9)], Some(CONTAINER)),
        (&[], None),
    ];
    for (limits, expected) in rows {
        let least = least_room(limits.iter().copied().map(limit).collect());
        assert_eq!(least.map(|limit| limit.cgroup).as_deref(), expected);
    }
}

#[test]
fn a_report_has_the_pod_the_time_and_the_limit_of_the_cgroup_that_counted() {
    let container = |pod: &str| CgroupKind::Container {
        pod: PodId::Uid(pod.to_owned()),
        container: None,
    };
    // Cgroup, limit, purpose.
    #[rustfmt::skip]
    let rows = [
        ("/kubepods/podaa/c", "/kubepods/podaa/c", container("aa")),
        ("/kubepods/podaa/c/x\u{1b}", PODS, CgroupKind::Pods),
        ("/kubepods/podbb/c", "/system", CgroupKind::Other),
    ];
    let mut pids = PodPids::new(Announced::Yes, at(0).boot);
    let counts = |forks| {
        let cgroups = (1..).zip(rows.clone());
        let counts = cgroups.map(|(id, (path, ..))| (CgroupId(id), path.to_owned(), forks));
        In::Counted(Some(counts.collect()))
    };
    pids.on(counts(0), at(1));
    let queries = pids.on(counts(3), at(2));
    assert_eq!(queries.len(), rows.len());
    // The answers come in the order of the queries.
    for (seconds, (cgroup, at_limit, kind)) in (3..).zip(rows.clone()) {
        let effects = pids.on(limits(&[(at_limit, 9, 9)]), at(seconds));
        let [Effect::Input(input)] = &effects[..] else {
            panic!("{cgroup}: {effects:?}");
        };
        let Input::Incident(IncidentInput::Happened(incidents)) = &**input else {
            panic!("{cgroup}: {input:?}");
        };
        let expected = Occurred {
            pod: PodRef::of(container(if cgroup.contains("podaa") {
                "aa"
            } else {
                "bb"
            })),
            at: at(seconds).wall,
            until: at(seconds).wall,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence: Occurrence::RefusedForks(RefusedForks {
                cgroup: cgroup.to_owned(),
                forks: 3,
                limit: Some((at_limit.to_owned(), kind, 9)),
                tasks: None,
            }),
        };
        assert_eq!(incidents[..], [expected], "{cgroup}");
    }
}

#[test]
fn at_the_limit_of_a_pod_the_container_with_most_of_its_tasks_is_named() {
    const POD: &str = "/kubepods/podaa";
    let id = |n: u32| format!("{n:064x}");
    // Tasks of two containers, the named container and its tasks.
    for (tasks, named) in [
        ([60, 4], Some((1, 60))),
        ([31, 33], Some((2, 33))),
        ([32, 32], None),
    ] {
        let mut pids = PodPids::new(Announced::Yes, at(0).boot);
        let counted = |forks| In::Counted(Some(vec![(CgroupId(3), POD.to_owned(), forks)]));
        pids.on(counted(0), at(0));
        pids.on(counted(2), at(1));
        let containers = (1..).zip(tasks);
        let read = In::PidLimits {
            pods: PODS.to_owned(),
            limits: vec![limit((POD, 64, 64))],
            containers: containers
                .map(|(n, tasks)| (format!("{POD}/{}", id(n)), tasks))
                .collect(),
        };
        let effects = pids.on(read, at(1));
        let Some(Effect::Input(input)) = effects.first() else {
            panic!("{effects:?}");
        };
        let Input::Incident(IncidentInput::Happened(incidents)) = &**input else {
            panic!("{input:?}");
        };
        let [incident] = &incidents[..] else {
            panic!("{incidents:?}");
        };
        let Occurrence::RefusedForks(refused) = &incident.occurrence else {
            panic!("{incident:?}");
        };
        let found = incident.pod.as_ref().and_then(|pod| pod.container.clone());
        assert_eq!(found, named.map(|(n, _)| id(n)), "{tasks:?}");
        assert_eq!(refused.tasks, named.map(|(_, tasks)| tasks), "{tasks:?}");
    }
}
