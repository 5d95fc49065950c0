use super::*;
use crate::incident::by_cause;
use crate::pods::{LargestMemory, OwnerMemory};
use crate::pressure::oom::Grounds;
use crate::reading::memory_use::{LargestProcesses, MemorySplit, ProcessSize};
use crate::subjects::kills::causes::Causes;
use crate::units::Pid;

mod advice;
mod details;
mod groups;

fn at(path: &str) -> Limiting {
    Limiting {
        owner: LimitOwner::Other,
        path: Some(path.to_owned()),
        tied: None,
        usage: None,
        unit: None,
    }
}

fn finding(pid: u32, limiting: Option<&str>, trigger: Option<&str>) -> Finding {
    Finding {
        scope: limiting.map_or(OomScope::Unknown, |path| OomScope::Memcg(at(path))),
        trigger: trigger.map(str::to_owned),
        ..crate::tests::finding(pid)
    }
}

fn messages(findings: &[Finding]) -> Vec<String> {
    let at_once = findings.iter().map(|finding| Finding {
        stamp: crate::tests::stamp(crate::tests::boot(1)),
        ..finding.clone()
    });
    let mut causes = Causes::default();
    let findings = at_once.map(|finding| causes.assign(finding)).collect();
    let occurred = by_cause(findings, crate::tests::now(1)).into_iter();
    let incidents = occurred.map(crate::tests::incident);
    let drafts = incidents.filter_map(|incident| incident.on_node(NodeEvents::Kubelet, "n"));
    drafts.map(|draft| draft.message).collect()
}

#[test]
fn kills_of_one_cause_are_one_event_and_each_is_accounted_for() {
    let (a, b) = (Some("/a"), Some("/b"));
    let x = Some("process 1 (x)");
    let y = Some("process 2 (y)");
    let global = Finding {
        scope: OomScope::Global,
        ..finding(9, None, x)
    };
    let whole = |pid, limiting, trigger| Finding {
        consequence: Some(Consequence::WholeContainer),
        group: Some("/a".to_owned()),
        ..finding(pid, limiting, trigger)
    };
    #[rustfmt::skip]
    let rows = [
        ("a group", vec![finding(1, a, x), finding(2, a, x), finding(3, a, x)], 1),
        ("two limits, mixed", vec![finding(1, a, x), finding(2, b, x), finding(3, a, x)], 2),
        ("two triggers", vec![finding(1, a, x), finding(2, a, y)], 2),
        ("no limit known", vec![finding(1, None, x), finding(2, None, x)], 2),
        ("no trigger known", vec![finding(1, a, None), finding(2, a, None)], 2),
        ("the machine's", vec![global.clone(), global], 2),
        ("a container as a whole", vec![whole(1, a, x), whole(2, b, x), whole(3, None, x)], 1),
        ("two containers as a whole", vec![whole(1, a, x), whole(2, a, y)], 2),
        ("nothing", vec![], 0),
    ];
    for (name, findings, expected) in rows {
        let messages = messages(&findings);
        assert_eq!(messages.len(), expected, "{name}: {messages:?}");
        let all = messages.join("\n");
        for finding in findings {
            let known = all.contains(&format!("p{}", finding.victim));
            assert!(known, "{name}: {} is missing in {all}", finding.victim);
        }
    }
}

