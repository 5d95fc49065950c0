//! The early warning of a kill at a memory limit: a container that reads files costs nothing, and one
//! that leaks is reported before the kill.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::Value;

use crate::api_server::ApiServer;
use crate::pod::Pod;
use crate::process::{Process, node_mode_of};
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::view::View;

const MIB: u64 = 1 << 20;
const NODE: &str = "vm";
/// The program in the initramfs.
const PROGRAM: &str = "/nodepulse";
/// Everything is slow under emulation.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: u64 = 64 * MIB;
const CACHE_LIMIT: u64 = 24 * MIB;
/// Of each measurement.
const MEASURED: Duration = Duration::from_secs(7);

const READER: (&str, &str) = (
    "0a0f5d8a-11aa-4c3d-8e6f-2d8a4d2e1f4b",
    "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c",
);
const LEAKING: (&str, &str) = (
    "0b0f5d8a-11aa-4c3d-8e6f-2d8a4d2e1f4b",
    "9d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c",
);

/// What the agent has used: context switches of all threads, clock ticks of CPU time, and writes of
/// Events.
#[derive(Debug, Clone, Copy)]
struct Cost {
    switches: u64,
    ticks: u64,
    events: usize,
}

/// `file` is larger than the limits.
pub(super) async fn warned(provoke: &Provoke, file: &Path) -> io::Result<String> {
    super::loopback::up()?;
    let mut tree = CgroupTree::new("warning")?;
    let path = |(uid, id): (&str, &str)| format!("kubepods/burstable/pod{uid}/{id}");
    let (reader, leaking) = (path(READER), path(LEAKING));
    tree.add(&reader)?;
    tree.add(&leaking)?;
    tree.limit(&reader, CACHE_LIMIT)?;
    tree.limit(&leaking, LIMIT)?;

    let api = ApiServer::start().await;
    let pod = |name, (uid, id)| Pod::new("shop", name, uid).on(NODE).container("web", id);
    let (reader_pod, leaking_pod) = (pod("reader", READER), pod("leaking", LEAKING));
    reader_pod.put(&api);
    leaking_pod.put(&api);
    let dir = tempfile::tempdir()?;
    let agent = started(&api, dir.path()).await?;

    let thrash = provoke.thrash_in(&tree.dir(&reader), file)?;
    let notified = notifications(&tree.dir(&reader)).await?;
    assert!(
        notified > 5,
        "the reader is always at its limit: {notified}/s"
    );
    let off = measured(&api, &agent).await?;
    switch(dir.path(), true)?;
    agent.hang_up();
    agent
        .wait_for_line("configuration read again", PATIENCE)
        .await;
    let hits = hits(&tree.dir(&reader))?;
    let on = measured(&api, &agent).await?;
    let hits = self::hits(&tree.dir(&reader))? - hits;
    assert!(hits > 100, "it reaches its limit: {hits}");
    // Two equal measurements differ by a fifth. A notification each time would more than double it.
    let allowed = off.switches + off.switches / 2;
    let cost = format!("off {off:?}, on {on:?} with {hits} hits, {notified} notifications/s");
    assert!(on.switches <= allowed, "{cost}");
    assert_eq!((off.events, on.events), (0, 0), "{cost}");

    let message = leak(provoke, &tree, &leaking, (&api, &leaking_pod), file).await?;
    assert_eq!(warnings(&api, &reader_pod), Vec::<String>::new());
    drop(thrash);
    agent.terminate();
    assert_eq!(agent.ends(PATIENCE).await.code, Some(0));
    Ok(format!("{cost}; {message}"))
}

