//! What happens in a pod is told of that Pod; of the Node only where nobody knows the pod.

use std::sync::Arc;
use std::time::Duration;

use nodepulse::clock::BootNanos;
use nodepulse::record::Record;
use nodepulse::record::ScopeSource::{Exact, Inferred};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::{Kill, Limit, Node, Running, in_memory, pass};
use nodepulse_tests::pod::Pod;
use nodepulse_tests::view::{EVENTS, View};
use serde_json::{Value, json};

const UID: &str = "6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
const POD: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
const ID: &str = "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
const CONTAINER: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11/\
     3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
const OTHER_ID: &str = "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c";
const HASH: &str = "a9f3c1d20b8e4f5a96d7c8b1e2f30415";
const WATCHED: &str = "/api/v1/pods";

/// More than a look at the API server takes, and less than anything that is waited for.
const AT_ONCE: Duration = Duration::from_millis(5);

fn cart() -> Pod {
    Pod::new("shop", "cart-0", UID)
        .container("web", ID)
        .container("proxy", OTHER_ID)
}

fn host() -> Arc<MadeUpHost> {
    let host = MadeUpHost::calm();
    host.container(CONTAINER);
    Arc::new(host)
}

fn kill<'a>(pid: u32, limit: Limit<'a>) -> Kill<'a> {
    Kill {
        victim: ("stress", pid),
        cgroup: CONTAINER,
        limit,
        source: Exact,
    }
}

/// Metrics name pods.
const PER_POD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                       serve: {perPodMetrics: true}\n";

/// A node whose watch on pods is settled.
async fn started(api: &Arc<ApiServer>, node: Node) -> Running {
    let node = node.start(api);
    View::of(api, "worker-1").settled(SOON).await;
    pass(Duration::from_secs(3)).await;
    node
}

/// Waits for this many Events about the pod; gives them, and how long after `from` that was.
async fn told(api: &ApiServer, pod: &Pod, count: usize, from: Duration) -> (Vec<Value>, Duration) {
    api.wait_for(SOON, "events of the pod", |api| {
        let events = pod.events(api);
        (events.len() == count).then(|| (events, api.now() - from))
    })
    .await
}

/// Messages of Events on the Node that are about kills.
fn of_node(api: &ApiServer) -> Vec<(String, String)> {
    let mut told: Vec<_> = api
        .list(EVENTS)
        .into_iter()
        .filter(|event| event["involvedObject"]["kind"] == "Node")
        .map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            (text("reason"), text("message"))
        })
        .filter(|(reason, _)| reason.contains("OOM") || reason == "PIDLimitReached")
        .collect();
    told.sort();
    told
}