#[test]
fn of_a_large_group_all_are_counted_and_the_first_are_stored_and_named() {
    let part = |pids: std::ops::Range<u32>| {
        let all = pids.map(|pid| finding(pid, Some("/a"), None));
        Kills::from(all.collect::<Vec<_>>())
    };
    let mut kills = part(0..1);
    assert_eq!((kills.only().is_some(), kills.count()), (true, 1));
    kills.add(&part(1..200));
    assert_eq!((kills.findings.len(), kills.further), (200, 0));
    kills.add(&part(200..1000));
    assert_eq!((kills.findings.len(), kills.count()), (256, 1000));
    assert!(kills.only().is_none());
    let message = in_pod(&kills, None, None);
    for part in [
        "The kernel killed 1000 processes together in the pod",
        "The processes were 0 (p0), 1 (p1), ",
        ", 4 (p4), and 995 more.",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn the_message_names_the_limit_by_its_owner() {
    use LimitOwner::{Container, Other, Pod, PodsCgroup};
    let full = Some((Bytes::from_kib(20 << 10), Bytes::from_kib(20 << 10)));
    #[rustfmt::skip]
    let rows = [
        (Container, None, "the container reached its memory limit of 20Mi (20Mi in use)"),
        (Pod, None, "the pod reached its memory limit of 20Mi (20Mi in use)"),
        (PodsCgroup, None, "all pods on the node together reached their memory limit of 20Mi (20Mi in use)"),
        (Container, Some(Pod), "the container or its pod reached the memory limit of 20Mi (20Mi in use)"),
        (Container, Some(Container), "the container reached its memory limit of 20Mi (20Mi in use)"),
        (Container, Some(PodsCgroup), "the container or all pods together reached the memory limit of 20Mi (20Mi in use)"),
        (Pod, Some(PodsCgroup), "the pod or all pods together reached the memory limit of 20Mi (20Mi in use)"),
        (Container, Some(Other), "cgroup /a or /b reached its memory limit of 20Mi (20Mi in use)"),
    ];
    for (owner, tied, expected) in rows {
        let limiting = Limiting {
            owner,
            tied: tied.map(|owner| (owner, "/b".to_owned())),
            usage: full,
            ..at("/a")
        };
        assert_eq!(limiting.by_owner(false), expected, "{owner:?}, {tied:?}");
    }
}

#[test]
fn sizes_are_written_as_limits_are() {
    let rows = [
        (64 << 20, "64Mi"),
        ((64 << 20) + 4096, "64.0Mi"),
        (1 << 30, "1Gi"),
        (3 << 29, "1.5Gi"),
        (4096, "4Ki"),
        (0, "0"),
        (100, "100"),
    ];
    for (bytes, expected) in rows {
        assert_eq!(size(Bytes::from_bytes(bytes)), expected);
    }
}

#[test]
fn the_message_contains_what_happens_to_the_container() {
    use Consequence::{ChildProcess, MainProcess, WholeContainer};
    let container = |list| Container::new(list, "web").unwrap();
    let (app, debug) = (container(None), container(Some(ContainerList::Ephemeral)));
    let restarting = |restarts| app.clone().restarting(Some(restarts));
    let (always, never) = (restarting(true), restarting(false));
    let limiting = || Limiting {
        owner: LimitOwner::Container,
        usage: Some((Bytes::from_kib(64 << 10), Bytes::from_kib(64 << 10))),
        ..at("/a")
    };
    let of = |consequences: &[Option<Consequence>]| -> Vec<Finding> {
        let finding = |(pid, consequence): (u32, &Option<Consequence>)| Finding {
            consequence: *consequence,
            scope: OomScope::Memcg(limiting()),
            ..finding(pid, None, Some("process 1 (p1)"))
        };
        (1..).zip(consequences).map(finding).collect()
    };
    let restarts =
        "so the container restarts unless its restartPolicy is Never or it is ephemeral.";
    #[rustfmt::skip]
    let rows = [
        (of(&[Some(MainProcess)]), &app, format!(
            "Container web was killed because it reached its memory limit of 64Mi (64Mi in use); its main process died, {restarts}")),
        (of(&[Some(MainProcess)]), &debug,
            "Container web was killed because it reached its memory limit of 64Mi (64Mi in use); its main process died, so the container has ended.".to_owned()),
        (of(&[Some(MainProcess)]), &always,
            "Container web was killed because it reached its memory limit of 64Mi (64Mi in use); its main process died, so the container restarts.".to_owned()),
        (of(&[Some(MainProcess)]), &never,
            "Container web was killed because it reached its memory limit of 64Mi (64Mi in use); its main process died, and the container does not restart, because of restartPolicy Never.".to_owned()),
        (of(&[Some(ChildProcess)]), &never,
            "A process in container web was killed because the container reached its memory limit of 64Mi (64Mi in use); the main process is alive, and the container continues to run.".to_owned()),
        (of(&[Some(WholeContainer)]), &app, format!(
            "Container web was killed because it reached its memory limit of 64Mi (64Mi in use); all its processes were killed as a group (memory.oom.group), {restarts}")),
        (of(&[None]), &app,
            "A process in container web was killed because the container reached its memory limit of 64Mi (64Mi in use).".to_owned()),
        (of(&[Some(WholeContainer), Some(WholeContainer)]), &app, format!(
            "Container web was killed (at least 2 processes together) because it reached its memory limit of 64Mi (64Mi in use); all its processes were killed as a group (memory.oom.group), {restarts}")),
        (of(&[Some(ChildProcess), Some(MainProcess)]), &app, format!(
            "Container web was killed (2 processes together) because it reached its memory limit of 64Mi (64Mi in use); its main process died, {restarts}")),
        (of(&[Some(ChildProcess), None]), &app,
            "The kernel killed 2 processes together in container web because the container reached its memory limit of 64Mi (64Mi in use).".to_owned()),
    ];
    for (group, container, expected) in rows {
        let message = in_pod(&group.into(), Some(("web", Some(container))), None);
        let rest = message
            .strip_prefix(&expected)
            .unwrap_or_else(|| panic!("{expected}: {message}"));
        assert!(
            rest.starts_with(" If the container needs more memory, raise its limit "),
            "{rest}"
        );
    }
}

#[test]
fn a_child_process_of_a_service_is_not_its_end_unless_systemd_stops_it() {
    let unit = Owner::Unit {
        name: "web.service".to_owned(),
        user: None,
    };
    let one = |consequence| Finding {
        unit: Some(unit.clone()),
        consequence,
        ..finding(7, Some("/a"), None)
    };
    let child = one(Some(Consequence::ChildProcess));
    let sentence = "Process 7 (p7) in web.service was killed because cgroup /a reached its memory limit; \
                    its main process was not killed, but systemd stops the service unless its OOMPolicy= \
                    is continue.";
    let message = on_node(&vec![child.clone()].into(), None, None);
    assert!(message.starts_with(sentence), "{message}");
    for unknown in [vec![one(None)], vec![child, one(None)]] {
        let message = on_node(&unknown.into(), None, None);
        assert!(!message.contains("main process"), "{message}");
    }
}

#[test]
fn the_victim_and_the_process_that_requested_memory_are_described() {
    let kib = Bytes::from_kib;
    let one = |resident, trigger| Finding {
        uid: Some(1000),
        resident,
        ..finding(7, Some("/a"), trigger)
    };
    let known = Some([kib(2048), kib(4), kib(0)]);
    let had = "Process 7 (p7) of UID 1000 had 2.0Mi of anonymous memory, 4.0Ki of file cache and 0 of \
               shared memory.";
    let rows = [
        (one(known, Some("process 7 (p7)")), format!("{had} The process triggered the kill itself.")),
        (one(known, Some("process 8 (p7)")), format!("{had} More memory was requested by process 8 (p7).")),
        (
            one(None, None),
            "Process 7 (p7) of UID 1000: how much memory it had is not known. Which process requested \
             more memory is not known."
                .to_owned(),
        ),
    ];
    for (finding, expected) in rows {
        let message = in_pod(&vec![finding].into(), None, None);
        assert!(message.ends_with(&expected), "{expected}: {message}");
        assert!(
            message.starts_with("A process in the pod was killed because cgroup /a reached"),
            "{message}"
        );
    }
}

#[test]
fn a_name_cannot_imitate_the_text_around_it() {
    const HOSTILE: &str = "a) with 9Gi, (b";
    let hostile = |pid, trigger| Finding {
        comm: HOSTILE.to_owned(),
        cgroup: Some("/x y".to_owned()),
        ..finding(pid, Some("/a, b"), trigger)
    };
    let itself = "process 7 (\"a) with 9Gi, (b\")";
    let one = hostile(7, Some(itself));
    let message = on_node(&vec![one.clone()].into(), None, None);
    let expected = "Process 7 (\"a) with 9Gi, (b\") in cgroup \"/x y\" was killed because cgroup \"/a, b\" \
                    reached its memory limit. Process 7 (\"a) with 9Gi, (b\"): how much memory it had is not \
                    known. The process triggered the kill itself.";
    assert_eq!(message, expected);
    let two = [one.clone(), hostile(8, None)];
    let message = in_pod(&two.to_vec().into(), None, None);
    let victims = "The processes were 7 (\"a) with 9Gi, (b\"), 8 (\"a) with 9Gi, (b\").";
    assert!(message.contains(victims), "{message}");

    let details = KillDetails {
        processes: LargestProcesses {
            largest: vec![ProcessSize {
                pid: Pid(9),
                comm: HOSTILE.to_owned(),
                resident: Bytes::from_kib(4),
            }],
            ..LargestProcesses::default()
        },
        ..KillDetails::default()
    };
    let largest = "The largest other processes: 9 (\"a) with 9Gi, (b\") with 4.0Ki.";
    assert_eq!(details.sentences(true), largest);

    // The text is a kubelet's.
    let global = Finding {
        scope: OomScope::Global,
        ..one
    };
    let words = words_on_node(&vec![global].into(), None, None, NodeEvents::Kubelet).unwrap();
    let expected = "System OOM encountered, victim process: a) with 9Gi, (b, pid: 7";
    assert_eq!(words.message, expected);
}

#[test]
fn a_victim_of_a_group_that_requested_memory_is_named() {
    let of_group = |pid| finding(pid, Some("/a"), Some("process 7 (p7)"));
    let start =
        "The kernel killed 2 processes together in an unknown cgroup because cgroup /a reached";
    let end = "The processes were 7 (p7), 8 (p8). More memory was requested by process 7 (p7).";
    for message in messages(&[of_group(7), of_group(8)]) {
        assert!(message.starts_with(start), "{message}");
        assert!(message.ends_with(end), "{message}");
    }
}

#[test]
fn details_follow_the_first_sentence_and_leave_out_the_victims() {
    let (kib, gib) = (Bytes::from_kib, |n: u64| Bytes::from_kib(n << 20));
    let process = |pid, name: &str, mib: u64| ProcessSize {
        pid: Pid(pid),
        comm: name.to_owned(),
        resident: kib(mib << 10),
    };
    let pod = |name: &str, used, request| OwnerMemory {
        owner: Owner::NamedPod {
            namespace: "shop".into(),
            name: name.into(),
            container: None,
        },
        used: gib(used),
        request: Some(gib(request)),
    };
    let details = KillDetails {
        split: Some(MemorySplit {
            anon: kib(2048),
            file: kib(1024),
            shmem: kib(512),
            kernel: Some(kib(4)),
            sockets: None,
        }),
        releasing: false,
        processes: LargestProcesses {
            largest: vec![
                process(9, "java", 40),
                process(7, "p7", 30),
                process(8, "sh", 2),
                process(3, "a", 1),
                process(4, "b", 1),
            ],
            compared: 1000,
            is_partial: true,
        },
        memory: LargestMemory {
            owners: vec![pod("cart-0", 3, 0), pod("pg-0", 5, 1)],
            outside_pods: None,
        },
    };
    let group = Kills::from(vec![finding(7, Some("/a"), None)]);
    let details = details.without(&group.findings);
    let message = in_pod(&group, None, Some(&details));
    let expected = "A process in the pod was killed because cgroup /a reached its memory limit. In use \
                    after the kill: 2.0Mi anonymous memory (heaps and stacks), 1.0Mi file cache, 512.0Ki shared memory (such as \
                    an emptyDir of medium Memory), 4.0Ki kernel memory. The largest other processes of \
                    the first 1000 of more than 1000: 9 (java) with 40.0Mi, 8 (sh) with 2.0Mi, 3 (a) \
                    with 1.0Mi. The pods that use most memory over their request: pod shop/pg-0 \
                    (5.0Gi, request 1.0Gi), pod shop/cart-0 (3.0Gi, no request). Process 7 (p7)";
    assert!(message.starts_with(expected), "{message}");
    let releasing = KillDetails {
        releasing: true,
        ..details
    };
    let message = in_pod(&group, None, Some(&releasing));
    let expected =
        "In use while killed processes still release their memory: 2.0Mi anonymous memory";
    assert!(message.contains(expected), "{message}");
    let message = on_node(&group, None, Some(&releasing));
    let files = "512.0Ki shared memory (such as files in a tmpfs), 4.0Ki";
    assert!(message.contains(files), "{message}");
    assert_eq!(KillDetails::default().sentences(true), "");
    let message = in_pod(&group, None, Some(&KillDetails::default()));
    assert_eq!(message, in_pod(&group, None, None), "no details");
}

#[test]
fn an_event_on_the_node_has_the_words_of_the_mode_or_is_left_to_another_program() {
    use NodeEvents::{Companion, Kubelet, Off};

    let why = Grounds::ConfirmedGlobal;
    let global = Finding {
        scope: OomScope::Global,
        verdict: KillVerdict::NodePressure { why },
        ..finding(9, None, None)
    };
    let of = |why| Finding {
        verdict: KillVerdict::EventOnly { why },
        ..global.clone()
    };
    let some_pods = Finding {
        owner: VictimOwner::UnknownPod,
        ..finding(9, Some("/a"), None)
    };
    let outside = finding(9, Some("/a"), None);
    let kubelet = "System OOM encountered, victim process: p9, pid: 9";
    let (none, reason) = ("SystemOOM", "OOMKilling");
    #[rustfmt::skip]
    let rows = [
        (&global, Kubelet, Some((none, kubelet))),
        (&global, Companion, Some((reason, "the node was out of memory. Raise the requests of pods that "))),
        (&of(Doubt::Sysrq), Companion, Some((reason, "an administrator requested an OOM kill"))),
        (&of(Doubt::Cpuset), Companion, Some((reason, "the NUMA memory nodes of its cpuset were full"))),
        (&of(Doubt::MemoryLeft), Companion, Some((reason, "no cgroup is known to have been"))),
        (&outside, Kubelet, Some((none, "cgroup /a reached its memory limit"))),
        (&outside, Companion, Some((reason, "cgroup /a reached its memory limit"))),
        (&global, Off, None),
        (&outside, Off, None),
        (&some_pods, Off, Some(("OOMKilled", "cgroup /a reached its memory limit"))),
    ];
    for (finding, events, expected) in rows {
        let words = words_on_node(&vec![finding.clone()].into(), None, None, events);
        let Some((reason, part)) = expected else {
            assert_eq!(words, None, "{finding:?}");
            continue;
        };
        let words = words.unwrap();
        assert_eq!(words.reason, reason, "{finding:?}");
        assert!(words.message.contains(part), "{part}: {}", words.message);
    }
}

#[test]
fn what_is_unknown_is_reported_as_unknown() {
    let expected = "Process 7 (p7) in an unknown cgroup was killed because memory ran out at a limit \
                    that is not known. Process 7 (p7): how much memory it had is not known. Which \
                    process requested more memory is not known.";
    assert_eq!(messages(&[finding(7, None, None)]), [expected]);
}
