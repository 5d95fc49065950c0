//! `kubectl nodepulse why`.

use super::*;

const CART: &str = "/api/v1/namespaces/shop/pods/cart-0";

/// The pod, as a kubelet reports it after its container was killed.
fn restarted(cluster: &Cluster, reason: &str) {
    let mut pod = cluster.api.object(CART).unwrap();
    pod["metadata"]["creationTimestamp"] = json!(ago(9000));
    pod["status"]["containerStatuses"] = json!([{
        "name": "web", "ready": false, "restartCount": 3,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": {
            "exitCode": 137, "reason": reason, "startedAt": ago(8000), "finishedAt": ago(5),
        } },
    }]);
    cluster.api.put_object(pod);
}

/// Deletes the Events, as an API server does after some time.
fn expire_events(cluster: &Cluster) {
    for event in cluster.api.list(SHOP_EVENTS) {
        let name = event["metadata"]["name"].as_str().unwrap();
        cluster.api.delete_object(&format!("{SHOP_EVENTS}/{name}"));
    }
}

/// The places of these words, which follow each other.
fn in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let Some((_, after)) = rest.split_once(word) else {
            panic!("{word:?} does not follow in:\n{text}");
        };
        rest = after;
    }
}

#[tokio::test]
async fn the_story_is_in_the_order_of_time_and_ends_with_what_to_do() {
    let cluster = Cluster::reported().await;
    restarted(&cluster, "OOMKilled");
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    in_order(
        &text,
        &[
            "Pod shop/cart-0 on node worker-1: Running",
            "the pod was created",
            "container web started",
            "OOMKilled: ",
            "node: PIDsLow began (LowPIDs)",
            "container web ended: OOMKilled, exit code 137",
            "container web waits: CrashLoopBackOff (3 restarts)",
            "What to do",
            "container web reached its memory limit",
            "resources.limits.memory",
            "java",
            "container web continued to run",
            "kubectl nodepulse worker-1",
        ],
    );
    assert!(!text.contains('\u{1b}'), "{text:?}");

    let mut pod = cluster.api.object(CART).unwrap();
    pod["status"]["containerStatuses"][0]["state"] =
        json!({ "terminated": { "exitCode": 0, "reason": "OOMKilled" } });
    cluster.api.put_object(pod);
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    assert!(
        text.contains("and ended later: the reason OOMKilled"),
        "{text}"
    );
    assert!(!text.contains("check that it still works"), "{text}");
}

#[tokio::test]
async fn consecutive_kills_for_the_same_reason_are_one_entry() {
    let cluster = Cluster::reported().await;
    let events = cluster.api.list(SHOP_EVENTS);
    let event = events.last().unwrap();
    let copy = |name: &str, count: u64, [since, last]: [u64; 2], consequence: &str| {
        let mut event = event.clone();
        event["metadata"]["name"] = json!(name);
        event["count"] = json!(count);
        event["message"] = json!(format!("message of {name}"));
        event["firstTimestamp"] = json!(ago(since));
        event["lastTimestamp"] = json!(ago(last));
        let annotation = &mut event["metadata"]["annotations"]["nodepulse.dev/oom-kill"];
        let mut kill: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
        kill["consequence"] = json!(consequence);
        *annotation = json!(kill.to_string());
        cluster.api.put_object(event);
    };
    copy("first", 1, [9, 9], "main_process");
    copy("second", 3, [2 * 86400 + 9000, 8], "child_process");
    copy("third", 2, [60, 7], "child_process");
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    in_order(
        &text,
        &[
            "OOMKilled: message of first",
            "OOMKilled, 5 times since 2d2h: message of third",
            "What to do",
        ],
    );
    assert!(!text.contains("message of second"), "{text}");
}

#[tokio::test]
async fn a_kill_without_an_event_and_another_exit_are_distinguished() {
    let cluster = Cluster::reported().await;
    expire_events(&cluster);
    restarted(&cluster, "OOMKilled");
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    assert!(text.contains("no Event of nodepulse"), "{text}");
    restarted(&cluster, "Error");
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    assert!(
        text.contains("kubectl logs cart-0 --namespace shop"),
        "{text}"
    );
    assert!(!text.contains("no Event of nodepulse"), "{text}");
}

/// Of a kill whose Event has expired, the exit code alone is left.
#[tokio::test]
async fn memory_is_excluded_as_the_cause_only_if_an_event_would_exist() {
    let cluster = Cluster::reported().await;
    expire_events(&cluster);
    let excluded = "ended with exit code 137, not because of memory";
    let why = async |change: &dyn Fn(&mut Value)| {
        restarted(&cluster, "Error");
        let mut pod = cluster.api.object(CART).unwrap();
        change(&mut pod);
        cluster.api.put_object(pod);
        let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("ended with exit code 137"), "{text}");
        text.contains(excluded)
    };
    let ended = "/status/containerStatuses/0/lastState/terminated/finishedAt";
    assert!(why(&|_| ()).await);
    assert!(!why(&|pod| *pod.pointer_mut(ended).unwrap() = json!(ago(7000))).await);
    cluster.api.put_object(made_up::node("worker-1"));
    assert!(!why(&|_| ()).await, "no agent");
}

#[tokio::test]
async fn events_about_a_former_pod_with_the_same_name_are_marked_and_give_no_advice() {
    let cluster = Cluster::reported().await;
    let mut pod = cluster.api.object(CART).unwrap();
    cluster.api.delete_object(CART);
    pod["metadata"]["uid"] = json!("11111111-2222-4333-8444-555555555555");
    cluster.api.put_object(pod.clone());
    let story = async || cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    let text = story().await;
    assert!(
        text.contains("former pod of this name: OOMKilled"),
        "{text}"
    );
    assert!(
        !text.contains("reached its memory limit (container"),
        "{text}"
    );
    // A static pod: the kubelet, and so its cgroup, has another UID than the API server.
    pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": UID });
    cluster.api.put_object(pod);
    let text = story().await;
    assert!(!text.contains("former pod"), "{text}");
}

#[tokio::test]
async fn a_deleted_pod_is_explained_by_its_events() {
    let cluster = Cluster::reported().await;
    cluster.api.delete_object(CART);
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    in_order(
        &text,
        &[
            "on node worker-1: deleted",
            "OOMKilled: ",
            "What to do",
            "resources.limits.memory",
        ],
    );
    let absent = cluster.run(&["why", "other", "-n", "shop"]).await.failed(1);
    assert_eq!(absent, "error: pod other in namespace shop not found\n");
}

#[tokio::test]
async fn a_pod_without_problems_has_nothing_to_do() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    Pod::new("shop", "cart-0", UID)
        .container("web", ID)
        .put(&cluster.api);
    let text = cluster.run(&["why", "cart-0", "-n", "shop"]).await.good();
    assert!(
        text.contains("  - nothing: nodepulse has not reported"),
        "{text}"
    );
}
