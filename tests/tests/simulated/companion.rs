//! Companion mode: nodepulse's conditions on a kubelet's Node, and nothing else.

/// A Node that does not exist, or a server that refuses or does not answer.
mod absent;
/// What metrics, `status` and `explain` report.
mod asked;
/// Conditions that are turned off.
mod disabled;
/// When a condition begins and ends.
mod edges;
/// Who records OOM kills on the Node.
mod node_events;
/// What a restart changes.
mod restarts;
/// What cannot be read.
mod sources;
/// Agents that do not exist any more.
mod stale;
/// Taints.
mod taints;

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::{Record, ScopeSource};

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Recorded};
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::{
    COMPANION, COMPANION_PERMISSIONS, Kill, Limit, Node, Running, in_memory, pass,
};
use nodepulse_tests::pod::CONTAINER;
use nodepulse_tests::view::{EVENTS, LEASES, View};
use serde_json::{Value, json};

const AT_ONCE: Duration = Duration::from_millis(5);
/// The longest time to the next regular computation, with which changes are sent that are not
/// urgent.
const REGULAR: Duration = Duration::from_millis(10_405);
const TRANSITION: Duration = Duration::from_mins(5);
const NODE: &str = "/api/v1/nodes/worker-1";
const WATCHED: &str = "/api/v1/pods";
const STATUS: &str = "/api/v1/nodes/worker-1/status";
/// Of three pods.
const KILLED_PODS: [&str; 3] = [
    "kubepods/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11",
    "kubepods/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a12",
    "kubepods/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a13",
];
/// 5 % of 16 GiB.
const SHORT: &str = "15700Mi";
const PLENTY: &str = "4Gi";
const MEMORY_TAINT: &str = "nodepulse.dev/memory-low";

fn types() -> Vec<&'static str> {
    NodepulseCondition::ALL
        .map(NodepulseCondition::type_)
        .to_vec()
}

/// The Node as a kubelet and others keep it.
fn kubelets_node() -> Value {
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_,
            "status": status,
            "reason": format!("Kubelet{type_}"),
            "message": "the kubelet's",
            "lastHeartbeatTime": "2025-12-31T23:59:00Z",
            "lastTransitionTime": "2025-12-01T00:00:00Z",
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "worker-1",
            "labels": { "kubernetes.io/hostname": "worker-1", "rack": "7" },
            "annotations": { "example.com/note": "theirs" },
        },
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "taints": [{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }],
        },
        "status": {
            "capacity": { "cpu": "8", "memory": "1Gi" },
            "conditions": [
                condition("NetworkUnavailable", "False"),
                condition("MemoryPressure", "True"),
                condition("DiskPressure", "False"),
                condition("PIDPressure", "False"),
                condition("Ready", "True"),
            ],
            "images": [{ "names": ["example.com/db:1"], "sizeBytes": 1 }],
            "nodeInfo": { "bootID": "of another boot", "kubeletVersion": "v1.36.0" },
        },
    })
}

fn grant(api: &ApiServer, verb: &str, resource: &str) {
    api.grant_all(COMPANION, &[(verb, resource)]);
}

/// A companion with all conditions on.
fn companion() -> Node {
    let on = |type_| format!("{type_}=true");
    let all: Vec<String> = types().into_iter().map(on).collect();
    Node::companion("worker-1").config(|overrides| overrides.conditions = Some(all.join(",")))
}

/// A server with a kubelet's Node, on which companions may do what they need without taints.
fn cluster() -> Arc<ApiServer> {
    let api = in_memory();
    api.grant_all(COMPANION, &COMPANION_PERMISSIONS);
    api.put_object(kubelets_node());
    api
}

fn calm() -> Arc<MadeUpHost> {
    let host = MadeUpHost::calm();
    host.pid_max(10_000).disk("sda", "8:0").oom(CONTAINER, 0, 0);
    host.write("var/lib/kubelet/made-up", "");
    for kind in ["memory", "io"] {
        // Enough for a disk to be slow, if its requests are, and not enough for a stall.
        let now = if kind == "io" { 30.0 } else { 0.0 };
        host.pressure(kind, now, 0.0);
        pods_pressure(&host, kind, 0.0);
    }
    Arc::new(host)
}

