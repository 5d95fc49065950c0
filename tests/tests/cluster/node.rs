//! A node without a kubelet: the agent acts as `system:node:…`.

use std::collections::BTreeSet;

use nodepulse_tests::process::Process;
use nodepulse_tests::skip;
use serde_json::{Value, json};

use super::caller::{
    LEASES, MERGE, NODES, SOON, array, condition, taint_keys, text, until, with_taint,
};
use super::running::{Scribbler, done, stop};
use super::stage::{PODS, Stage, real, scenario};

/// Its period is a quarter of that.
const LEASE: &str = "nodeLeaseDurationSeconds: 8\n";

/// Whether the agent's conditions are on it. Other writers add more.
pub fn is_kept(node: &Value) -> bool {
    let types = [
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "DiskIOPressure",
        "DiskFailing",
        "Ready",
    ];
    types.iter().all(|type_| condition(node, type_).is_object())
        && condition(node, "Ready")["status"] == "True"
}

/// Waits until the Node is whole, and its Lease belongs to it.
async fn settled(stage: &Stage) -> Value {
    let node = stage.node_is("the Node has its conditions", is_kept).await;
    until("the Lease belongs to the Node", async || {
        let lease = stage.lease().await;
        let owner = &lease["metadata"]["ownerReferences"][0]["uid"];
        (*owner == node["metadata"]["uid"]).then_some(())
    })
    .await;
    node
}

#[tokio::test]
async fn a_node_is_created_then_adopted_and_corrected_and_not_created_again_after_its_deletion() {
    scenario("kept", kept).await;
}

