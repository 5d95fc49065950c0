//! Runs the real program on a real kernel, and checks the objects at the API server.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::api_server::ApiServer;
use crate::process::{Process, node_mode_of};
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::{Provoke, tasks};
use crate::view::{EVENTS, View};

const MIB: u64 = 1 << 20;
const NODE: &str = "vm";
/// Path of the program in the initramfs.
const PROGRAM: &str = "/nodepulse";
/// Time limit under emulation.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that exceed the memory of the machine.
const ALL_MEMORY: u64 = 1 << 36;

const POD: &str = "kubepods/besteffort/pod9c0f5d8a-11aa-4c3d-8e6f-2d8a4d2e1f4b";
const CONTAINER: &str = concat!(
    "kubepods/besteffort/pod9c0f5d8a-11aa-4c3d-8e6f-2d8a4d2e1f4b/",
    "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c"
);

struct Node {
    api: ApiServer,
    agent: Process,
    tree: CgroupTree,
    /// Number of forks that cross its threshold on pids.
    crowd: u32,
    _dir: tempfile::TempDir,
}

/// Checks that a kill requested with sysrq is reported and does not affect the node; forks above
/// the threshold are pressure, and so is a kill because memory is exhausted.
pub(super) async fn conditions(provoke: &Provoke) -> io::Result<String> {
    let node = Node::start("auto", 100).await?;
    let container = node.tree.dir(CONTAINER);

    let holder = {
        let (provoke, container) = (provoke.clone(), container.clone());
        in_background(move || provoke.allocate_in(&container, 128 * MIB)).await?
    };
    fs::write("/proc/sysrq-trigger", "f")?;
    node.event_message(holder.id()).await;
    assert_eq!(node.view().status("MemoryPressure"), "False", "sysrq");
    drop(holder);

    let (forker, count) = (provoke.clone(), node.crowd);
    let crowd = in_background(move || forker.crowd(count)).await?;
    node.view().becomes("PIDPressure", "True", PATIENCE).await;
    drop(crowd);
    assert_eq!(node.view().status("MemoryPressure"), "False", "forks");

    let pid = node.eats(provoke, ALL_MEMORY).await?;
    node.event_message(pid).await;
    node.view()
        .becomes("MemoryPressure", "True", PATIENCE)
        .await;

    let settled = "memory trimmed after startup locked=true";
    node.agent.wait_for_line(settled, PATIENCE).await;
    node.stop().await;
    Ok("pressure by forks and by a kill, none by sysrq; locked in memory".to_owned())
}

/// Fills one memory node, while the machine is not full.
pub(super) async fn cpuset(provoke: &Provoke) -> io::Result<String> {
    let node = Node::start("auto", 100).await?;
    node.tree.memory_node(CONTAINER, 1)?;
    let pid = node.eats(provoke, ALL_MEMORY).await?;
    let message = node.event_message(pid).await;
    assert_eq!(node.view().status("MemoryPressure"), "False");
    node.stop().await;
    Ok(message)
}

/// Checks that without programs in the kernel the condition comes from files. The memory stays
/// allocated: a dip that a kill ends may be between two samples. Memory that the kernel reserves is
/// available by the kubelet's arithmetic and not by `MemAvailable`, hence the distance to the
/// threshold.
pub(super) async fn files(provoke: &Provoke) -> io::Result<String> {
    let node = Node::start("files", 200).await?;
    let bytes = available()?.saturating_sub(50 * MIB);
    let (holder, container) = (provoke.clone(), node.tree.dir(CONTAINER));
    let allocated = in_background(move || holder.allocate_in(&container, bytes)).await?;
    let (memory, _) = node
        .view()
        .becomes("MemoryPressure", "True", PATIENCE)
        .await;
    drop(allocated);
    node.stop().await;
    Ok(memory["message"].as_str().unwrap_or_default().to_owned())
}

