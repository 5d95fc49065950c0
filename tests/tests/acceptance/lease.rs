//! Proof of life.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::days::{NAME, Stage};
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::view::{LEASES, NODES, View, gaps, moments};
use serde_json::json;

const PERIOD: Duration = Duration::from_secs(10);
/// With the stretch by up to a twenty-fifth that keeps nodes apart.
const STRETCHED: Duration = Duration::from_millis(10_400);
/// Timers have a resolution of a millisecond.
const MILLISECOND: Duration = Duration::from_millis(1);

/// A node with a lease, half way between two renewals.
async fn settled(configure: impl FnOnce(Node) -> Node) -> Stage {
    let stage = Stage::open(configure);
    stage.view().settled(SOON).await;
    pass(PERIOD / 2).await;
    stage
}

/// Requests about leases after `from`.
fn requests(api: &ApiServer, from: Duration) -> Vec<Recorded> {
    api.requests_where(|request| from < request.at && request.path.starts_with(LEASES))
}

/// Their methods and answers: `PUT 409`.
fn lines(api: &ApiServer, from: Duration) -> Vec<String> {
    let line =
        |request: &Recorded| format!("{} {}", request.method, request.status.unwrap_or_default());
    requests(api, from).iter().map(line).collect()
}

/// A Node as an administrator may have made it.
fn bare_node() -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}})
}

/// Within 11 s of its registration a node has a lease with its name in `kube-node-lease`: it is the
/// holder, for 40 s, and the Node is the owner by its real UID.
#[tokio::test(start_paused = true)]
async fn a078_a_registered_node_has_a_lease() {
    let stage = Stage::open(|node| node);
    let view = stage.view();
    view.settled(SOON * 2).await;
    let created = moments(&view.creates())[0];
    let there = moments(&stage.api.requests_where(|request| {
        request.method == "POST" && request.path == LEASES && request.status == Some(201)
    }))[0];
    assert!(there - created <= Duration::from_secs(11));
    let lease = view.lease().unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], NAME);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    let uid = view.node().unwrap()["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": uid}]);
    assert_eq!(lease["metadata"]["ownerReferences"], owner);
    assert_eq!(lease["metadata"]["labels"], json!(null));
}

/// While there is no Node, no lease is created.
#[tokio::test(start_paused = true)]
async fn a079_there_is_no_lease_without_a_node() {
    let stage = Stage::open(|node| {
        node.config(|overrides| overrides.register_node = Some("false".to_owned()))
    });
    pass(Duration::from_mins(1)).await;
    let created = |request: &Recorded| request.method == "POST";
    assert_eq!(stage.api.requests_where(created), []);
    stage.api.put_object(bare_node());
    let created = stage.api.now();
    stage.view().settled(SOON * 2).await;
    let late = stage.api.now() - created;
    assert!(late <= STRETCHED, "{late:?} after the node");
    stage.view().becomes("Ready", "True", SOON * 2).await;
}

/// `renewTime` has six digits after the second, and advances every 10.0 to 10.4 s.
#[tokio::test(start_paused = true)]
async fn a080_the_lease_is_renewed_every_ten_seconds_and_a_little() {
    for seed in [1, 2, 3] {
        let stage = settled(|node| node.seed(seed)).await;
        pass(Duration::from_mins(10)).await;
        let renewals = stage.view().renewals();
        let stretched = gaps(&renewals);
        for gap in &stretched {
            assert!(
                (PERIOD..=STRETCHED + MILLISECOND).contains(gap),
                "{seed}: {gap:?}"
            );
        }
        let differ = stretched.windows(2).any(|pair| pair[0] != pair[1]);
        assert!(differ, "{seed}: not stretched at random");
        for renewal in &renewals {
            let body = renewal.body.clone().unwrap();
            let text = body["spec"]["renewTime"].as_str().unwrap();
            let (seconds, fraction) = text.split_once('.').unwrap();
            let second = renewal.at.as_secs();
            let expected = format!("2026-01-01T00:{:02}:{:02}", second / 60, second % 60);
            assert_eq!(seconds, expected, "{text}");
            assert_eq!(fraction.len(), "000000Z".len(), "{text}");
        }
    }
}

/// Renewals are `PUT`s, and nothing is read before them.
#[tokio::test(start_paused = true)]
async fn a081_a_renewal_is_one_write_and_no_read() {
    let stage = settled(|node| node).await;
    let from = stage.api.now();
    pass(Duration::from_mins(5)).await;
    assert_eq!(lines(&stage.api, from), vec!["PUT 200"; 30]);
}

/// A conflict leads to one read and one successful write, in the same cycle; the values of the
/// other writer remain.
#[tokio::test(start_paused = true)]
async fn a082_a_conflict_is_read_and_written_again() {
    let stage = settled(|node| node).await;
    let mut lease = stage.view().lease().unwrap();
    lease["metadata"]["annotations"] = json!({"example.com/of": "others"});
    stage.api.put_object(lease);
    let from = stage.api.now();
    pass(PERIOD).await;
    assert_eq!(lines(&stage.api, from), ["PUT 409", "GET 200", "PUT 200"]);
    let lease = stage.view().lease().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["example.com/of"], "others");
}