/// Grows by 0.1 MiB a second, next to a reader of files that fills what is left, until the Event is
/// there; then on until the kill.
async fn leak(
    provoke: &Provoke,
    tree: &CgroupTree,
    leaking: &str,
    (api, pod): (&ApiServer, &Pod),
    file: &Path,
) -> io::Result<String> {
    let container = tree.dir(leaking);
    // With what the kernel needs for both processes, about 10 MiB are left to the leak.
    let mut leak = provoke.leak_in(&container, LIMIT * 50 / 64)?;
    let reader = provoke.thrash_in(&container, file)?;
    let mut next = tokio::time::interval(Duration::from_millis(625));
    let mut steps = 0_usize;
    let message = loop {
        next.tick().await;
        leak.grow(1)?;
        steps += 1;
        if let Some(message) = warnings(api, pod).pop() {
            break message;
        }
        let kills = tree.kills(leaking)?;
        let stat = || fs::read_to_string(container.join("memory.stat"));
        assert_eq!(kills, 0, "after {steps} steps, no Event: {:?}", stat());
    };
    assert_eq!(tree.kills(leaking)?, 0, "the Event precedes the kill");
    assert!(message.starts_with("Container web uses "), "{message}");
    // The rest of the leak, at once. The input breaks off with the kill.
    let _broken = leak.grow(1000);
    crate::eventually("kill", || match tree.kills(leaking)? {
        0 => Err(io::Error::other("not yet")),
        _ => Ok(()),
    })
    .await;
    drop((leak, reader));
    Ok(format!("after {} s: {message}", steps * 5 / 8))
}

async fn started(api: &ApiServer, dir: &Path) -> io::Result<Process> {
    switch(dir, false)?;
    let kubeconfig = api.node_kubeconfig(dir, NODE).display().to_string();
    let config = dir.join("config.yaml").display().to_string();
    let further = [
        ["--config", &config],
        ["--cgroup-root", "/warning"],
        ["--eviction-hard", "memory.available<1Mi"],
        ["--kubeconfig", &kubeconfig],
    ];
    let args = node_mode_of(NODE, "127.0.0.1", further.as_flattened());
    let agent = Process::start_program(Path::new(PROGRAM), args);
    let view = View::of(api, NODE);
    view.becomes("Ready", "True", PATIENCE).await;
    view.settled(PATIENCE).await;
    Ok(agent)
}

/// Writes the configuration. Reading causes stalls, at which the agent would read more.
fn switch(dir: &Path, on: bool) -> io::Result<()> {
    let text = format!(
        "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
         psi: {{enabled: false}}\noom: {{earlyWarning: {on}}}\n"
    );
    fs::write(dir.join("config.yaml"), text)
}

fn warnings(api: &ApiServer, pod: &Pod) -> Vec<String> {
    let message = |event: Value| {
        let is_warning = event["reason"] == "MemoryLimitReached";
        is_warning.then(|| event["message"].as_str().unwrap_or_default().to_owned())
    };
    pod.events(api).into_iter().filter_map(message).collect()
}

/// In a second, of a cgroup's `memory.events`, as a watch without a limit gets them.
async fn notifications(cgroup: &Path) -> io::Result<u32> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    inotify.add_watch(&cgroup.join("memory.events"), AddWatchFlags::IN_MODIFY)?;
    let mut next = tokio::time::interval(Duration::from_millis(5));
    let mut received = 0;
    for _ in 0..200 {
        next.tick().await;
        match inotify.read_events() {
            Ok(events) => received += u32::try_from(events.len()).unwrap_or(u32::MAX),
            Err(Errno::EAGAIN) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(received)
}

/// How often the limit was reached.
fn hits(cgroup: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(cgroup.join("memory.events.local"))?;
    let count = text.lines().find_map(|line| line.strip_prefix("max "));
    count
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| io::Error::other(text.clone()))
}

async fn measured(api: &ApiServer, agent: &Process) -> io::Result<Cost> {
    let before = cost(api, agent)?;
    tokio::time::sleep(MEASURED).await;
    let after = cost(api, agent)?;
    Ok(Cost {
        switches: after.switches - before.switches,
        ticks: after.ticks - before.ticks,
        events: after.events - before.events,
    })
}

fn cost(api: &ApiServer, agent: &Process) -> io::Result<Cost> {
    let proc = Path::new("/proc").join(agent.id().to_string());
    let mut switches = 0;
    for task in fs::read_dir(proc.join("task"))? {
        // A thread of the pool can end meanwhile.
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0);
    }
    // After the name: the fields from the third on, of which 14 and 15 are the CPU time.
    let stat = fs::read_to_string(proc.join("stat"))?;
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let times = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok());
    Ok(Cost {
        switches,
        ticks: times.sum(),
        events: api
            .requests_where(|request| request.path.contains("/namespaces/shop/events"))
            .len(),
    })
}