/// Checks that on cgroup v1 and without pressure files a kill is reported with the container, the
/// pod and the limit.
pub(super) async fn bare(provoke: &Provoke) -> io::Result<String> {
    let node = Node::start("auto", 100).await?;
    node.tree.limit(POD, 32 * MIB)?;
    let pid = node.eats(provoke, 256 * MIB).await?;
    let event = node.event_message(pid).await;
    let expected = [
        "in container 8d0f1e2a4b6c of pod with UID 9c0f5d8a-11aa-4c3d-8e6f-2d8a4d2e1f4b",
        "because the pod reached its memory limit of 32Mi",
    ];
    for part in expected {
        assert!(event.contains(part), "{part}: {event}");
    }
    assert_eq!(node.view().status("MemoryPressure"), "False");
    node.stop().await;
    Ok(event)
}

impl Node {
    /// Starts the agent and waits for its Node. A machine without a network has no node address, so
    /// it is given.
    async fn start(tier: &str, least_mib: u64) -> io::Result<Self> {
        super::loopback::up()?;
        let api = ApiServer::start().await;
        let dir = tempfile::tempdir()?;
        let kubeconfig = api.node_kubeconfig(dir.path(), NODE);
        let mut tree = CgroupTree::new("daemon")?;
        tree.add(CONTAINER)?;
        let crowd = 120;
        let thresholds = format!(
            "memory.available<{least_mib}Mi,pid.available<{}",
            most_pids()?.saturating_sub(tasks()? + crowd / 2)
        );
        let further = [
            ["--kernel-tier", tier],
            ["--cgroup-root", "/daemon"],
            ["--eviction-hard", &thresholds],
            ["--kubeconfig", &kubeconfig.display().to_string()],
        ];
        let args = node_mode_of(NODE, "127.0.0.1", further.as_flattened());
        let agent = Process::start_program(Path::new(PROGRAM), args);
        let node = Self {
            api,
            agent,
            tree,
            crowd,
            _dir: dir,
        };
        node.view().becomes("Ready", "True", PATIENCE).await;
        node.view().settled(PATIENCE).await;
        Ok(node)
    }

    /// Fills memory in the container until the kernel kills the process; returns its pid.
    async fn eats(&self, provoke: &Provoke, bytes: u64) -> io::Result<u32> {
        let (provoke, container) = (provoke.clone(), self.tree.dir(CONTAINER));
        let eaten = in_background(move || provoke.eat_in(&container, bytes));
        let (pid, status) = tokio::time::timeout(PATIENCE * 2, eaten)
            .await
            .map_err(|_| io::Error::other("the kernel killed no process"))??;
        assert!(!status.success(), "it was killed");
        Ok(pid)
    }

    fn view(&self) -> View<'_> {
        View::of(&self.api, NODE)
    }

    /// Waits for the Event that names this victim; returns its message.
    async fn event_message(&self, pid: u32) -> String {
        let naming = [format!("rocess {pid} "), format!("pid: {pid}")];
        let message = |api: &ApiServer| {
            let events = api.list(EVENTS).into_iter();
            let mut messages = events.filter_map(|e| Some(e["message"].as_str()?.to_owned()));
            messages.find(|text| naming.iter().any(|name| text.contains(name.as_str())))
        };
        self.agent
            .wait_for_line(&format!("pid={pid} victim="), PATIENCE)
            .await;
        self.api
            .wait_for(PATIENCE, "an event of the kill", message)
            .await
    }

    async fn stop(self) {
        self.agent.terminate();
        assert_eq!(self.agent.ends(PATIENCE).await.code, Some(0));
    }
}

/// Runs a function in another thread: the API server runs in this one, and must continue to answer.
pub(super) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// Reads `MemAvailable`, in bytes.
fn available() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other(text.clone()))
}

pub(super) fn most_pids() -> io::Result<u32> {
    let number = |path| {
        let text = fs::read_to_string(path)?;
        text.trim().parse::<u32>().map_err(io::Error::other)
    };
    Ok(number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?))
}