fn pods_pressure(host: &MadeUpHost, kind: &str, percent: f32) {
    let text = format!("some avg10={percent:.2} avg60={percent:.2} avg300=0.00 total=1\n");
    host.write(&format!("sys/fs/cgroup/{PODS}/{kind}.pressure"), text);
}

/// A companion that has sent its first status.
struct Sim {
    api: Arc<ApiServer>,
    host: Arc<MadeUpHost>,
    node: Running,
}

impl Sim {
    async fn start() -> Self {
        Self::on(&cluster(), |node| node).await
    }

    async fn on(api: &Arc<ApiServer>, configure: impl FnOnce(Node) -> Node) -> Self {
        Self::with(api, calm(), configure).await
    }

    async fn with(
        api: &Arc<ApiServer>,
        host: Arc<MadeUpHost>,
        configure: impl FnOnce(Node) -> Node,
    ) -> Self {
        let node = companion().host(Arc::clone(&host));
        let before = patches(api).len();
        let node = configure(node).start(api);
        api.wait_for(SOON, "the first words", |api| {
            let first = patches(api).into_iter().nth(before)?;
            first.status.filter(|code| *code == 200)
        })
        .await;
        let api = Arc::clone(api);
        Self { api, host, node }
    }

    fn view(&self) -> View<'_> {
        View::of(&self.api, "worker-1")
    }

    async fn kill(&self, limit: Limit<'_>) {
        let kill = Kill {
            victim: ("java", 4321),
            cgroup: CONTAINER,
            limit,
            source: ScopeSource::Exact,
        };
        self.node.kernel().oom_kill(kill).await;
    }

    /// Kills in turn in these cgroups.
    async fn kills_in(&self, cgroups: &[&str], kills: u32) {
        for (n, cgroup) in (0..kills).zip(cgroups.iter().cycle()) {
            let kill = Kill {
                victim: ("java", 4321 + n),
                cgroup,
                limit: Limit::Of(cgroup),
                source: ScopeSource::Exact,
            };
            self.node.kernel().oom_kill(kill).await;
        }
    }

    async fn stall(&self, of: StallOf, kind: StallKind) {
        let stall = Stall::new(of, kind);
        let at = BootNanos(0);
        self.node
            .kernel()
            .send_record(Record::Stall { at, stall })
            .await;
    }
}

fn patches(api: &ApiServer) -> Vec<Recorded> {
    api.requests_where(|request| request.method == "PATCH" && request.path == STATUS)
}

fn lines(requests: &[Recorded]) -> Vec<String> {
    let line = |r: &Recorded| format!("{} {} {:?}", r.method, r.path, r.status.unwrap_or(0));
    requests.iter().map(line).collect()
}

/// The Node without nodepulse's conditions and taints, and without what every write changes.
fn theirs(node: &Value) -> String {
    let mut node = node.clone();
    let nodepulse_types = types();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|c| !nodepulse_types.contains(&c["type"].as_str().unwrap()));
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|t| !t["key"].as_str().unwrap().starts_with("nodepulse.dev/"));
    }
    for field in ["resourceVersion", "uid", "creationTimestamp"] {
        node["metadata"].as_object_mut().unwrap().remove(field);
    }
    node.to_string()
}

/// Whether every request of the companion so far contains only nodepulse's conditions and taints.
fn writes_only_nodepulse_fields(api: &ApiServer) {
    let requests = api.requests_where(|request| request.identity == COMPANION);
    assert!(!requests.is_empty());
    for request in requests {
        let body = request.body.clone().unwrap_or_default();
        let keys = |value: &Value| -> Vec<String> {
            let object = value.as_object().unwrap_or_else(|| panic!("{request}"));
            object.keys().cloned().collect()
        };
        assert!(!request.path.starts_with(LEASES), "{request}");
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", NODE | WATCHED) => {}
            ("PATCH", STATUS) => {
                assert_eq!(keys(&body), ["status"], "{request}");
                assert_eq!(keys(&body["status"]), ["conditions"], "{request}");
                for condition in body["status"]["conditions"].as_array().unwrap() {
                    let type_ = condition["type"].as_str().unwrap();
                    assert!(types().contains(&type_), "{type_} in {request}");
                }
            }
            ("PATCH", NODE) => {
                assert_eq!(keys(&body), ["metadata", "spec"], "{request}");
                assert_eq!(keys(&body["metadata"]), ["resourceVersion"], "{request}");
                assert_eq!(keys(&body["spec"]), ["taints"], "{request}");
            }
            (_, path) => assert!(path.starts_with(EVENTS), "{request}"),
        }
    }
}

