//! Companion mode, with exactly the shipped role.

use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;

use nodepulse_tests::skip;
use serde_json::{Value, json};

use super::caller::{
    Caller, MERGE, NODES, STRATEGIC, array, condition, taint_keys, text, until, with_taint,
};
use super::neighbours::KEPT_BY_KUBELET;
use super::running::{Scribbler, done, stop};
use super::stage::{Stage, alone, scenario};

const LOW: &str = "evictionHard: {pid.available: 99.9%}\n";
const TAINT: &str = "taints: {PIDsLow: NoSchedule}\n";
const PREFIX: &str = "nodepulse.dev/";
const TAINT_KEY: &str = "nodepulse.dev/pids-low";
const THEIRS: &str = "example.com/dedicated";

fn condition_of(type_: &str, status: &str, message: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({
        "type": type_, "status": status, "reason": "R", "message": message,
        "lastHeartbeatTime": time, "lastTransitionTime": time,
    })
}

/// A Node that a kubelet maintains, with conditions of other clients.
async fn kubelets_node(admin: &Caller, name: &str) -> Value {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"example.com/n": "0"},
            "annotations": {KEPT_BY_KUBELET: "yes"},
        },
        "spec": {"taints": [{"key": THEIRS, "value": "v", "effect": "NoExecute"}]},
        "status": {"conditions": [
            condition_of("Ready", "True", "m"),
            condition_of("KernelDeadlock", "False", "0"),
        ]},
    });
    admin.make(NODES, &node).await
}

pub fn nodepulse_conditions(node: &Value) -> usize {
    let conditions = array(&node["status"]["conditions"]).into_iter();
    conditions
        .filter(|c| NodepulseCondition::parse(text(c, "type")).is_some())
        .count()
}

/// Without PSI, which these agents do not use.
fn has_all(node: &Value) -> bool {
    let by_default = NodepulseCondition::ALL.into_iter();
    let expected = by_default.filter(|c| c.is_on_by_default() && c.stall().is_none());
    nodepulse_conditions(node) == expected.count()
}

/// The parts of a Node that only the scribbler changes.
fn others(node: &Value) -> Value {
    let mut taints = array(&node["spec"]["taints"]);
    taints.retain(|taint| taint["key"] == THEIRS);
    json!([
        node["metadata"]["labels"]["example.com/n"],
        taints,
        condition(node, "KernelDeadlock"),
        condition(node, "Ready")["message"],
    ])
}

#[tokio::test]
async fn with_a_busy_writer_only_conditions_and_taints_change() {
    alone("busy", busy).await;
}

async fn busy(stage: &Stage) {
    let file = stage.companion_file().await;
    stage.may_taint(&file).await;
    let mut before = others(&kubelets_node(&stage.admin, stage.name()).await);
    let agent = stage.run("companion", &file, TAINT);
    stage.node_is("all conditions are there", has_all).await;

    let (path, status) = (stage.path(), stage.status_path());
    let scribbler = Scribbler::start(&stage.admin, move |n| {
        let conditions = [condition_of("KernelDeadlock", "False", &n.to_string())];
        let label = json!({"metadata": {"labels": {"example.com/n": n.to_string()}}});
        let condition = json!({"status": {"conditions": conditions}});
        vec![
            (path.clone(), MERGE, label),
            (status.clone(), STRATEGIC, condition),
        ]
    });
    for (thresholds, expected) in [(LOW, "True"), ("", "False"), (LOW, "True")] {
        stage.configure(&format!("{TAINT}{thresholds}"));
        agent.hang_up();
        let what = format!("PIDsLow is {expected}, and its taint with it");
        let is = |node: &Value| {
            condition(node, "PIDsLow")["status"] == expected
                && taint_keys(node).contains(&TAINT_KEY.to_owned()) == (expected == "True")
        };
        stage.node_is(&what, is).await;
    }
    let written = scribbler.stop().await.to_string();
    assert!(before[2].is_object(), "{before}");
    before[0] = json!(written);
    before[2] = condition_of("KernelDeadlock", "False", &written);
    stop(agent).await;
    let node = stage.node().await;
    assert_eq!(others(&node), before);
    assert!(has_all(&node), "they stay: {node:#}");
}

