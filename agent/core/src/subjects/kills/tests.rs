use super::*;
use crate::kube_event::{ContainerLabel, Limiting, VictimOwner};
use crate::pods::PodId;
use crate::pressure::oom::Grounds;
use crate::reading::oom::{Consequence, LimitOwner, OomConstraint, OomScope, ScopeSource};
use crate::reading::{Reading, Signal};
use crate::record::{MemcgLimit, NamespacePid, Via};
use crate::units::{Bytes, Pid};

const PODS: &str = "/kubepods";
const CONTAINER: &str = "/kubepods/podaa/c";
const VICTIM: CgroupId = CgroupId(3);

fn now() -> Now {
    crate::tests::now(9)
}

pub(super) fn limit(limiting: CgroupId) -> OomScope<MemcgLimit> {
    OomScope::Memcg(MemcgLimit {
        limiting,
        usage_pages: 256,
        max_pages: 256,
        tied: None,
    })
}

pub(super) fn kill(scope: OomScope<MemcgLimit>, source: ScopeSource) -> RecordedKill {
    RecordedKill {
        at: BootNanos(8_000_000_000),
        victim: Pid(7),
        comm: b"victim\n".to_vec(),
        uid: 1000,
        uid_in_namespace: None,
        oom_score_adj: 0,
        trigger: Pid(8),
        trigger_comm: b"trigger".to_vec(),
        trigger_cgroup: None,
        cgroup: VICTIM,
        names: [b"c".to_vec(), b"podaa".to_vec(), b"kubepods".to_vec()],
        scope,
        source,
        constraint: None,
        order: Some(0),
        via: Via::Task,
        namespace: None,
        group: None,
        anon_pages: 1,
        file_pages: 0,
        shmem_pages: 0,
    }
}

fn recorded(kill: RecordedKill) -> KillInput {
    KillInput::Recorded {
        kill: Box::new(kill),
        read: BootNanos(8_500_000_000),
        pods: PODS.to_owned(),
    }
}

fn logged(kill: LoggedKill) -> KillInput {
    KillInput::Logged {
        kill: Box::new(kill),
        read: BootNanos(8_500_000_000),
        pods: PODS.to_owned(),
    }
}

/// Returns a kill as the log names it: of a victim in this cgroup.
fn logged_kill(cgroup: &str, scope: OomScope<Option<Vec<u8>>>) -> LoggedKill {
    LoggedKill {
        at: BootNanos(8_000_000_000),
        victim: Pid(7),
        comm: b"victim".to_vec(),
        uid: None,
        cgroup: Some(cgroup.into()),
        group: None,
        scope,
        constraint: Some(OomConstraint::Memcg),
        order: Some(0),
        trigger: None,
        resident: None,
    }
}

fn paths(paths: &[Option<&str>]) -> KillInput {
    let owned = paths.iter().map(|path| path.map(str::to_owned));
    KillInput::CgroupPaths(owned.collect())
}

fn hits(counts: &[(u64, u64)]) -> KillInput {
    let counted = counts
        .iter()
        .map(|(id, count)| Some((CgroupId(*id), *count)));
    KillInput::LimitHits(Some(counted.collect()))
}

fn memory(available: i64) -> KillInput {
    KillInput::RemainingMemory(RemainingMemory {
        memory: Some(Reading {
            signal: Signal::MemoryAvailable,
            available,
            capacity: 1000,
        }),
        threshold: None,
    })
}

