//! The contents of an OOM kill's Event: its consequence, and the details that are added to it.

use nodepulse_tests::host_root::PODS;
use nodepulse_tests::node::in_memory;

use serde_json::json;

use super::*;

const OTHER_POD: &str = "kubepods/besteffort/pod00000000-0000-4000-8000-00000000000b";

/// A container with five processes, the victim being the largest, and a second pod.
fn host_with_processes() -> Arc<MadeUpHost> {
    let host = host();
    let cgroup = |name: &str| format!("sys/fs/cgroup/{name}");
    let stat =
        "anon 41943040\nfile 3145728\nkernel 1048576\nsock 0\nshmem 1048576\ninactive_file 0\n";
    for (pod, current) in [(CONTAINER, 48), (POD, 48), (OTHER_POD, 500)] {
        let current = format!("{}\n", current << 20_u64);
        host.write(&cgroup(&format!("{pod}/memory.stat")), stat)
            .write(&cgroup(&format!("{pod}/memory.current")), current);
    }
    host.write(
        &cgroup(&format!("{CONTAINER}/cgroup.procs")),
        "4321\n77\n78\n79\n80\n",
    );
    for (pid, comm, pages) in [
        (4321, "stress", 16_384),
        (77, "java\u{1b}[2J", 8192),
        (78, "sh", 256),
        (79, "sort", 128),
        (80, "sleep", 1),
    ] {
        host.write(
            &format!("proc/{pid}/statm"),
            format!("9999 {pages} 1 1 0 1 0\n"),
        )
        .write(&format!("proc/{pid}/comm"), format!("{comm}\n"))
        .write(&format!("proc/{pid}/oom_score_adj"), "998\n");
    }
    host
}

async fn message_with(api: &ApiServer, part: &str) -> Value {
    api.wait_for(SOON, part, |api| {
        let mut events = cart().events(api).into_iter();
        events.find(|event| message(event).contains(part))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn details_are_added_to_the_event_after_it_was_sent() {
    //  the limit, and what is added
    let rows = [
        (
            Limit::Of(CONTAINER),
            "In use after the kill: 40.0Mi anonymous memory (heaps and stacks), 2.0Mi file cache, 1.0Mi shared memory (such as \
             an emptyDir of medium Memory), 1.0Mi kernel memory, 0 socket buffers. The largest other \
             processes: 77 (\"java\\u{1b}[2J\") with 32.0Mi, 78 (sh) with 1.0Mi.",
        ),
        (
            Limit::Of(PODS),
            "The pods that use most memory over their request: pod with id \
             00000000-0000-4000-8000-00000000000b (500.0Mi, no request), pod shop/cart-0 (48.0Mi, request \
             32.7Mi).",
        ),
    ];
    for (limit, expected) in rows {
        let api = in_memory();
        cart().put(&api);
        let host = host_with_processes();
        let node = started(&api, Node::named("worker-1").host(host)).await;
        let killed = api.now();
        node.kernel().oom_kill(kill(4321, limit)).await;
        let event = message_with(&api, expected).await;
        let writes = api.requests_where(|request| request.path.contains("/namespaces/shop/events"));
        let bodies: Vec<&Value> = writes
            .iter()
            .filter_map(|write| write.body.as_ref())
            .collect();
        let messages: Vec<&str> = bodies.iter().map(|body| message(body)).collect();
        let [first, details] = messages[..] else {
            panic!("{messages:?}");
        };
        assert!(writes[0].at - killed <= AT_ONCE, "the Event does not wait");
        let annotation = |body: &Value, name: &str| body["metadata"]["annotations"][name].clone();
        let users = annotation(bodies[1], "nodepulse.dev/memory-users");
        let kill = annotation(bodies[0], "nodepulse.dev/oom-kill");
        assert!(users.is_string(), "{users}");
        let annotations = json!({
            "nodepulse.dev/memory-users": users, "nodepulse.dev/oom-kill": kill,
        });
        assert_eq!(
            *bodies[1],
            json!({
                "count": 1,
                "lastTimestamp": event["lastTimestamp"],
                "message": message(&event),
                "metadata": { "annotations": annotations },
            })
        );
        let kill: Value = serde_json::from_str(kill.as_str().unwrap()).unwrap();
        let of = if expected.starts_with("In use") {
            "container"
        } else {
            "pods"
        };
        assert_eq!(
            (&kill["limit"], &kill["victim"]),
            (&json!(of), &json!("stress"))
        );
        assert_eq!(kill["processes"], 1);
        let without = details.replace(&format!("{expected} "), "");
        assert_eq!(without, first, "nothing else changes");
        assert_eq!((&event["count"], cart().events(&api).len()), (&1.into(), 1));
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_consequence_is_in_the_event_and_in_the_metric() {
    let api = in_memory();
    cart().put(&api);
    let host = host();
    host.container("system.slice/containerd.service");
    let node = started(&api, Node::named("worker-1").host(Arc::clone(&host))).await;
    let id = |cgroup: &str| {
        use std::os::unix::fs::MetadataExt as _;
        let dir = host.path().join("sys/fs/cgroup").join(cgroup);
        dir.metadata().unwrap().ino()
    };
    let (container, shim) = (id(CONTAINER), id("system.slice/containerd.service"));
    //  pid in the namespace, cgroup that it depends on, group, label, part of the message
    let rows = [
        (
            1,
            shim,
            0,
            "main_process",
            "; its main process died, so the container restarts. If",
        ),
        (
            17,
            container,
            0,
            "child_process",
            "; the main process is alive, and the container continues",
        ),
        (
            17,
            container,
            container,
            "whole_container",
            "; all its processes were killed as a group",
        ),
        (
            0,
            0,
            0,
            "unknown",
            "A process in container web was killed because the container reached",
        ),
    ];
    for (n, (ns_tgid, reference, group, label, expected)) in (1_u32..).zip(rows) {
        node.kernel()
            .oom_kill_with(kill(n, Limit::Of(CONTAINER)), |record| {
                record.ns_tgid = ns_tgid;
                record.cg_reference = reference;
                record.cg_group = group;
            })
            .await;
        let event = message_with(&api, &format!("Process {n} (stress)")).await;
        assert!(message(&event).contains(expected), "{expected}: {event}");
        let scraped = node.scrape().await;
        let labels = [("scope", "container"), ("consequence", label)];
        let counted = scraped.value("nodepulse_oom_kills_total", &labels);
        assert_eq!(counted, Some(1.0), "{label}");
    }
    node.stop().await.unwrap();
}
