//! What is sent when nothing changes: a Lease every ten seconds, a status every five minutes.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::Recorded;
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::view::{EVENTS, LEASES, View, gaps};

const TEN_MINUTES: Duration = Duration::from_mins(10);

fn below<'a>(requests: &'a [Recorded], prefix: &str) -> Vec<&'a Recorded> {
    let all = requests.iter();
    all.filter(|request| request.path.starts_with(prefix))
        .collect()
}

fn is_watch(request: &Recorded) -> bool {
    request.query.starts_with("watch=true")
}

#[tokio::test(start_paused = true)]
async fn ten_idle_minutes_cost_the_requests_of_a_kubelet_and_no_reads() {
    let api = in_memory();
    let node = Node::named("worker-1").start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    // Events of the start.
    pass(Duration::from_secs(1)).await;
    let registered = api.requests().len();
    pass(TEN_MINUTES).await;
    let requests = api.requests().split_off(registered);
    node.stop().await.unwrap();

    assert_eq!(view.creates().len(), 1);
    let leases = below(&requests, LEASES).len();
    assert!((59..=61).contains(&leases), "{leases} lease requests");
    let patches = view.patches().len();
    assert!((2..=5).contains(&patches), "{patches} status patches");
    assert_eq!(below(&requests, EVENTS).len(), 0, "events");
    assert_eq!(api.connections().opened, 1, "connections");
    let reopened = requests.iter().filter(|request| is_watch(request)).count();
    assert!(
        reopened <= 4,
        "the watches on the node and its pods were opened {reopened} times more"
    );
    let others: Vec<_> = requests
        .iter()
        .filter(|request| !is_watch(request))
        .filter(|request| request.method == "GET" || request.status != Some(200))
        .map(ToString::to_string)
        .collect();
    assert_eq!(others, [""; 0], "reads, and what was refused");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_every_ten_seconds_and_up_to_a_twentyfifth_later() {
    //  seed, shortest and longest distance
    let rows = [
        ("without jitter", None, 10_000, 10_000),
        ("with", Some(1), 10_000, 10_400),
        ("with other", Some(77), 10_000, 10_400),
    ];
    for (name, seed, shortest, longest) in rows {
        let api = in_memory();
        let mut node = Node::named("worker-1");
        if let Some(seed) = seed {
            node = node.seed(seed);
        }
        let node = node.start(&api);
        pass(TEN_MINUTES).await;
        node.stop().await.unwrap();
        let renewals = View::of(&api, "worker-1").renewals();
        assert!(
            (57..=60).contains(&renewals.len()),
            "{name}: {}",
            renewals.len()
        );
        let gaps = gaps(&renewals);
        for gap in &gaps {
            let gap = gap.as_millis();
            assert!((shortest..=longest).contains(&gap), "{name}: {gap} ms");
        }
        let distinct: std::collections::BTreeSet<_> = gaps.into_iter().collect();
        assert_eq!(1 < distinct.len(), seed.is_some(), "{name}: {distinct:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_patch_changes_heartbeat_times_only() {
    let api = in_memory();
    let node = Node::named("worker-1").start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    pass(TEN_MINUTES).await;
    node.stop().await.unwrap();

    let patches = view.patches();
    let order = [
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "DiskIOPressure",
        "Ready",
    ];
    for patch in patches.iter().skip(1) {
        assert_eq!(
            patch.headers["content-type"],
            "application/strategic-merge-patch+json"
        );
        let body = patch.body.clone().unwrap();
        let beat = body["status"]["conditions"][0]["lastHeartbeatTime"].clone();
        let same = |type_: &str| serde_json::json!({"type": type_, "lastHeartbeatTime": beat});
        let sorted = |list: &serde_json::Value| {
            let mut list = list.as_array().cloned().unwrap_or_default();
            list.sort_by_key(ToString::to_string);
            list
        };
        let expected = serde_json::Value::from(order.map(same).to_vec());
        assert_eq!(sorted(&body["status"]["conditions"]), sorted(&expected));
        let listed = body["status"]["$setElementOrder/conditions"].as_array();
        let listed: Vec<_> = listed.into_iter().flatten().map(|c| &c["type"]).collect();
        assert_eq!(listed, order);
        assert_eq!(body["status"].as_object().unwrap().len(), 2, "{body}");
        assert_eq!(
            body.as_object().unwrap().len(),
            1,
            "no metadata, no spec: {body}"
        );
    }
}
