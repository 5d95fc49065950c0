//! The other writers of a living cluster, on the objects of a scenario.
//!
//! They write to an embedded server and to a real one alike. Their Events have reasons of the
//! agent's, so that an assertion that does not ask for the reporter finds the wrong one.

use std::any::Any;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use super::caller::{Answer, Caller, LEASES, MERGE, NODES, STRATEGIC, array, text};
use super::stage::{PODS, is_of};

/// The annotation of a Node whose `Ready` a kubelet writes.
pub const KEPT_BY_KUBELET: &str = "example.com/kubelet";

const PERIOD: Duration = Duration::from_millis(200);
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Reporter and reason of Events about each Node.
const NODE_EVENTS: [(&str, &str); 8] = [
    ("node-controller", "RegisteredNode"),
    ("kubelet", "Starting"),
    ("kubelet", "Rebooted"),
    ("kubelet", "NodeHasInsufficientPID"),
    ("kubelet", "NodeNotSchedulable"),
    ("kubelet", "NodeSchedulable"),
    ("kernel-monitor", "OOMKilling"),
    ("kernel-monitor", "OOMKilled"),
];

/// The same about each Pod.
const POD_EVENTS: [(&str, &str); 3] = [
    ("default-scheduler", "Scheduled"),
    ("kubelet", "OOMKilled"),
    ("taint-eviction-controller", "TaintManagerEviction"),
];

/// Control plane, kubelet and node-problem-detector, until they are stopped.
pub struct Neighbours {
    /// How often they have been at everything.
    turns: watch::Receiver<u64>,
    enough: watch::Sender<()>,
    writing: JoinHandle<()>,
}

/// One running agent.
struct Writer {
    admin: Caller,
    scenario: String,
    /// The uids of objects that have their Events.
    known: BTreeSet<String>,
    turn: u64,
}

impl Neighbours {
    /// On all objects that have the scenario's name.
    pub fn start(admin: &Caller, scenario: &str) -> Self {
        let (enough, mut stopped) = watch::channel(());
        let (done, turns) = watch::channel(0);
        let mut writer = Writer {
            admin: admin.clone(),
            scenario: scenario.to_owned(),
            known: BTreeSet::new(),
            turn: 0,
        };
        let writing = tokio::spawn(async move {
            loop {
                writer.turn().await;
                done.send_replace(writer.turn);
                // Stopped, or the stage is no more.
                if timeout(PERIOD, stopped.changed()).await.is_ok() {
                    break;
                }
            }
        });
        Self {
            turns,
            enough,
            writing,
        }
    }

    /// Waits for a turn that begins after this moment, to its end.
    ///
    /// # Panics
    ///
    /// If a write of theirs was refused, since they have stopped then.
    pub async fn a_turn(&self) {
        let mut turns = self.turns.clone();
        // The one under way began before.
        let next = *turns.borrow() + 2;
        let turn = turns.wait_for(|turn| next <= *turn).await;
        drop(turn.expect("the neighbours go on"));
    }

    /// Ends them between two turns. An error when a write of theirs was refused.
    pub async fn stop(&mut self) -> Result<(), Box<dyn Any + Send>> {
        self.enough.send_replace(());
        let ended = (&mut self.writing).await;
        ended.map_err(JoinError::into_panic)
    }
}

impl Writer {
    async fn turn(&mut self) {
        self.turn += 1;
        let note = json!({"metadata": {
            "annotations": {"example.com/turn": self.turn.to_string()},
            "labels": {"example.com/zone": "a"},
        }});
        for collection in [NODES, PODS, LEASES] {
            for object in self.admin.items(collection).await {
                let name = text(&object["metadata"], "name");
                if !is_of(name, &self.scenario) {
                    continue;
                }
                let path = format!("{collection}/{name}");
                written(&self.admin.patch(&path, MERGE, &note).await);
                match collection {
                    NODES => {
                        self.events(&object, "Node", "default", &NODE_EVENTS).await;
                        self.conditions(&path, &object).await;
                        self.taint(&path).await;
                    }
                    PODS => {
                        let namespace = text(&object["metadata"], "namespace").to_owned();
                        self.events(&object, "Pod", &namespace, &POD_EVENTS).await;
                    }
                    _ => (),
                }
            }
        }
    }

    async fn events(
        &mut self,
        object: &Value,
        kind: &str,
        namespace: &str,
        events: &[(&str, &str)],
    ) {
        let metadata = &object["metadata"];
        if !self.known.insert(text(metadata, "uid").to_owned()) {
            return;
        }
        let mut involved = json!({"kind": kind, "name": metadata["name"], "uid": metadata["uid"]});
        if kind == "Pod" {
            involved["namespace"] = json!(namespace);
        }
        for (component, reason) in events {
            let event = json!({
                "metadata": {"generateName": format!("{}-", self.scenario)},
                "involvedObject": involved, "type": "Normal",
                "reason": reason, "message": format!("{component} about {kind}"),
                "source": {"component": component, "host": metadata["name"]},
            });
            let path = format!("/api/v1/namespaces/{namespace}/events");
            written(&self.admin.post(&path, &event).await);
        }
    }

    /// node-problem-detector writes a condition each turn; a kubelet reports that it is alive.
    async fn conditions(&self, path: &str, node: &Value) {
        let now = k8s_openapi::jiff::Timestamp::now()
            .strftime("%FT%TZ")
            .to_string();
        let mut conditions = vec![json!({
            "type": "ReadonlyFilesystem", "status": "False", "reason": "R",
            "message": self.turn.to_string(),
            "lastHeartbeatTime": now, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })];
        if !node["metadata"]["annotations"][KEPT_BY_KUBELET].is_null() {
            conditions.push(json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now}));
        }
        let patch = json!({"status": {"conditions": conditions}});
        let path = format!("{path}/status");
        written(&self.admin.patch(&path, STRATEGIC, &patch).await);
    }

    /// The node lifecycle controller's, on and off, under the lock that the real one uses.
    async fn taint(&self, path: &str) {
        let node = self.admin.object(path).await;
        if node.is_null() {
            return;
        }
        let mut taints = array(&node["spec"]["taints"]);
        let count = taints.len();
        taints.retain(|taint| taint["key"] != UNREACHABLE);
        if taints.len() == count {
            taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule"}));
        }
        let lock = json!({"resourceVersion": node["metadata"]["resourceVersion"]});
        let patch = json!({"metadata": lock, "spec": {"taints": taints}});
        written(&self.admin.patch(path, MERGE, &patch).await);
    }
}

/// Who is too late for an object, or is overtaken, tries again next turn.
fn written((code, answer): &Answer) {
    let late = matches!(code.as_u16(), 404 | 409);
    assert!(
        late || code.is_success(),
        "a neighbour's write: {code} {answer}"
    );
}
