//! What the shipped role and admission policies refuse, decided by a real API server.

use serde_json::{Value, json};

use super::caller::{Answer, Caller, MERGE, NODES, STRATEGIC, decided, until, with_taint};
use super::stage::{NAMESPACE, RUN, Stage, alone};

const OF_PODS: &str = "/api/v1/namespaces/nodepulse/events";
const OF_NODES: &str = "/api/v1/namespaces/default/events";

fn event(host: &str, involved: &Value) -> Value {
    json!({
        "metadata": {"generateName": format!("{}-policy-", *RUN)},
        "involvedObject": involved,
        "reason": "OOMKilled", "message": "m", "type": "Warning",
        "source": {"component": "nodepulse", "host": host},
    })
}

fn condition_of(type_: &str, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": type_, "status": status}]}})
}

/// What was tried, what came of it, and whether it is allowed.
fn assert_answers(rows: &[(&str, Answer, bool)]) {
    for (what, (code, answer), allowed) in rows {
        let refused = *code == 403 || *code == 422;
        let kept = if *allowed { code.is_success() } else { refused };
        assert!(kept, "{what}: {code} {answer}");
    }
}

/// Waits until a policy is known to the server: it refuses what it is tried with.
async fn known(policy: &str, tried: impl AsyncFn() -> Answer) {
    let refused = async || {
        let (_, answer) = tried().await;
        let message = answer["message"].to_string();
        message.contains(policy).then_some(message)
    };
    println!("{}", until(&format!("{policy} refuses"), refused).await);
}

#[tokio::test]
#[ignore = "no real API server: the embedded one knows no admission policies"]
async fn an_agent_can_change_its_objects_and_nothing_else() {
    alone("policy", refused).await;
}

async fn refused(stage: &Stage) {
    let (name, other) = (stage.name(), stage.further("b"));
    for name in [name, &other] {
        stage.make_node(name).await;
    }
    let file = stage.companion_file().await;
    let agent = Caller::from_file(&file).await;
    let patch_status = async |node: &str, body: Value| {
        let path = format!("{NODES}/{node}/status");
        decided(async || agent.patch(&path, STRATEGIC, &body).await).await
    };
    let patch = async |node: &str, body: Value| {
        let path = format!("{NODES}/{node}");
        decided(async || agent.patch(&path, MERGE, &body).await).await
    };
    let of_pod = async |host: &str| {
        let pod = json!({"kind": "Pod", "name": "web-0", "namespace": NAMESPACE});
        agent.post(OF_PODS, &event(host, &pod)).await
    };
    let of_node = async |name: &str| {
        let node = json!({"kind": "Node", "name": name});
        agent.post(OF_NODES, &event(name, &node)).await
    };
    known("nodepulse-nodes", async || {
        patch_status(&other, condition_of("MemoryLow", "True")).await
    })
    .await;
    known("nodepulse-events", async || of_pod(&other).await).await;

    let cordon = json!({"spec": {"unschedulable": true}});
    let capacity = json!({"status": {"capacity": {"cpu": "64"}}});
    let label = json!({"metadata": {"labels": {"example.com/a": "b"}}});
    assert_answers(&[
        (
            "a condition of nodepulse",
            patch_status(name, condition_of("MemoryLow", "True")).await,
            true,
        ),
        (
            "a kubelet's condition",
            patch_status(name, condition_of("Ready", "False")).await,
            false,
        ),
        ("the capacity", patch_status(name, capacity).await, false),
        ("a label", patch_status(name, label).await, false),
        (
            "the spec, without a right to it",
            patch(name, cordon.clone()).await,
            false,
        ),
        ("the whole Node", agent.delete(&stage.path()).await, false),
        ("an Event about a Pod", of_pod(name).await, true),
        ("an Event about the Node", of_node(name).await, true),
        ("an Event about another Node", of_node(&other).await, false),
    ]);

    // With the right to patch Nodes the policy is what is left.
    stage.may_taint(&file).await;
    // With the version: a patch that undoes a taint of another client in between would be denied
    // for that.
    let taint = async |node: &str, key: &str| {
        let taint = json!({"key": key, "effect": "NoSchedule"});
        let tainted = |node: &Value| with_taint(node, &taint);
        agent
            .patch_locked(&format!("{NODES}/{node}"), tainted)
            .await
    };
    assert_answers(&[
        (
            "a taint of nodepulse",
            taint(name, "nodepulse.dev/a").await,
            true,
        ),
        (
            "a taint of others'",
            taint(name, "example.com/a").await,
            false,
        ),
        ("the spec", patch(name, cordon).await, false),
        (
            "another Node's taints",
            taint(&other, "nodepulse.dev/a").await,
            false,
        ),
    ]);
}