#[tokio::test]
async fn a_kill_is_an_event_on_its_pod_or_on_the_node_if_no_pod_is_known() {
    scenario("kills", kills).await;
}

async fn kills(stage: &Stage) {
    const NOBODYS: &str = "kubepods/pod00000000-0000-4000-8000-00000000000d";

    kubelets_node(&stage.admin, stage.name()).await;
    let pod = stage.pod(&stage.further("cart")).await;
    let cgroup = format!("kubepods/pod{pod}");
    stage
        .host
        .oom(&cgroup, 2, 2)
        .oom(NOBODYS, 0, 0)
        .pods_oom(0, 2);
    let agent = stage.run("companion", &stage.companion_file().await, "");
    stage.node_is("all conditions are there", has_all).await;

    // Their Events about the same objects come first.
    stage.neighbours_write().await;
    stage
        .host
        .oom(&cgroup, 5, 5)
        .oom(NOBODYS, 1, 1)
        .pods_oom(0, 6);
    let event = until("an Event about the pod's kills", async || {
        stage.pod_events(&pod).await.pop()
    });
    let event = event.await;
    assert_eq!(event["reason"], "OOMKilled", "{event:#}");
    assert_eq!(event["count"], 3, "{event:#}");
    assert!(text(&event, "message").contains("victims"), "{event:#}");
    let node = stage.node_event("OOMKilled").await;
    assert!(text(&node, "message").contains(NOBODYS), "{node:#}");
    stop(agent).await;
    assert_eq!(stage.pod_events(&pod).await.len(), 1, "reported once");
}

#[tokio::test]
async fn a_renewed_token_is_used_once_the_old_one_is_rejected() {
    scenario("token", renewed).await;
}

async fn renewed(stage: &Stage) {
    kubelets_node(&stage.admin, stage.name()).await;
    let file = stage.companion_file().await;
    let agent = stage.run("companion", &file, "");
    stage.node_is("all conditions are there", has_all).await;

    let old = Caller::from_file(&file).await;
    let new = stage.token(1).await;
    // A server may remember for a while that a token was good.
    until("the old one is refused", async || {
        (old.get(&stage.path()).await.0 == 401).then_some(())
    })
    .await;
    std::fs::write(stage.token_file(), new).unwrap();
    stage.configure(LOW);
    agent.hang_up();
    stage
        .node_is("PIDsLow is reported", |node| {
            condition(node, "PIDsLow")["status"] == "True"
        })
        .await;
    agent
        .wait_for_line("credentials have changed", super::caller::SOON)
        .await;
    stop(agent).await;
}

#[tokio::test]
async fn cleanup_removes_conditions_and_taints_from_one_node_or_from_all() {
    alone("cleanup", cleaned).await;
}

