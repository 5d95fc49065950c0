//! Pods that are deleted, or that the watch has not reported yet.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::node::{Limit, Node, in_memory, pass};
use nodepulse_tests::pod::Pod;

use super::{
    CONTAINER, OTHER_ID, PER_POD, POD, cart, host, kill, message, of_node, reported, started,
};

#[tokio::test(start_paused = true)]
async fn a_kill_in_a_removed_cgroup_is_reported_and_counted() {
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
    let (events, _) = reported(&api, &pod, 1, api.now()).await;
    let expected =
        "A process in container web was killed because the container reached its memory limit";
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
async fn deleted_pods_are_forgotten_even_if_no_watch_lasts_until_a_bookmark() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").file(PER_POD).host(host())).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    reported(&api, &pod, 1, api.now()).await;
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
async fn a_pod_in_a_slow_list_is_not_taken_for_deleted() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").file(PER_POD).host(host())).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    reported(&api, &pod, 1, api.now()).await;
    // Before the first bookmark, so that all pods are reported again.
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
