//! Checks conditions of companion mode on cgroup v2 whose causes are outside of pods or in another
//! boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_linux::state::State;
use serde_json::{Value, json};

use super::daemon::{in_background, most_pids};
use super::loopback;
use crate::api_server::ApiServer;
use crate::process::Process;
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::{Crowd, Provoke, tasks};
use crate::view::View;
use crate::{eventually, made_up};

pub(super) const PIDS: &str = "service-pids";
pub(super) const REBOOT: &str = "reboot";

const MIB: u64 = 1 << 20;
const NODE: &str = "vm";
/// Path of the program in the initramfs.
const PROGRAM: &str = "/nodepulse";
/// Time limit under emulation.
const PATIENCE: Duration = Duration::from_mins(2);
/// Bytes that exceed the memory of the machine.
const ALL_MEMORY: u64 = 1 << 36;
/// The slice also contains the pods, so that only it has to be removed.
const SLICE: &str = "system.slice";
const HOG: &str = "hog.service";
/// Number of processes, half of which exceeds the threshold on pids.
const CROWD: u32 = 120;
/// Memory limit of a container.
const LIMIT: u64 = 8 * MIB;
/// Conditions that become True before the reboot, and their reasons after it.
const OF_FORMER_BOOT: [(&str, &str); 3] = [
    ("PIDsLow", "PIDsAvailable"),
    ("FrequentOOMKills", "FewOOMKills"),
    ("MemoryLow", "MemoryAvailable"),
];

/// Checks that the Event of the condition names a service with most tasks of the node. Returns the
/// message.
pub(super) async fn pids_of_service(provoke: &Provoke) -> io::Result<String> {
    let stage = Stage::set().await?;
    let agent = stage.start()?;
    let view = stage.view();
    view.becomes("PIDsLow", "False", PATIENCE).await;
    let crowd = stage.crowd(provoke).await?;
    view.becomes("PIDsLow", "True", PATIENCE).await;
    let most = format!("most tasks: {HOG} (");
    let found = |_: &ApiServer| {
        let mut messages = view.messages("LowPIDs").into_iter();
        messages.find(|message| message.contains(&most))
    };
    let what = "an Event that names the service";
    let message = stage.api.wait_for(PATIENCE, what, found).await;
    let advice = format!("Limit {HOG} with TasksMax=, or move it to another node.");
    for part in ["; outside pods: ", &advice] {
        assert!(message.contains(part), "{part}: {message}");
    }
    drop(crowd);
    agent.terminate();
    assert_eq!(agent.ends(PATIENCE).await.code, Some(0));
    Ok(message)
}

/// Checks that after a reboot, conditions that cannot be true of the new boot are False in the
/// first status.
///
/// The kills and the forks by which they became True, the state file that the agent wrote, its end
/// by SIGKILL, and its next start are real. The reboot is not: the machine, its clock and the
/// kernel's counters continue. The test changes what a boot changes for the agent: the boot in the
/// state file and its times, and when the conditions on the Node were last reported.
pub(super) async fn reboot(provoke: &Provoke) -> io::Result<String> {
    let stage = Stage::set().await?;
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    let containers = containers();
    for container in &containers {
        stage.tree.limit(container, LIMIT)?;
    }
    let agent = stage.start()?;
    let view = stage.view();
    view.becomes("MemoryLow", "False", PATIENCE).await;
    let crowd = stage.crowd(provoke).await?;
    view.becomes("PIDsLow", "True", PATIENCE).await;
    drop(crowd);
    for container in containers.iter().cycle().take(6) {
        stage.eat(provoke, container, 8 * LIMIT).await?;
    }
    view.becomes("FrequentOOMKills", "True", PATIENCE).await;
    stage.eat(provoke, HOG, ALL_MEMORY).await?;
    view.becomes("MemoryLow", "True", PATIENCE).await;
    let state = stage.state();
    eventually("time of each condition in the state file", || {
        let saved = State::load(&state).ok().flatten().unwrap_or_default();
        let exceeded = |type_: &str| saved.exceeded.get(type_).copied().flatten();
        let all = OF_FORMER_BOOT.map(|(type_, _)| exceeded(type_));
        let is_complete = all.iter().all(Option::is_some);
        is_complete.then_some(()).ok_or(all)
    })
    .await;
    for (type_, _) in OF_FORMER_BOOT {
        assert_eq!(view.status(type_), "True", "{type_}");
    }
    agent.kill();
    assert_eq!(agent.ends(PATIENCE).await.code, None);

    stage.make_state_of_former_boot()?;
    stage.make_node_of_former_boot()?;
    let before = view.patches().len();
    let agent = stage.start()?;
    let answered = |_: &ApiServer| {
        let first = view.patches().into_iter().nth(before);
        first.filter(|patch| patch.status.is_some())
    };
    let first = stage.api.wait_for(PATIENCE, "the first status", answered);
    let first = first.await.body.unwrap_or_default();
    let ignored = "state file ignored: it was written in another boot";
    agent.wait_for_line(ignored, PATIENCE).await;
    let conditions = first["status"]["conditions"].as_array();
    for (type_, reason) in OF_FORMER_BOOT {
        let mut all = conditions.into_iter().flatten();
        let condition = all.find(|condition| condition["type"] == type_);
        let condition = condition.cloned().unwrap_or_default();
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!(reason)),
            "{type_}: {first}"
        );
    }
    agent.terminate();
    assert_eq!(agent.ends(PATIENCE).await.code, Some(0));
    let types = OF_FORMER_BOOT.map(|(type_, _)| type_).join(", ");
    Ok(format!("{types}: False in the first status"))
}

