//! The main purpose, with real kernel events: provokes each in turn, follows it to the API server's
//! response, and reports what it observed.
//!
//! The agent is the real binary in a separate process. Everything made here is undone on drop.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::disk::{DirectFile, disk_of};

pub mod agent;
pub mod cluster;
pub mod picture;
pub mod report;
pub mod steps;

use agent::Agent;
use cluster::Cluster;
use report::{DemoReport, DemoStep};

/// Name of the Node that the demo registers.
pub const NODE: &str = "nodepulse-demo";

/// A step that takes longer has failed; it usually takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// The arguments of the demo.
#[derive(Debug, Clone)]
pub struct Options {
    /// The agent's binary.
    pub agent: PathBuf,
    /// The children's program; by default next to the demo program.
    pub provoke: Provoke,
    /// Kubeconfig of the API server; by default an embedded one. The Node is removed afterwards.
    pub kubeconfig: Option<PathBuf>,
}

/// The features of this machine.
#[derive(Debug, Clone)]
pub struct DemoMachine {
    /// Running as root.
    root: bool,
    /// `/sys/kernel/btf/vmlinux` exists.
    btf: bool,
}

/// The running demo.
pub struct DemoStage<'a> {
    /// The API server.
    pub api: &'a Cluster,
    agent: Agent,
    options: Options,
    /// Memory cgroups for the demo; `Err` is the reason why there are none.
    cgroups: Result<CgroupTree, String>,
    /// A disk that can be made to appear slow; `Err` is the reason why there is none.
    disk: Result<DemoDisk, String>,
    pids: DemoPids,
    _dir: tempfile::TempDir,
}

/// The disk of the working directory, and its usual latency.
struct DemoDisk {
    name: String,
    /// Files that the loads of the demo write and read.
    dir: tempfile::TempDir,
    slow: Duration,
}

impl DemoDisk {
    fn path(&self, file: &str) -> String {
        self.dir.path().join(file).display().to_string()
    }
}

/// The present number of pids, and the number that crosses the threshold.
struct DemoPids {
    available: u64,
    crowd: u32,
}

impl DemoMachine {
    /// Detects the features of this machine.
    pub fn detect() -> Self {
        Self {
            root: nix::unistd::geteuid().is_root(),
            btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        }
    }

    /// Returns what is missing for all kernel events, as text.
    pub fn missing(&self) -> Option<String> {
        let mut missing = Vec::new();
        if !self.root {
            missing.push("not root: cgroups cannot be created, and eBPF programs cannot be loaded without CAP_BPF and CAP_PERFMON");
        }
        if !self.btf {
            missing.push("no kernel types (BTF) at /sys/kernel/btf/vmlinux");
        }
        (!missing.is_empty()).then(|| missing.join("; "))
    }
}

/// Runs the whole demo, and calls `on_step` after each step. The report contains failed steps.
pub async fn run(options: Options, mut on_step: impl FnMut(&DemoStep)) -> Result<DemoReport> {
    let machine = DemoMachine::detect();
    let api = Cluster::open(options.kubeconfig.as_deref()).await?;
    let report = tokio::select! {
        report = play(&machine, &api, options, &mut on_step) => report,
        stopped = tokio::signal::ctrl_c() => {
            Err(stopped.map_or_else(anyhow::Error::from, |()| anyhow!("stopped")))
        }
    };
    // The agent has ended, so that it does not create the Node again.
    let cleaned = api.clean_up().await;
    report.and_then(|report| cleaned.map(|()| report))
}

async fn play(
    machine: &DemoMachine,
    api: &Cluster,
    options: Options,
    on_step: &mut impl FnMut(&DemoStep),
) -> Result<DemoReport> {
    let mut stage = DemoStage::set(api, options).await?;
    let mut steps = Vec::new();
    let mut done = |step: DemoStep| {
        on_step(&step);
        steps.push(step);
    };
    done(steps::container_kill(&mut stage).await);
    done(steps::pods_kill(&mut stage).await);
    done(steps::pids(&mut stage).await);
    done(steps::disk(&mut stage).await);
    let node = stage.api.node().await.context("the Node was deleted")?;
    let probes = stage.agent.probes();
    Ok(DemoReport::new(
        machine,
        probes,
        stage.api.url(),
        steps,
        &node,
    ))
}

