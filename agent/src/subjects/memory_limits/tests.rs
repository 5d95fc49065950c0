use std::time::UNIX_EPOCH;

use super::*;
use crate::reading::memory_limit::LimitedMemory;
use crate::units::Bytes;

use MemoryLimitInput as In;

const MIB: u64 = 1 << 20;
const PODS: &str = "/kubepods";
const POD: &str = "/kubepods/burstable/podaa";
const OTHER: &str = "/kubepods/podbb";

fn at(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now {
        boot: BootNanos(0).plus(since),
        wall: UNIX_EPOCH + since,
    }
}

fn on() -> MemoryLimits {
    let mut limits = MemoryLimits::new(true, Announced::Yes);
    limits.on(In::Started, at(0));
    let pods = vec![
        (CgroupId(1), POD.to_owned()),
        (CgroupId(2), OTHER.to_owned()),
    ];
    limits.on(In::Pods(pods), at(0));
    limits
}

fn cgroup(id: u64, path: &str, mib: u64, hits: u64) -> LimitedCgroup {
    LimitedCgroup {
        id: CgroupId(id),
        path: path.to_owned(),
        memory: LimitedMemory {
            hits,
            limit: Bytes::from_bytes(512 * MIB),
            working_set: Bytes::from_bytes(mib * MIB),
            anon: Bytes::from_bytes(mib * MIB),
            ..LimitedMemory::default()
        },
    }
}

fn read(cgroups: Vec<(u64, Option<Vec<LimitedCgroup>>)>) -> In {
    let read = cgroups.into_iter().map(|(id, found)| (CgroupId(id), found));
    In::Read {
        pods: PODS.to_owned(),
        read: read.collect(),
    }
}

