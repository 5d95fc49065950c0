//! `nodepulse-simulate` with the API server for tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nodepulse_kube::credentials::CredentialSource;
use nodepulse_kube::{Client, Endpoint};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Grant, Identity, Recorded};
use nodepulse_tests::process::{Finished, Process, program_of, run};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::text;

/// Time for steps that take a second or two each.
const STEPS: Duration = Duration::from_secs(30);

struct Cluster {
    api: ApiServer,
    dir: TempDir,
}

impl Cluster {
    async fn new() -> Self {
        let api = ApiServer::start().await;
        let dir = tempdir().unwrap();
        api.admin_kubeconfig(dir.path());
        Self { api, dir }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    fn start(&self, flags: &str) -> Process {
        Process::start_program(&program(), flags_of(&self.kubeconfig(), flags))
    }

    async fn run(&self, flags: &str) -> Finished {
        run(&program(), flags_of(&self.kubeconfig(), flags), "").await
    }

    fn names(&self, path: &str) -> Vec<String> {
        let objects = self.api.list(path).into_iter();
        objects
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Binds a pod with these labels to a node.
    fn bind(&self, name: &str, node: &str, labels: &Value, spec: &Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "labels": labels },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "i" }] },
            "status": { "phase": "Pending" },
        });
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        self.api.put_object(pod);
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.api
            .object(&format!("/api/v1/namespaces/default/pods/{name}"))
    }

    async fn phase(&self, name: &str, expected: &str) -> Value {
        self.api
            .wait_for(STEPS, expected, |_| {
                self.pod(name)
                    .filter(|pod| pod["status"]["phase"] == expected)
            })
            .await
    }
}

fn program() -> PathBuf {
    program_of("nodepulse-simulate")
}

fn flags_of(kubeconfig: &Path, flags: &str) -> Vec<String> {
    let at = ["--kubeconfig".to_owned(), text(kubeconfig)];
    flags.split(' ').map(str::to_owned).chain(at).collect()
}

fn condition(node: &Value, type_: &str) -> String {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|found| found["type"] == type_);
    found.unwrap()["status"].as_str().unwrap().to_owned()
}

