//! A container is called by its name if the API server knows it, and by its id otherwise.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{Effect, Fault};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use serde_json::json;

use super::{AT_ONCE, CONTAINER, UID, cart, host, kill, message, of_node, reported, started};

/// How the API server meets the question for a pod, and what comes of it.
type Row = (&'static str, Option<Effect>, &'static str, Duration);

#[tokio::test(start_paused = true)]
async fn the_name_of_a_container_is_requested_once_and_not_waited_for_long() {
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
        let (events, late) = reported(&api, &pod, 3, killed).await;
        assert!(late <= latest, "{name}: {late:?} late");
        for event in &events {
            let whereabouts = format!(" in container {expected} was killed ");
            assert!(message(event).contains(&whereabouts), "{name}: {event}");
            let named = event["involvedObject"]["fieldPath"].is_string();
            assert_eq!(named, expected == "web", "{name}: {event}");
        }
        pass(Duration::from_secs(20)).await;
        node.kernel().oom_kill(kill(4, Limit::Of(CONTAINER))).await;
        reported(&api, &pod, 4, killed).await;
        let path = pod.path();
        let asked = api.requests_where(|r| r.method == "GET" && r.path == path);
        let again = usize::from(name == "is broken");
        assert_eq!(asked.len(), 1 + again, "{name}: {asked:?}");
        node.stop().await.unwrap();
    }
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
    let events = of_node(&api);
    assert_eq!(events.len(), 1, "no such pod: {events:?}");
    assert!(!events[0].1.contains(['\u{1b}', '\n']), "{events:?}");
    let asked = api.requests_where(|r| r.path.contains("/pods/"));
    assert_eq!(asked, []);
    node.stop().await.unwrap();
}
