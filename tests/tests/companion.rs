//! Beside a kubelet: conditions of our own on its Node, and nothing else.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use nodepulse::api::{Client, companion, transport};
use nodepulse::clock::BootNanos;
use nodepulse::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse::reading::{Stall, StallKind, StallOf};
use nodepulse::record::{Record, ScopeSource, Side};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Grant, Recorded};
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::{COMPANION, Kill, Limit, Node, Running, in_memory, pass};
use nodepulse_tests::view::{EVENTS, LEASES, View};
use serde_json::{Value, json};

const AT_ONCE: Duration = Duration::from_millis(5);
const TRANSITION: Duration = Duration::from_mins(5);
const NODE: &str = "/api/v1/nodes/worker-1";
const WATCHED: &str = "/api/v1/pods";
const STATUS: &str = "/api/v1/nodes/worker-1/status";
const CONTAINER: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11/\
     3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
/// Of 16 GiB, of which 5 % are to be left.
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
    api.grant(Grant {
        user: COMPANION.to_owned(),
        verb: verb.to_owned(),
        resource: resource.to_owned(),
    });
}

/// A server with a kubelet's Node, on which companions may do what they need without taints.
fn cluster() -> Arc<ApiServer> {
    let api = in_memory();
    for (verb, resource) in [
        ("get", "nodes"),
        ("patch", "nodes/status"),
        ("create", "events"),
        ("patch", "events"),
        ("watch", "pods"),
        ("get", "pods"),
    ] {
        grant(&api, verb, resource);
    }
    api.put_object(kubelets_node());
    api
}

fn calm() -> Arc<MadeUpHost> {
    let host = MadeUpHost::calm();
    host.pid_max(10_000).disk("sda", "8:0").oom(CONTAINER, 0, 0);
    host.write("var/lib/kubelet/made-up", "");
    for kind in ["memory", "io"] {
        host.pressure(kind, 0.0, 0.0);
        pods_pressure(&host, kind, 0.0);
    }
    Arc::new(host)
}

fn pods_pressure(host: &MadeUpHost, kind: &str, percent: f32) {
    let text = format!("some avg10={percent:.2} avg60={percent:.2} avg300=0.00 total=1\n");
    host.write(&format!("sys/fs/cgroup/{PODS}/{kind}.pressure"), text);
}

/// A companion that has said its first words.
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
        let node = Node::companion("worker-1").host(Arc::clone(&host));
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

    async fn crowd(&self) {
        self.host.tasks(9_600);
        self.node.kernel().pid_crossing(Side::Over, 9_600).await;
    }

    async fn stall(&self, of: StallOf, kind: StallKind) {
        let stall = Stall::new(of, kind);
        let at = BootNanos(0);
        self.node.kernel().tell(Record::Stall { at, stall }).await;
    }
}

fn patches(api: &ApiServer) -> Vec<Recorded> {
    api.requests_where(|request| request.method == "PATCH" && request.path == STATUS)
}

fn lines(requests: &[Recorded]) -> Vec<String> {
    let line = |r: &Recorded| format!("{} {} {:?}", r.method, r.path, r.status.unwrap_or(0));
    requests.iter().map(line).collect()
}

/// The Node without what is ours, and without what every write changes.
fn theirs(node: &Value) -> String {
    let mut node = node.clone();
    let ours = types();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|c| !ours.contains(&c["type"].as_str().unwrap()));
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|t| !t["key"].as_str().unwrap().starts_with("nodepulse.dev/"));
    }
    for field in ["resourceVersion", "uid", "creationTimestamp"] {
        node["metadata"].as_object_mut().unwrap().remove(field);
    }
    node.to_string()
}

