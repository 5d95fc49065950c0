//! Pods that are deleted, or that the watch has not reported yet.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::node::{Limit, Node, in_memory, pass};
use nodepulse_tests::pod::Pod;

use super::{
    AT_ONCE, CONTAINER, ID, OTHER_ID, PER_POD, POD, UID, cart, host, kill, message, of_node,
    reported, started,
};

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_is_waited_for_and_then_the_event_is_on_the_node() {
    //  when the pod is reported
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
            let (events, late) = reported(&api, &pod, 1, killed).await;
            assert!(late <= Duration::from_secs(after) + AT_ONCE, "{late:?}");
            assert_eq!(events[0]["firstTimestamp"], "2026-01-01T00:00:03Z");
        }
        let on_node = api
            .wait_for(SOON, "an event", |api| {
                let events = of_node(api);
                (of_pod || !events.is_empty()).then(|| (events, api.now() - killed))
            })
            .await;
        if !of_pod {
            let (events, late) = on_node;
            let within = Duration::from_secs(2)..=Duration::from_secs(2) + AT_ONCE;
            assert!(within.contains(&late), "{late:?}");
            let container = &ID[..12];
            let expected = format!(
                "Process 4321 (stress) in container {container} of pod with UID {UID} was killed because \
                 the container reached its memory limit "
            );
            assert!(events[0].1.starts_with(&expected), "{events:?}");
            assert_eq!(events[0].0, "OOMKilled");
        }
        pass(Duration::from_mins(1)).await;
        assert_eq!(of_node(&api).len(), usize::from(!of_pod), "reported once");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_still_reported_by_its_name() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let node = started(&api, Node::named("worker-1").host(host())).await;
    pod.delete(&api);
    pass(Duration::from_secs(30)).await;
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    let (events, _) = reported(&api, &pod, 1, api.now()).await;
    assert!(
        message(&events[0]).contains(" in container 3b5c8d0f1e2a was killed "),
        "{events:?}"
    );
    node.stop().await.unwrap();
}

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

#[tokio::test(start_paused = true)]
async fn a_kill_in_a_pod_deleted_with_its_namespace_is_an_event_on_the_node() {
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
    let events = of_node(&api);
    let start = "Pod shop/cart-0: A process in container 3b5c8d0f1e2a was killed ";
    assert!(
        events.len() == 1 && events[0].1.starts_with(start),
        "{events:?}"
    );
    node.stop().await.unwrap();
}