/// Returns the effects as short texts.
fn short(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| match effect {
        Effect::Query(query) => format!("{query:?}"),
        Effect::Log(Decision::KillFound(finding)) => {
            let (effect, reason) = finding.verdict.as_strs();
            format!("{effect}: {reason}")
        }
        Effect::Input(input) => match &**input {
            Input::Signal(SignalInput::Forced { resource, at, .. }) => {
                format!("force {resource:?} at {}", at.0)
            }
            Input::Signal(SignalInput::MemoryMayBeShort) => "sample".to_owned(),
            Input::KillCounter(KillCounterInput::Found(found)) => format!("found {}", found.len()),
            other => panic!("unexpected: {other:?}"),
        },
        other => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

#[test]
fn a_kill_is_examined_in_steps_and_only_what_decides_is_requested() {
    use ScopeSource::{Exact, Inferred};
    type Script = Vec<(KillInput, &'static [&'static str])>;
    let ask_victim: &[&str] = &["CgroupPaths([CgroupId(3)])"];
    let ask_both: &[&str] = &["CgroupPaths([CgroupId(3), CgroupId(3)])"];
    let unconstrained = RecordedKill {
        constraint: Some(OomConstraint::None),
        ..kill(OomScope::Global, Exact)
    };
    let ask_hits: &[&str] = &["LimitHits(\"/kubepods/podaa/c\")"];
    #[rustfmt::skip]
    let rows: Vec<(&str, Script)> = vec![
        ("at the container's limit, by the kernel", vec![
            (recorded(kill(limit(VICTIM), Exact)), ask_both),
            (paths(&[Some(CONTAINER), Some(CONTAINER)]), &["event only: limit of a container", "sample"]),
            (KillInput::BatchRead, &["found 1"]),
            (KillInput::BatchReported, ask_hits),
            (hits(&[(3, 1)]), &[]),
            (KillInput::BatchReported, &[]),
        ]),
        ("inferred, and the counter moved", vec![
            (recorded(kill(limit(VICTIM), Inferred)), ask_both),
            (paths(&[Some(CONTAINER), Some(CONTAINER)]), ask_hits),
            (hits(&[(3, 1)]), &["event only: limit of a container", "sample"]),
            (KillInput::BatchReported, &[]),
        ]),
        ("inferred, no counter moved, memory is short", vec![
            (recorded(kill(limit(VICTIM), Inferred)), ask_both),
            (paths(&[Some(CONTAINER), Some(CONTAINER)]), ask_hits),
            (hits(&[(3, 0)]), &["RemainingMemory"]),
            (memory(1), &["node pressure: the node is out of memory", "force Memory at 8000000000", "sample"]),
        ]),
        ("global, by the kernel", vec![
            (recorded(unconstrained), ask_victim),
            (paths(&[Some("/system")]), &["node pressure: the node is out of memory", "force Memory at 8000000000", "sample"]),
        ]),
        ("at the limit of all pods", vec![
            (recorded(kill(limit(CgroupId(1)), Exact)), &["CgroupPaths([CgroupId(3), CgroupId(1)])"]),
            (paths(&[Some(CONTAINER), Some(PODS)]), &["node pressure: all pods together reached their limit", "force Memory at 8000000000", "sample"]),
        ]),
        ("an unknown cgroup has no counters", vec![
            (recorded(kill(OomScope::Unknown, Inferred)), ask_victim),
            (paths(&[None]), &["event only: limit hits unknown", "sample"]),
        ]),
        ("a query without an answer loses no kill", vec![
            (recorded(kill(limit(VICTIM), Inferred)), ask_both),
            (recorded(kill(limit(VICTIM), Exact)), &["event only: memory could not be read", "sample", "CgroupPaths([CgroupId(3), CgroupId(3)])"]),
            (paths(&[Some(CONTAINER), Some(CONTAINER)]), &["event only: limit of a container", "sample"]),
            (KillInput::BatchRead, &["found 2"]),
        ]),
        ("answers that nothing asked for", vec![
            (paths(&[None]), &[]), (memory(1), &[]), (hits(&[(1, 1)]), &[]), (KillInput::BatchRead, &["found 0"]),
        ]),
    ];
    for (name, script) in rows {
        let mut kills = Kills::new(4096);
        for (input, expected) in script {
            let text = format!("{name}: {input:?}");
            assert_eq!(short(&kills.on(input, now())), expected, "{text}");
        }
    }
}

#[test]
fn a_finding_has_the_contents_of_the_record_in_safe_text() {
    let mut kills = Kills::new(4096);
    let record = RecordedKill {
        uid_in_namespace: Some(0),
        ..kill(limit(VICTIM), ScopeSource::Exact)
    };
    kills.on(recorded(record), now());
    kills.on(paths(&[Some(CONTAINER), Some(CONTAINER)]), now());
    let finding = &kills.found[0];
    let kib = |n| Bytes::from_kib(n);
    assert_eq!(finding.comm, "victim\\n");
    assert_eq!(
        (finding.uid, finding.uid_in_namespace),
        (Some(1000), Some(0))
    );
    assert_eq!(finding.trigger.as_deref(), Some("process 8 (trigger)"));
    assert_eq!(finding.cgroup.as_deref(), Some(CONTAINER));
    assert_eq!(finding.resident, Some([kib(4), kib(0), kib(0)]));
    let limiting = finding.scope.clone().memcg().unwrap();
    assert_eq!(limiting.owner, LimitOwner::Container);
    assert_eq!(limiting.usage, Some((kib(1024), kib(1024))));
    let pod = PodId::Uid("aa".to_owned());
    assert_eq!(finding.counter, crate::kube_event::KillOwner::Pod(pod));
}

#[test]
fn the_consequence_is_that_of_the_cgroups_of_the_record() {
    const CTR: &str =
        "/kubepods/podaa/3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b3b";
    let namespace = |pid, reference| {
        Some(NamespacePid {
            pid: Pid(pid),
            reference: CgroupId(reference),
        })
    };
    let tied = OomScope::Memcg(MemcgLimit {
        limiting: VICTIM,
        usage_pages: 1,
        max_pages: 1,
        tied: Some(CgroupId(2)),
    });
    let child = RecordedKill {
        namespace: namespace(17, VICTIM.0),
        ..kill(tied, ScopeSource::Exact)
    };
    let main = RecordedKill {
        namespace: namespace(1, 5),
        ..child.clone()
    };
    let group = RecordedKill {
        group: Some(CgroupId(2)),
        ..main.clone()
    };
    let (pod, shim) = ("/kubepods/podaa", "/system.slice/containerd.service");
    #[rustfmt::skip]
    let rows: [(_, &[u64], &[&str], _); 3] = [
        (child, &[3, 2, 3], &[CTR, pod, CTR], Consequence::ChildProcess),
        (main, &[3, 2, 3, 5], &[CTR, pod, CTR, shim], Consequence::MainProcess),
        (group, &[3, 2, 3, 5, 2], &[CTR, pod, CTR, shim, pod], Consequence::WholeContainer),
    ];
    for (kill, ids_expected, found, expected) in rows {
        let mut kills = Kills::new(4096);
        let asked = kills.on(recorded(kill), now());
        let Some(Effect::Query(Query::CgroupPaths(ids))) = asked.first() else {
            panic!("{asked:?}");
        };
        let ids: Vec<u64> = ids.iter().map(|id| id.0).collect();
        assert_eq!(ids, ids_expected, "{expected:?}");
        let found: Vec<_> = found.iter().map(|path| Some(*path)).collect();
        kills.on(paths(&found), now());
        let finding = &kills.found[0];
        assert_eq!(finding.consequence, Some(expected));
        let limiting = finding.scope.clone().memcg().unwrap();
        assert_eq!(limiting.path.as_deref(), Some(CTR));
        assert_eq!(limiting.tied, Some((LimitOwner::Pod, pod.to_owned())));
    }
}

#[test]
fn the_container_of_the_trigger_is_known_if_it_is_another_one_of_the_pod() {
    let [web, proxy] = ["3b", "00"].map(|id| id.repeat(32));
    let [victim, other] = [&web, &proxy].map(|id| format!("/kubepods/podaa/{id}"));
    let rows = [
        (Some(other.clone()), Some(ContainerLabel::Id(proxy))),
        (Some(format!("{victim}/deeper")), None),
        (Some(other.replace("podaa", "podbb")), None),
        (Some("/system.slice/cron.service".to_owned()), None),
        (None, None),
    ];
    for (path, expected) in rows {
        let record = RecordedKill {
            trigger_cgroup: Some(CgroupId(12)),
            ..kill(limit(CgroupId(9)), ScopeSource::Exact)
        };
        let mut kills = Kills::new(4096);
        let asked = short(&kills.on(recorded(record), now()));
        assert_eq!(
            asked,
            ["CgroupPaths([CgroupId(3), CgroupId(9), CgroupId(12)])"]
        );
        let found = [Some(&*victim), Some("/kubepods/podaa"), path.as_deref()];
        kills.on(paths(&found), now());
        let finding = &kills.found[0];
        assert_eq!(finding.trigger_container, expected, "{path:?}");
    }
}

#[test]
fn a_removed_cgroup_keeps_the_path_that_it_was_seen_with() {
    let exit = |anon| RecordedKill {
        via: Via::Exit,
        anon_pages: anon,
        ..kill(OomScope::Global, ScopeSource::Exact)
    };
    let seen = || KillInput::CgroupsSeen(vec![(VICTIM, CONTAINER.to_owned())]);
    let at_start = || KillInput::CgroupsRead {
        pods: vec![(VICTIM, CONTAINER.to_owned())],
        limit_hits: Vec::new(),
    };
    // Input before the kill, path in the finding, the pod is known.
    let rows = [
        (None, "…/kubepods/podaa/c", false),
        (Some(seen()), CONTAINER, true),
        (Some(at_start()), CONTAINER, true),
    ];
    for (before, cgroup, known) in rows {
        for (anon, resident) in [(0, false), (1, true)] {
            let mut kills = Kills::new(4096);
            if let Some(before) = before.clone() {
                kills.on(before, now());
            }
            kills.on(recorded(exit(anon)), now());
            kills.on(paths(&[None]), now());
            kills.on(memory(900), now());
            let finding = kills.found.first().unwrap();
            assert_eq!(finding.cgroup.as_deref(), Some(cgroup));
            let pod = matches!(finding.owner, VictimOwner::Pod(_));
            assert_eq!(pod, known, "{:?}", finding.owner);
            assert_eq!(finding.resident.is_some(), resident);
        }
    }
}

#[test]
fn a_service_whose_cgroup_was_removed_is_known_by_names_that_reach_the_top() {
    let mut kills = Kills::new(4096);
    let kill = RecordedKill {
        names: [
            b"hog.service".to_vec(),
            b"system.slice".to_vec(),
            Vec::new(),
        ],
        ..kill(limit(VICTIM), ScopeSource::Exact)
    };
    kills.on(recorded(kill), now());
    kills.on(paths(&[None, None]), now());
    let finding = &kills.found[0];
    let unit = finding.unit.as_ref().unwrap();
    assert_eq!(unit.to_string(), "hog.service");
    let limiting = finding.scope.as_ref().memcg().unwrap();
    assert_eq!(limiting.owner, LimitOwner::Other);
    assert_eq!(limiting.unit.as_ref(), Some(unit));
    assert_eq!(limiting.path.as_deref(), Some("/system.slice/hog.service"));
}

#[test]
fn a_kill_from_the_log_is_judged_by_the_paths_in_it() {
    let at_pods = logged_kill(CONTAINER, OomScope::Memcg(Some(PODS.into())));
    let in_cpuset = LoggedKill {
        constraint: Some(OomConstraint::Cpuset),
        ..logged_kill(CONTAINER, OomScope::Global)
    };
    let mut kills = Kills::new(4096);
    let asked = kills.on(logged(at_pods), now());
    assert_eq!(short(&asked), ["LimitHits(\"/kubepods/podaa/c\")"]);
    let judged = kills.on(hits(&[(3, 0), (2, 0), (1, 1)]), now());
    let why = Grounds::PodsLimit;
    assert_eq!(
        kills.found[0].verdict,
        KillVerdict::NodePressure { why },
        "{judged:?}"
    );
    let judged = kills.on(logged(in_cpuset), now());
    let expected = ["event only: memory nodes of a cpuset", "sample"];
    assert_eq!(short(&judged), expected);
}

#[test]
fn the_log_shows_that_a_container_was_killed_as_a_whole_if_its_group_is_not_a_part_of_it() {
    let part = format!("{CONTAINER}/db.service");
    let rows = [
        (None, None),
        (Some(CONTAINER), Some(Consequence::WholeContainer)),
        (Some(PODS), Some(Consequence::WholeContainer)),
        (Some(&*part), None),
    ];
    for (group, expected) in rows {
        let kill = LoggedKill {
            group: group.map(Into::into),
            trigger: Some(b"a) with 9Gi, (b".to_vec()),
            ..logged_kill(&part, OomScope::Memcg(Some(CONTAINER.into())))
        };
        let mut kills = Kills::new(4096);
        kills.on(logged(kill), now());
        kills.on(hits(&[(3, 1), (2, 0), (1, 0)]), now());
        let finding = &kills.found[0];
        assert_eq!(finding.consequence, expected, "{group:?}");
        let trigger = "a process named \"a) with 9Gi, (b\"";
        assert_eq!(finding.trigger.as_deref(), Some(trigger));
    }
}

#[test]
fn a_finding_names_the_limit_by_what_was_known_of_its_cgroup() {
    let tied = OomScope::Memcg(MemcgLimit {
        limiting: CgroupId(9),
        usage_pages: 128,
        max_pages: 256,
        tied: Some(CgroupId(4)),
    });
    let limiting = |kills: &mut Kills, found: &[Option<&str>]| {
        kills.on(recorded(kill(tied, ScopeSource::Exact)), now());
        kills.on(paths(found), now());
        kills.found.last().unwrap().scope.clone().memcg().unwrap()
    };
    let sizes = Some((Bytes::from_kib(512), Bytes::from_kib(1024)));
    let expected = Limiting {
        owner: LimitOwner::Pod,
        path: Some("/kubepods/podaa".to_owned()),
        tied: Some((LimitOwner::PodsCgroup, PODS.to_owned())),
        usage: sizes,
        unit: None,
    };
    let mut kills = Kills::new(4096);
    let found = [Some(CONTAINER), Some(PODS), Some("/kubepods/podaa")];
    assert_eq!(limiting(&mut kills, &found), expected);
    let removed = limiting(&mut kills, &[None, None, None]);
    assert_eq!(removed, expected, "by the paths that were found before");
    let unknown = limiting(&mut Kills::new(4096), &[None, None, None]);
    let expected = Limiting {
        owner: unknown.owner,
        path: Some("id:9".to_owned()),
        tied: None,
        usage: sizes,
        unit: None,
    };
    assert_eq!(unknown, expected);
}

#[test]
fn effects_have_the_time_of_the_kernel_but_not_after_now() {
    let late = BootNanos(now().boot.0 + 1);
    // Time of the record, time of the pressure.
    let rows = [
        (BootNanos(8_000_000_000), BootNanos(8_000_000_000)),
        (late, now().boot),
    ];
    for (recorded_at, expected) in rows {
        let record = RecordedKill {
            at: recorded_at,
            ..kill(limit(CgroupId(1)), ScopeSource::Exact)
        };
        let mut kills = Kills::new(4096);
        kills.on(recorded(record), now());
        let effects = kills.on(paths(&[Some(CONTAINER), Some(PODS)]), now());
        let forced = format!("force Memory at {}", expected.0);
        assert_eq!(short(&effects)[1..], [forced, "sample".to_owned()]);
    }
}

#[test]
fn removed_cgroups_are_asked_for_when_too_many_limit_hits_are_remembered() {
    let mut kills = Kills::new(4096);
    let many = (0..8192).map(|id| (CgroupId(id), 1)).collect();
    let read = KillInput::CgroupsRead {
        pods: Vec::new(),
        limit_hits: many,
    };
    kills.on(read, now());
    assert_eq!(kills.on(hits(&[(1, 1)]), now()), []);
    let ask = [Effect::Query(Query::LiveLimitHits)];
    assert_eq!(kills.on(hits(&[(9000, 0)]), now()), ask);
    let live = KillInput::LiveLimitHits(vec![CgroupId(1)]);
    assert_eq!(kills.on(live, now()), []);
    assert_eq!(kills.on(hits(&[(9001, 0)]), now()), []);
}
