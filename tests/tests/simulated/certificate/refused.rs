//! Certificates that are denied or that cannot be used: the node keeps its Lease, and requests
//! another.

use nodepulse_tests::api_server::{Effect, Fault, Identity, Recorded};
use nodepulse_tests::node::pass;
use tempfile::tempdir;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_denied_request_is_followed_by_one_with_another_key() {
    let (api, dir) = (server(), tempdir().unwrap());
    let node = start(&api, "worker-1", dir.path());
    let first = next_request(&api).await;
    let denied = api.now();
    api.deny(&first, "unknown node");
    let second = next_request(&api).await;
    let pause = api.now() - denied;
    let range = Duration::from_secs(59)..Duration::from_mins(3);
    assert!(range.contains(&pause), "{pause:?}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
    api.issue(&second, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(LATER).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_cannot_be_used_is_not_stored_and_the_lease_is_renewed() {
    let minute = Duration::from_mins(1);
    // Name, and what is wrong with the certificate.
    type Wrong = fn(&mut Issue);
    let rows: [(&str, Wrong); 5] = [
        ("another node", |issue| {
            issue.identity = Some(Identity::node("worker-2"))
        }),
        ("no node", |issue| {
            issue.identity = Some(Identity::user("system:node:worker-1"))
        }),
        ("another key", |issue| issue.other_key = true),
        ("expired", |issue| issue.from -= 2 * HOUR),
        ("empty", |issue| issue.life = Duration::ZERO),
    ];
    for (name, wrong) in rows {
        let (api, dir) = (server(), tempdir().unwrap());
        let node = settled(&api, dir.path()).await;
        let (from, before) = (api.now(), current(dir.path()));
        let request = next_request(&api).await;
        let mut issue = Issue::now(&api, HOUR);
        wrong(&mut issue);
        api.issue(&request, &issue);
        pass(Duration::from_secs(40)).await;
        assert_eq!(current(dir.path()), before, "{name}");
        let another = next_request(&api).await;
        assert_ne!(
            request["metadata"]["name"], another["metadata"]["name"],
            "{name}"
        );
        api.issue(&another, &Issue::now(&api, HOUR));
        pass(minute).await;
        assert_ne!(current(dir.path()), before, "{name}");
        let gap = longest_gap(&api, from);
        assert!(gap <= RENEWED, "{name}: {gap:?}");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_not_valid_yet_is_used_when_it_is() {
    let (api, dir) = (server(), tempdir().unwrap());
    let node = start(&api, "worker-1", dir.path());
    let request = next_request(&api).await;
    let mut issue = Issue::now(&api, HOUR);
    issue.from += Duration::from_mins(10);
    api.issue(&request, &issue);
    pass(Duration::from_mins(9)).await;
    assert_eq!(names(dir.path()), [PENDING_KEY]);
    View::of(&api, "worker-1").settled(LATER).await;
    assert_eq!(api.signing_requests().len(), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_deleted_is_created_again() {
    let (api, dir) = (server(), tempdir().unwrap());
    let node = start(&api, "worker-1", dir.path());
    let request = next_request(&api).await;
    let name = request["metadata"]["name"].as_str().unwrap();
    api.delete_object(&format!(
        "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}"
    ));
    let again = next_request(&api).await;
    assert_eq!(again["metadata"]["name"], name, "for the same key");
    api.issue(&again, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(LATER).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_of_its_name_for_another_key_is_not_used() {
    let (api, other) = (server(), tempdir().unwrap());
    let foreign = start(&api, "worker-2", other.path());
    let request_of_other = next_request(&api).await;
    foreign.kill();
    let dir = tempdir().unwrap();
    let node = start(&api, "worker-1", dir.path());
    let of_node = |api: &ApiServer| {
        let mut all = api.pending_requests();
        all.retain(|request| request["metadata"]["uid"] != request_of_other["metadata"]["uid"]);
        all.pop()
    };
    let request = api.wait_for(LATER, "its request", of_node).await;
    // As if another client had created it before.
    let mut replaced = request.clone();
    replaced["spec"]["request"] = request_of_other["spec"]["request"].clone();
    api.issue(&replaced, &Issue::now(&api, HOUR));
    let second = |api: &ApiServer| {
        let mut all = api.pending_requests();
        all.retain(|one| {
            [&request, &request_of_other]
                .iter()
                .all(|known| known["metadata"]["uid"] != one["metadata"]["uid"])
        });
        all.pop()
    };
    let another = api
        .wait_for(LATER, "a request with another key", second)
        .await;
    assert_eq!(names(dir.path()), [PENDING_KEY]);
    api.issue(&another, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(LATER).await;
    node.stop().await.unwrap();
}

/// Answers with 401 to this user's requests.
fn reject(api: &ApiServer, user: &'static str) {
    let is_of = move |request: &Recorded| request.identity == user;
    api.faults()
        .push(Fault::when(is_of, Effect::Status(401)).always());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_rejected_from_the_start_is_replaced_by_the_bootstrap_user() {
    let (api, dir) = (server(), tempdir().unwrap());
    let node = settled(&api, dir.path()).await;
    node.stop().await.unwrap();
    reject(&api, "system:node:worker-1");
    let node = start(&api, "worker-1", dir.path());
    pass(Duration::from_secs(170)).await;
    assert_eq!(api.pending_requests().len(), 0, "for three minutes");
    let request = next_request_within(&api, Duration::from_mins(4)).await;
    assert_eq!(request["spec"]["username"], BOOTSTRAP);
    let before = current(dir.path());
    api.issue(&request, &Issue::now(&api, HOUR));
    pass(Duration::from_mins(1)).await;
    assert_ne!(current(dir.path()), before);
    api.faults().clear();
    let from = api.now();
    pass(Duration::from_mins(1)).await;
    let renewals = View::of(&api, "worker-1").renewals().into_iter();
    let mut renewals = renewals.filter(|put| from < put.at && put.status == Some(200));
    assert!(renewals.next().is_some(), "the Lease is renewed");
    node.stop().await.unwrap();
}