/// Whether every request of the companion so far says only what is its own to say.
fn says_only_its_own(api: &ApiServer) {
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

#[tokio::test(start_paused = true)]
async fn it_reads_once_and_adds_nine_conditions_and_ready_stays_the_last() {
    let api = cluster();
    let before = theirs(&api.object(NODE).unwrap());
    let sim = Sim::on(&api, |node| node).await;
    pass(Duration::from_secs(60)).await;
    let expected = [format!("GET {NODE} 200"), format!("PATCH {STATUS} 200")];
    let about_the_node = api.requests_where(|request| request.path != WATCHED);
    assert_eq!(lines(&about_the_node), expected);
    assert_eq!(theirs(&sim.view().node().unwrap()), before);
    let all = sim.view().condition_types();
    assert_eq!(all.len(), 14);
    // Where the API's merge puts what is new.
    assert_eq!(all[..9], types());
    assert_eq!(all[13], "Ready");
    let rows = [
        "MemoryAvailable",
        "PIDsAvailable",
        "SpaceAvailable",
        "DisksResponsive",
        "FewOOMKills",
        "NotStalled",
        "NotStalled",
        "NotStalled",
        "NotStalled",
    ];
    for (type_, reason) in types().into_iter().zip(rows) {
        let condition = sim.view().condition(type_);
        assert_eq!(condition["status"], "False", "{type_}");
        assert_eq!(condition["reason"], reason, "{type_}");
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
    says_only_its_own(&api);
}

#[tokio::test(start_paused = true)]
async fn ten_idle_minutes_cost_one_read_and_three_patches() {
    let api = cluster();
    let node = Node::companion("worker-1").host(calm()).start(&api);
    pass(Duration::from_mins(10)).await;
    let patch = || format!("PATCH {STATUS} 200");
    let expected = [format!("GET {NODE} 200"), patch(), patch(), patch()];
    let watches = |request: &Recorded| request.path == WATCHED;
    assert_eq!(lines(&api.requests_where(|r| !watches(r))), expected);
    let watches = api.requests_where(watches).len();
    assert!((1..=3).contains(&watches), "{watches} watches on pods");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn heartbeats_come_after_a_drawn_time_and_then_every_five_minutes() {
    let mut minutes = std::collections::BTreeSet::new();
    for seed in 1..=8 {
        let api = cluster();
        let node = Node::companion("worker-1").seed(seed).host(calm());
        let node = node.start(&api);
        pass(Duration::from_mins(20)).await;
        let at: Vec<_> = patches(&api).iter().map(|patch| patch.at).collect();
        let (first, second) = (at[1] - at[0], at[2] - at[1]);
        let drawn = Duration::from_secs(150)..Duration::from_secs(451);
        assert!(drawn.contains(&first), "{at:?}");
        let plain = TRANSITION..TRANSITION + Duration::from_secs(1);
        assert!(plain.contains(&second), "{at:?}");
        minutes.insert(first.as_secs() / 60);
        node.stop().await.unwrap();
    }
    assert!(2 < minutes.len(), "not spread: {minutes:?}");
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
            Cause::Pids => self.crowd().await,
            Cause::PodsPids => drop(self.host.pods_pids(95, Some(100))),
            Cause::Disk => self.node.kernel().disk_state((8, 0), Side::Over).await,
            Cause::Kills => {
                for _ in 0..5 {
                    self.kill(Limit::Of(CONTAINER)).await;
                }
            }
            Cause::Stall(of, kind) => {
                self.waits(of, kind, 80.0);
                self.stall(of, kind).await;
            }
        }
    }

    async fn end(&self, cause: Cause) {
        self.host.mem_working_set(PLENTY);
        match cause {
            Cause::Memory | Cause::GlobalKill | Cause::PodsKill | Cause::Kills => {}
            Cause::PodsMemory => drop(self.host.pods_working_set("2Gi")),
            Cause::Pids => drop(self.host.tasks(200)),
            Cause::PodsPids => drop(self.host.pods_pids(5, Some(100))),
            Cause::Disk => self.node.kernel().disk_state((8, 0), Side::Under).await,
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

/// How long a look at files may take to come.
const LOOK: Duration = Duration::from_secs(10);
/// The longest that it takes until a source that cannot be read is lost: two sampling periods after the
/// first look that failed.
const LOST: Duration = Duration::from_secs(40);

#[tokio::test(start_paused = true)]
async fn each_condition_begins_with_its_cause_and_ends_a_transition_period_after_it() {
    use Cause::{
        Disk, GlobalKill, Kills, Memory, Pids, PodsKill, PodsMemory, PodsPids, Stall as Waits,
    };
    let lately = "within the transition period";
    let ten = Duration::from_mins(10);
    let none = Duration::ZERO;
    // Cause, how late, how long it lasts by itself, condition, reason, message, reason of the end.
    #[rustfmt::skip]
    let rows = [
        (Memory, LOOK, LOOK, "MemoryLow", "LowMemory", format!("memory.available has been below 5% {lately}"), "MemoryAvailable"),
        (PodsMemory, LOOK, LOOK, "MemoryLow", "LowMemory", format!("memory.available of the pods cgroup /kubepods has been below 5% {lately}"), "MemoryAvailable"),
        (GlobalKill, none, LOOK, "MemoryLow", "GlobalOOMKill", "the kernel killed a process because the node was out of memory".to_owned(), "MemoryAvailable"),
        (PodsKill, none, none, "MemoryLow", "PodsOOMKill", "the kernel killed a process at the memory limit of the pods cgroup /kubepods".to_owned(), "MemoryAvailable"),
        (Pids, none, LOOK, "PIDsLow", "LowPIDs", format!("pid.available has been below 10% {lately}"), "PIDsAvailable"),
        (PodsPids, LOOK, LOOK, "PIDsLow", "PodsLowPIDs", format!("pid.available of the pods cgroup /kubepods has been below 10% {lately}"), "PIDsAvailable"),
        (Disk, none, none, "DiskIOPressure", "SlowDisk", "slow disk: sda".to_owned(), "DisksResponsive"),
        (Kills, none, ten, "FrequentOOMKills", "FrequentOOMKills", "at least 5 processes of pods were OOM-killed within 10 minutes".to_owned(), "FewOOMKills"),
        (Waits(StallOf::Node, StallKind::Memory), none, LOOK, "MemoryStallPressure", "Stalled", format!("memory stall (PSI some) of the node has been at least 40% {lately}"), "NotStalled"),
        (Waits(StallOf::Node, StallKind::Io), none, LOOK, "DiskStallPressure", "Stalled", format!("I/O stall (PSI some) of the node has been at least 40% {lately}"), "NotStalled"),
        (Waits(StallOf::Pods, StallKind::Memory), none, LOOK, "PodsMemoryStallPressure", "Stalled", format!("memory stall (PSI some) of the pods cgroup /kubepods has been at least 40% {lately}"), "NotStalled"),
        (Waits(StallOf::Pods, StallKind::Io), none, LOOK, "PodsDiskStallPressure", "Stalled", format!("I/O stall (PSI some) of the pods cgroup /kubepods has been at least 40% {lately}"), "NotStalled"),
    ];
    for (cause, late, lasts, type_, reason, message, end) in rows {
        let sim = Sim::start().await;
        let view = sim.view();
        pass(Duration::from_secs(33)).await;
        let begun = sim.api.now();
        sim.begin(cause).await;
        let (condition, at) = view.becomes(type_, "True", LOOK * 2).await;
        let took = at - begun;
        assert!(took <= late + AT_ONCE, "{type_} {reason}: {took:?} late");
        assert_eq!(condition["reason"], reason);
        assert_eq!(condition["message"], message, "{type_}");
        let event = view.event(reason, SOON).await;
        assert_eq!(event["type"], "Warning", "{reason}");
        let uid = &view.node().unwrap()["metadata"]["uid"];
        assert_eq!(event["involvedObject"]["uid"], *uid);
        let only: Vec<_> = types()
            .into_iter()
            .filter(|own| view.status(own) == "True")
            .collect();
        assert_eq!(only, [type_], "{reason}: alone");

        let over = sim.api.now();
        sim.end(cause).await;
        let (condition, at) = view.becomes(type_, "False", TRANSITION + ten + LOOK).await;
        let held = at - over;
        let longest = TRANSITION + lasts + AT_ONCE;
        assert!(
            TRANSITION - AT_ONCE <= held && held <= longest,
            "{reason}: {held:?}"
        );
        assert_eq!(condition["reason"], end);
        let event = view.event(end, SOON).await;
        assert_eq!(event["type"], "Normal", "{end}");
        says_only_its_own(&sim.api);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_while_a_condition_lasts_does_not_move() {
    let sim = Sim::start().await;
    sim.host.mem_working_set(SHORT);
    sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    let first = sim.view().condition("MemoryLow");
    let before = patches(&sim.api).len();
    for used in [15_710, 15_720, 15_705, 15_730] {
        sim.host.mem_working_set(&format!("{used}Mi"));
        pass(Duration::from_secs(20)).await;
    }
    assert_eq!(patches(&sim.api).len(), before, "no number is news");
    pass(TRANSITION * 2).await;
    let last = sim.view().condition("MemoryLow");
    assert_ne!(last["lastHeartbeatTime"], first["lastHeartbeatTime"]);
    for key in ["status", "reason", "message", "lastTransitionTime"] {
        assert_eq!(last[key], first[key]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_disk_and_a_confirmed_kill_are_told_at_once_and_are_no_transition() {
    let host = calm();
    host.disk("sdb", "8:16");
    let sim = Sim::with(&cluster(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(60)).await;
    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    let (first, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    pass(Duration::from_millis(500)).await;
    sim.node.kernel().disk_state((8, 16), Side::Over).await;
    pass(Duration::from_secs(1)).await;
    let second = view.condition("DiskIOPressure");
    assert_eq!(second["message"], "slow disk: sda, sdb");
    assert_eq!(second["lastTransitionTime"], first["lastTransitionTime"]);

    sim.host.mem_working_set(SHORT);
    let (first, _) = view.becomes("MemoryLow", "True", LOOK * 2).await;
    pass(Duration::from_secs(30)).await;
    sim.kill(Limit::Machine).await;
    pass(Duration::from_millis(50)).await;
    let second = view.condition("MemoryLow");
    assert_eq!(first["reason"], "LowMemory");
    assert_eq!(second["reason"], "GlobalOOMKill");
    assert_eq!(second["lastTransitionTime"], first["lastTransitionTime"]);
    pass(Duration::from_secs(20)).await;
    assert_eq!(view.condition("MemoryLow")["reason"], "GlobalOOMKill");
}

#[tokio::test(start_paused = true)]
async fn without_a_source_a_condition_is_unknown_and_keeps_no_old_true() {
    let sim = Sim::start().await;
    let view = sim.view();
    sim.host.mem_working_set(SHORT);
    view.becomes("MemoryLow", "True", LOOK * 2).await;
    pass(Duration::from_secs(30)).await;
    sim.host
        .remove("sys/fs/cgroup/memory.stat")
        .remove("proc/loadavg")
        .remove("sys/fs/cgroup/kubepods/io.pressure");
    sim.stall(StallOf::Pods, StallKind::Io).await;
    for (type_, message) in [
        ("MemoryLow", "memory.available cannot be read"),
        ("PIDsLow", "pid.available cannot be read"),
        (
            "PodsDiskStallPressure",
            "I/O stall (PSI) of the pods cgroup /kubepods cannot be read",
        ),
    ] {
        let (condition, _) = view.becomes(type_, "Unknown", LOST).await;
        assert_eq!(condition["reason"], "SourceUnavailable", "{type_}");
        assert_eq!(condition["message"], message);
    }
    let unknown = types().into_iter().filter(|t| view.status(t) == "Unknown");
    assert_eq!(unknown.count(), 3);
    sim.host.mem_working_set(PLENTY).tasks(200);
    view.becomes("PIDsLow", "False", LOOK * 2).await;
}

/// A pod's container that no directory is left of.
const GONE: &str = "kubepods/burstable/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11/\
     9c5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";

/// Names that reach the top of the hierarchy are the whole path. Others a tenant may have chosen.
#[tokio::test(start_paused = true)]
async fn kills_whose_cgroups_are_gone_count_where_it_is_certain_that_those_were_pods() {
    let pod = "kubepods/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11";
    let rows = [
        (pod, "True"),
        (GONE, "False"),
        ("system.slice/a.service/b/c", "False"),
    ];
    for (cgroup, status) in rows {
        let sim = Sim::start().await;
        for _ in 0..5 {
            let kill = Kill {
                victim: ("java", 4321),
                cgroup,
                limit: Limit::Of(cgroup),
                source: ScopeSource::Exact,
            };
            sim.node.kernel().oom_kill(kill).await;
        }
        pass(Duration::from_secs(5)).await;
        assert_eq!(sim.view().status("FrequentOOMKills"), status, "{cgroup}");
    }
}

/// How many of all pods were killed.
const COUNTERS: &str = "sys/fs/cgroup/kubepods/memory.events";

/// More kills than are few, as the counters tell them.
fn counted(host: &MadeUpHost) {
    host.pods_oom(0, 10).oom(CONTAINER, 0, 10);
}

#[tokio::test(start_paused = true)]
async fn how_often_processes_are_killed_is_unknown_while_the_counters_cannot_be_read() {
    let host = calm();
    counted(&host);
    let sim = Sim::with(&cluster(), host, Node::on_files).await;
    let view = sim.view();
    pass(Duration::from_secs(30)).await;
    assert_eq!(view.status("FrequentOOMKills"), "False", "of before");
    sim.host.remove(COUNTERS);
    let (condition, _) = view.becomes("FrequentOOMKills", "Unknown", LOST).await;
    assert_eq!(condition["reason"], "SourceUnavailable");
    counted(&sim.host);
    view.becomes("FrequentOOMKills", "False", LOOK * 2 + AT_ONCE)
        .await;
    sim.host.remove(COUNTERS);
    view.becomes("FrequentOOMKills", "Unknown", LOST).await;
    sim.host.pods_oom(0, 15);
    view.becomes("FrequentOOMKills", "True", LOOK * 2 + AT_ONCE)
        .await;
}

#[tokio::test(start_paused = true)]
async fn where_the_kernels_log_ends_the_counters_tell_of_kills_and_without_them_nothing_does() {
    for readable in [true, false] {
        let (kernel, log) = UnixDatagram::pair().unwrap();
        log.set_nonblocking(true).unwrap();
        let host = calm();
        counted(&host);
        if !readable {
            host.remove(COUNTERS);
        }
        let sim = Sim::with(&cluster(), host, |node| node.on_log(log)).await;
        let view = sim.view();
        pass(Duration::from_secs(30)).await;
        assert_eq!(view.status("FrequentOOMKills"), "False");
        if readable {
            sim.host.pods_oom(0, 15);
        }
        // An empty record: what stands in for the log in some containers ends.
        kernel.send(b"").unwrap();
        if !readable {
            let (condition, _) = view.becomes("FrequentOOMKills", "Unknown", LOST).await;
            assert_eq!(condition["reason"], "SourceUnavailable");
            continue;
        }
        // Also of those of which the log had no record.
        view.becomes("FrequentOOMKills", "True", LOOK * 2 + AT_ONCE)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn space_is_low_by_the_file_system_below_the_kubelets_directory() {
    let rows = [
        (
            "nodefs.available<99.99%",
            "nodefs.inodesFree<0%",
            "LowSpace",
        ),
        (
            "nodefs.available<0%",
            "nodefs.inodesFree<0%",
            "SpaceAvailable",
        ),
    ];
    for (space, inodes, reason) in rows {
        let sim = Sim::on(&cluster(), |node| {
            let both = format!("{space},{inodes}");
            node.config(|overrides| overrides.eviction_hard = Some(both))
        })
        .await;
        assert_eq!(sim.view().condition("DiskSpaceLow")["reason"], reason);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_off_or_has_no_files_is_unknown_from_the_start() {
    let host = calm();
    host.remove("proc/pressure").remove("sys/fs/cgroup");
    let sim = Sim::with(&cluster(), host, Node::on_files).await;
    let of_status = |status: &str| -> Vec<_> {
        let all = types().into_iter();
        all.filter(|type_| sim.view().status(type_) == status)
            .collect()
    };
    let known = ["PIDsLow", "DiskSpaceLow", "DiskIOPressure"];
    assert_eq!(of_status("False"), known);
    assert_eq!(of_status("Unknown").len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_time_of_the_last_transition_and_holds_what_was_true() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let all = [
        ("MemoryLow", Cause::GlobalKill),
        ("PIDsLow", Cause::Pids),
        ("FrequentOOMKills", Cause::Kills),
        (
            "MemoryStallPressure",
            Cause::Stall(StallOf::Node, StallKind::Memory),
        ),
    ];
    for (type_, cause) in all {
        sim.begin(cause).await;
        sim.view().becomes(type_, "True", LOOK * 2).await;
        pass(Duration::from_secs(11)).await;
    }
    for (_, cause) in all {
        sim.end(cause).await;
    }
    let words = |view: View<'_>| -> Vec<Value> {
        let mut all: Vec<Value> = types().into_iter().map(|t| view.condition(t)).collect();
        for condition in &mut all {
            condition
                .as_object_mut()
                .unwrap()
                .remove("lastHeartbeatTime");
        }
        all
    };
    let before = words(sim.view());
    sim.node.stop().await.unwrap();
    pass(Duration::from_mins(30)).await;

    let restarted = sim.api.now();
    let sim = Sim::on(&sim.api, |node| node).await;
    assert_eq!(words(sim.view()), before);
    pass(TRANSITION - Duration::from_secs(1)).await;
    assert_eq!(words(sim.view()), before, "still held");
    for (type_, _) in all {
        let (_, at) = sim.view().becomes(type_, "False", LOOK * 2).await;
        let held = at - restarted;
        assert!(held >= TRANSITION, "{type_} held for {held:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_true_is_held_from_when_we_first_saw_it_well_however_late_the_server_is() {
    let held = [
        "MemoryLow",
        "PIDsLow",
        "DiskIOPressure",
        "FrequentOOMKills",
        "DiskStallPressure",
    ];
    for minutes in [3, 6] {
        let api = cluster();
        let mut node = kubelets_node();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for type_ in held {
            let long_ago = "2025-12-01T00:00:00Z";
            let stored = json!({ "type": type_, "status": "True", "lastTransitionTime": long_ago });
            conditions.insert(0, stored);
        }
        api.put_object(node);
        let started = api.now();
        let node = Node::companion("worker-1").host(calm()).out_of_reach();
        let node = node.start(&api);
        pass(Duration::from_mins(minutes)).await;
        node.reach();
        let view = View::of(&api, "worker-1");
        for type_ in held {
            let (_, at) = view.becomes(type_, "False", TRANSITION * 2).await;
            let late = Duration::from_mins(minutes) + Duration::from_secs(46);
            let (least, most) = (TRANSITION, late.max(TRANSITION + LOOK));
            let after = at - started;
            assert!(least <= after && after <= most, "{type_}: {after:?}");
        }
        node.stop().await.unwrap();
    }
}

/// Somebody who writes to the Node all the time: a condition, a label and a taint of their own.
async fn scribble(api: Arc<ApiServer>) {
    for n in 0_u64.. {
        pass(Duration::from_millis(50)).await;
        let Some(mut node) = api.object(NODE) else {
            continue;
        };
        node["metadata"]["labels"]["tick"] = json!(n.to_string());
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.last_mut().unwrap()["message"] = json!(format!("tick {n}"));
        let taints = node["spec"]["taints"].as_array_mut().unwrap();
        taints[0]["value"] = json!(format!("tick-{n}"));
        api.put_object(node);
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_busy_writer_nothing_of_others_is_lost_and_nothing_of_theirs_is_said() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let scribbler = tokio::spawn(scribble(Arc::clone(&api)));
    // Two of our requests take longer than it takes somebody else to be quicker.
    let slow = |request: &Recorded| request.method == "PATCH";
    let latency = Effect::Latency(Duration::from_millis(30));
    api.faults().push(Fault::when(slow, latency).always());
    let sim = Sim::on(&api, |node| {
        node.config(|overrides| {
            overrides.taints = Some("MemoryLow=NoSchedule,DiskIOPressure=NoExecute".to_owned());
            overrides.eviction_pressure_transition_period = Some("20s".to_owned());
        })
    })
    .await;
    for cause in [Cause::GlobalKill, Cause::Disk, Cause::Pids, Cause::Kills] {
        sim.begin(cause).await;
        pass(Duration::from_secs(15)).await;
        sim.end(cause).await;
        pass(Duration::from_secs(50)).await;
    }
    scribbler.abort();
    pass(Duration::from_secs(20)).await;
    let conflicts = api.requests_where(|r| r.path == NODE && r.status == Some(409));
    assert!(
        !conflicts.is_empty(),
        "nobody was quicker: {:#?}",
        lines(&api.requests())
    );
    let node = sim.view().node().unwrap();
    let ticks = &node["metadata"]["labels"]["tick"];
    assert_eq!(
        node["spec"]["taints"],
        json!([{ "key": "dedicated", "value": format!("tick-{}", ticks.as_str().unwrap()), "effect": "NoSchedule" }])
    );
    let mut expected = kubelets_node();
    expected["metadata"]["labels"]["tick"] = ticks.clone();
    expected["spec"]["taints"] = node["spec"]["taints"].clone();
    let message = format!("tick {}", ticks.as_str().unwrap());
    expected["status"]["conditions"][4]["message"] = json!(message);
    assert_eq!(theirs(&node), theirs(&expected));
    assert!(8 <= patches(&api).len());
    says_only_its_own(&api);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_takes_away_or_changes_of_ours_is_put_right_with_the_next_patch() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(60)).await;
    let before = sim.view().condition("MemoryLow");
    let mut node = sim.view().node().unwrap();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != "MemoryLow");
    let changed = conditions.iter_mut().find(|c| c["type"] == "PIDsLow");
    changed.unwrap()["status"] = json!("True");
    sim.api.put_object(node);

    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    sim.view().becomes("DiskIOPressure", "True", SOON).await;
    let mut after = sim.view().condition("MemoryLow");
    assert_ne!(after["lastHeartbeatTime"], before["lastHeartbeatTime"]);
    after["lastHeartbeatTime"] = before["lastHeartbeatTime"].clone();
    assert_eq!(after, before);
    assert_eq!(sim.view().status("PIDsLow"), "False");
    assert_eq!(sim.view().condition_types().len(), 14);
}

fn taint_keys(view: View<'_>) -> Vec<String> {
    let node = view.node().unwrap();
    let taints = node["spec"]["taints"].as_array();
    let keys = taints.into_iter().flatten();
    keys.map(|taint| taint["key"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_off_is_taken_off_the_node_with_its_taint() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let mut node = kubelets_node();
    let taints = node["spec"]["taints"].as_array_mut().unwrap();
    taints.push(json!({ "key": MEMORY_TAINT, "effect": "NoExecute" }));
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    for type_ in ["MemoryLow", "PIDsLow"] {
        conditions.insert(0, json!({ "type": type_, "status": "True" }));
    }
    api.put_object(node);
    let sim = Sim::on(&api, |node| {
        node.config(|overrides| overrides.conditions = Some("MemoryLow=false".to_owned()))
    })
    .await;
    pass(Duration::from_secs(1)).await;
    let types = sim.view().condition_types();
    assert!(!types.contains(&"MemoryLow".to_owned()), "{types:?}");
    assert_eq!((types.len(), types[0].as_str()), (13, "PIDsLow"));
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);
    let deletion = json!({ "type": "MemoryLow", "$patch": "delete" });
    let first = patches(&api).remove(0).body.unwrap();
    let listed = first["status"]["conditions"].as_array().unwrap();
    assert!(listed.contains(&deletion), "{first}");

    sim.host.mem_working_set(SHORT);
    pass(TRANSITION * 2).await;
    assert_eq!(sim.view().condition("MemoryLow"), Value::Null);
    let last = patches(&api).pop().unwrap().body.unwrap();
    assert!(!last.to_string().contains("MemoryLow"), "said once: {last}");
}

fn tainting(node: Node) -> Node {
    node.config(|overrides| overrides.taints = Some("MemoryLow=NoSchedule".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_taint_is_there_while_its_condition_is_true_and_goes_when_nobody_can_see() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let sim = Sim::on(&api, tainting).await;
    sim.host.mem_working_set(SHORT);
    sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated", MEMORY_TAINT]);
    let spec = &sim.view().node().unwrap()["spec"];
    let plain = json!({ "key": MEMORY_TAINT, "effect": "NoSchedule" });
    assert_eq!(spec["taints"][1], plain);
    let reads = api.requests_where(|request| request.method == "GET" && request.path == NODE);
    let reads = reads.len();
    assert_eq!(reads, 1, "the answer to the patch is as good as a read");

    sim.host.remove("sys/fs/cgroup/memory.stat");
    sim.view().becomes("MemoryLow", "Unknown", LOST).await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);

    sim.host.mem_working_set(SHORT);
    sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    sim.host.mem_working_set(PLENTY);
    sim.view()
        .becomes("MemoryLow", "False", TRANSITION * 2)
        .await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);
    let written = sim.node.scrape().await;
    let name = "nodepulse_taint_patches_total";
    assert_eq!(written.value(name, &[("result", "written")]), Some(4.0));
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_cannot_be_written_now_is_written_later() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let sim = Sim::on(&api, tainting).await;
    // More conflicts than one change has tries.
    let taint = |request: &Recorded| request.path == NODE && request.method == "PATCH";
    api.faults()
        .push(Fault::when(taint, Effect::Status(409)).times(10));
    sim.host.mem_working_set(SHORT);
    let (_, at) = sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    let tainted = api
        .wait_for(LOOK * 2, "the taint", |api| {
            let written = api.requests_where(|r| taint(r) && r.status == Some(200));
            written.first().map(|request| request.at)
        })
        .await;
    let late = tainted - at;
    assert!(late <= Duration::from_secs(15), "{late:?}");
    assert_eq!(taint_keys(sim.view()), ["dedicated", MEMORY_TAINT]);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_taint_the_conditions_go_on() {
    let sim = Sim::on(&cluster(), tainting).await;
    sim.host.mem_working_set(SHORT);
    sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    pass(Duration::from_mins(20)).await;
    let refused = sim.api.requests_where(|r| r.status == Some(403)).len();
    assert!(
        (2..=6).contains(&refused),
        "{refused}: at the edge and with heartbeats"
    );
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);
    sim.host.mem_working_set(PLENTY);
    sim.view()
        .becomes("MemoryLow", "False", TRANSITION * 2)
        .await;
    let read = sim.node.scrape().await;
    let denied = read.value("nodepulse_taint_patches_total", &[("result", "denied")]);
    assert!(denied >= Some(2.0), "{denied:?}");

    grant(&sim.api, "patch", "nodes");
    sim.host.mem_working_set(SHORT);
    sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated", MEMORY_TAINT]);
}

#[tokio::test(start_paused = true)]
async fn taints_follow_the_conditions_though_the_status_is_refused_and_wait_for_a_server() {
    // The answer to a status, and whether the taint is written all the same.
    for (code, follows) in [(403, true), (422, true), (409, true), (503, false)] {
        let api = cluster();
        grant(&api, "patch", "nodes");
        let sim = Sim::on(&api, tainting).await;
        pass(Duration::from_secs(33)).await;
        let refused = Fault::on("PATCH", STATUS, Effect::Status(code));
        api.faults().push(refused.always());
        sim.host.mem_working_set(SHORT);
        pass(Duration::from_secs(30)).await;
        assert_eq!(sim.view().status("MemoryLow"), "False", "{code}");
        let tainted = taint_keys(sim.view()).contains(&MEMORY_TAINT.to_owned());
        assert_eq!(tainted, follows, "{code}");
        sim.host.mem_working_set(PLENTY);
        pass(TRANSITION * 2).await;
        assert_eq!(taint_keys(sim.view()), ["dedicated"], "{code}");
        let written = |r: &Recorded| r.path == NODE && r.method == "PATCH";
        let times = usize::from(follows) * 2;
        assert_eq!(api.requests_where(written).len(), times, "{code}");
    }
}

/// Whether somebody changes taints, and leaves one of ours on memory there.
fn on_memory(request: &Recorded) -> bool {
    let body = request.body.clone().unwrap_or_default().to_string();
    request.path == NODE && request.method == "PATCH" && body.contains(MEMORY_TAINT)
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_refused_does_not_hold_up_the_others_and_is_tried_with_heartbeats() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let sim = Sim::on(&api, |node| {
        let all = "MemoryLow=NoSchedule,PIDsLow=NoSchedule,DiskIOPressure=NoSchedule";
        node.config(|overrides| overrides.taints = Some(all.to_owned()))
    })
    .await;
    pass(Duration::from_secs(33)).await;
    api.faults()
        .push(Fault::when(on_memory, Effect::Status(403)).always());
    sim.host.mem_working_set(SHORT);
    sim.crowd().await;
    sim.view().becomes("MemoryLow", "True", SOON).await;
    pass(Duration::from_millis(50)).await;
    let pids = "nodepulse.dev/pids-low";
    assert_eq!(taint_keys(sim.view()), ["dedicated", pids]);
    let refused = || api.requests_where(on_memory).len();
    assert_eq!(refused(), 2, "together with the other, and alone");

    pass(Duration::from_secs(33)).await;
    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    sim.view().becomes("DiskIOPressure", "True", SOON).await;
    pass(Duration::from_millis(50)).await;
    let disk = "nodepulse.dev/disk-io-pressure";
    assert_eq!(taint_keys(sim.view()), ["dedicated", pids, disk]);
    assert_eq!(refused(), 2, "left out of what is not refused");
    pass(Duration::from_mins(20)).await;
    assert!((5..=7).contains(&refused()), "{}", refused());
    let read = sim.node.scrape().await;
    let denied = read.value("nodepulse_taint_patches_total", &[("result", "denied")]);
    assert!(denied >= Some(4.0), "{denied:?}");

    api.faults().clear();
    pass(Duration::from_mins(6)).await;
    let all = ["dedicated", pids, MEMORY_TAINT];
    assert_eq!(taint_keys(sim.view()), all, "the disk is well by now");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_good_is_tried_again_with_heartbeats_alone() {
    let api = in_memory();
    grant(&api, "get", "nodes");
    api.put_object(kubelets_node());
    let node = Node::companion("worker-1").host(calm()).start(&api);
    pass(Duration::from_mins(20)).await;
    let refused = || patches(&api).len();
    assert!((2..=5).contains(&refused()), "{} at the start", refused());
    grant(&api, "patch", "nodes/status");
    let view = View::of(&api, "worker-1");
    view.becomes("MemoryLow", "False", Duration::from_mins(6))
        .await;

    // The right is lost while the agent runs, and a heartbeat is overdue.
    let forbidden = Fault::on("PATCH", STATUS, Effect::Status(403));
    api.faults().push(forbidden.always());
    let before = refused();
    pass(Duration::from_mins(20)).await;
    let more = refused() - before;
    assert!((2..=5).contains(&more), "{more} later");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_is_waited_for_and_never_created() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    sim.crowd().await;
    sim.view().becomes("PIDsLow", "True", SOON).await;
    sim.view().event("LowPIDs", SOON).await;
    sim.api.delete_object(NODE);
    pass(Duration::from_mins(20)).await;
    let reads = sim.api.requests_where(|r| r.status == Some(404));
    assert!((5..60).contains(&reads.len()), "{}", reads.len());
    let creates = sim.api.requests_where(|r| r.method == "POST");
    let creates = creates.iter().filter(|r| !r.path.starts_with(EVENTS));
    assert_eq!(creates.count(), 0);

    let created = sim.api.now();
    sim.api.put_object(kubelets_node());
    let (condition, at) = sim.view().becomes("PIDsLow", "True", TRANSITION).await;
    let late = at - created;
    assert!(late <= Duration::from_secs(46), "{late:?} late");
    assert_eq!(condition["reason"], "LowPIDs");
    assert_eq!(sim.view().condition_types().len(), 14);
    says_only_its_own(&sim.api);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_both_there_and_not_is_not_asked_for_at_full_speed() {
    let sim = Sim::start().await;
    let missing = Fault::on("PATCH", STATUS, Effect::Status(404));
    sim.api.faults().push(missing.always());
    sim.crowd().await;
    pass(Duration::from_mins(10)).await;
    let tries = patches(&sim.api).len();
    assert!((15..=35).contains(&tries), "{tries}");
    sim.api.faults().clear();
    let back = sim.api.now();
    let (_, at) = sim.view().becomes("PIDsLow", "True", TRANSITION).await;
    assert!(at - back <= Duration::from_secs(46), "{:?}", at - back);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_there_yet_and_a_server_that_is_away_are_waited_for() {
    let api = cluster();
    api.delete_object(NODE);
    let host = calm();
    let node = Node::companion("worker-1")
        .host(Arc::clone(&host))
        .out_of_reach()
        .start(&api);
    host.mem_working_set(SHORT);
    pass(Duration::from_mins(2)).await;
    assert_eq!(lines(&api.requests()), [""; 0]);
    node.reach();
    pass(Duration::from_mins(2)).await;
    api.put_object(kubelets_node());
    let view = View::of(&api, "worker-1");
    let (condition, _) = view
        .becomes("MemoryLow", "True", Duration::from_mins(1))
        .await;
    assert_eq!(condition["reason"], "LowMemory");

    // Away in between: the edge goes once it is back, and nothing else.
    let before = patches(&api).len();
    api.faults()
        .push(Fault::on("*", "/", Effect::Status(503)).always());
    host.tasks(9_600);
    node.kernel().pid_crossing(Side::Over, 9_600).await;
    pass(Duration::from_mins(3)).await;
    assert_eq!(view.status("PIDsLow"), "False");
    api.faults().clear();
    let back = api.now();
    let (_, at) = view
        .becomes("PIDsLow", "True", Duration::from_mins(1))
        .await;
    assert!(at - back <= Duration::from_secs(11), "{:?}", at - back);
    view.event("LowPIDs", Duration::from_mins(5)).await;
    let taken = patches(&api).split_off(before);
    let taken = taken.iter().filter(|patch| patch.status == Some(200));
    assert_eq!(taken.count(), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_patch_whose_answer_got_lost_is_still_an_event() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let lost = Fault::on("PATCH", STATUS, Effect::ResetAfterwards);
    sim.api.faults().push(lost);
    sim.crowd().await;
    sim.view().becomes("PIDsLow", "True", SOON).await;
    sim.view().event("LowPIDs", SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_patch_whose_answer_got_lost_is_still_an_event_where_no_try_after_it_gets_through() {
    let sim = Sim::start().await;
    let faults = sim.api.faults();
    let refused = || Fault::on("PATCH", STATUS, Effect::Status(503));
    // Until a heartbeat is overdue, so that there is something to send at each try.
    faults.push(refused().always());
    pass(Duration::from_mins(8)).await;
    faults.clear();
    faults.push(Fault::on("PATCH", STATUS, Effect::ResetAfterwards));
    faults.push(refused().times(4));
    sim.crowd().await;
    sim.view().becomes("PIDsLow", "True", SOON).await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(faults.pending(), 0, "all five tries have failed");
    sim.view().event("LowPIDs", LOOK * 2).await;
    pass(Duration::from_mins(6)).await;
    assert_eq!(sim.view().event_counts()["LowPIDs"], 1, "told once");
}

#[tokio::test(start_paused = true)]
async fn an_edge_that_never_reached_the_server_is_no_event() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let refused = Fault::on("PATCH", STATUS, Effect::Status(503));
    sim.api.faults().push(refused.always());
    sim.crowd().await;
    pass(Duration::from_secs(30)).await;
    sim.host.tasks(200);
    pass(TRANSITION * 2).await;
    sim.api.faults().clear();
    pass(TRANSITION).await;
    assert_eq!(sim.view().event_reasons(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn it_stops_at_once_while_it_waits_for_its_node() {
    let api = cluster();
    api.delete_object(NODE);
    let node = Node::companion("worker-1").host(calm()).start(&api);
    pass(Duration::from_mins(2)).await;
    let asked = api.now();
    node.stop().await.unwrap();
    let took = api.now() - asked;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn every_condition_has_its_metrics_and_readiness_is_that_of_the_first_patch() {
    let api = cluster();
    api.delete_object(NODE);
    let host = calm();
    let node = Node::companion("worker-1").host(Arc::clone(&host));
    let node = node.start(&api);
    pass(Duration::from_secs(1)).await;
    assert_eq!(node.get("/readyz").await.code, Some(503));
    api.put_object(kubelets_node());
    pass(Duration::from_secs(10)).await;
    assert_eq!(node.get("/readyz").await.code, Some(200));

    pods_pressure(&host, "io", 80.0);
    let stall = Stall::new(StallOf::Pods, StallKind::Io);
    let at = BootNanos(0);
    node.kernel().tell(Record::Stall { at, stall }).await;
    pass(Duration::from_secs(1)).await;
    let read = node.scrape().await;
    for type_ in types() {
        let is_true = f64::from(u8::from(type_ == "PodsDiskStallPressure"));
        let labels = [("type", type_), ("status", "True")];
        let status = read.value("nodepulse_condition_status", &labels);
        assert_eq!(status, Some(is_true), "{type_}");
        let name = "nodepulse_condition_transitions_total";
        let transitions = read.value(name, &[("type", type_)]);
        assert_eq!(transitions, Some(is_true), "{type_}");
    }
    let name = "nodepulse_condition_status";
    assert_eq!(read.value(name, &[("type", "MemoryPressure")]), None);
    let why = |why| read.value("nodepulse_status_patches_total", &[("why", why)]);
    assert_eq!((why("change"), why("edge")), (Some(1.0), Some(1.0)));
}

#[tokio::test(start_paused = true)]
async fn what_is_ours_can_be_removed_and_everything_else_stays_byte_for_byte() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let before = theirs(&api.object(NODE).unwrap());
    let sim = Sim::on(&api, tainting).await;
    sim.host.mem_working_set(SHORT);
    sim.view().becomes("MemoryLow", "True", LOOK * 2).await;
    pass(Duration::from_millis(50)).await;
    sim.node.stop().await.unwrap();

    let server = Arc::clone(&api);
    let dial = move || std::future::ready(Ok(server.dial()));
    let config = kube::Config::new("http://in-memory".parse().unwrap());
    let client = Client::new(config, transport::in_memory(dial), SOON).unwrap();
    let removed = companion::remove(&client, "worker-1", &NodepulseCondition::ALL, &[]).await;
    let removed = removed.unwrap();
    assert_eq!((removed.conditions, removed.taints), (9, 1));
    let node = api.object(NODE).unwrap();
    assert_eq!(theirs(&node), before);
    assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 5);
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 1);
    let version = node["metadata"]["resourceVersion"].clone();
    let again = companion::remove(&client, "worker-1", &NodepulseCondition::ALL, &[]).await;
    assert_eq!(again.unwrap(), companion::Removed::default());
    let node = api.object(NODE).unwrap();
    assert_eq!(node["metadata"]["resourceVersion"], version);
}

fn told_types(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().unwrap();
    let type_ = |c: &Value| c["type"].as_str().unwrap().to_owned();
    conditions.iter().map(type_).collect()
}

#[tokio::test(start_paused = true)]
async fn once_it_writes_one_patch_and_ends() {
    let api = cluster();
    let node = Node::companion("worker-1").host(calm()).once();
    node.start(&api).ended().await.unwrap();
    let written = api.requests_where(|r| r.method != "GET" && !r.path.ends_with("/events"));
    let expected = format!("PATCH {STATUS} 200");
    assert_eq!(lines(&written), [expected]);
}

#[tokio::test(start_paused = true)]
async fn once_it_fails_where_nobody_has_made_the_node() {
    let api = cluster();
    api.delete_object(NODE);
    let node = Node::companion("worker-1").host(calm()).once();
    let running = node.start(&api);
    pass(Duration::from_secs(31)).await;
    let err = running.ended().await.unwrap_err();
    assert!(err.to_string().contains("status"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_is_told_of_our_conditions_as_they_are_on_the_node() {
    let sim = Sim::start().await;
    pass(Duration::from_mins(1)).await;
    let view = sim.view();
    let ask = async |path| -> Value {
        let body = sim.node.get(path).await.body;
        serde_json::from_str(&body).unwrap()
    };
    let of = |told: &Value| -> Value {
        let all = told["conditions"].as_array().unwrap();
        all.iter().find(|c| c["type"] == "PIDsLow").unwrap().clone()
    };
    let same = async || {
        let status = ask("/v1/status").await;
        assert_eq!(told_types(&status), types());
        let there = of(&view.node().unwrap()["status"]);
        for field in ["status", "reason", "message", "lastTransitionTime"] {
            assert_eq!(of(&status)[field], there[field], "{field}");
        }
        there
    };
    same().await;
    sim.crowd().await;
    view.becomes("PIDsLow", "True", AT_ONCE).await;
    let there = same().await;
    let explained = of(&ask("/v1/explain").await);
    assert_eq!(explained["since"], there["lastTransitionTime"]);
    assert_ne!(explained["because"], json!([]), "{explained:#}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_is_turned_off_while_we_run_goes_and_comes_back() {
    let sim = Sim::start().await;
    let view = sim.view();
    let has = || told_types(&view.node().unwrap()["status"]).contains(&"PIDsLow".to_owned());
    assert!(has());
    for (on, there) in [("false", false), ("true", true)] {
        let conditions = Some(format!("PIDsLow={on}"));
        sim.node.reload(|now| now.conditions = conditions).await;
        pass(Duration::from_secs(2)).await;
        assert_eq!(has(), there, "{on}");
    }
    says_only_its_own(&sim.api);
}

#[tokio::test(start_paused = true)]
async fn a_restart_prolongs_no_condition_and_a_true_of_somebody_else_is_put_right() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let all = [
        ("MemoryLow", Cause::GlobalKill),
        ("PIDsLow", Cause::Pids),
        (
            "MemoryStallPressure",
            Cause::Stall(StallOf::Node, StallKind::Memory),
        ),
    ];
    for (type_, cause) in all {
        sim.begin(cause).await;
        sim.view().becomes(type_, "True", LOOK * 2).await;
        sim.end(cause).await;
    }
    sim.begin(Cause::Kills).await;
    let killed = sim.api.now();
    sim.view()
        .becomes("FrequentOOMKills", "True", LOOK * 2)
        .await;
    pass(Duration::from_secs(11)).await;
    let over = sim.api.now();
    let (mut sim, meddled) = (sim, ["DiskSpaceLow", "DiskStallPressure"]);
    for _ in 0..3 {
        pass(Duration::from_secs(40)).await;
        sim.node.stop().await.unwrap();
        let mut node = View::of(&sim.api, "worker-1").node().unwrap();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for condition in conditions {
            if meddled.iter().any(|type_| condition["type"] == *type_) {
                condition["status"] = json!("True");
            }
        }
        sim.api.put_object(node);
        sim = Sim::with(&sim.api, sim.host, |node| node).await;
        for type_ in meddled {
            assert_eq!(sim.view().status(type_), "False", "{type_}");
        }
        for (type_, _) in all {
            assert_eq!(sim.view().status(type_), "True", "{type_}");
        }
    }
    for (type_, _) in all {
        let (_, at) = sim.view().becomes(type_, "False", TRANSITION).await;
        let held = at - over;
        assert!(
            held <= TRANSITION,
            "{type_} held for {held:?} from the last"
        );
    }
    let window = Duration::from_mins(10);
    let longest = window + TRANSITION;
    let (_, at) = sim
        .view()
        .becomes("FrequentOOMKills", "False", longest)
        .await;
    let held = at - killed;
    assert!(
        (longest..=longest + LOOK).contains(&held),
        "held for {held:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_node_says_is_shown_where_that_is_something_else() {
    let sim = Sim::start().await;
    pass(Duration::from_mins(1)).await;
    let explained = async || -> Value {
        let told = sim.node.get("/v1/explain").await.body;
        let told: Value = serde_json::from_str(&told).unwrap();
        let mut all = told["conditions"].as_array().unwrap().iter();
        all.find(|c| c["type"] == "PIDsLow").unwrap().clone()
    };
    assert_eq!(explained().await.get("onNode"), None, "the same");
    sim.node.lose();
    sim.host.tasks(9_600);
    sim.node.kernel().pid_crossing(Side::Over, 9_600).await;
    pass(LOOK).await;
    let told = explained().await;
    assert_eq!(told["status"], "True");
    assert_eq!(told["onNode"]["status"], "False");
    assert_eq!(told["onNode"]["reason"], "PIDsAvailable");
    sim.node.reach();
    sim.view().becomes("PIDsLow", "True", TRANSITION).await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(explained().await.get("onNode"), None, "the same again");
}