/// What follows, in short.
fn short(effects: &[Effect]) -> Vec<String> {
    let ids = |pods: &[(CgroupId, String)]| {
        let ids: Vec<_> = pods.iter().map(|(id, _)| id.0.to_string()).collect();
        ids.join("+")
    };
    let text = |effect: &Effect| match effect {
        Effect::Query(Query::LimitedPods) => "list".to_owned(),
        Effect::Query(Query::WatchMemoryLimits(pods)) if pods.is_empty() => "unwatch".to_owned(),
        Effect::Query(Query::WatchMemoryLimits(pods)) => format!("watch {}", ids(pods)),
        Effect::Query(Query::LimitedMemory(pods)) => format!("read {}", ids(pods)),
        Effect::Log(Decision::EarlyWarningUnavailable) => "unavailable".to_owned(),
        Effect::Log(Decision::MemoryLimitReached { cgroup, .. }) => format!("log {cgroup}"),
        Effect::Input(input) => match &**input {
            Input::Incident(IncidentInput::Happened(incidents)) => {
                let pod = incidents[0].pod.as_ref().unwrap();
                format!("event in {}", pod.pod.as_str())
            }
            other => panic!("unexpected: {other:?}"),
        },
        other => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

#[test]
fn nothing_happens_while_it_is_off() {
    let inputs = || {
        [
            In::Started,
            In::CgroupsChanged,
            In::Pods(vec![(CgroupId(1), POD.to_owned())]),
            In::Reached(CgroupId(1)),
            read(vec![(1, Some(vec![cgroup(1, POD, 500, 3)]))]),
            In::Tick { soon: at(9).boot },
        ]
    };
    for (enabled, announced) in [
        (false, Announced::Yes),
        (false, Announced::No),
        (true, Announced::No),
    ] {
        let mut limits = MemoryLimits::new(enabled, announced);
        let effects: Vec<_> = inputs()
            .into_iter()
            .flat_map(|input| limits.on(input, at(1)))
            .collect();
        let expected: &[&str] = if enabled { &["unavailable"] } else { &[] };
        assert_eq!(short(&effects), expected, "{enabled} {announced:?}");
        assert_eq!(limits.due(), None);
    }
}

#[test]
fn a_reload_turns_it_on_and_off() {
    let mut limits = MemoryLimits::new(false, Announced::Yes);
    assert_eq!(short(&limits.on(In::Configured(true), at(1))), ["list"]);
    assert_eq!(limits.on(In::Configured(true), at(1)), []);
    let pods = In::Pods(vec![(CgroupId(1), POD.to_owned())]);
    assert_eq!(short(&limits.on(pods, at(1))), ["watch 1"]);
    limits.on(In::Reached(CgroupId(1)), at(2));
    assert_eq!(short(&limits.on(In::Configured(false), at(3))), ["unwatch"]);
    let late = read(vec![(1, Some(vec![cgroup(1, POD, 500, 3)]))]);
    assert_eq!(limits.on(late, at(3)), []);
    assert_eq!(limits.due(), None);
    assert_eq!(short(&limits.on(In::Configured(true), at(4))), ["list"]);
    let pods = In::Pods(vec![(CgroupId(1), POD.to_owned())]);
    assert_eq!(short(&limits.on(pods, at(4))), ["watch 1"], "again");

    let mut limits = MemoryLimits::new(false, Announced::No);
    assert_eq!(
        short(&limits.on(In::Configured(true), at(1))),
        ["unavailable"]
    );
    assert_eq!(limits.on(In::Configured(false), at(1)), []);
}

#[test]
fn pods_are_watched_when_they_come_and_forgotten_when_they_are_removed() {
    let mut limits = on();
    assert_eq!(short(&limits.on(In::CgroupsChanged, at(1))), ["list"]);
    let pods = vec![
        (CgroupId(2), OTHER.to_owned()),
        (CgroupId(3), "/kubepods/podcc".to_owned()),
    ];
    assert_eq!(short(&limits.on(In::Pods(pods), at(1))), ["watch 3"]);
    assert_eq!(
        limits.on(In::Reached(CgroupId(1)), at(2)),
        [],
        "it was removed"
    );
    assert_eq!(
        short(&limits.on(In::Reached(CgroupId(3)), at(2))),
        ["read 3"]
    );
    limits.on(In::Pods(Vec::new()), at(3));
    let late = read(vec![(3, Some(vec![cgroup(3, "/kubepods/podcc", 500, 3)]))]);
    assert_eq!(limits.on(late, at(3)), []);
    assert_eq!(limits.due(), None);
}

#[test]
fn pods_that_are_always_at_their_limit_are_read_together_and_less_and_less_often() {
    let mut limits = on();
    let mut hits = 1;
    let answer = |reads: &str, hits| {
        let asked = [1, 2]
            .into_iter()
            .filter(|id: &u64| reads.contains(&id.to_string()));
        let path = "/kubepods/podbb/c";
        read(
            asked
                .map(|id| (id, Some(vec![cgroup(id + 10, path, 50, hits)])))
                .collect(),
        )
    };
    for (id, second, expected) in [(1, 3, "read 1"), (2, 40, "read 1+2")] {
        let effects = short(&limits.on(In::Reached(CgroupId(id)), at(second))).concat();
        assert_eq!(effects, expected, "and what is due");
        assert_eq!(limits.on(answer(&effects, hits), at(second)), []);
        hits += 1000;
    }
    let mut reads = Vec::new();
    while let Some(due) = limits.due() {
        let now = Now { boot: due, ..at(0) };
        if at(3600).boot < due {
            break;
        }
        hits += 1000;
        let effects = short(&limits.on(In::Tick { soon: due }, now)).concat();
        assert_eq!(limits.on(answer(&effects, hits), now), []);
        reads.push(effects);
    }
    assert!(reads.len() < 30, "{reads:?}");
    let together = reads
        .iter()
        .rev()
        .take(5)
        .filter(|read| *read == "read 1+2")
        .count();
    assert_eq!(together, 5, "{reads:?}");
}

#[test]
fn a_pod_that_does_not_reach_its_limit_again_is_watched_again() {
    let mut limits = on();
    limits.on(In::Reached(CgroupId(1)), at(3));
    let calm = || {
        read(vec![(
            1,
            Some(vec![cgroup(11, "/kubepods/burstable/podaa/c", 50, 7)]),
        )])
    };
    assert_eq!(limits.on(calm(), at(3)), []);
    let due = limits.due().unwrap();
    assert_eq!(due, at(13).boot);
    assert_eq!(
        short(&limits.on(In::Tick { soon: due }, at(13))),
        ["read 1"]
    );
    assert_eq!(
        limits.on(In::Tick { soon: due }, at(13)),
        [],
        "it is being read"
    );
    assert_eq!(short(&limits.on(calm(), at(13))), ["watch 1"]);
    assert_eq!(limits.due(), None);
    // An event of memory that is not a reached limit, or a pod that was removed.
    limits.on(In::Reached(CgroupId(2)), at(20));
    assert_eq!(
        short(&limits.on(read(vec![(2, Some(Vec::new()))]), at(20))),
        ["watch 2"]
    );
}

/// Reads the pod every 10 s while its cgroups grow by 2 MiB.
fn grow(limits: &mut MemoryLimits, from: u64, cgroups: &[(u64, &str)]) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0..12 {
        let second = from + n * 10;
        limits.on(
            In::Tick {
                soon: at(second).boot,
            },
            at(second),
        );
        let found = cgroups
            .iter()
            .map(|(id, path)| cgroup(*id, path, 470 + 2 * n, n + 1));
        all.extend(short(
            &limits.on(read(vec![(1, Some(found.collect()))]), at(second)),
        ));
    }
    all
}

#[test]
fn a_growing_container_is_reported_once_and_its_pod_is_not() {
    let container = "/kubepods/burstable/podaa/c";
    let event = |path: &str| vec![format!("log {path}"), "event in aa".to_owned()];
    for (cgroups, expected) in [
        (&[(1, POD), (11, container)][..], event(container)),
        (&[(11, container), (1, POD)], event(container)),
        (&[(1, POD)], event(POD)),
        (
            &[(11, container), (12, "/kubepods/burstable/podaa/d")],
            [event(container), event("/kubepods/burstable/podaa/d")].concat(),
        ),
    ] {
        let mut limits = on();
        limits.on(In::Reached(CgroupId(1)), at(0));
        assert_eq!(grow(&mut limits, 0, cgroups), expected, "{cgroups:?}");
    }
}

#[test]
fn a_container_that_restarts_is_a_new_one() {
    let mut limits = on();
    limits.on(In::Reached(CgroupId(1)), at(0));
    let reports = |limits: &mut MemoryLimits, from, id| {
        grow(limits, from, &[(id, "/kubepods/burstable/podaa/c")]).len()
    };
    assert_eq!(reports(&mut limits, 0, 11), 2);
    assert_eq!(
        reports(&mut limits, 120, 12),
        2,
        "the memory of the first does not count"
    );
    assert_eq!(limits.pods[&CgroupId(1)].growth.len(), 1);
}

#[test]
fn after_a_long_calm_pauses_are_short_again_and_only_then() {
    //  until the limit is reached again, in seconds, and the pause after that
    for (calm, pause) in [(1, 40), (299, 40), (300, 10)] {
        let mut limits = on();
        let path = "/kubepods/burstable/podaa/c";
        let answer = |hits| read(vec![(1, Some(vec![cgroup(11, path, 50, hits)]))]);
        limits.on(In::Reached(CgroupId(1)), at(3));
        limits.on(answer(1), at(3));
        for (second, hits) in [(13, 2), (33, 2)] {
            limits.on(
                In::Tick {
                    soon: at(second).boot,
                },
                at(second),
            );
            limits.on(answer(hits), at(second));
        }
        assert_eq!(limits.due(), None, "not reached again: watched");
        let second = 33 + calm;
        limits.on(In::Reached(CgroupId(1)), at(second));
        limits.on(answer(3), at(second));
        assert_eq!(limits.due(), Some(at(second + pause).boot), "{calm} s");
    }
}

#[test]
fn the_cgroup_that_is_reached_first_decides_when_the_pod_is_read() {
    let mut limits = on();
    limits.on(In::Reached(CgroupId(1)), at(0));
    let both = |hits, leaking| {
        let [calm, leak] = ["/kubepods/burstable/podaa/c", "/kubepods/burstable/podaa/d"];
        let found = vec![cgroup(11, calm, 50, hits), cgroup(12, leak, leaking, hits)];
        read(vec![(1, Some(found))])
    };
    for n in 0..3 {
        let second = 10 * n;
        limits.on(both(n + 1, 400 + n), at(second));
        assert_eq!(limits.due(), Some(at(second + 10).boot), "{n}");
        limits.on(
            In::Tick {
                soon: at(second + 10).boot,
            },
            at(second + 10),
        );
    }
}

#[test]
fn a_pod_and_its_container_are_reported_once_also_if_one_of_them_is_the_first() {
    let container = "/kubepods/burstable/podaa/c";
    for first in [POD, container] {
        let mut limits = on();
        limits.on(In::Reached(CgroupId(1)), at(0));
        let id = if first == POD { 1 } else { 11 };
        let mut all = Vec::new();
        for n in 0..16 {
            let second = n * 10;
            limits.on(
                In::Tick {
                    soon: at(second).boot,
                },
                at(second),
            );
            // The other one is sampled from the third sample on.
            let mut found = vec![cgroup(id, first, 462 + 2 * n, n + 1)];
            if 2 < n {
                let (id, other) = if first == POD {
                    (11, container)
                } else {
                    (1, POD)
                };
                found.push(cgroup(id, other, 462 + 2 * n, n + 1));
            }
            all.extend(short(&limits.on(read(vec![(1, Some(found))]), at(second))));
        }
        assert_eq!(all, [format!("log {first}"), "event in aa".to_owned()]);
    }
}

#[test]
fn the_report_has_its_time_and_an_escaped_path_in_the_log() {
    let path = "/kubepods/burstable/podaa/c\u{1b}[2J";
    let mut limits = on();
    limits.on(In::Reached(CgroupId(1)), at(0));
    let reported = (0..12).find_map(|n| {
        let now = at(n * 10);
        limits.on(In::Tick { soon: now.boot }, now);
        let found = cgroup(11, path, 470 + 2 * n, n + 1);
        let effects = limits.on(read(vec![(1, Some(vec![found]))]), now);
        (!effects.is_empty()).then_some((effects, now.wall))
    });
    let (effects, when) = reported.unwrap();
    let [
        Effect::Log(Decision::MemoryLimitReached { cgroup, .. }),
        Effect::Input(input),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(cgroup, "/kubepods/burstable/podaa/c\\u{1b}[2J");
    let Input::Incident(IncidentInput::Happened(incidents)) = &**input else {
        panic!("{input:?}");
    };
    assert_eq!(incidents[0].at, when);
}
