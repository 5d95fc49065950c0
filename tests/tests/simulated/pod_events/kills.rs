//! An OOM kill or a refused fork is an Event of its pod; other kills are Events of the Node.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::record::Record;

use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use serde_json::json;

use super::{
    AT_ONCE, CONTAINER, ID, PER_POD, POD, UID, cart, host, kill, message, of_node, reported,
    started,
};

#[tokio::test(start_paused = true)]
async fn a_kill_is_an_event_on_its_pod_with_container_and_limit() {
    //  the exhausted resource, and its name in the message
    let rows = [
        (
            Limit::Of(CONTAINER),
            "the container reached its memory limit of 64Mi (64Mi in use). If the container needs more \
             memory, raise its limit (resources.limits.memory).",
        ),
        (
            Limit::Of(POD),
            "the pod reached its memory limit of 64Mi (64Mi in use). If the pod needs more memory, raise \
             the limits of its containers (resources.limits.memory).",
        ),
        (
            Limit::Of(PODS),
            "all pods on the node together reached their memory limit of 64Mi (64Mi in use). The limit \
             that was reached is not the pod's own. Raise the requests of pods that use more memory than they \
             request, or limit them.",
        ),
    ];
    for (limit, expected) in rows {
        let api = in_memory();
        let pod = cart();
        pod.put(&api);
        let node = started(&api, Node::named("worker-1").file(PER_POD).host(host())).await;
        let killed = api.now();
        node.kernel()
            .oom_kill_by(kill(4321, limit), ("init", 4300))
            .await;
        let (events, late) = reported(&api, &pod, 1, killed).await;
        assert!(late <= AT_ONCE, "{expected}: {late:?} late");
        assert_eq!(
            message(&events[0]),
            format!(
                "A process in container web was killed because {expected} Process 4321 (stress) of \
                 UID 1000 had 62.5Mi of anonymous memory, 400.0Ki of file cache and 0 of shared memory. \
                 More memory was requested by process 4300 (init)."
            )
        );
        assert_eq!(
            events[0]["involvedObject"],
            json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "cart-0",
                "uid": UID, "fieldPath": "spec.containers{web}",
            })
        );
        assert_eq!(events[0]["reason"], "OOMKilled");
        assert_eq!(events[0]["type"], "Warning");
        assert_eq!(
            events[0]["firstTimestamp"], "2026-01-01T00:00:03Z",
            "the kernel's"
        );
        assert_eq!(of_node(&api), [], "{expected}");
        let scraped = node.scrape().await;
        let labels = [("namespace", "shop"), ("pod", "cart-0")];
        assert_eq!(
            scraped.value("nodepulse_pod_oom_kills_total", &labels),
            Some(1.0)
        );
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn kills_outside_pods_are_events_on_the_node_unless_turned_off() {
    for (setting, expected) in [("true", true), ("false", false)] {
        let api = in_memory();
        cart().put(&api);
        let config = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
             oom: {{nodeEvents: {setting}}}\n"
        );
        let node = Node::named("worker-1").host(host()).file(&config);
        let node = started(&api, node).await;
        let service = "system.slice/cron.service";
        let kill = Kill {
            cgroup: service,
            ..kill(77, Limit::Of(service))
        };
        node.kernel().oom_kill(kill).await;
        node.kernel().oom_kill(self::kill(78, Limit::Machine)).await;
        pass(Duration::from_secs(5)).await;
        let reported = of_node(&api);
        assert_eq!(
            reported.len(),
            if expected { 2 } else { 0 },
            "{setting}: {reported:?}"
        );
        assert!(
            reported.iter().all(|(reason, _)| reason == "SystemOOM"),
            "{reported:?}"
        );
        assert_eq!(
            cart().events(&api).len(),
            1,
            "{setting}: the pod's is reported anyway"
        );
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_in_a_cgroup_with_a_forged_pod_name_is_an_event_on_the_node() {
    let api = in_memory();
    cart().put(&api);
    // A process that may create cgroups below its cgroup can choose the names of three of them.
    let claimed = format!("elsewhere/kubepods/pod{UID}/{ID}");
    let node = started(&api, Node::named("worker-1").host(host())).await;
    let kill = Kill {
        cgroup: &claimed,
        ..kill(4321, Limit::Of(&claimed))
    };
    node.kernel().oom_kill(kill).await;
    pass(Duration::from_secs(3)).await;
    let reported = of_node(&api);
    assert!(
        reported.len() == 1 && reported[0].0 == "OOMKilled",
        "{reported:?}"
    );
    assert_eq!(cart().events(&api), [json!(null); 0]);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_from_counters_are_reported_on_their_pod() {
    let api = in_memory();
    let (pod, host) = (cart(), Arc::new(MadeUpHost::calm()));
    pod.put(&api);
    host.oom(POD, 2, 2).oom(CONTAINER, 2, 0).pods_oom(0, 2);
    let files = Node::named("worker-1").host(Arc::clone(&host)).on_files();
    let node = started(&api, files).await;
    pass(Duration::from_secs(20)).await;
    host.oom(POD, 4, 4).pods_oom(0, 4);
    pass(Duration::from_mins(1)).await;
    let counts = |start: &str| -> Vec<_> {
        let events = pod.events(&api).into_iter();
        let events = events.filter(|event| message(event).starts_with(start));
        events.map(|event| event["count"].as_u64()).collect()
    };
    assert_eq!(counts("OOM kills: the victims are unknown"), [Some(2)]);
    node.stop().await.unwrap();

    host.oom(POD, 5, 5).pods_oom(0, 5);
    let files = Node::named("worker-1").host(Arc::clone(&host)).on_files();
    let node = started(&api, files).await;
    pass(Duration::from_mins(1)).await;
    let down = counts("OOM kills while the agent was down or could not report it: ");
    assert_eq!(down, [Some(1)]);
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn forks_rejected_at_a_pods_limit_are_an_event_on_the_pod() {
    let api = in_memory();
    let (pod, host) = (cart(), Arc::new(MadeUpHost::calm()));
    pod.put(&api);
    let file = |cgroup: &str, name: &str, text: &str| {
        host.write(&format!("sys/fs/cgroup/{cgroup}/{name}"), text);
    };
    file(POD, "pids.max", "64\n");
    file(POD, "pids.current", "64\n");
    for cgroup in [CONTAINER, POD] {
        file(cgroup, "pids.events", "max 0\n");
    }
    file(CONTAINER, "pids.max", "max\n");
    file(CONTAINER, "pids.current", "64\n");
    let node = started(&api, Node::named("worker-1").host(Arc::clone(&host))).await;
    file(CONTAINER, "pids.events", "max 7\n");
    let at = BootNanos(0);
    node.kernel()
        .send_record(Record::CgroupsChanged { at })
        .await;
    let (events, _) = reported(&api, &pod, 1, api.now()).await;
    assert_eq!(events[0]["reason"], "PIDLimitReached");
    assert_eq!(
        message(&events[0]),
        "7 forks refused in container web: the pod's limit is 64 tasks"
    );
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn metrics_name_no_pod_unless_configured() {
    for (file, expected) in [(None, false), (Some(PER_POD), true)] {
        let api = in_memory();
        let pod = cart();
        pod.put(&api);
        let node = Node::named("worker-1").host(host());
        let node = match file {
            Some(file) => node.file(file),
            None => node,
        };
        let node = started(&api, node).await;
        node.kernel()
            .oom_kill(kill(4321, Limit::Of(CONTAINER)))
            .await;
        reported(&api, &pod, 1, api.now()).await;
        let metrics = node.get("/metrics").await.body;
        for name in ["shop", "cart-0"] {
            assert_eq!(metrics.contains(name), expected, "{file:?}: {name}");
        }
        node.stop().await.unwrap();
    }
}
