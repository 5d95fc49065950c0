//! A client of the server, and helpers for its objects.

use std::path::Path;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

pub const NODES: &str = "/api/v1/nodes";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// For what a server does at once, and for what it does after its caches have caught up.
pub const SOON: Duration = Duration::from_secs(30);

/// One user of the server.
#[derive(Clone)]
pub struct Caller(kube::Client);

/// A status code and a body.
pub type Answer = (StatusCode, Value);

impl Caller {
    pub async fn from_file(path: &Path) -> Self {
        let file = kube::config::Kubeconfig::read_from(path).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options);
        Self(kube::Client::try_from(config.await.unwrap()).unwrap())
    }

    async fn call(&self, method: Method, path: &str, media: &str, body: &Value) -> Answer {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string().into_bytes())
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", media)
            .body(body)
            .unwrap();
        let answer = timeout(SOON, self.0.send(request)).await.unwrap().unwrap();
        let status = answer.status();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "application/json", &Value::Null)
            .await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, path, "application/json", body)
            .await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::PUT, path, "application/json", body).await
    }

    pub async fn patch(&self, path: &str, media: &str, body: &Value) -> Answer {
        self.call(Method::PATCH, path, media, body).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        let now = json!({"gracePeriodSeconds": 0});
        self.call(Method::DELETE, path, "application/json", &now)
            .await
    }

    /// The object; `Null` if there is none.
    pub async fn object(&self, path: &str) -> Value {
        let (status, object) = self.get(path).await;
        match status {
            StatusCode::NOT_FOUND => Value::Null,
            status if status.is_success() => object,
            status => panic!("GET {path}: {status} {object}"),
        }
    }

    pub async fn items(&self, path: &str) -> Vec<Value> {
        let list = self.object(path).await;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Makes it, or finds it made.
    pub async fn make(&self, path: &str, object: &Value) -> Value {
        let (status, answer) = self.post(path, object).await;
        let there = status.is_success() || status == StatusCode::CONFLICT;
        assert!(there, "POST {path}: {status} {answer}");
        answer
    }

    /// Changes it, which must work, also while others write to it.
    pub async fn change(&self, path: &str, media: &str, patch: &Value) -> Value {
        let end = Instant::now() + SOON;
        loop {
            let (status, answer) = self.patch(path, media, patch).await;
            if status.is_success() {
                return answer;
            }
            let late = status == StatusCode::CONFLICT && Instant::now() < end;
            assert!(late, "PATCH {path}: {status} {answer}");
        }
    }

    /// A merge patch that depends on the present object, and on no other write in between.
    pub async fn patch_locked(&self, path: &str, patch: impl Fn(&Value) -> Value) -> Answer {
        decided(async || {
            let (status, object) = self.get(path).await;
            if !status.is_success() {
                return (status, object);
            }
            let mut patch = patch(&object);
            patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
            self.patch(path, MERGE, &patch).await
        })
        .await
    }

    /// The same, which must work.
    pub async fn change_locked(&self, path: &str, patch: impl Fn(&Value) -> Value) -> Value {
        let (status, answer) = self.patch_locked(path, patch).await;
        assert!(status.is_success(), "PATCH {path}: {status} {answer}");
        answer
    }
}

/// Tries again after a conflict.
pub async fn decided(mut tried: impl AsyncFnMut() -> Answer) -> Answer {
    until("no write in between", async || {
        Some(tried().await).filter(|(status, _)| *status != StatusCode::CONFLICT)
    })
    .await
}

/// Repeats the request until it is true.
pub async fn until<T>(what: &str, mut read: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(found) = read().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {SOON:?} until {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

pub fn array(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// One condition of a Node; `Null` if there is none.
pub fn condition(node: &Value, type_: &str) -> Value {
    let mut all = array(&node["status"]["conditions"]).into_iter();
    all.find(|c| c["type"] == type_).unwrap_or_default()
}

/// The Node's taints and this one, as a patch.
pub fn with_taint(node: &Value, taint: &Value) -> Value {
    let mut taints = array(&node["spec"]["taints"]);
    taints.push(taint.clone());
    json!({"spec": {"taints": taints}})
}

pub fn taint_keys(node: &Value) -> Vec<String> {
    let taints = array(&node["spec"]["taints"]);
    taints.iter().map(|t| text(t, "key").to_owned()).collect()
}