/// What makes a condition True.
#[derive(Clone, Copy)]
enum Cause {
    Memory,
    PodsMemory,
    GlobalKill,
    PodsKill,
    Pids,
    PodsPids,
    Disk,
    Kills,
    Stall(StallOf, StallKind),
}

impl Sim {
    async fn begin(&self, cause: Cause) {
        match cause {
            Cause::Memory => drop(self.host.mem_working_set(SHORT)),
            Cause::PodsMemory => drop(self.host.pods_working_set("14900Mi")),
            Cause::GlobalKill => {
                self.host.mem_working_set(SHORT);
                self.kill(Limit::Machine).await;
            }
            Cause::PodsKill => self.kill(Limit::Of(PODS)).await,
            Cause::Pids => self.node.kernel().crowd().await,
            Cause::PodsPids => drop(self.host.pods_pids(95, Some(100))),
            Cause::Disk => self.node.kernel().slow_window((8, 0)).await,
            Cause::Kills => self.kills_in(&KILLED_PODS, 5).await,
            Cause::Stall(of, kind) => {
                self.waits(of, kind, 80.0);
                if Stall::new(of, kind) == Stall::NODE_MEMORY {
                    tokio::spawn(short_of_memory(Arc::clone(&self.host)));
                }
                self.stall(of, kind).await;
            }
        }
    }

    async fn end(&self, cause: Cause) {
        self.host.mem_working_set(PLENTY);
        match cause {
            Cause::Memory
            | Cause::GlobalKill
            | Cause::PodsKill
            | Cause::Kills
            // Without slow windows it is responsive again.
            | Cause::Disk => {}
            Cause::PodsMemory => drop(self.host.pods_working_set("2Gi")),
            Cause::Pids => drop(self.host.tasks(200)),
            Cause::PodsPids => drop(self.host.pods_pids(5, Some(100))),
            Cause::Stall(of, kind) => self.waits(of, kind, 0.0),
        }
    }

    fn waits(&self, of: StallOf, kind: StallKind, percent: f32) {
        match of {
            StallOf::Node => drop(self.host.pressure(kind.as_str(), percent, percent)),
            StallOf::Pods => pods_pressure(&self.host, kind.as_str(), percent),
        }
    }
}

/// For as long as the agent observes it, the node reclaims memory, and a pod waits for it. The
/// files change between the readings, which are a whole number of seconds after the cause.
async fn short_of_memory(host: Arc<MadeUpHost>) {
    let half = Duration::from_millis(500);
    for second in 0..=SHORTAGE.as_secs() {
        let reclaim = format!("allocstall_normal {second}\npgscan_kswapd 0\n");
        host.write("proc/vmstat", reclaim);
        let micros = second * 1_000_000;
        let waits = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n");
        let [pod, ..] = KILLED_PODS;
        host.write(&format!("sys/fs/cgroup/{pod}/memory.pressure"), waits);
        pass(if second == 0 { half } else { 2 * half }).await;
    }
}

/// From the trigger until it is known that the node is short of memory.
const SHORTAGE: Duration = Duration::from_secs(11);
/// How long a sample of files may be delayed.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// The longest that it takes until a source that cannot be read is lost: two sampling periods after
/// the first sample that failed.
const LOST: Duration = Duration::from_secs(40);

fn taint_keys(view: View<'_>) -> Vec<String> {
    let node = view.node().unwrap();
    let taints = node["spec"]["taints"].as_array();
    let keys = taints.into_iter().flatten();
    keys.map(|taint| taint["key"].as_str().unwrap().to_owned())
        .collect()
}

fn tainting(node: Node) -> Node {
    node.config(|overrides| overrides.taints = Some("MemoryLow=NoSchedule".to_owned()))
}

fn condition_types(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().unwrap();
    let type_ = |c: &Value| c["type"].as_str().unwrap().to_owned();
    conditions.iter().map(type_).collect()
}
