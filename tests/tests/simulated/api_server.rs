//! The API server test double has the properties that the other tests rely on: which of them
//! real servers have too is in `tests/cluster/answers.rs`.

mod client;
mod strict;

use std::time::Duration;

use client::{Client, MERGE};
use http_body_util::BodyExt;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
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
    assert_eq!(watch.event().await.0, "BOOKMARK", "before the end");
    assert_eq!(watch.next().await, None, "timeoutSeconds");
    assert_eq!(start.elapsed(), Duration::from_secs(90));
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