const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn one_node_moves_its_pods_through_their_phases_and_touches_no_other() {
    let cluster = Cluster::new().await;
    let labels = json!({ "nodepulse.dev/simulated": "true" });
    cluster.bind(
        "once",
        "test-node",
        &labels,
        &json!({ "restartPolicy": "Never" }),
    );
    cluster.bind("stays", "test-node", &labels, &json!({}));
    cluster.bind("elsewhere", "worker-1", &labels, &json!({}));
    cluster.bind("unlabelled", "test-node", &json!({}), &json!({}));
    let flags = "--nodes 1 --node-name test-node --start-after 0 --succeed-after 1s --stop-after 0";
    let simulate = cluster.start(flags);

    let once = cluster.phase("once", "Succeeded").await;
    assert_eq!(
        once["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        0
    );
    let stays = cluster.phase("stays", "Running").await;
    assert_eq!(stays["status"]["hostIP"], "198.18.0.0");
    assert!(
        stays["status"]["podIP"]
            .as_str()
            .unwrap()
            .starts_with("198.18.64.")
    );
    let node = cluster.api.object("/api/v1/nodes/test-node").unwrap();
    assert_eq!(condition(&node, "Ready"), "True");
    assert_eq!(condition(&node, "MemoryPressure"), "False");
    assert_eq!(
        node["metadata"]["labels"]["nodepulse.dev/simulated"],
        "true"
    );
    let taints = node["spec"]["taints"].as_array().unwrap().iter();
    let effects: Vec<_> = taints
        .filter(|taint| taint["key"] == "nodepulse.dev/simulated")
        .map(|taint| taint["effect"].as_str().unwrap())
        .collect();
    assert_eq!(effects, ["NoSchedule", "NoExecute"]);
    let lease = |_: &ApiServer| cluster.api.object(&format!("{LEASES}/test-node"));
    let lease = cluster.api.wait_for(SOON, "a Lease", lease).await;
    assert_eq!(lease["spec"]["holderIdentity"], "test-node");

    let client = kube_client(&cluster.kubeconfig()).await;
    client.delete(&pod("stays"), None, Some(5)).await.unwrap();
    let is_gone = |_: &ApiServer| cluster.pod("stays").is_none().then_some(());
    cluster
        .api
        .wait_for(STEPS, "the end of a deleted pod", is_gone)
        .await;
    let patches = cluster.api.requests_where(|request| {
        request.method == "PATCH" && request.path == format!("{PODS}/stays/status")
    });
    let last = patches.last().unwrap().body.clone().unwrap();
    assert_eq!(
        last["status"]["phase"], "Failed",
        "terminal before it is removed"
    );

    for untouched in ["elsewhere", "unlabelled"] {
        assert_eq!(
            cluster.pod(untouched).unwrap()["status"],
            json!({ "phase": "Pending" })
        );
    }
    simulate.terminate();
    let ended = simulate.ends(STEPS).await;
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    assert!(
        ended.stderr.join("\n").contains("removed 1 nodes"),
        "{:?}",
        ended.stderr
    );
    assert_eq!(
        (cluster.names(NODES), cluster.names(LEASES)),
        (vec![], vec![])
    );
}

fn pod(name: &str) -> Endpoint {
    Endpoint::stored_pod("default", name)
}

async fn kube_client(kubeconfig: &Path) -> Client {
    let source = CredentialSource::Kubeconfig(kubeconfig);
    Client::from_credentials(source, SOON).await.unwrap()
}

#[tokio::test]
async fn nodes_are_kept_as_they_should_be_whatever_another_client_does() {
    let cluster = Cluster::new().await;
    let api = &cluster.api;
    let _simulate = cluster.start("--nodes 3 --prefix a --labels pool=x");
    let names = |_: &ApiServer| (cluster.names(LEASES).len() == 3).then_some(());
    api.wait_for(STEPS, "three nodes", names).await;
    let node = || api.object("/api/v1/nodes/a-1");
    let first = node().unwrap();
    assert_eq!(first["metadata"]["labels"]["pool"], "x");

    // As the control plane does when Leases are late.
    let mut unknown = first.clone();
    for condition in unknown["status"]["conditions"].as_array_mut().unwrap() {
        condition["status"] = json!("Unknown");
    }
    api.put_object(unknown);
    let is_ready = |_: &ApiServer| {
        let node = node().filter(|node| condition(node, "Ready") == "True");
        node.filter(|node| condition(node, "PIDPressure") == "False")
    };
    let mended = api
        .wait_for(STEPS, "a node that is Ready again", is_ready)
        .await;
    assert_eq!(mended["metadata"]["uid"], first["metadata"]["uid"]);

    let other = api.object(&format!("{LEASES}/a-2")).unwrap();
    let version = other["metadata"]["resourceVersion"].clone();
    api.delete_object("/api/v1/nodes/a-1");
    api.delete_object(&format!("{LEASES}/a-1"));
    let renewed = |_: &ApiServer| {
        let lease = api.object(&format!("{LEASES}/a-2"))?;
        (lease["metadata"]["resourceVersion"] != version).then_some(())
    };
    api.wait_for(STEPS, "a renewal of another Lease", renewed)
        .await;
    assert_eq!(cluster.names(NODES), ["a-0", "a-2"], "as with a kubelet");
    assert_eq!(cluster.names(LEASES), ["a-0", "a-2"]);
}

#[tokio::test]
async fn load_is_made_at_its_rates_and_a_killed_simulation_is_cleaned_up() {
    let cluster = Cluster::new().await;
    let api = &cluster.api;
    api.put_object(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "real" } }));
    let flags = "--nodes 20 --prefix b --yes --pods-per-node 3 --churn 20/s --kill-rate 10/s --pressure \
                 memory:20/s --pressure-for 1s --start-after 0 --stop-after 0";
    let simulate = cluster.start(flags);
    let events = "/api/v1/namespaces/default/events";
    let has_event = |_: &ApiServer| api.list(events).into_iter().next();
    let event = api.wait_for(STEPS, "an Event", has_event).await;
    assert_eq!(event["reason"], "OOMKilled");
    assert_eq!(
        event["involvedObject"]["fieldPath"],
        "spec.containers{main}"
    );
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("container main"), "{message}");
    for status in ["True", "False"] {
        let is_changed = |_: &ApiServer| {
            let patches = api.requests_where(|request| {
                let body = request.body.as_ref().map(Value::to_string);
                request.method == "PATCH"
                    && request.path.ends_with("/status")
                    && body.is_some_and(|body| {
                        body.contains(&format!(r#""status":"{status}","type":"MemoryPressure""#))
                    })
            });
            (patches.len() > 5).then_some(())
        };
        api.wait_for(STEPS, status, is_changed).await;
    }
    let all_run = |_: &ApiServer| {
        let deletions = api.requests_where(|request| request.method == "DELETE");
        let pods = api.list(PODS).into_iter();
        let running = pods
            .filter(|pod| pod["status"]["phase"] == "Running")
            .count();
        (deletions.len() > 20 && running >= 50).then_some(())
    };
    api.wait_for(STEPS, "pods that are replaced", all_run).await;
    simulate.kill();
    simulate.ends(SOON).await;
    assert_eq!(cluster.names(NODES).len(), 21);

    let cleanup = cluster.run("--cleanup").await;
    assert_eq!(cleanup.code, Some(0), "{:?}", cleanup.stderr);
    assert!(
        cleanup.stderr.join("").starts_with("removed 20 nodes and "),
        "{:?}",
        cleanup.stderr
    );
    assert_eq!(cluster.names(NODES), ["real"]);
    assert_eq!(
        (cluster.names(LEASES), cluster.names(PODS)),
        (vec![], vec![])
    );
}

#[tokio::test]
async fn what_cannot_be_simulated_is_refused_in_one_line() {
    let cluster = Cluster::new().await;
    let api = &cluster.api;
    api.put_object(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "real" } }));
    let before = api.object("/api/v1/nodes/real");
    let labels = json!({ "nodepulse.dev/simulated": "true" });
    let is_refused = async |flags: &str, code: i32, why: &str| {
        let ended = cluster.run(flags).await;
        let lines = ended.stderr.join("\n");
        assert_eq!(ended.code, Some(code), "{flags}: {lines}");
        let reason = ended
            .stderr
            .iter()
            .find(|line| line.starts_with("nodepulse-simulate: "));
        assert!(
            reason.is_some_and(|line| line.contains(why)),
            "{flags}: {lines}"
        );
    };
    // As a test on a real node would have them.
    cluster.bind("real-web", "real", &labels, &json!({}));
    is_refused(
        "--nodes 1 --node-name real",
        1,
        "real exists and is another one",
    )
    .await;
    let mut excluded = before.clone().unwrap();
    excluded["metadata"]["labels"] = json!({ "nodepulse.dev/simulated": "false" });
    api.put_object(excluded);
    is_refused(
        "--nodes 1 --node-name real",
        1,
        "real exists and is another one",
    )
    .await;
    let kept = api.object("/api/v1/nodes/real").unwrap();
    assert_eq!(kept["status"], before.clone().unwrap()["status"]);
    assert_eq!(
        cluster.pod("real-web").unwrap()["status"],
        json!({ "phase": "Pending" })
    );
    is_refused("--nodes 11", 1, "use --yes").await;
    is_refused("--nodes 2 --node-name x", 2, "--nodes is 2").await;
    assert_eq!(cluster.names(LEASES), Vec::<String>::new());

    let rows = [
        ("POST", NODES, "POST node c-0: 403"),
        ("PATCH", PODS, "PATCH status of pod default/web: 403"),
        ("PUT", LEASES, "PUT lease c-0: 403"),
    ];
    for (method, path, why) in rows {
        let wanted = (method.to_owned(), path.to_owned());
        let is_wanted = move |request: &Recorded| {
            request.method == wanted.0 && request.path.starts_with(&wanted.1)
        };
        api.faults()
            .push(Fault::when(is_wanted, Effect::Status(403)).always());
        cluster.bind("web", "c-0", &labels, &json!({}));
        // Without one, the first renewal creates it.
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "c-0", "namespace": "kube-node-lease" },
            "spec": { "holderIdentity": "c-0" },
        });
        api.put_object(lease);
        is_refused("--nodes 1 --prefix c --start-after 0", 1, why).await;
        api.faults().clear();
    }
    assert_eq!(cluster.names(NODES), ["real"]);
}

