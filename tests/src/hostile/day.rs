//! Simulates a day on which everything around one agent fails at random: the API server, other
//! clients, pods, disks, files and the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::{DiskAction, DiskChange, Record, ScopeSource};
use nodepulse_core::units::DeviceNumber;
use serde_json::json;

use super::Spells;
use crate::days::{Draws, NAME, Stage};
use crate::host_root::{MadeUpHost, PODS};
use crate::node::{Kill, Limit, Node, in_memory, pass};
use crate::pod::Pod;
use crate::pod_kills::kills_in;

/// Numbers of the disk `sda`.
const SDA: (u32, u32) = (8, 0);

/// The node, its pods, and what has happened to them.
pub struct HostileDay {
    pub stage: Stage,
    pub pods: Pods,
    pub spells: Spells,
    draws: Draws,
}

impl HostileDay {
    /// Starts an agent on a node with twelve pods and two disks. The seed determines the day.
    pub fn new(seed: u64, configure: impl FnOnce(Node) -> Node) -> Self {
        let host = Arc::new(MadeUpHost::calm());
        host.pid_max(10_000);
        host.disk("sda", "8:0").disk("sdb", "8:16");
        let stage = Stage::on(&in_memory(), host, |node| configure(node.seed(7)));
        Self {
            pods: Pods::new(&stage, 12),
            stage,
            spells: Spells::default(),
            draws: Draws::new(seed),
        }
    }

    /// Injects one fault after another, until the end of the day. Then everything works again.
    pub async fn play(&mut self, until: Duration) {
        while self.stage.api.now() < until {
            pass(Duration::from_secs(5 + self.draws.below(60))).await;
            act(&self.stage, &mut self.pods, &mut self.spells, &self.draws).await;
        }
        reload(&self.stage, "").await;
    }
}

/// Pods with one container each, and the kernel's kills in them.
#[derive(Debug)]
pub struct Pods {
    pods: Vec<(Pod, String)>,
    /// Number of kills, by pod.
    pub killed: BTreeMap<usize, u64>,
    /// Number of kills in a pod that the API server does not have.
    strange: u64,
}

#[derive(Debug, Clone, Copy)]
enum Report {
    /// By a record.
    Record,
    /// Only by its counters: the record is lost.
    Counters,
}

/// The cgroup of a pod that the API server does not have.
const STRANGER: &str = "kubepods/besteffort/podffffffff-1f4b-4a62-9b0e-0f7c0f5d8a11/c";

impl Pods {
    fn new(stage: &Stage, count: usize) -> Self {
        let pods = (0..count).map(|n| {
            let uid = format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11");
            let id = format!("{n:064x}");
            let cgroup = format!("{PODS}/burstable/pod{uid}/{id}");
            stage.host.container(&cgroup);
            let pod = Pod::new("shop", &format!("cart-{n}"), &uid).container("web", &id);
            pod.put(&stage.api);
            (pod, cgroup)
        });
        stage.host.container(STRANGER);
        Self {
            pods: pods.collect(),
            killed: BTreeMap::new(),
            strange: 0,
        }
    }

    /// Kills in the pod, and counts the kill in every cgroup above.
    async fn kill(&mut self, stage: &Stage, n: usize, pid: u32, report: Report) {
        let (_, cgroup) = &self.pods[n];
        let killed = self.killed.entry(n).or_default();
        *killed += 1;
        let (pod, _) = cgroup.rsplit_once('/').expect("below that of its pod");
        stage.host.oom(cgroup, *killed, *killed);
        stage.host.oom(pod, 0, *killed);
        self.count(stage);
        let (_, cgroup) = &self.pods[n];
        let kill = Kill {
            victim: ("stress", pid),
            cgroup,
            limit: Limit::Of(cgroup),
            source: ScopeSource::Exact,
        };
        let kernel = stage.node.kernel();
        match report {
            Report::Record => kernel.oom_kill(kill).await,
            Report::Counters => kernel.send_record(Record::Unknown { kind: 999 }).await,
        }
    }

    /// Kills because the node is out of memory.
    async fn kill_globally(&mut self, stage: &Stage) {
        self.strange += 1;
        let (pod, _) = STRANGER.rsplit_once('/').expect("below that of its pod");
        stage.host.oom(pod, 0, self.strange);
        stage.host.oom(STRANGER, 0, self.strange);
        self.count(stage);
        let kill = Kill {
            victim: ("stress", 77),
            cgroup: STRANGER,
            limit: Limit::Machine,
            source: ScopeSource::Inferred,
        };
        stage.node.kernel().oom_kill(kill).await;
    }

