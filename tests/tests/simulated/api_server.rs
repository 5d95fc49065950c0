//! The API server test double has the properties that the other tests rely on: which of them
//! real servers have too is in `tests/cluster/answers.rs`.

mod client;
mod strict;

use std::time::Duration;

use client::{Client, MERGE, STRATEGIC};
use http_body_util::BodyExt;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Identity};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

const NODE: &str = "/api/v1/nodes/worker-1";
const STATUS: &str = "/api/v1/nodes/worker-1/status";
const SOON: Duration = Duration::from_secs(10);

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn reason(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_created_node_gets_identity_times_and_the_not_ready_taint() {
    let server = ApiServer::in_memory();
    let client = Client::node(&server, "worker-1").await;
    let mut body = node("worker-1");
    body["status"] = json!({"capacity": {"cpu": "4"}});
    let (code, created) = client.post("/api/v1/nodes", body.clone()).await;
    assert_eq!(code, 201);
    assert!(
        created["metadata"]["uid"]
            .as_str()
            .is_some_and(|uid| uid.len() == 36)
    );
    assert_eq!(
        created["metadata"]["creationTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(created["spec"]["taints"], taint);
    assert_eq!(created["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(server.object(NODE), Some(created));
    assert_eq!(
        reason(&client.post("/api/v1/nodes", body).await),
        (409, "AlreadyExists")
    );
}

#[tokio::test(start_paused = true)]
async fn a_user_may_do_what_was_granted() {
    let server = ApiServer::in_memory();
    server.put_object(node("worker-1"));
    let user = Client::over(server.dial_as(Identity::user("sa"))).await;
    assert_eq!(user.get(NODE).await.0, 403);
    server.grant_all("sa", &[("get", "nodes")]);
    assert_eq!(user.get(NODE).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_rejected_and_json_patch_is_unsupported() {
    let server = ApiServer::in_memory();
    let client = Client::admin(&server).await;
    let future = client.get("/api/v1/nodes?resourceVersion=9999").await;
    assert_eq!(reason(&future), (504, "Timeout"));
    let details = &future.1["details"];
    assert_eq!(details["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(details["retryAfterSeconds"], 1);
    let patch = client.patch(NODE, "application/json-patch+json", json!([]));
    assert_eq!(reason(&patch.await), (415, "UnsupportedMediaType"));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_paged_at_one_resource_version_until_that_is_forgotten() {
    let server = ApiServer::in_memory();
    for name in ["a", "b", "c"] {
        server.put_object(node(name));
    }
    let client = Client::admin(&server).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (_, first) = client.get("/api/v1/nodes?limit=2").await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    server.put_object(node("d"));
    let rest = format!("/api/v1/nodes?limit=2&continue={token}");
    let (_, second) = client.get(&rest).await;
    assert_eq!(names(&second), ["c"], "d came later");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    server.expire_watches();
    assert_eq!(reason(&client.get(&rest).await), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_follows_its_selector_and_sends_bookmarks() {
    let server = ApiServer::in_memory();
    let from = server.put_object(node("worker-1"))["metadata"]["resourceVersion"].clone();
    let client = Client::admin(&server).await;
    let path = format!(
        "/api/v1/nodes?watch=true&labelSelector=pool%3Da&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion={}",
        from.as_str().unwrap()
    );
    let start = Instant::now();
    let mut watch = client.watch(&path).await;
    let pool = |pool: &str| json!({"metadata": {"labels": {"pool": pool}}});
    for (change, expected) in [
        (pool("a"), "ADDED"),
        (json!({"spec": {"x": 1}}), "MODIFIED"),
        (pool("b"), "DELETED"),
    ] {
        let (_, after) = client.patch(NODE, MERGE, change).await;
        let version: u64 = after["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(
            watch.event().await,
            (expected.into(), "worker-1".into(), version)
        );
    }
    let hidden = server.put_object(node("worker-2"))["metadata"]["resourceVersion"].clone();
    let hidden: u64 = hidden.as_str().unwrap().parse().unwrap();
    assert_eq!(
        watch.event().await,
        ("BOOKMARK".into(), String::new(), hidden),
        "by the minute"
    );
    assert_eq!(start.elapsed(), Duration::from_secs(60));
    server.send_bookmarks();
    assert_eq!(watch.event().await.0, "BOOKMARK", "on command");
    assert_eq!(watch.event().await.0, "BOOKMARK", "before the end");
    assert_eq!(watch.next().await, None, "timeoutSeconds");
    assert_eq!(start.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_begin_with_all_objects_and_marks_their_end() {
    let server = ApiServer::in_memory();
    server.put_object(node("worker-1"));
    let client = Client::admin(&server).await;
    let path = "/api/v1/nodes?watch=1&allowWatchBookmarks=1&sendInitialEvents=true";
    assert_eq!(reason(&client.get(path).await), (422, "Invalid"));
    let mut watch = client
        .watch(&format!("{path}&resourceVersionMatch=NotOlderThan"))
        .await;
    assert_eq!(watch.event().await.0, "ADDED");
    let end = watch.next().await.unwrap();
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );

    server.expire_watches();
    let error = watch.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn faults_happen_to_the_requests_they_are_planned_for() {
    let server = ApiServer::in_memory();
    server.put_object(node("worker-1"));
    let client = Client::admin(&server).await;
    let plan = |effect| server.faults().push(Fault::on("GET", NODE, effect));

    server
        .faults()
        .push(Fault::on("GET", NODE, Effect::Status(503)).skip(1).times(2));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(client.get(NODE).await.0);
    }
    assert_eq!(codes, [200, 503, 503, 200]);

    let start = Instant::now();
    plan(Effect::Latency(Duration::from_secs(7)));
    plan(Effect::TooManyRequests(3));
    let response = client
        .send("GET", NODE, "application/json", None)
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "3");
    assert_eq!(start.elapsed(), Duration::from_secs(7));

    plan(Effect::Garbage);
    let response = client
        .send("GET", NODE, "application/json", None)
        .await
        .unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(serde_json::from_slice::<Value>(&body).is_err(), "{body:?}");

    plan(Effect::Truncated);
    let response = client
        .send("GET", NODE, "application/json", None)
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(
        response.into_body().collect().await.is_err(),
        "half of a body"
    );

    plan(Effect::Hang);
    let hung = client.send("GET", NODE, "application/json", None);
    assert!(timeout(Duration::from_secs(3600), hung).await.is_err());
    assert_eq!(client.get(NODE).await.0, 200, "the connection still works");

    plan(Effect::Reset);
    assert!(
        client
            .send("GET", NODE, "application/json", None)
            .await
            .is_err()
    );
    assert_eq!(server.faults().pending(), 0);
    let requests = server.requests();
    assert_eq!(requests.last().unwrap().answered_at, None);
}

#[tokio::test(start_paused = true)]
async fn frozen_connections_do_not_respond_while_new_ones_work() {
    let server = ApiServer::in_memory();
    server.put_object(node("worker-1"));
    let old = Client::admin(&server).await;
    assert_eq!(old.get(NODE).await.0, 200);
    server.freeze_connections();
    assert!(timeout(SOON, old.get(NODE)).await.is_err());
    let new = Client::admin(&server).await;
    assert_eq!(new.get(NODE).await.0, 200);
    server.freeze_all();
    assert!(timeout(SOON, new.get(NODE)).await.is_err());
    let newest = Client::admin(&server).await;
    assert!(timeout(SOON, newest.get(NODE)).await.is_err());
    server.thaw();
    assert_eq!(newest.get(NODE).await.0, 200);
    assert_eq!(server.connections().opened, 3);
}

#[tokio::test]
async fn a_client_certificate_identifies_the_user_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start().await;
    let admin = Client::over_tls(&server, &server.admin_kubeconfig(dir.path())).await;
    assert_eq!(admin.get("/api/v1/nodes").await.0, 200);
    let node_client =
        Client::over_tls(&server, &server.node_kubeconfig(dir.path(), "worker-1")).await;
    assert_eq!(
        node_client.post("/api/v1/nodes", node("worker-1")).await.0,
        201
    );
    assert_eq!(node_client.get("/api/v1/nodes").await.0, 403);
    let last = server.requests().pop().unwrap();
    assert_eq!(
        (last.identity.as_str(), last.protocol.as_str()),
        ("system:node:worker-1", "HTTP/2.0")
    );
    assert_eq!((last.connection, last.status), (2, Some(403)));
    assert!(last.answered_at.is_some_and(|answered| answered >= last.at));

    let anonymous = server.token_kubeconfig(&dir.path().join("anonymous"), "t");
    let anonymous = Client::over_tls(&server, &anonymous).await;
    assert_eq!(anonymous.get("/api/v1/nodes").await.0, 403, "anonymous");
    assert_eq!(anonymous.get("/version").await.0, 200);
}

#[tokio::test]
async fn a_stopped_server_refuses_and_a_restarted_one_remembers() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start().await;
    let kubeconfig = server.admin_kubeconfig(dir.path());
    let client = Client::over_tls(&server, &kubeconfig).await;
    assert_eq!(client.post("/api/v1/nodes", node("worker-1")).await.0, 201);
    server.stop().await;
    assert_eq!(server.connections().open, 0);
    let address = server.url().replace("https://", "");
    let refused = tokio::net::TcpStream::connect(&address).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(
        client
            .send("GET", NODE, "application/json", None)
            .await
            .is_err()
    );
    server.restart().await;
    let client = Client::over_tls(&server, &kubeconfig).await;
    assert_eq!(client.get(NODE).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_wait_returns_the_result_or_reports_the_last_requests() {
    let server = ApiServer::in_memory();
    let client = Client::admin(&server).await;
    let write = client.post("/api/v1/nodes", node("worker-1"));
    let wait = server.wait_for(SOON, "a node", |server| server.object(NODE));
    let (_, found) = tokio::join!(write, wait);
    assert_eq!(found["metadata"]["name"], "worker-1");

    let wait = tokio::spawn(async move {
        server
            .wait_for(SOON, "a second node", |server| {
                server.object("/api/v1/nodes/worker-2")
            })
            .await
    });
    let message = wait
        .await
        .unwrap_err()
        .into_panic()
        .downcast::<String>()
        .unwrap();
    assert!(
        message.contains("a second node") && message.contains("POST /api/v1/nodes -> 201"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_can_request_metadata_only() {
    let server = ApiServer::in_memory();
    let stored = server.put_object(node("worker-1"));
    let client = Client::admin(&server).await;
    let accept =
        |what: &str| format!("application/json;as={what};g=meta.k8s.io;v=v1,application/json");
    let (object, list) = (
        accept("PartialObjectMetadata"),
        accept("PartialObjectMetadataList"),
    );

    let (_, one) = client.get_with(NODE, &[("accept", &object)]).await;
    assert_eq!(one["kind"], "PartialObjectMetadata");
    assert_eq!(
        (&one["metadata"], one.get("status")),
        (&stored["metadata"], None)
    );

    let (_, many) = client.get_with("/api/v1/nodes", &[("accept", &list)]).await;
    assert_eq!(many["kind"], "PartialObjectMetadataList");
    assert_eq!(many["items"][0], one);

    let headers = [("accept", object.as_str()), ("content-type", STRATEGIC)];
    let patch = json!({"status": {"phase": "x"}});
    let response = client
        .send_with("PATCH", STATUS, &headers, Some(patch))
        .await
        .unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let patched: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(patched["kind"], "PartialObjectMetadata");
    assert_eq!(
        server.object(NODE).unwrap()["status"],
        json!({"phase": "x"})
    );
}

#[tokio::test(start_paused = true)]
async fn a_bearer_token_is_good_until_it_is_revoked() {
    let server = ApiServer::in_memory();
    server.put_object(node("worker-1"));
    let client = Client::admin(&server).await;
    let token = [("authorization", "Bearer one")];
    assert_eq!(
        reason(&client.get_with(NODE, &token).await),
        (401, "Unauthorized")
    );
    server.allow_token("one", Identity::node("worker-1"));
    assert_eq!(client.get_with(NODE, &token).await.0, 200);
    assert_eq!(
        client.get_with("/api/v1/nodes", &token).await.0,
        403,
        "the token's identity"
    );
    server.revoke_token("one");
    assert_eq!(client.get_with(NODE, &token).await.0, 401);
}

#[tokio::test]
async fn a_connection_gets_goaway_and_another_is_reset() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start().await;
    server.put_object(node("worker-1"));
    let kubeconfig = server.admin_kubeconfig(dir.path());

    let client = Client::over_tls(&server, &kubeconfig).await;
    server.faults().push(Fault::on("*", NODE, Effect::GoAway));
    assert_eq!(client.get(NODE).await.0, 200, "what was asked is answered");
    let closed = |server: &ApiServer| (server.connections().open == 0).then_some(());
    server.wait_for(SOON, "the connection to end", closed).await;

    let client = Client::over_tls(&server, &kubeconfig).await;
    server
        .faults()
        .push(Fault::on("GET", NODE, Effect::ResetAfterHeaders));
    let response = client
        .send("GET", NODE, "application/json", None)
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());

    let client = Client::over_tls(&server, &kubeconfig).await;
    server
        .faults()
        .push(Fault::on("PATCH", STATUS, Effect::ResetAfterwards));
    let patch = Some(json!({"status": {"phase": "x"}}));
    assert!(client.send("PATCH", STATUS, MERGE, patch).await.is_err());
    assert_eq!(
        server.object(NODE).unwrap()["status"]["phase"],
        "x",
        "done, but without a response"
    );

    let before = server.connections().opened;
    let address = server.url().replace("https://", "");
    let mut raw = tokio::net::TcpStream::connect(address).await.unwrap();
    let accepted = |server: &ApiServer| (server.connections().opened > before).then_some(());
    server
        .wait_for(SOON, "the connection to be accepted", accepted)
        .await;
    server.reset_connections();
    let reset = raw.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
}
