//! Against a real API server: what is shipped in `deploy/` is enough for the agent, and no more.
//!
//! Ignored unless asked for: `NODEPULSE_E2E_KUBECONFIG=… cargo xtask test cluster`, with the
//! kubeconfig of an administrator, who may also act as somebody else. Everything made there has
//! `nodepulse-e2e` in its name and is deleted afterwards; the objects of `deploy/kustomize/base`
//! that are not about a node stay if they were there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use nodepulse::node_status::own::OwnCondition;
use nodepulse_tests::process::Process;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

const ADMIN: &str = "NODEPULSE_E2E_KUBECONFIG";
const NAMESPACE: &str = "nodepulse";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// For what a server does at once, and for what it does after its caches have caught up.
const SOON: Duration = Duration::from_secs(30);

/// Somebody who talks to the server.
struct Caller(kube::Client);

impl Caller {
    async fn from_file(path: &Path) -> Self {
        let file = kube::config::Kubeconfig::read_from(path).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options);
        let client = kube::Client::try_from(config.await.unwrap()).unwrap();
        Self(client)
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        self.call_as(method, path, "application/json", body).await
    }

    async fn call_as(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string().into_bytes())
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content_type)
            .body(body)
            .unwrap();
        let answer = timeout(SOON, self.0.send(request)).await.unwrap().unwrap();
        let status = answer.status();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, object) = self.call(Method::GET, path, &Value::Null).await;
        assert!(status.is_success(), "GET {path}: {status} {object}");
        object
    }

    /// Makes it, or finds it made.
    async fn make(&self, path: &str, object: &Value) -> Value {
        let (status, answer) = self.call(Method::POST, path, object).await;
        let there = status.is_success() || status == StatusCode::CONFLICT;
        assert!(there, "POST {path}: {status} {answer}");
        answer
    }

    async fn delete(&self, path: &str) {
        let now = json!({"gracePeriodSeconds": 0});
        self.call(Method::DELETE, path, &now).await;
    }
}

fn admin_file() -> PathBuf {
    std::env::var_os(ADMIN).map(PathBuf::from).unwrap_or_else(|| {
        panic!("{ADMIN} is not set: give it the kubeconfig of an administrator of a cluster for tests")
    })
}

/// The administrator's kubeconfig with other credentials, in a file.
fn kubeconfig(dir: &Path, user: impl FnOnce(&mut Value)) -> PathBuf {
    let text = std::fs::read_to_string(admin_file()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    user(&mut config["users"][0]["user"]);
    let path = dir.join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Every object of the base that an agent without a cluster around it can be tried with.
fn shipped() -> Vec<Value> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize/base");
    let files = ["namespace", "serviceaccount", "rbac", "admissionpolicy"];
    let read = |file: &str| {
        let text = std::fs::read_to_string(base.join(format!("{file}.yaml"))).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap()
    };
    files.into_iter().flat_map(read).collect()
}

fn collection(object: &Value) -> String {
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    match object["kind"].as_str().unwrap() {
        "Namespace" => "/api/v1/namespaces".to_owned(),
        "ServiceAccount" => format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
        "ClusterRole" => format!("{rbac}/clusterroles"),
        "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings"),
        "ValidatingAdmissionPolicy" => format!("{admission}/validatingadmissionpolicies"),
        "ValidatingAdmissionPolicyBinding" => {
            format!("{admission}/validatingadmissionpolicybindings")
        }
        kind => panic!("{kind}: where does it belong?"),
    }
}

fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

/// Asks again until it is so.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {SOON:?} until {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// What of a run must never be said.
fn refused(lines: &[String]) -> Vec<&String> {
    let signs = ["orbidden", "denied", "nvalid", "nprocessable"];
    let is = |line: &&String| signs.iter().any(|sign| line.contains(sign));
    lines.iter().filter(is).collect()
}