    /// Updates the cgroup of all pods, which includes the kills below it.
    fn count(&self, stage: &Stage) {
        let all: u64 = self.killed.values().sum();
        stage.host.pods_oom(0, all + self.strange);
    }

    /// Returns the number of kills that Events report, by pod.
    pub fn reported(&self, stage: &Stage) -> BTreeMap<usize, u64> {
        let pods = self.pods.iter().enumerate();
        let counts = pods.map(|(n, (pod, _))| {
            let events = pod.events(&stage.api);
            let kills = events.iter().filter(|event| event["reason"] == "OOMKilled");
            (n, kills.map(kills_in).sum())
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Writes to the Node as another client, or deletes it and creates it again.
async fn interfere(stage: &Stage, spells: &mut Spells, draws: &Draws) {
    let Some(mut node) = stage.view().node() else {
        return;
    };
    match draws.below(5) {
        0 => node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9"),
        1 => node["status"]["conditions"][0]["status"] = json!("Unknown"),
        2 => node["status"]["addresses"] = json!([]),
        3 => node["spec"]["unschedulable"] = json!(draws.below(2) == 0),
        _ => {
            // A Lease without a Node as its owner is not created, as by a kubelet.
            let deleted = async {
                stage.api.delete_object(&stage.view().path());
                stage.api.delete_object(&stage.view().lease_path());
                pass(Duration::from_secs(draws.below(60))).await;
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}});
                stage.api.put_object(node);
            };
            return spells.during(&stage.api, deleted).await;
        }
    }
    stage.api.put_object(node);
}

/// Makes a file of the node unreadable or invalid for a while.
async fn garbage(stage: &Stage, draws: &Draws) {
    const FILES: [&str; 4] = [
        "proc/meminfo",
        "proc/loadavg",
        "sys/fs/cgroup/memory.stat",
        "sys/fs/cgroup/kubepods/memory.events",
    ];
    let file = FILES[draws.index(4)];
    let before = std::fs::read(stage.host.path().join(file)).expect("the good file");
    match draws.below(3) {
        0 => stage.host.remove(file),
        1 => stage.host.write(file, vec![b'9'; 1 << 20]),
        _ => stage.host.write(file, b"\xff\0 -1 18446744073709551616\n"),
    };
    pass(Duration::from_secs(draws.below(120))).await;
    stage.host.write(file, before);
}

/// Makes a disk slow for a while, or return an error.
async fn slow_disk(stage: &Stage, draws: &Draws) {
    let kernel = stage.node.kernel();
    if draws.below(3) == 0 {
        return kernel.disk_errors(SDA).await;
    }
    for _ in 0..draws.below(120) {
        kernel.slow_window(SDA).await;
        pass(Duration::from_secs(1)).await;
    }
}

/// Stops the requests to a disk for a while, so that tasks wait for them.
async fn hung_disk(stage: &Stage, draws: &Draws) {
    let busy = draws.below(1 << 40);
    stage.host.disk_counters("sdb", [busy, 7, 0, 0, 2]);
    stage.host.pressure("io", 61.25, 43.1);
    let stall = Stall::new(StallOf::Node, StallKind::Io);
    let at = BootNanos(draws.next());
    let kernel = stage.node.kernel();
    kernel.send_record(Record::Stall { at, stall }).await;
    pass(Duration::from_secs(draws.below(90))).await;
    stage.host.disk_counters("sdb", [busy + 1, 900, 0, 0, 0]);
    stage.host.pressure("io", 0.0, 0.33);
}

/// Attaches and removes a disk, or loses announcements about disks.
async fn other_disks(stage: &Stage, draws: &Draws) {
    let kernel = stage.node.kernel();
    if draws.below(3) == 0 {
        return kernel.send_record(Record::DisksMissed).await;
    }
    let change = |action| {
        let (major, minor) = (8, 32);
        Record::Disk(DiskChange {
            action,
            device: DeviceNumber { major, minor },
            name: "sdc".to_owned(),
        })
    };
    kernel.send_record(change(DiskAction::Added)).await;
    pass(Duration::from_millis(draws.below(200))).await;
    stage.host.disk("sdc", "8:32");
    pass(Duration::from_secs(draws.below(60))).await;
    stage.host.remove("sys/block/sdc");
    kernel.send_record(change(DiskAction::Removed)).await;
}

/// Rejects forks at the limit of a pod.
async fn refused_forks(stage: &Stage, pods: &Pods, draws: &Draws) {
    let (_, cgroup) = &pods.pods[draws.index(pods.pods.len())];
    let (pod, _) = cgroup.rsplit_once('/').expect("below that of its pod");
    let file = |name: &str, text: String| {
        stage
            .host
            .write(&format!("sys/fs/cgroup/{pod}/{name}"), text);
    };
    // The time increases, as the counter does.
    file(
        "pids.events.local",
        format!("max {}\n", stage.api.now().as_secs()),
    );
    file("pids.current", "50\n".to_owned());
    file("pids.max", "50\n".to_owned());
    cgroups_changed(stage).await;
    pass(Duration::from_secs(draws.below(90))).await;
}

async fn cgroups_changed(stage: &Stage) {
    let at = BootNanos(0);
    let changed = Record::CgroupsChanged { at };
    stage.node.kernel().send_record(changed).await;
}

/// Uses all of the node's memory, so that a process is killed.
async fn short_of_memory(stage: &Stage, pods: &mut Pods, draws: &Draws) {
    // Slowly: after a steep decrease, memory is sampled four times a second for long.
    for used in (4096..=15_700).step_by(100) {
        stage.host.mem_working_set(&format!("{used}Mi"));
        pass(Duration::from_millis(200)).await;
    }
    pods.kill_globally(stage).await;
    pass(Duration::from_secs(draws.below(30))).await;
    stage.host.mem_working_set("4Gi");
}

/// Runs a pod for a short time.
async fn short_lived_pod(stage: &Stage, draws: &Draws) {
    let uid = format!("{:08x}-1f4b-4a62-9b0e-0f7c0f5d8a12", draws.below(1 << 32));
    let pod = Pod::new("shop", "job", &uid);
    pod.put(&stage.api);
    pass(Duration::from_secs(draws.below(30))).await;
    pod.delete(&stage.api);
    cgroups_changed(stage).await;
}

/// Reloads a configuration with this threshold and those for the test machine's disk.
async fn reload(stage: &Stage, threshold: &str) {
    let all = format!("nodefs.available<0%,nodefs.inodesFree<0%{threshold}");
    stage.node.reload(|now| now.eviction_hard = Some(all)).await;
}

/// Injects the next fault, until it ends.
async fn act(stage: &Stage, pods: &mut Pods, spells: &mut Spells, draws: &Draws) {
    match draws.below(16) {
        0 => {
            let time = Duration::from_secs(20 + draws.below(100));
            spells.rage(&stage.api, draws, 30, time).await;
        }
        1 => {
            let time = Duration::from_secs(5 + draws.below(60));
            spells.silence(&stage.api, time).await;
        }
        2..5 => {
            let n = draws.index(pods.pods.len());
            for pid in (1000..).take(1 + draws.index(60)) {
                let report = match draws.below(20) {
                    0 => Report::Counters,
                    _ => Report::Record,
                };
                pods.kill(stage, n, pid, report).await;
                pass(Duration::from_millis(draws.below(30))).await;
            }
        }
        5 => {
            stage.node.kernel().crowd().await;
            pass(Duration::from_secs(draws.below(30))).await;
            stage.host.tasks(200);
        }
        6 => interfere(stage, spells, draws).await,
        7 => garbage(stage, draws).await,
        8 => slow_disk(stage, draws).await,
        9 => hung_disk(stage, draws).await,
        10 => other_disks(stage, draws).await,
        11 => refused_forks(stage, pods, draws).await,
        12 => short_of_memory(stage, pods, draws).await,
        13 => short_lived_pod(stage, draws).await,
        14 => {
            let thresholds = [",pid.available<lots", ",pid.available<10%", "", ",\0"];
            reload(stage, thresholds[draws.index(4)]).await;
        }
        _ => {
            let mut silent = Vec::new();
            for _ in 0..draws.below(60) {
                silent.push(stage.node.visit().await);
            }
            pass(Duration::from_secs(1)).await;
            assert_eq!(stage.node.get("/livez").await.code, Some(200));
        }
    }
}