impl<'a> DemoStage<'a> {
    /// Starts the agent, and waits until the Node has a status.
    async fn set(api: &'a Cluster, options: Options) -> Result<Self> {
        if let Cluster::Embedded(api) = api {
            steps::pods().iter().for_each(|pod| pod.put(api));
        }
        let dir = tempfile::Builder::new()
            .prefix("nodepulse-demo-")
            .tempdir()?;
        let name = format!("nodepulse-demo-{}", std::process::id());
        let cgroups =
            pods_tree(&name).map_err(|err| format!("cannot create memory cgroups: {err}"));
        let disk = usual_disk().map_err(|err| format!("{err:#}"));
        let pids = DemoPids::near()?;
        let config = dir.path().join("config.yaml");
        std::fs::write(&config, configuration(&name, &pids, disk.as_ref().ok()))?;
        let kubeconfig = api.kubeconfig(dir.path());
        let agent = Agent::start(&options.agent, &config, &kubeconfig)?;
        let stage = Self {
            api,
            agent,
            options,
            cgroups,
            disk,
            pids,
            _dir: dir,
        };
        stage.registered().await?;
        Ok(stage)
    }

    async fn registered(&self) -> Result<()> {
        let ready = |node: &Value| condition(node, "Ready");
        if self.api.node_where(PATIENCE, ready).await.is_none() {
            bail!(
                "the agent registered no node within {PATIENCE:?}; its log:\n{}",
                self.agent.log()
            );
        }
        Ok(())
    }
}

/// Creates the tree of a node's pods: a limit on one pod, none on the other.
fn pods_tree(name: &str) -> io::Result<CgroupTree> {
    let mut tree = CgroupTree::new(name)?;
    tree.add(steps::LIMITED_CONTAINER)?;
    tree.add(steps::FREE_CONTAINER)?;
    tree.limit(steps::LIMITED_POD, steps::POD_LIMIT)?;
    Ok(tree)
}

/// Measures the latency of large direct writes that wait for each other, and counts a third of it
/// as slow: small requests of other programs take less.
fn usual_disk() -> Result<DemoDisk> {
    let here = std::env::current_dir()?;
    let (name, _, _) =
        disk_of(&here).with_context(|| format!("{} is not on a disk", here.display()))?;
    let dir = tempfile::tempdir_in(here)?;
    let file = |name: &str, mib| {
        let file = DirectFile::filled(&dir.path().join(name), mib);
        file.context("direct I/O is not supported here")
    };
    file(steps::TABLE, 8)?;
    let mut times = file(steps::DATA, 64)?.write_together()?;
    times.sort();
    let usual = times.get(times.len() / 2).copied().unwrap_or_default();
    ensure!(
        !usual.is_zero(),
        "the latency of this disk cannot be measured"
    );
    Ok(DemoDisk {
        name,
        dir,
        slow: usual / 3,
    })
}

impl DemoPids {
    /// Chooses a threshold that a few hundred additional processes cross.
    fn near() -> Result<Self> {
        let number = |path: &str| -> Result<u64> {
            Ok(std::fs::read_to_string(path)
                .with_context(|| path.to_owned())?
                .trim()
                .parse()?)
        };
        let max = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
        let tasks = u64::from(crate::provoke::tasks()?);
        let available = max.saturating_sub(tasks + 250);
        ensure!(available > 0, "{tasks} of {max} pids are in use already");
        Ok(Self {
            available,
            crowd: 400,
        })
    }
}

/// Returns the agent's configuration: thresholds close to the present values, the demo's tree of
/// pods, and a third of the usual latency. No share of the pods cgroup's limit counts as pressure,
/// so that only the kill does.
fn configuration(cgroup: &str, pids: &DemoPids, disk: Option<&DemoDisk>) -> String {
    let disk = disk.map_or_else(String::new, |disk| {
        let (name, slow) = (&disk.name, disk.slow.as_micros().max(1));
        format!(
            "diskIO:\n  slowFor: 1s\n  minStall: 1%\n  devices:\n    {name}: {{slow: {slow}us}}\n"
        )
    });
    format!(
        "apiVersion: nodepulse.dev/v1alpha1\n\
         kind: NodepulseConfiguration\n\
         mode: node\n\
         takeOver: \"true\"\n\
         nodeName: {NODE}\n\
         allowReadyWithoutRuntime: \"true\"\n\
         cgroupRoot: /{cgroup}\n\
         enforceNodeAllocatable: [none]\n\
         evictionHard:\n  pid.available: \"{}\"\n\
         log: {{level: info, format: json}}\n\
         {disk}",
        pids.available
    )
}

fn condition(node: &Value, type_: &str) -> Option<Value> {
    let conditions = node.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(type_))
        .cloned()
}
