//! Measures an idle agent in companion mode on cgroup v2, with the settings of the chart, and 110
//! pods: its memory, and how often it wakes up.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::loopback;
use crate::api_server::ApiServer;
use crate::hostile::footprint::Footprint;
use crate::made_up;
use crate::pod::Pod;
use crate::process::Process;
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::view::View;

pub(super) const NAME: &str = "idle-110-pods";
const NODE: &str = "vm";
/// Path of the program in the initramfs.
const PROGRAM: &str = "/nodepulse";
const PODS: usize = 110;
/// Time limit under emulation.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time after which the agent has locked its memory, and its helper threads have ended.
const SETTLE: Duration = Duration::from_secs(75);
const MEASURED: Duration = Duration::from_mins(2);
/// The gate of `cargo xtask bench`.
const LARGEST_KIB: u64 = 8 << 10;
/// Maximum size of a release, to which the gate applies: see `--agent` of `cargo xtask vm`.
const RELEASE_BYTES: u64 = 9 << 20;

/// Checks the memory of a release. Wake-ups are only printed, because an emulated machine is slow.
pub(super) async fn measured(provoke: &Provoke) -> io::Result<String> {
    loopback::up()?;
    let api = ApiServer::start().await;
    let mut tree = CgroupTree::new("idle")?;
    let mut processes = Vec::new();
    for n in 0..PODS {
        let uid = format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11");
        let id = format!("{n:064x}");
        let container = format!("kubepods/burstable/pod{uid}/{id}");
        tree.add(&container)?;
        let pod = Pod::new("shop", &format!("cart-{n}"), &uid).on(NODE);
        pod.container("web", &id).put(&api);
        if n == 0 {
            processes.push(provoke.wait_in(&tree.dir(&container))?);
        }
    }
    api.put_object(made_up::node(NODE));
    let dir = tempfile::tempdir()?;
    let kubeconfig = api.node_kubeconfig(dir.path(), NODE).display().to_string();
    let arguments = [
        ["run", "--mode=companion"],
        ["--node-name", NODE],
        ["--cgroup-root", "/idle"],
        [
            "--eviction-hard",
            "memory.available<16Mi,nodefs.available<1Mi",
        ],
        ["--kubeconfig", &kubeconfig],
    ];
    let agent = Process::start_program(Path::new(PROGRAM), arguments.as_flattened());
    let view = View::of(&api, NODE);
    view.becomes("MemoryLow", "False", PATIENCE).await;
    let locked = agent
        .wait_for_line("memory trimmed after startup", PATIENCE)
        .await;
    assert!(locked.contains("locked=true"), "{locked}");
    tokio::time::sleep(SETTLE).await;
    let before = switches(agent.id())?;
    tokio::time::sleep(MEASURED).await;
    let switches = switches(agent.id())? - before;
    let Footprint {
        rss_kib,
        anonymous_kib,
        ..
    } = Footprint::of(agent.id())?;
    agent.terminate();
    assert_eq!(agent.ends(PATIENCE).await.code, Some(0));
    drop(processes);
    let seconds = MEASURED.as_secs();
    let result = format!(
        "{rss_kib} KiB resident, {anonymous_kib} KiB anonymous, {switches} voluntary context switches in {seconds} s"
    );
    let is_release = fs::metadata(PROGRAM)?.len() <= RELEASE_BYTES;
    assert!(rss_kib <= LARGEST_KIB || !is_release, "{result}");
    Ok(result)
}

/// Returns the number of voluntary context switches of all threads so far.
fn switches(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.map_or(0, |count| count.trim().parse().unwrap_or(0));
    }
    Ok(sum)
}