fn message(event: &Value) -> &str {
    event["message"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_told_of_its_pod_with_container_and_limit() {
    //  what was short, and how the message says it
    let rows = [
        (
            Limit::Of(CONTAINER),
            "the container was at the memory limit (64.0Mi of 64.0Mi)",
        ),
        (
            Limit::Of(POD),
            "the pod was at the memory limit (64.0Mi of 64.0Mi)",
        ),
        (
            Limit::Of(PODS),
            "all pods on the node together were at the memory limit (64.0Mi of 64.0Mi)",
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
        let (events, late) = told(&api, &pod, 1, killed).await;
        assert!(late <= AT_ONCE, "{expected}: {late:?} late");
        assert_eq!(
            message(&events[0]),
            format!(
                "Killed process 4321 (stress) of uid 1000 in container web: {expected}; the \
                 process had anon 62.5Mi, file 400.0Ki, shmem 0; triggered by process 4300 (init)"
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
async fn a_global_kill_is_told_of_the_node_and_of_the_pod() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let host = host();
    let node = started(&api, Node::named("worker-1").host(Arc::clone(&host))).await;
    host.mem_working_set("15700Mi");
    let kill = Kill {
        source: Inferred,
        ..kill(4321, Limit::Machine)
    };
    node.kernel().oom_kill(kill).await;
    let (events, _) = told(&api, &pod, 1, api.now()).await;
    assert!(
        message(&events[0]).contains(" in container web: the node was out of memory; "),
        "{events:?}"
    );
    pass(Duration::from_secs(5)).await;
    let expected = "System OOM encountered, victim process: stress, pid: 4321";
    assert_eq!(
        of_node(&api),
        [("SystemOOM".to_owned(), expected.to_owned())]
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_that_are_no_pods_are_told_of_the_node_unless_somebody_else_does() {
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
        let told = of_node(&api);
        assert_eq!(
            told.len(),
            if expected { 2 } else { 0 },
            "{setting}: {told:?}"
        );
        assert!(
            told.iter().all(|(reason, _)| reason == "SystemOOM"),
            "{told:?}"
        );
        assert_eq!(
            cart().events(&api).len(),
            1,
            "{setting}: the pod's own is told anyway"
        );
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_is_one_event_of_its_pod_and_pods_are_told_apart() {
    let api = in_memory();
    let cart = cart();
    let uid = "00000000-0000-4000-8000-00000000000b";
    let other = Pod::new("shop", "cart-1", uid).container("web", OTHER_ID);
    cart.put(&api);
    other.put(&api);
    let host = host();
    let cgroup = format!("kubepods/burstable/pod{uid}/{OTHER_ID}");
    host.oom(&cgroup, 0, 0);
    let node = started(&api, Node::named("worker-1").file(PER_POD).host(host)).await;
    for pid in 1..=30 {
        let group = kill(pid, Limit::Of(PODS));
        node.kernel().oom_kill_by(group, ("stress", 9)).await;
        let group = Kill {
            cgroup: &cgroup,
            victim: ("stress", 100 + pid),
            ..group
        };
        node.kernel().oom_kill_by(group, ("stress", 9)).await;
    }
    for (pod, first) in [(&cart, 1), (&other, 101)] {
        let (events, _) = told(&api, pod, 1, api.now()).await;
        let start = format!(
            "Killed 30 processes together in container web: all pods on the node together were at \
             the memory limit (64.0Mi of 64.0Mi), triggered by process 9 (stress); pids {first} \
             (stress), "
        );
        assert!(message(&events[0]).starts_with(&start), "{events:?}");
        assert!(message(&events[0]).ends_with(", and 6 more"), "{events:?}");
    }
    let scraped = node.scrape().await;
    let labels = [("namespace", "shop"), ("pod", "cart-1")];
    assert_eq!(
        scraped.value("nodepulse_pod_oom_kills_total", &labels),
        Some(30.0)
    );
    other.delete(&api);
    pass(Duration::from_secs(1)).await;
    let scraped = node.scrape().await;
    assert_eq!(
        scraped.value("nodepulse_pod_oom_kills_total", &labels),
        None,
        "gone with it"
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_counts_whole_where_its_event_is_combined_with_others() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").host(host())).await;
    let alone = async |pid| {
        node.kernel().oom_kill(kill(pid, Limit::Of(POD))).await;
        pass(Duration::from_millis(100)).await;
    };
    for pid in 1..=9 {
        alone(pid).await;
    }
    for pid in 10..=12 {
        let group = kill(pid, Limit::Of(POD));
        node.kernel().oom_kill_by(group, ("stress", 9)).await;
    }
    pass(Duration::from_millis(100)).await;
    alone(13).await;
    let (events, _) = told(&api, &pod, 10, api.now()).await;
    let mut combined = events.iter();
    let combined = combined
        .find(|event| message(event).starts_with("(combined"))
        .unwrap();
    assert!(
        message(combined).contains("Killed process 13 "),
        "{combined}"
    );
    assert_eq!(combined["count"], 4, "{combined}");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_told_by_its_mirror() {
    let api = in_memory();
    let mirror = Pod::new("kube-system", "etcd-worker-1", UID)
        .mirror(HASH)
        .container("etcd", ID);
    mirror.put(&api);
    let host = host();
    let cgroup = format!("kubepods/pod{HASH}/{ID}");
    host.oom(&cgroup, 0, 0);
    let node = started(&api, Node::named("worker-1").host(host)).await;
    let kill = Kill {
        cgroup: &cgroup,
        ..kill(5, Limit::Of(&cgroup))
    };
    node.kernel().oom_kill(kill).await;
    let (events, _) = told(&api, &mirror, 1, api.now()).await;
    assert!(
        message(&events[0]).contains(" in container etcd: "),
        "{events:?}"
    );
    node.stop().await.unwrap();
}

/// How the API server meets the question for a pod, and what comes of it.
type Row = (&'static str, Option<Effect>, &'static str, Duration);

#[tokio::test(start_paused = true)]
async fn the_name_of_a_container_is_asked_for_once_and_never_waited_for_long() {
    let quick = Duration::from_millis(100);
    let short = "3b5c8d0f1e2a";
    let rows: [Row; 5] = [
        ("answers", None, "web", AT_ONCE),
        (
            "is slow",
            Some(Effect::Latency(quick)),
            "web",
            quick + AT_ONCE,
        ),
        (
            "is too slow",
            Some(Effect::Latency(SOON / 4)),
            short,
            quick * 3,
        ),
        ("refuses", Some(Effect::Status(403)), short, AT_ONCE),
        ("is broken", Some(Effect::Status(500)), short, AT_ONCE),
    ];
    for (name, effect, expected, latest) in rows {
        let api = in_memory();
        let pod = cart();
        pod.put(&api);
        let node = started(&api, Node::named("worker-1").host(host())).await;
        if let Some(effect) = effect {
            api.faults()
                .push(Fault::on("GET", &pod.path(), effect).always());
        }
        let killed = api.now();
        for pid in [1, 2, 3] {
            node.kernel()
                .oom_kill(kill(pid, Limit::Of(CONTAINER)))
                .await;
        }
        let (events, late) = told(&api, &pod, 3, killed).await;
        assert!(late <= latest, "{name}: {late:?} late");
        for event in &events {
            let whereabouts = format!(" in container {expected}: ");
            assert!(message(event).contains(&whereabouts), "{name}: {event}");
            let named = event["involvedObject"]["fieldPath"].is_string();
            assert_eq!(named, expected == "web", "{name}: {event}");
        }
        pass(Duration::from_secs(20)).await;
        node.kernel().oom_kill(kill(4, Limit::Of(CONTAINER))).await;
        told(&api, &pod, 4, killed).await;
        let path = pod.path();
        let asked = api.requests_where(|r| r.method == "GET" && r.path == path);
        let again = usize::from(name == "is broken");
        assert_eq!(asked.len(), 1 + again, "{name}: {asked:?}");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_the_api_server_has_not_heard_of_is_called_by_its_id() {
    //  the pod, and what is said of the container
    let rows = [
        (
            Pod::new("shop", "a", UID).new_container("web"),
            " in container 3b5c8d0f1e2a: ",
        ),
        (
            Pod::new("shop", "a", UID).container("web", OTHER_ID),
            " in container 3b5c8d0f1e2a: ",
        ),
        (
            Pod::new("shop", "b", UID)
                .new_container("web")
                .container("proxy", OTHER_ID),
            " in container 3b5c8d0f1e2a: ",
        ),
        (
            Pod::new("shop", "c", UID)
                .container("web\u{1b}[2J", ID)
                .container("x", OTHER_ID),
            " in container 3b5c8d0f1e2a: ",
        ),
    ];
    for (pod, expected) in rows {
        let api = in_memory();
        pod.put(&api);
        let node = started(&api, Node::named("worker-1").host(host())).await;
        node.kernel()
            .oom_kill(kill(4321, Limit::Of(CONTAINER)))
            .await;
        let (events, _) = told(&api, &pod, 1, api.now()).await;
        assert!(message(&events[0]).contains(expected), "{events:?}");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_started_again_is_asked_for_anew() {
    let api = in_memory();
    let only = |id| Pod::new("shop", "cart-0", UID).container("web", id);
    let pod = only(ID);
    pod.put(&api);
    let host = host();
    let again = format!("{POD}/{OTHER_ID}");
    host.container(&again);
    let node = started(&api, Node::named("worker-1").host(host)).await;
    let again = Kill {
        cgroup: &again,
        ..kill(3, Limit::Of(POD))
    };
    node.kernel().oom_kill(kill(1, Limit::Of(POD))).await;
    told(&api, &pod, 1, api.now()).await;
    pass(Duration::from_secs(2)).await;
    // Not heard of yet: it may be the same container again, or a debugger's.
    node.kernel()
        .oom_kill(Kill {
            victim: ("stress", 2),
            ..again
        })
        .await;
    told(&api, &pod, 2, api.now()).await;
    only(OTHER_ID).put(&api);
    pass(Duration::from_secs(2)).await;
    node.kernel().oom_kill(again).await;
    let (events, _) = told(&api, &pod, 3, api.now()).await;
    for (pid, called) in [(1, "web"), (2, "8d0f1e2a4b6c"), (3, "web")] {
        let naming = format!("Killed process {pid} (stress) of uid 1000 in container {called}: ");
        let named = events
            .iter()
            .filter(|event| message(event).starts_with(&naming));
        assert_eq!(named.count(), 1, "{naming}: {events:#?}");
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_seen_yet_is_waited_for_and_then_the_node_is_told() {
    //  when the pod is told of
    for (after, of_pod) in [(Some(1), true), (None, false)] {
        let api = in_memory();
        let pod = cart();
        let node = started(&api, Node::named("worker-1").host(host())).await;
        let killed = api.now();
        node.kernel()
            .oom_kill(kill(4321, Limit::Of(CONTAINER)))
            .await;
        if let Some(after) = after {
            pass(Duration::from_secs(after)).await;
            assert_eq!(of_node(&api), []);
            pod.put(&api);
            let (events, late) = told(&api, &pod, 1, killed).await;
            assert!(late <= Duration::from_secs(after) + AT_ONCE, "{late:?}");
            assert_eq!(events[0]["firstTimestamp"], "2026-01-01T00:00:03Z");
        }
        let node_told = api
            .wait_for(SOON, "an event", |api| {
                let told = of_node(api);
                (of_pod || !told.is_empty()).then(|| (told, api.now() - killed))
            })
            .await;
        if !of_pod {
            let (told, late) = node_told;
            let within = Duration::from_secs(2)..=Duration::from_secs(2) + AT_ONCE;
            assert!(within.contains(&late), "{late:?}");
            let expected = format!(
                "Killed process 4321 (stress) of uid 1000 in cgroup /{CONTAINER} of pod {UID}: "
            );
            assert!(told[0].1.starts_with(&expected), "{told:?}");
            assert_eq!(told[0].0, "OOMKilled");
        }
        pass(Duration::from_mins(1)).await;
        assert_eq!(of_node(&api).len(), usize::from(!of_pod), "told once");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_still_waits_at_the_end_is_told_of_the_node() {
    let api = in_memory();
    let node = started(&api, Node::named("worker-1").host(host())).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    pass(Duration::from_millis(100)).await;
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
    assert_eq!(of_node(&api).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_still_told_by_its_name() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").host(host())).await;
    pod.delete(&api);
    pass(Duration::from_secs(30)).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    let (events, _) = told(&api, &pod, 1, api.now()).await;
    assert!(
        message(&events[0]).contains(" in container 3b5c8d0f1e2a: "),
        "{events:?}"
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kill_whose_cgroup_went_first_is_told_and_counted_as_any_other() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let host = host();
    let node = started(
        &api,
        Node::named("worker-1")
            .file(PER_POD)
            .host(Arc::clone(&host)),
    )
    .await;
    let went = |_: &mut _| {
        std::fs::remove_dir_all(host.path().join("sys/fs/cgroup").join(POD)).unwrap();
    };
    node.kernel()
        .oom_kill_with(kill(4321, Limit::Of(CONTAINER)), went)
        .await;
    let (events, _) = told(&api, &pod, 1, api.now()).await;
    let expected =
        "Killed process 4321 (stress) of uid 1000 in container web: the container was at";
    assert!(message(&events[0]).starts_with(expected), "{events:?}");
    let scraped = node.scrape().await;
    for (metric, labels) in [
        ("nodepulse_oom_kills_total", vec![("scope", "container")]),
        (
            "nodepulse_pod_oom_kills_total",
            vec![("namespace", "shop"), ("pod", "cart-0")],
        ),
    ] {
        assert_eq!(scraped.value(metric, &labels), Some(1.0), "{metric}");
    }
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_that_went_are_forgotten_also_where_no_watch_lives_until_a_bookmark() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").file(PER_POD).host(host())).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    told(&api, &pod, 1, api.now()).await;
    let cut = async |going: &Pod| {
        // The first bookmark comes after a minute.
        pass(Duration::from_secs(25)).await;
        api.reset_connections();
        going.delete(&api);
        pass(Duration::from_secs(25)).await;
    };
    let counted = async || {
        let labels = [("namespace", "shop"), ("pod", "cart-0")];
        let scraped = node.scrape().await;
        scraped.value("nodepulse_pod_oom_kills_total", &labels)
    };
    cut(&Pod::new("shop", "another", OTHER_ID)).await;
    assert_eq!(counted().await, Some(1.0), "it is there");
    cut(&pod).await;
    assert_eq!(counted().await, None, "gone with it");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_slow_list_tells_late_is_not_taken_for_gone() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").file(PER_POD).host(host())).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    told(&api, &pod, 1, api.now()).await;
    // Before the first bookmark, so that all pods are told of anew.
    pass(Duration::from_secs(25)).await;
    pod.delete(&api);
    api.reset_connections();
    // They come one by one, each soon after the one before.
    for next in [&Pod::new("shop", "another", OTHER_ID), &pod] {
        pass(Duration::from_secs(8)).await;
        next.put(&api);
    }
    pass(Duration::from_secs(25)).await;
    let labels = [("namespace", "shop"), ("pod", "cart-0")];
    let scraped = node.scrape().await;
    let counted = scraped.value("nodepulse_pod_oom_kills_total", &labels);
    assert_eq!(counted, Some(1.0), "it is still there");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_with_its_namespace_is_told_of_the_node() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").host(host())).await;
    pod.delete(&api);
    api.delete_object("/api/v1/namespaces/shop");
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    pass(Duration::from_secs(1)).await;
    let told = of_node(&api);
    let start =
        "Pod shop/cart-0: Killed process 4321 (stress) of uid 1000 in container 3b5c8d0f1e2a: ";
    assert!(told.len() == 1 && told[0].1.starts_with(start), "{told:?}");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cgroup_that_only_claims_to_be_a_pods_is_told_of_the_node() {
    let api = in_memory();
    cart().put(&api);
    // Whoever may make cgroups below its own can call three of them as it likes.
    let claimed = format!("elsewhere/kubepods/pod{UID}/{ID}");
    let node = started(&api, Node::named("worker-1").host(host())).await;
    let kill = Kill {
        cgroup: &claimed,
        ..kill(4321, Limit::Of(&claimed))
    };
    node.kernel().oom_kill(kill).await;
    pass(Duration::from_secs(3)).await;
    let told = of_node(&api);
    assert!(told.len() == 1 && told[0].0 == "OOMKilled", "{told:?}");
    assert_eq!(cart().events(&api), [json!(null); 0]);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_the_node_is_told_at_once_and_asked_for_rarely() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let refused = Fault::when(|r| r.path == WATCHED, Effect::Status(403));
    api.faults().push(refused.always());
    let node = started(&api, Node::named("worker-1").host(host())).await;
    let killed = api.now();
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    let (told_of_node, at) = api
        .wait_for(SOON, "an event of the node", |api| {
            let told = of_node(api);
            (!told.is_empty()).then(|| (told, api.now()))
        })
        .await;
    assert!(at - killed <= AT_ONCE, "{:?} late", at - killed);
    assert!(
        told_of_node[0].1.contains(&format!(" of pod {UID}: ")),
        "{told_of_node:?}"
    );
    pass(Duration::from_hours(1)).await;
    let tries = api.requests_where(|r| r.path == WATCHED).len();
    assert!((5..=13).contains(&tries), "{tries} tries in an hour");
    // Granted, and used without a restart.
    api.faults().clear();
    pass(Duration::from_mins(10)).await;
    node.kernel()
        .oom_kill(kill(4322, Limit::Of(CONTAINER)))
        .await;
    told(&api, &pod, 1, api.now()).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_watch_outlives_whatever_ends_it() {
    type Blow = fn(&ApiServer);
    let rows: [(&str, Blow); 5] = [
        ("nothing", |_| ()),
        ("the past is forgotten", ApiServer::expire_watches),
        ("the connection breaks", ApiServer::reset_connections),
        ("the connection is silent", ApiServer::freeze_connections),
        ("the server asks for a new one", ApiServer::go_away),
    ];
    for (name, blow) in rows {
        let api = in_memory();
        let (before, meanwhile, later) = (
            cart(),
            Pod::new("shop", "cart-1", "00000000-0000-4000-8000-00000000000b"),
            Pod::new("shop", "cart-2", "00000000-0000-4000-8000-00000000000c"),
        );
        before.put(&api);
        Pod::new("shop", "elsewhere", "00000000-0000-4000-8000-00000000000d")
            .on("worker-2")
            .put(&api);
        let node = started(&api, Node::named("worker-1").host(host())).await;
        pass(Duration::from_mins(2)).await;
        blow(&api);
        meanwhile.put(&api);
        pass(Duration::from_mins(1)).await;
        later.put(&api);
        pass(Duration::from_mins(9)).await;
        for pod in [&before, &meanwhile, &later] {
            let uid = pod_uid(&api, pod);
            let cgroup = format!("kubepods/pod{uid}");
            let kill = Kill {
                cgroup: &cgroup,
                ..kill(5, Limit::Of(&cgroup))
            };
            let killed = api.now();
            node.kernel().oom_kill(kill).await;
            let (_, late) = told(&api, pod, 1, killed).await;
            assert!(late <= AT_ONCE, "{name}: {late:?} late");
        }
        let lists = api.requests_where(|r| r.path == WATCHED && !r.query.starts_with("watch"));
        assert_eq!(lists, [], "{name}: no list");
        assert!(
            api.connections().opened <= 2,
            "{name}: {:?}",
            api.connections()
        );
        node.stop().await.unwrap();
    }
}

fn pod_uid(api: &ApiServer, pod: &Pod) -> String {
    let stored = api.object(&pod.path()).unwrap();
    stored["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_at_most_thirteen_watches_and_nothing_else() {
    let api = in_memory();
    cart().put(&api);
    let node = started(&api, Node::named("worker-1").seed(7).host(host())).await;
    let about_pods = |api: &ApiServer| {
        let requests = api.requests_where(|r| r.path.contains("/pods"));
        requests.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let before = about_pods(&api).len();
    for _ in 0..60 {
        // A kubelet writes the status of a pod.
        cart().put(&api);
        pass(Duration::from_mins(1)).await;
    }
    let requests = about_pods(&api).split_off(before);
    assert!(requests.len() <= 13, "{requests:#?}");
    let watches = requests.iter().filter(|r| r.contains("watch=true")).count();
    assert_eq!(watches, requests.len(), "{requests:#?}");
    assert_eq!(api.connections().opened, 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_counters_tell_of_a_pod_is_told_of_it() {
    let api = in_memory();
    let (pod, host) = (cart(), Arc::new(MadeUpHost::calm()));
    pod.put(&api);
    host.oom(POD, 2, 2).oom(CONTAINER, 2, 0).pods_oom(0, 2);
    let files = Node::named("worker-1").host(Arc::clone(&host)).on_files();
    let node = started(&api, files).await;
    pass(Duration::from_secs(20)).await;
    host.oom(POD, 4, 4).pods_oom(0, 4);
    pass(Duration::from_mins(1)).await;
    let told = |start: &str| -> Vec<_> {
        let events = pod.events(&api).into_iter();
        let events = events.filter(|event| message(event).starts_with(start));
        events.map(|event| event["count"].as_u64()).collect()
    };
    assert_eq!(told("OOM kills: the victims are unknown"), [Some(2)]);
    node.stop().await.unwrap();

    host.oom(POD, 5, 5).pods_oom(0, 5);
    let files = Node::named("worker-1").host(Arc::clone(&host)).on_files();
    let node = started(&api, files).await;
    pass(Duration::from_mins(1)).await;
    let down = told("OOM kills while the agent was down or could not report it: ");
    assert_eq!(down, [Some(1)]);
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn forks_that_a_pods_limit_refused_are_told_of_the_pod() {
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
    node.kernel().tell(Record::CgroupsChanged { at }).await;
    let (events, _) = told(&api, &pod, 1, api.now()).await;
    assert_eq!(events[0]["reason"], "PIDLimitReached");
    assert_eq!(
        message(&events[0]),
        "7 forks refused in container web: the pod's limit is 64 tasks"
    );
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hostile_names_reach_no_message_and_no_path() {
    let api = in_memory();
    // Past all checks of the server's.
    let hostile = [
        ("shop", "../../nodes/worker-1", UID),
        ("shop\n", "a", UID),
        ("shop", "cart\u{1b}[2J", UID),
    ];
    for (namespace, name, uid) in hostile {
        api.put_object(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": namespace, "name": name, "uid": uid },
            "spec": { "nodeName": "worker-1" },
        }));
    }
    let node = started(&api, Node::named("worker-1").host(host())).await;
    let kill = Kill {
        victim: ("\u{1b}[2J\n", 4321),
        ..kill(4321, Limit::Of(CONTAINER))
    };
    node.kernel().oom_kill(kill).await;
    pass(Duration::from_secs(3)).await;
    let told = of_node(&api);
    assert_eq!(told.len(), 1, "no such pod: {told:?}");
    assert!(!told[0].1.contains(['\u{1b}', '\n']), "{told:?}");
    let asked = api.requests_where(|r| r.path.contains("/pods/"));
    assert_eq!(asked, []);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn metrics_name_no_pod_unless_the_configuration_says_so() {
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
        told(&api, &pod, 1, api.now()).await;
        let metrics = node.get("/metrics").await.body;
        for name in ["shop", "cart-0"] {
            assert_eq!(metrics.contains(name), expected, "{file:?}: {name}");
        }
        node.stop().await.unwrap();
    }
}