async fn stop(agent: Process) {
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{:#?}", ended.stderr);
    let refused = refused(&ended.stderr);
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A token of the agent's account as a pod on `node` has it.
async fn token(admin: &Caller, node: &str) -> String {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": node},
        "spec": {
            "nodeName": node, "serviceAccountName": "nodepulse",
            "containers": [{"name": "agent", "image": "none.invalid/none"}],
        },
    });
    let pod = admin.make(&pods, &pod).await;
    let request = json!({"spec": {"boundObjectRef": {
        "kind": "Pod", "apiVersion": "v1", "name": node, "uid": pod["metadata"]["uid"],
    }}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/nodepulse/token");
    let (status, answer) = admin.call(Method::POST, &path, &request).await;
    assert!(status.is_success(), "{status} {answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn own_conditions(node: &Value) -> Vec<(String, String)> {
    let conditions = node["status"]["conditions"].as_array().cloned();
    let text = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
    let all = conditions.unwrap_or_default().into_iter();
    let ours = all.filter(|c| OwnCondition::parse(&text(c, "type")).is_some());
    ours.map(|c| (text(&c, "type"), text(&c, "status")))
        .collect()
}

async fn companion(admin: &Caller, ours: &str, other: &str) {
    for object in shipped() {
        admin.make(&collection(&object), &object).await;
    }
    for name in [ours, other] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        admin.make("/api/v1/nodes", &object).await;
    }
    let theirs = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"},
    ]}});
    let status = format!("{}/status", node(ours));
    admin
        .call_as(Method::PATCH, &status, STRATEGIC, &theirs)
        .await;
    let token = token(admin, ours).await;
    let dir = tempfile::tempdir().unwrap();
    let file = kubeconfig(dir.path(), |user| *user = json!({"token": token}));
    let agent = Caller::from_file(&file).await;

    let beside = format!("{}/status", node(other));
    let stray = json!({"status": {"conditions": [{"type": "MemoryLow", "status": "True"}]}});
    let message = until("writes to another Node are refused", async || {
        let (code, answer) = agent
            .call_as(Method::PATCH, &beside, STRATEGIC, &stray)
            .await;
        (code == StatusCode::FORBIDDEN || code == StatusCode::UNPROCESSABLE_ENTITY)
            .then(|| answer["message"].to_string())
    });
    let message = message.await;
    assert!(message.contains("nodepulse-nodes"), "{message}");

    let not_ours = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let taints = json!({"spec": {"unschedulable": true}});
    let name = |what: &str| (what.to_owned(), 403);
    for (path, content_type, body, (what, code)) in [
        (
            status.clone(),
            STRATEGIC,
            &not_ours,
            name("a kubelet's condition"),
        ),
        (
            node(ours),
            MERGE,
            &taints,
            name("the spec, without a right to it"),
        ),
    ] {
        let (got, answer) = agent
            .call_as(Method::PATCH, &path, content_type, body)
            .await;
        let refused = got == code || got == StatusCode::UNPROCESSABLE_ENTITY;
        assert!(refused, "{what}: {got} {answer}");
    }
    let (got, _) = agent.call(Method::DELETE, &node(ours), &Value::Null).await;
    assert_eq!(got, StatusCode::FORBIDDEN);

    let file = file.to_str().unwrap();
    let args = [
        "run",
        "--mode",
        "companion",
        "--kubeconfig",
        file,
        "--node-name",
        ours,
    ];
    let running = Process::start(args);
    let conditions = until("all conditions are there", async || {
        let found = own_conditions(&admin.get(&node(ours)).await);
        (found.len() == OwnCondition::ALL.len()).then_some(found)
    });
    println!("{:?}", conditions.await);
    stop(running).await;
    let now = admin.get(&node(ours)).await;
    let ready = now["status"]["conditions"].as_array().unwrap().iter();
    let ready: Vec<_> = ready.filter(|c| c["type"] == "Ready").collect();
    assert_eq!(ready.len(), 1);
    assert_eq!(ready[0]["message"], "m");
}

#[tokio::test]
#[ignore = "needs NODEPULSE_E2E_KUBECONFIG"]
async fn the_shipped_role_is_enough_and_reaches_no_other_node() {
    let admin = Caller::from_file(&admin_file()).await;
    let names = ["a", "b"].map(|n| format!("nodepulse-e2e-{}-{n}", std::process::id()));
    let body = std::panic::AssertUnwindSafe(companion(&admin, &names[0], &names[1]));
    let ended = body.catch_unwind().await;
    let [ours, other] = &names;
    admin
        .delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{ours}"))
        .await;
    admin.delete(&node(ours)).await;
    admin.delete(&node(other)).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

async fn whole_node(admin: &Caller, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = kubeconfig(dir.path(), |user| {
        user["as"] = json!(format!("system:node:{name}"));
        user["as-groups"] = json!(["system:nodes"]);
    });
    let file = file.to_str().unwrap();
    let args = [
        "run",
        "--mode",
        "node",
        "--kubeconfig",
        file,
        "--node-name",
        name,
    ];
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    for run in ["creates", "adopts"] {
        let running = Process::start(args);
        running.says("started", SOON).await;
        let what = format!("the Node and its Lease are there: {run}");
        let object = until(&what, async || {
            let (_, lease) = admin.call(Method::GET, &lease, &Value::Null).await;
            let (code, node) = admin.call(Method::GET, &node(name), &Value::Null).await;
            let owner = &lease["metadata"]["ownerReferences"][0]["uid"];
            let ready = node["status"]["conditions"]
                .as_array()
                .is_some_and(|c| c.len() == 5);
            (code.is_success() && ready && *owner == node["metadata"]["uid"]).then_some(node)
        });
        let object = object.await;
        assert_eq!(object["status"]["nodeInfo"]["operatingSystem"], "linux");
        let ours = format!("?fieldSelector=involvedObject.name={name}");
        let events = format!("/api/v1/namespaces/default/events{ours}");
        until("its Events are there", async || {
            let events = admin.get(&events).await;
            events["items"]
                .as_array()
                .filter(|all| !all.is_empty())
                .map(drop)
        })
        .await;
        stop(running).await;
    }
}

#[tokio::test]
#[ignore = "needs NODEPULSE_E2E_KUBECONFIG"]
async fn as_a_node_of_the_cluster_nothing_is_refused() {
    let admin = Caller::from_file(&admin_file()).await;
    let name = format!("nodepulse-e2e-{}-n", std::process::id());
    let body = std::panic::AssertUnwindSafe(whole_node(&admin, &name));
    let ended = body.catch_unwind().await;
    admin.delete(&node(&name)).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}