#[tokio::test]
async fn each_node_can_be_its_user_if_the_server_permits_it() {
    let cluster = Cluster::new().await;
    let api = &cluster.api;
    let simulate = cluster.start("--nodes 2 --prefix d --impersonate");
    let leases = |_: &ApiServer| (cluster.names(LEASES).len() == 2).then_some(());
    api.wait_for(STEPS, "two Leases", leases).await;
    let writes = api.requests_where(|request| request.method == "POST");
    assert!(
        writes
            .iter()
            .all(|request| request.identity.starts_with("system:node:d-")),
        "{writes:?}"
    );
    simulate.terminate();
    assert_eq!(simulate.ends(STEPS).await.code, Some(0));

    let path = cluster.dir.path().join("other");
    api.kubeconfig(&path, &Identity::user("other"));
    for (verb, resource) in [
        ("list", "nodes"),
        ("watch", "nodes"),
        ("list", "pods"),
        ("watch", "pods"),
    ] {
        let [verb, resource] = [verb, resource].map(str::to_owned);
        api.grant(Grant {
            user: "other".to_owned(),
            verb,
            resource,
        });
    }
    let ended = run(&program(), flags_of(&path, "--nodes 1 --impersonate"), "").await;
    assert_eq!(ended.code, Some(1));
    let lines = ended.stderr.join("\n");
    assert!(
        lines.contains("cannot impersonate resource \"users\""),
        "{lines}"
    );
}