async fn cleaned(stage: &Stage) {
    let file = stage.cleanup_file().await;
    stage.configure("");
    let args = stage.args("cleanup", "companion", &file);
    let names = ["", "-b", "-c"].map(|suffix| format!("{}{suffix}", stage.name()));
    let mut before = Vec::new();
    for name in &names {
        let path = format!("{NODES}/{name}");
        before.push(others(&kubelets_node(&stage.admin, name).await));
        let conditions_patch =
            json!({"status": {"conditions": [condition_of("MemoryLow", "True", "m")]}});
        stage
            .admin
            .change(&format!("{path}/status"), STRATEGIC, &conditions_patch)
            .await;
        let taint = json!({"key": TAINT_KEY, "effect": "NoSchedule"});
        let tainted = |node: &Value| with_taint(node, &taint);
        stage.admin.change_locked(&path, tainted).await;
    }
    let left = async || {
        let mut left = Vec::new();
        for (name, before) in names.iter().zip(&before) {
            let node = stage.admin.object(&format!("{NODES}/{name}")).await;
            assert_eq!(others(&node), *before, "{name}");
            left.push((
                nodepulse_conditions(&node),
                taint_keys(&node).contains(&TAINT_KEY.to_owned()),
            ));
        }
        left
    };
    assert_eq!(left().await, [(1, true); 3]);
    done(None, &args, &[]).await;
    assert_eq!(left().await, [(0, false), (1, true), (1, true)]);

    // It changes every Node, so other agents in the cluster would lose their conditions.
    kubelets_node(&stage.admin, &stage.further("d")).await;
    let mut strange = stage.admin.items(NODES).await;
    strange.retain(|node| !names.iter().any(|name| node["metadata"]["name"] == *name));
    let others_agent = |node: &&Value| {
        0 < nodepulse_conditions(node) || taint_keys(node).iter().any(|key| key.starts_with(PREFIX))
    };
    if let Some(kept) = strange.iter().find(others_agent) {
        return skip(
            "another agent keeps a Node",
            format!(
                "cleanup --all-nodes would change {}",
                kept["metadata"]["name"]
            ),
        );
    }
    let kubeconfig = file.display().to_string();
    let args = ["cleanup", "--all-nodes", "--kubeconfig", &kubeconfig].map(str::to_owned);
    done(None, &args, &[]).await;
    assert_eq!(left().await, [(0, false); 3]);
    for node in strange {
        let path = format!("{NODES}/{}", text(&node["metadata"], "name"));
        let node = stage.admin.object(&path).await;
        assert!(
            !stage.was_written(&node),
            "it had no condition of nodepulse: {node:#}"
        );
    }
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_run_once_writes_the_status() {
    scenario("once", once).await;
}

async fn once(stage: &Stage) {
    kubelets_node(&stage.admin, stage.name()).await;
    stage.configure("");
    let args = stage.args("run", "companion", &stage.companion_file().await);
    let dry = done(None, &args, &["--once", "--dry-run"]).await;
    stage.neighbours_write().await;
    let patch = format!("PATCH {}", stage.status_path());
    assert!(dry.stdout.contains(&patch), "{dry:?}");
    let node = stage.node().await;
    assert_eq!(
        (nodepulse_conditions(&node), stage.was_written(&node)),
        (0, false),
        "{node:#}"
    );
    assert_eq!(stage.node_events().await, Vec::<Value>::new());

    done(None, &args, &["--once"]).await;
    let node = stage.node().await;
    assert!(has_all(&node) && stage.was_written(&node), "{node:#}");
    let lease = stage.lease().await;
    assert!(lease.is_null(), "a kubelet's: {lease}");
}

#[tokio::test]
async fn check_finds_every_permission_and_status_is_that_of_the_server() {
    scenario("asked", asked).await;
}

async fn asked(stage: &Stage) {
    kubelets_node(&stage.admin, stage.name()).await;
    stage.configure("");
    for (mode, file) in [
        ("companion", stage.companion_file().await),
        ("node", stage.node_file()),
    ] {
        let args = stage.args("check", mode, &file);
        let report = done(None, &args, &["-o", "json"]).await;
        let report: Value = serde_json::from_str(&report.stdout).unwrap();
        let of_server = |item: &&Value| {
            let name = text(item, "name");
            name == "API server" || name.starts_with("may ")
        };
        let items = array(&report["items"]);
        let items: Vec<_> = items.iter().filter(of_server).collect();
        assert!(4 < items.len(), "{report:#}");
        assert!(
            items.iter().all(|item| item["verdict"] == "ok"),
            "{mode}: {items:#?}"
        );
    }
    let agent = stage.run("companion", &stage.companion_file().await, LOW);
    let node = stage
        .node_is("PIDsLow is reported", |node| {
            condition(node, "PIDsLow")["status"] == "True"
        })
        .await;
    let command = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let status = done(Some(&agent), &command(&["status", "-o", "json"]), &[]).await;
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let explained = condition(&json!({"status": status}), "PIDsLow");
    for field in ["status", "reason", "message"] {
        assert_eq!(
            explained[field],
            condition(&node, "PIDsLow")[field],
            "{field}"
        );
    }
    let why = done(Some(&agent), &command(&["explain", "PIDsLow"]), &[]).await;
    assert!(why.stdout.contains("pid.available"), "{why:?}");
    stop(agent).await;
}
