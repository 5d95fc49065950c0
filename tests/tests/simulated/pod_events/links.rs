//! Pods and containers are named by the links that a kubelet makes for container logs.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Limit, Node, in_memory, pass};
use nodepulse_tests::pod::Pod;
use serde_json::Value;

use super::{
    AT_ONCE, CONTAINER, ID, OTHER_ID, UID, cart, host, kill, message, of_node, reported, started,
};

const LINKS: &str = "var/log/containers";

/// A kubelet makes the link of a container; what it points to is not there.
fn link(host: &MadeUpHost, name: &str) {
    let links = host.path().join(LINKS);
    std::fs::create_dir_all(&links).unwrap();
    symlink("/var/log/pods/0.log", links.join(name)).unwrap();
}

fn web() -> String {
    format!("cart-0_shop_web-{ID}.log")
}

/// The pod as the API server has it in its first second.
fn new_cart() -> Pod {
    Pod::new("shop", "cart-0", UID).new_container("web")
}

fn field_path(event: &Value) -> Option<&str> {
    event["involvedObject"]["fieldPath"].as_str()
}

fn reads(api: &ApiServer) -> usize {
    let path = new_cart().path();
    api.requests_where(|r| r.method == "GET" && r.path == path)
        .len()
}

#[tokio::test(start_paused = true)]
async fn a_container_that_crashes_at_once_is_called_by_its_name() {
    //  when its link is made after the kill, the name of the container
    let rows = [
        (None, "web"),
        (Some(Duration::from_millis(15)), "web"),
        (Some(Duration::from_millis(180)), "web"),
        (Some(Duration::from_millis(300)), "3b5c8d0f1e2a"),
    ];
    for (after, expected) in rows {
        let (api, host, pod) = (in_memory(), host(), new_cart());
        pod.put(&api);
        // The directory exists on every node with a kubelet.
        link(&host, &format!("other-0_shop_web-{OTHER_ID}.log"));
        if after.is_none() {
            link(&host, &web());
        }
        let node = started(&api, Node::named("worker-1").host(host.clone())).await;
        let killed = api.now();
        for pid in [1, 2, 3] {
            let kill = kill(pid, Limit::Of(CONTAINER));
            node.kernel().oom_kill(kill).await;
        }
        if let Some(after) = after {
            pass(after).await;
            link(&host, &web());
        }
        let (events, late) = reported(&api, &pod, 3, killed).await;
        let latest = after.map_or(Duration::ZERO, |after| {
            after.max(Duration::from_millis(250))
        });
        assert!(late <= latest + AT_ONCE, "{after:?}: {late:?} late");
        for event in &events {
            let whereabouts = format!(" in container {expected} was killed ");
            assert!(message(event).contains(&whereabouts), "{after:?}: {event}");
            let path = (expected == "web").then_some("spec.containers{web}");
            assert_eq!(field_path(event), path, "{after:?}: {event}");
        }
        assert_eq!(reads(&api), 1, "for the list of its containers");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn kills_during_an_outage_are_events_with_names_afterwards() {
    for (name, linked, expected) in [
        ("with links", true, "web"),
        ("without", false, "3b5c8d0f1e2a"),
    ] {
        let (api, host, pod) = (in_memory(), host(), cart());
        pod.put(&api);
        if linked {
            link(&host, &web());
        }
        let node = started(&api, Node::named("worker-1").host(host)).await;
        api.freeze_all();
        for pid in [1, 2, 3] {
            let kill = kill(pid, Limit::Of(CONTAINER));
            node.kernel().oom_kill(kill).await;
            pass(Duration::from_secs(10)).await;
        }
        assert!(pod.events(&api).is_empty(), "{name}");
        api.thaw();
        let (events, _) = reported(&api, &pod, 3, api.now()).await;
        for event in &events {
            let whereabouts = format!(" in container {expected} was killed ");
            assert!(message(event).contains(&whereabouts), "{name}: {event}");
        }
        // The server has the request that it did not answer, without what was not known then.
        let paths = events.iter().filter_map(field_path);
        assert_eq!(
            paths.collect::<Vec<_>>(),
            ["spec.containers{web}"; 2],
            "{name}: {events:?}"
        );
        assert_eq!(of_node(&api), [], "{name}");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_during_an_outage_waits_for_the_names_of_pods() {
    let (api, host, pod) = (in_memory(), host(), cart());
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").host(Arc::clone(&host))).await;
    api.freeze_all();
    node.kill();
    let node = Node::named("worker-1").host(host).start(&api);
    for pid in [1, 2, 3] {
        pass(Duration::from_secs(10)).await;
        let kill = kill(pid, Limit::Of(CONTAINER));
        node.kernel().oom_kill(kill).await;
    }
    pass(Duration::from_secs(10)).await;
    assert!(pod.events(&api).is_empty());
    api.thaw();
    let (events, _) = reported(&api, &pod, 3, api.now()).await;
    let paths: Vec<_> = events.iter().map(field_path).collect();
    assert_eq!(paths, [Some("spec.containers{web}"); 3], "{events:?}");
    pass(Duration::from_mins(1)).await;
    assert_eq!(of_node(&api), []);
    node.stop().await.unwrap();
}