/// Returns the cgroups of a container of each of three pods.
fn containers() -> [String; 3] {
    [1, 2, 3]
        .map(|n| format!("kubepods/besteffort/pod{n:08x}-11aa-4c3d-8e6f-2d8a4d2e1f4b/{n:064x}"))
}

/// The cgroups of a service and of pods, and an API server with the Node.
struct Stage {
    api: ApiServer,
    tree: CgroupTree,
    dir: tempfile::TempDir,
    /// Threshold of available pids.
    least_pids: u32,
}

impl Stage {
    async fn set() -> io::Result<Self> {
        loopback::up()?;
        let mut tree = CgroupTree::new(SLICE)?;
        tree.add(HOG)?;
        for container in containers() {
            tree.add(container)?;
        }
        tree.share(["pids"])?;
        let api = ApiServer::start().await;
        api.put_object(made_up::node(NODE));
        Ok(Self {
            api,
            tree,
            dir: tempfile::tempdir()?,
            least_pids: most_pids()?.saturating_sub(tasks()? + CROWD / 2),
        })
    }

    /// Starts the agent, with a state directory that outlives it.
    fn start(&self) -> io::Result<Process> {
        let configuration = self.dir.path().join("config.yaml");
        fs::write(
            &configuration,
            "apiVersion: nodepulse.dev/v1alpha1\n\
             kind: NodepulseConfiguration\n\
             conditions: {FrequentOOMKills: true}\n",
        )?;
        let kubeconfig = self.api.node_kubeconfig(self.dir.path(), NODE);
        let paths = [configuration, kubeconfig, self.state()];
        let [configuration, kubeconfig, state] = paths.map(|path| path.display().to_string());
        let root = self.tree.path("");
        let thresholds = format!("memory.available<1Mi,pid.available<{}", self.least_pids);
        let arguments = [
            ["run", "--mode=companion"],
            ["--config", &configuration],
            ["--node-name", NODE],
            ["--cgroup-root", &root],
            ["--eviction-hard", &thresholds],
            ["--kubeconfig", &kubeconfig],
            ["--state-directory", &state],
        ];
        Ok(Process::start_program(
            Path::new(PROGRAM),
            arguments.as_flattened(),
        ))
    }

    fn view(&self) -> View<'_> {
        View::of(&self.api, NODE)
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Starts processes of the service beyond the threshold.
    async fn crowd(&self, provoke: &Provoke) -> io::Result<Crowd> {
        let (provoke, hog) = (provoke.clone(), self.tree.dir(HOG));
        in_background(move || provoke.crowd_in(&hog, CROWD)).await
    }

    /// Fills memory in the cgroup until the kernel kills the process.
    async fn eat(&self, provoke: &Provoke, below: &str, bytes: u64) -> io::Result<()> {
        let (provoke, dir) = (provoke.clone(), self.tree.dir(below));
        let (_, status) = in_background(move || provoke.eat_in(&dir, bytes)).await?;
        assert!(!status.success(), "it was killed");
        Ok(())
    }

    /// Changes the state file to that of a boot that lasted for longer than this one so far.
    fn make_state_of_former_boot(&self) -> io::Result<()> {
        let directory = self.state();
        let state = State::load(&directory).map_err(io::Error::other)?;
        let mut state = state.ok_or_else(|| io::Error::other("no state file"))?;
        "of a former boot".clone_into(&mut state.boot);
        for at in state.exceeded.values_mut().flatten() {
            *at = BootNanos(0).plus(Duration::from_hours(24));
        }
        state.save(&directory).map_err(io::Error::other)
    }

    /// Changes the conditions on the Node, as last reported long before this boot.
    fn make_node_of_former_boot(&self) -> io::Result<()> {
        let node = self.view().node();
        let mut node = node.ok_or_else(|| io::Error::other("no Node"))?;
        let conditions = node["status"]["conditions"].as_array_mut();
        let is_of_former_boot = |condition: &&mut Value| {
            let mut types = OF_FORMER_BOOT.iter().map(|(type_, _)| *type_);
            types.any(|type_| condition["type"] == type_)
        };
        for condition in conditions.into_iter().flatten().filter(is_of_former_boot) {
            condition["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
            condition["lastHeartbeatTime"] = json!("2020-01-02T00:00:00Z");
        }
        self.api.put_object(node);
        Ok(())
    }
}
