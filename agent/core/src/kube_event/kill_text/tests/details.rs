//! Details of kills: the names in them, and the advice that follows from them.

use super::*;

#[test]
fn a_process_with_less_than_a_hundredth_of_the_limit_is_not_named() {
    let limiting = Limiting {
        usage: Some((Bytes::from_kib(1000), Bytes::from_kib(1000))),
        ..at("/a")
    };
    let victim = Finding {
        scope: OomScope::Memcg(limiting),
        ..finding(7, None, None)
    };
    let process = |pid, kib| ProcessSize {
        pid: Pid(pid),
        comm: "pause".to_owned(),
        resident: Bytes::from_kib(kib),
    };
    // is_partial, processes that are named
    for (is_partial, expected) in [(false, &[3][..]), (true, &[3, 4])] {
        let details = KillDetails {
            processes: LargestProcesses {
                largest: vec![process(3, 10), process(4, 9)],
                compared: 2,
                is_partial,
            },
            ..KillDetails::default()
        };
        let named = details
            .without(std::slice::from_ref(&victim))
            .processes
            .largest;
        let named: Vec<u32> = named.iter().map(|process| process.pid.0).collect();
        assert_eq!(named, expected);
    }
}

#[test]
fn the_advice_for_a_node_that_was_out_of_memory_follows_the_largest_owner() {
    let hog = Owner::from_path("/system.slice/hog.service", "/kubepods");
    let pod = || Owner::NamedPod {
        namespace: "shop".into(),
        name: "cart-0".into(),
        container: None,
    };
    let gib = |n: u64| Bytes::from_kib(n << 20);
    let victim = |unit: Option<&Owner>, had: u64| Finding {
        scope: OomScope::Global,
        unit: unit.cloned(),
        resident: Some([gib(had), gib(0), gib(0)]),
        verdict: KillVerdict::NodePressure {
            why: Grounds::ConfirmedGlobal,
        },
        ..finding(7, None, None)
    };
    let read = |owner: Owner, used| {
        let request = owner.is_of_pods().then(Bytes::default);
        Some(KillDetails {
            memory: LargestMemory {
                owners: vec![OwnerMemory {
                    owner,
                    used: gib(used),
                    request,
                }],
                outside_pods: Some(gib(1)),
            },
            ..KillDetails::default()
        })
    };
    let of_hog = "Limit hog.service with MemoryMax=, move it to another node, or reserve more memory \
                  for the system. ";
    let small = "Most memory was used by pod shop/cart-0 (1.0Gi, no request); outside pods: 1.0Gi.";
    let killed = "Most memory was used by hog.service (3.0Gi), pod shop/cart-0 (1.0Gi, no request); \
                  outside pods: 4.0Gi.";
    #[rustfmt::skip]
    let rows = [
        (victim(Some(&hog), 3), None, of_hog, "", "a service was killed"),
        (victim(None, 3), None, NODE_IS_SHORT, "", "a pod was killed"),
        (victim(Some(&hog), 3), read(pod(), 1), of_hog, killed, "the service was the largest"),
        (victim(None, 3), read(pod(), 1), NODE_IS_SHORT, small, "the pod was the largest"),
        (victim(None, 1), read(hog.clone(), 3), of_hog, "hog.service (3.0Gi); ", "a service is larger"),
        (victim(None, 3), read(hog.clone(), 1), NODE_IS_SHORT, "hog.service (1.0Gi); ", "a pod was larger"),
    ];
    for (victim, details, advice, largest, name) in rows {
        let kills = Kills::from(vec![victim]);
        let details = details.map(|details: KillDetails| details.without(&kills.findings));
        let message = on_node(&kills, None, details.as_ref());
        assert!(message.contains(advice), "{name}: {message}");
        assert!(message.contains(largest), "{name}: {message}");
    }
}

#[test]
fn the_user_of_the_victim_and_another_container_that_requested_memory_are_named() {
    let id = ContainerLabel::Id("0123456789abcdef".to_owned());
    let proxy = ContainerLabel::Name(Container::new(None, "proxy").unwrap());
    //  user on the host and in the namespace, container; what the message has of them
    #[rustfmt::skip]
    let rows = [
        ((Some(231_072), Some(0)), None, " of UID 0 (231072 on the host)", ""),
        ((Some(0), Some(1000)), Some(proxy), " of UID 1000 (0 on the host)", " in container proxy"),
        ((Some(1000), Some(1000)), Some(id), " of UID 1000", " in container 0123456789ab"),
        ((Some(231_072), None), None, " of UID 231072", ""),
        ((None, None), None, "", ""),
    ];
    for ((uid, uid_in_namespace), trigger_container, user, place) in rows {
        let victim = Finding {
            uid,
            uid_in_namespace,
            trigger_container,
            ..finding(7, Some("/a"), Some("process 8 (java)"))
        };
        let expected = format!(
            " Process 7 (p7){user}: how much memory it had is not known. More memory was requested by \
             process 8 (java){place}."
        );
        let message = in_pod(&vec![victim].into(), None, None);
        assert!(message.ends_with(&expected), "{expected}: {message}");
    }
}