#[tokio::test]
async fn a_node_that_a_kubelet_takes_over_is_left_to_it() {
    let cluster = Cluster::new().await;
    let api = &cluster.api;
    let simulate = cluster.start("--nodes 2 --prefix e");
    let leases = |_: &ApiServer| (cluster.names(LEASES).len() == 2).then_some(());
    api.wait_for(STEPS, "two Leases", leases).await;
    // It adopts the Node: labels and UID stay.
    let mut node = api.object("/api/v1/nodes/e-1").unwrap();
    node["status"]["nodeInfo"]["osImage"] = json!("Debian GNU/Linux 13 (trixie)");
    node["metadata"]["resourceVersion"] = Value::Null;
    api.put_object(node);
    let ended = simulate.ends(STEPS).await;
    let lines = ended.stderr.join("\n");
    assert_eq!(ended.code, Some(1), "{lines}");
    assert!(
        lines.contains("node e-1 has lost its taints, or a kubelet maintains it"),
        "{lines}"
    );
    assert_eq!(cluster.names(NODES), ["e-1"], "and its Lease is");
    assert_eq!(cluster.names(LEASES), ["e-1"]);
}

#[tokio::test]
async fn pods_of_a_load_are_made_again_whatever_fails() {
    let cluster = Cluster::new().await;
    let api = &cluster.api;
    let creations = |request: &Recorded| request.method == "POST" && request.path == PODS;
    api.faults()
        .push(Fault::when(creations, Effect::Status(500)).times(2));
    let conflicts =
        |request: &Recorded| request.method == "PATCH" && request.path.starts_with(PODS);
    api.faults()
        .push(Fault::when(conflicts, Effect::Status(409)).times(1));
    let node = |request: &Recorded| request.method == "GET" && request.path == "/api/v1/nodes/f-0";
    api.faults()
        .push(Fault::when(node, Effect::Status(500)).times(1));
    let simulate = cluster.start("--nodes 1 --prefix f --pods-per-node 3 --start-after 0");
    simulate
        .wait_for_line("cannot renew a Lease: its Node cannot be read", SOON)
        .await;
    let running = |_: &ApiServer| {
        let pods = api.list(PODS).into_iter();
        let running = pods.filter(|pod| pod["status"]["phase"] == "Running");
        (running.count() == 3).then_some(())
    };
    api.wait_for(STEPS, "three pods", running).await;
}