/// Five failed renewals are followed by one read and at most five more, and then by the next
/// period.
#[tokio::test(start_paused = true)]
async fn a083_ten_writes_and_one_read_are_the_most_of_a_cycle() {
    let five = || vec!["PUT 500"; 5];
    let rows = [
        (1, vec!["PUT 500", "PUT 200"]),
        (5, [five(), vec!["GET 200", "PUT 200"]].concat()),
        (
            9,
            [five(), vec!["GET 200"], vec!["PUT 500"; 4], vec!["PUT 200"]].concat(),
        ),
        (10, [five(), vec!["GET 200"], five()].concat()),
    ];
    for (failures, expected) in rows {
        let stage = settled(|node| node).await;
        let fault = Fault::on("PUT", LEASES, Effect::Status(500)).times(failures);
        stage.api.faults().push(fault);
        let from = stage.api.now();
        pass(PERIOD).await;
        assert_eq!(lines(&stage.api, from), expected, "{failures}");
        let from = stage.api.now();
        pass(PERIOD).await;
        assert_eq!(lines(&stage.api, from), ["PUT 200"], "{failures}: the next");
    }
}

/// While the lease cannot be read, the attempts wait 200, 400, 800 ms and so on, and 7 s at most.
#[tokio::test(start_paused = true)]
async fn a084_failed_reads_are_repeated_after_longer_and_longer_delays() {
    let stage = settled(|node| node).await;
    let faults = stage.api.faults();
    faults.push(Fault::on("PUT", LEASES, Effect::Status(500)).times(5));
    faults.push(Fault::on("GET", LEASES, Effect::Status(503)).times(9));
    let from = stage.api.now();
    pass(Duration::from_mins(1)).await;
    let reads: Vec<_> = requests(&stage.api, from)
        .into_iter()
        .filter(|request| request.method == "GET")
        .collect();
    let waits = [200, 400, 800, 1_600, 3_200, 6_400, 7_000, 7_000, 7_000];
    let waited = gaps(&reads);
    assert_eq!(waited.len(), waits.len(), "{waited:?}");
    for (gap, wait) in waited.iter().zip(waits.map(Duration::from_millis)) {
        assert!((wait..=wait + MILLISECOND).contains(gap), "{waited:?}");
    }
    let last = lines(&stage.api, reads.last().unwrap().at - MILLISECOND);
    assert_eq!(last[..2], ["GET 200", "PUT 200"]);
}

/// A deleted lease is created again in the next cycle while the Node exists.
#[tokio::test(start_paused = true)]
async fn a085_a_deleted_lease_is_created_again() {
    let stage = settled(|node| node).await;
    stage.api.delete_object(&stage.view().lease_path()).unwrap();
    let from = stage.api.now();
    pass(PERIOD).await;
    assert_eq!(lines(&stage.api, from), ["PUT 409", "GET 404", "POST 201"]);
    let owner = &stage.view().lease().unwrap()["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(*owner, stage.view().node().unwrap()["metadata"]["uid"]);
}

/// With its Node a deleted lease is not created again, and neither is the Node.
#[tokio::test(start_paused = true)]
async fn a085_without_its_node_a_lease_remains_deleted() {
    let stage = settled(|node| node).await;
    let view = stage.view();
    stage.api.delete_object(&view.path()).unwrap();
    stage.api.delete_object(&view.lease_path()).unwrap();
    let from = stage.api.now();
    pass(PERIOD * 6).await;
    assert_eq!((view.lease(), view.node()), (None, None));
    let lines = lines(&stage.api, from);
    let posts = lines.iter().filter(|line| line.starts_with("POST"));
    assert_eq!(posts.count(), 0, "{lines:?}");
    assert_eq!(view.creates().len(), 1);
    let tries = view.patches().into_iter().filter(|patch| from < patch.at);
    assert!(tries.count() <= 6, "at most one status patch per tick");
}

/// `nodeLeaseDurationSeconds: 20` is written to the lease, which is then renewed every 5 s.
#[tokio::test(start_paused = true)]
async fn a086_the_duration_determines_the_interval() {
    let stage = settled(|node| {
        node.config(|overrides| overrides.node_lease_duration_seconds = Some("20".to_owned()))
    })
    .await;
    pass(Duration::from_mins(1)).await;
    let lease = stage.view().lease().unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 20);
    let gaps = gaps(&stage.view().renewals());
    assert_eq!(gaps, vec![PERIOD / 2; gaps.len()]);
    assert!(gaps.len() > 10);
}

/// The lease is renewed while the registration of an existing Node fails.
#[tokio::test(start_paused = true)]
async fn a087_the_lease_is_renewed_while_registration_fails() {
    let api = in_memory();
    api.put_object(bare_node());
    let create = |request: &Recorded| request.method == "POST" && request.path == NODES;
    api.faults()
        .push(Fault::when(create, Effect::Status(500)).always());
    let stage = Stage::at(&api, |node| node);
    pass(Duration::from_mins(2)).await;
    let view = View::of(&api, NAME);
    assert!(view.creates().len() > 10, "it goes on trying");
    assert_eq!(view.patches(), []);
    let renewals = view.renewals();
    assert!(
        (10..=12).contains(&renewals.len()),
        "{} renewals",
        renewals.len()
    );
    for gap in gaps(&renewals) {
        assert_eq!(gap, PERIOD);
    }
    stage.node.stop().await.unwrap();
}