async fn kept(stage: &Stage) {
    let file = stage.node_file();
    let agent = stage.run("node", &file, "");
    let made = settled(stage).await;
    assert_eq!(made["status"]["nodeInfo"]["operatingSystem"], "linux");
    assert!(
        taint_keys(&made).contains(&"nodepulse.dev/no-runtime".to_owned()),
        "{made:#}"
    );
    stage.node_event("Starting").await;
    stop(agent).await;

    let label = |arch: &str| {
        let labels = json!({"kubernetes.io/arch": arch, "example.com/n": "1"});
        json!({"metadata": {"labels": labels}})
    };
    let taint = json!({"key": "example.com/k", "effect": "NoSchedule"});
    let tainted = |node: &Value| with_taint(node, &taint);
    stage
        .admin
        .change(&stage.path(), MERGE, &label("s390x"))
        .await;
    stage.admin.change_locked(&stage.path(), tainted).await;
    stage
        .host
        .write("proc/sys/kernel/random/boot_id", "another\n");
    let agent = stage.run("node", &file, "");
    let arch = made["metadata"]["labels"]["kubernetes.io/arch"].clone();
    let adopted = stage.node_is("its labels are put right", |node| {
        node["metadata"]["labels"]["kubernetes.io/arch"] == arch
    });
    let adopted = adopted.await;
    assert_eq!(adopted["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(adopted["metadata"]["labels"]["example.com/n"], "1");
    stage.node_event("Rebooted").await;

    edges(stage, &agent).await;
    deleted(stage, &agent).await;
    stop(agent).await;
}

/// Conditions come and go; taints are the control plane's.
async fn edges(stage: &Stage, agent: &Process) {
    for (thresholds, expected) in [
        ("evictionHard: {pid.available: 99.9%}\n", "True"),
        ("", "False"),
    ] {
        stage.configure(thresholds);
        agent.hang_up();
        let what = format!("PIDPressure is {expected}");
        let is = |node: &Value| condition(node, "PIDPressure")["status"] == expected;
        let node = stage.node_is(&what, is).await;
        let theirs = json!({"key": "example.com/k", "effect": "NoSchedule"});
        assert!(array(&node["spec"]["taints"]).contains(&theirs), "{node:#}");
    }
    stage.node_event("NodeHasInsufficientPID").await;
    for (cordoned, reason) in [(true, "NodeNotSchedulable"), (false, "NodeSchedulable")] {
        let cordon = json!({"spec": {"unschedulable": cordoned}});
        stage.admin.change(&stage.path(), MERGE, &cordon).await;
        stage.node_event(reason).await;
    }
}

/// A deletion of a Node is intended, and a new one is maintained.
async fn deleted(stage: &Stage, agent: &Process) {
    stage.admin.delete(&stage.path()).await;
    agent.wait_for_line("not found", SOON).await;
    assert_eq!(stage.node().await, Value::Null);
    stage.make_node(stage.name()).await;
    stage
        .node_is("the new Node has its conditions", is_kept)
        .await;
}

#[tokio::test]
async fn a_lease_is_renewed_although_another_client_writes_it_continuously() {
    scenario("lease", renewed).await;
}

async fn renewed(stage: &Stage) {
    let agent = stage.run("node", &stage.node_file(), LEASE);
    settled(stage).await;
    let path = stage.lease_path();
    let scribbler = Scribbler::start(&stage.admin, move |n| {
        let note = json!({"metadata": {"annotations": {"example.com/n": n.to_string()}}});
        vec![(path.clone(), MERGE, note)]
    });
    let mut times = BTreeSet::new();
    until("it is renewed three times", async || {
        times.insert(text(&stage.lease().await["spec"], "renewTime").to_owned());
        (3 < times.len()).then_some(())
    })
    .await;
    let written = scribbler.stop().await.to_string();
    let lease = stage.lease().await;
    assert_eq!(
        lease["metadata"]["annotations"]["example.com/n"],
        json!(written)
    );
    assert_eq!(lease["spec"]["holderIdentity"], stage.name());
    stop(agent).await;

    // The remaining objects do not prevent the next run.
    let agent = Process::start_alongside_kubelet(stage.args("run", "node", &stage.node_file()));
    agent.wait_for_line("node adopted", SOON).await;
    stop(agent).await;
}

#[tokio::test]
async fn while_a_kubelet_renews_the_lease_nothing_is_written() {
    scenario("taken", taken).await;
}

async fn taken(stage: &Stage) {
    stage.configure("");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": stage.name(), "managedFields": [{
            "manager": "kubelet", "operation": "Update",
            "apiVersion": "coordination.k8s.io/v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:renewTime": {}}},
        }]},
        // A time ahead of every clock is as fresh as one can be.
        "spec": {
            "holderIdentity": stage.name(), "leaseDurationSeconds": 40,
            "renewTime": "2999-01-01T00:00:00.000000Z",
        },
    });
    let before = stage
        .admin
        .make(&format!("{LEASES}?fieldManager=kubelet"), &lease)
        .await;
    let agent = Process::start_alongside_kubelet(stage.args("run", "node", &stage.node_file()));
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let named = |line: &String| line.contains("--take-over") && line.contains("kubelet");
    assert!(ended.stderr.iter().any(named), "{ended:?}");
    stage.neighbours_write().await;
    let lease = stage.lease().await;
    assert!(!stage.was_written(&lease), "{lease:#}");
    assert_eq!(lease["spec"], before["spec"]);
    assert_eq!(lease["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(stage.node().await, Value::Null);
    assert_eq!(stage.node_events().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_dry_run_creates_nothing_and_run_once_creates_a_node_with_its_lease() {
    scenario("single", once).await;
}

async fn once(stage: &Stage) {
    stage.configure("");
    let args = stage.args("run", "node", &stage.node_file());
    let dry = done(None, &args, &["--once", "--dry-run"]).await;
    for line in [format!("POST {NODES}\n"), format!("POST {LEASES}\n")] {
        assert!(dry.stdout.contains(&line), "{line}: {dry:?}");
    }
    let nothing = async || [stage.node().await, stage.lease().await];
    assert_eq!(nothing().await, [Value::Null, Value::Null]);
    assert_eq!(stage.node_events().await, Vec::<Value>::new());

    done(None, &args, &["--once"]).await;
    let [node, lease] = nothing().await;
    assert!(is_kept(&node), "{node:#}");
    assert_eq!(
        lease["metadata"]["ownerReferences"][0]["uid"],
        node["metadata"]["uid"]
    );
}

/// A feature of kubelets from 1.36 on, without which a pod that restarts all containers has no
/// place.
const FEATURE: &str = "RestartAllContainersOnContainerExits";

fn declares(feature: &str) -> Value {
    json!({"status": {"declaredFeatures": [feature]}})
}

#[tokio::test]
async fn features_that_a_node_declares_are_neither_added_nor_changed() {
    scenario("declares", declared).await;
}

/// `declaredFeatures` has the features of a kubelet (KEP-5328), and here is none.
async fn declared(stage: &Stage) {
    let agent = stage.run("node", &stage.node_file(), "");
    let made = settled(stage).await;
    assert!(made["status"]["declaredFeatures"].is_null(), "{made:#}");
    // As if a kubelet had been here.
    let path = stage.status_path();
    stage.admin.change(&path, MERGE, &declares(FEATURE)).await;
    // Servers before 1.36 do not store it.
    let stored = stage.node().await["status"]["declaredFeatures"].clone();
    assert!(real().is_some() || stored == json!([FEATURE]), "{stored}");
    stage.configure("evictionHard: {pid.available: 99.9%}\n");
    agent.hang_up();
    let is_written = |node: &Value| condition(node, "PIDPressure")["status"] == "True";
    let node = stage.node_is("PIDPressure is True", is_written).await;
    assert_eq!(node["status"]["declaredFeatures"], stored);
    stop(agent).await;
}

#[tokio::test]
#[ignore = "no real API server: the embedded one has no scheduler"]
async fn a_pod_that_needs_a_feature_waits_for_a_node_that_declares_it() {
    scenario("needs", needs).await;
}

async fn needs(stage: &Stage) {
    let agent = stage.run("node", &stage.node_file(), "");
    settled(stage).await;
    let [plain, needing] = ["plain", "needing"].map(|what| stage.further(what));
    let exit_codes = json!({"operator": "In", "values": [1]});
    let rule = json!({"action": "RestartAllContainers", "exitCodes": exit_codes});
    let restarts = json!({"restartPolicy": "Never", "restartPolicyRules": [rule.clone()]});
    let (code, pod) = stage.unscheduled_pod(&needing, &restarts).await;
    if pod["spec"]["containers"][0]["restartPolicyRules"][0] != rule {
        stop(agent).await;
        return skip("no pods that need a feature", format!("{code} {pod}"));
    }
    let (code, pod) = stage.unscheduled_pod(&plain, &json!({})).await;
    assert!(code.is_success(), "{code} {pod}");
    let is_bound = async |name: &str| {
        let pod = stage.admin.object(&format!("{PODS}/{name}")).await;
        (pod["spec"]["nodeName"] == stage.name()).then_some(pod)
    };
    until("a pod without needs has a node", async || {
        is_bound(&plain).await
    })
    .await;
    let waits = async || {
        let pod = stage.admin.object(&format!("{PODS}/{needing}")).await;
        (condition(&pod, "PodScheduled")["status"] == "False").then_some(pod)
    };
    let pod = until("the other pod is refused", waits).await;
    assert!(pod["spec"]["nodeName"].is_null(), "{pod:#}");

    let path = stage.status_path();
    stage.admin.change(&path, MERGE, &declares(FEATURE)).await;
    until("the Node declares the feature", async || {
        is_bound(&needing).await
    })
    .await;
    stop(agent).await;
}
