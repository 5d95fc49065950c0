//! Proof of life: renewed, lost, regained.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::node::{Node, Running, in_memory, pass};
use nodepulse_tests::view::{LEASES, View, gaps};
use serde_json::json;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1";
const PERIOD: Duration = Duration::from_secs(10);

async fn settled(configure: impl FnOnce(Node) -> Node) -> (Arc<ApiServer>, Running) {
    let api = in_memory();
    let node = configure(Node::named("worker-1")).start(&api);
    View::of(&api, "worker-1").settled(SOON).await;
    (api, node)
}

/// Method and status of the requests about the Lease from `from` on: `PUT 409`.
fn lines(api: &ApiServer, from: Duration) -> Vec<String> {
    let of_lease = |request: &Recorded| from < request.at && request.path.starts_with(LEASES);
    let all = api.requests_where(of_lease).into_iter();
    all.map(|request| format!("{} {}", request.method, request.status.unwrap_or_default()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_lease_belongs_to_the_node_and_its_duration_determines_the_interval() {
    for (seconds, period) in [(40, PERIOD), (20, PERIOD / 2)] {
        let (api, node) = settled(|node| {
            node.config(|overrides| {
                overrides.node_lease_duration_seconds = Some(seconds.to_string());
            })
        })
        .await;
        let view = View::of(&api, "worker-1");
        pass(PERIOD * 6).await;
        let lease = view.lease().unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "worker-1");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], seconds);
        let uid = view.node().unwrap()["metadata"]["uid"].clone();
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": uid}]);
        assert_eq!(lease["metadata"]["ownerReferences"], owner);
        assert_eq!(lease["metadata"]["labels"], json!(null));
        let renewed = lease["spec"]["renewTime"].as_str().unwrap();
        assert_eq!(
            renewed.len(),
            "2026-01-01T00:00:00.000000Z".len(),
            "{renewed}"
        );
        for gap in gaps(&view.renewals()) {
            assert_eq!(gap, period);
        }
        node.stop().await.unwrap();
        assert!(view.lease().is_some(), "it is never deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn the_requests_of_a_lease_cycle_after_each_failure() {
    let put = |effect, times| Fault::on("PUT", LEASE, effect).times(times);
    let status = Effect::Status;
    //  what goes wrong, then the requests of that cycle
    let rows = [
        ("nothing", None, vec!["PUT 200"]),
        (
            "one 500",
            Some(put(status(500), 1)),
            vec!["PUT 500", "PUT 200"],
        ),
        (
            "five of them",
            Some(put(status(503), 5)),
            [vec!["PUT 503"; 5], vec!["GET 200", "PUT 200"]].concat(),
        ),
        (
            "ten of them, and no eleventh",
            Some(put(status(500), 100)),
            [vec!["PUT 500"; 5], vec!["GET 200"], vec!["PUT 500"; 5]].concat(),
        ),
    ];
    for (name, fault, expected) in rows {
        let (api, _node) = settled(|node| node).await;
        pass(PERIOD / 2).await;
        if let Some(fault) = fault {
            api.faults().push(fault);
        }
        let from = api.now();
        pass(PERIOD - Duration::from_secs(1)).await;
        assert_eq!(lines(&api, from), expected, "{name}");
        api.faults().clear();
        let from = api.now();
        pass(PERIOD).await;
        assert_eq!(lines(&api, from), ["PUT 200"], "{name}: the cycle after it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_of_another_client_costs_one_read_and_is_kept() {
    let (api, _node) = settled(|node| node).await;
    pass(PERIOD / 2).await;
    let mut lease = View::of(&api, "worker-1").lease().unwrap();
    lease["metadata"]["annotations"] = json!({"example.com/of": "others"});
    api.put_object(lease);
    let from = api.now();
    pass(PERIOD).await;
    assert_eq!(lines(&api, from), ["PUT 409", "GET 200", "PUT 200"]);
    let lease = View::of(&api, "worker-1").lease().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["example.com/of"], "others");
    assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:10.100000Z");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_comes_back_while_its_node_is_there() {
    let (api, _node) = settled(|node| node).await;
    let view = View::of(&api, "worker-1");
    api.delete_object(LEASE).unwrap();
    pass(PERIOD + Duration::from_secs(1)).await;
    let owner = &view.lease().unwrap()["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(*owner, view.node().unwrap()["metadata"]["uid"]);

    // With its Node it is deleted permanently, and the Node is not created again.
    api.delete_object(&view.path()).unwrap();
    api.delete_object(LEASE).unwrap();
    let from = api.now();
    pass(PERIOD * 6).await;
    assert_eq!((view.lease(), view.node()), (None, None));
    let posts = lines(&api, from)
        .into_iter()
        .filter(|line| line.starts_with("POST"));
    assert_eq!(posts.count(), 0);
    assert_eq!(view.creates().len(), 1);
    let tries = view
        .patches()
        .into_iter()
        .filter(|patch| from < patch.at)
        .count();
    assert!(tries <= 6, "{tries} status patches in six ticks");
}

#[tokio::test(start_paused = true)]
async fn there_is_no_lease_without_a_node() {
    let api = in_memory();
    let view = View::of(&api, "worker-1");
    let _node = Node::named("worker-1")
        .config(|overrides| overrides.register_node = Some("false".to_owned()))
        .start(&api);
    pass(PERIOD * 3).await;
    assert_eq!((view.lease(), view.creates().len()), (None, 0));

    api.put_object(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}));
    let created = api.now();
    view.settled(SOON * 2).await;
    let late = api.now() - created;
    assert!(
        late <= Duration::from_millis(10_400),
        "{late:?} after the node"
    );
    view.becomes("Ready", "True", SOON * 2).await;
}
