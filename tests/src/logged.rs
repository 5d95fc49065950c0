//! Checks kills that no program reports: the real daemon, a real kernel, and the Events at the API
//! server. Each function creates a pods cgroup, to distinguish other kills.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::Layout;
use nodepulse_linux::os::kmsg;

use crate::SOON;
use crate::api_server::ApiServer;
use crate::process::{Process, node_mode};
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::view::View;

const MIB: u64 = 1 << 20;
const POD: &str = "kubepods/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";

struct Started {
    agent: Process,
    tree: CgroupTree,
    container: String,
}

impl Started {
    /// Creates a pod of one container, in which `before` processes were killed before the start.
    fn new(
        (tier, before): (&str, usize),
        (api, dir): (&ApiServer, &Path),
        provoke: &Provoke,
    ) -> io::Result<Self> {
        let mut tree = CgroupTree::new(&format!("nodepulse-{tier}-{}", std::process::id()))?;
        let container = format!("{POD}/ctr,task=x");
        tree.add(&container)?;
        tree.limit(POD, 32 * MIB)?;
        for _ in 0..before {
            provoke.eat_in(&tree.dir(&container), 256 * MIB)?;
        }
        let kubeconfig = api.node_kubeconfig(dir, "worker-1").display().to_string();
        let state = dir.join("state").display().to_string();
        let agent = Process::start(node_mode(&[
            "--kubeconfig",
            &kubeconfig,
            "--state-directory",
            &state,
            "--cgroup-root",
            &tree.path(""),
            "--kernel-tier",
            tier,
        ]));
        Ok(Self {
            agent,
            tree,
            container,
        })
    }
}

/// Checks that the log names the victim, its cgroup and the limit, and nothing from before the
/// start.
pub async fn by_the_log(provoke: &Provoke) -> io::Result<String> {
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir()?;
    let started = Started::new(("kmsg", 1), (&api, dir.path()), provoke)?;
    let Started {
        agent,
        tree,
        container,
    } = started;
    agent.wait_for_line("tier=\"kmsg\"", SOON).await;
    let view = View::of(&api, "worker-1");
    view.becomes("Ready", "True", SOON).await;

    let pid = kill_with_report(provoke, &tree.dir(&container)).await?;
    let start = format!("Process {pid} (provoke) in pod with UID ");
    let message = event_message(&api, &start).await;
    for part in [
        "because the pod reached its memory limit. ".to_owned(),
        format!("Process {pid} (provoke) of UID 0 had "),
        "More memory was requested by a process named provoke.".to_owned(),
    ] {
        assert!(message.contains(&part), "{part} in {message}");
    }
    assert!(!message.contains("not known"), "{message}");
    let mut all = view.messages("OOMKilled");
    all.retain(|message| message.contains(" (provoke) in pod with UID "));
    assert_eq!(
        all.len(),
        1,
        "the kill before the start is not replayed: {all:?}"
    );
    assert_eq!(view.status("MemoryPressure"), "False");
    agent.terminate();
    agent.ends(SOON).await;
    Ok(message)
}

/// Checks that the counters give the number and the pod; kills from before the start are not
/// reported.
pub async fn by_counters(provoke: &Provoke) -> io::Result<String> {
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir()?;
    let started = Started::new(("files", 1), (&api, dir.path()), provoke)?;
    let Started {
        agent,
        tree,
        container,
    } = started;
    agent.wait_for_line("tier=\"files\"", SOON).await;
    // Kills before the first count are not new.
    let state = dir.path().join("state/state");
    crate::eventually("state file", || std::fs::read_to_string(&state).map(drop)).await;
    provoke.eat_in(&tree.dir(&container), 256 * MIB)?;
    let expected = format!("OOM kills in cgroup {}: ", tree.path(POD));
    let message = event_message(&api, &expected).await;
    let counted = View::of(&api, "worker-1").counted_kills();
    assert_eq!(counted, [(1, message.clone())]);
    agent.terminate();
    agent.ends(SOON).await;
    let layout = Layout::detect(&HostRoot::new("/")).map_err(io::Error::other)?;
    Ok(format!("{:?}: {message}", layout.memory.version))
}

/// Kills a process in `cgroup` with a complete report in the log, and returns its pid.
///
/// The kernel reports only ten kills in 5 s completely, and other tests may have caused those ten.
/// Other reports name no cgroup.
async fn kill_with_report(provoke: &Provoke, cgroup: &Path) -> io::Result<u32> {
    let mut attempts = tokio::time::interval(Duration::from_millis(500));
    for _ in 0..20 {
        attempts.tick().await;
        let mut log = kmsg::open(Path::new("/dev/kmsg"))?;
        let (pid, status) = provoke.eat_in(cgroup, 256 * MIB)?;
        assert!(!status.success(), "it was killed");
        let summary = format!(",task=provoke,pid={pid},");
        let mut record = [0; 8192];
        while let Ok(len) = log.read(&mut record) {
            let text = String::from_utf8_lossy(record.get(..len).unwrap_or_default());
            if text.contains("oom-kill:") && text.contains(&summary) {
                return Ok(pid);
            }
        }
    }
    Err(io::Error::other(
        "no kill is completely reported in the log",
    ))
}

async fn event_message(api: &ApiServer, start: &str) -> String {
    let view = View::of(api, "worker-1");
    let what = format!("an event {start:?}");
    // Counters are read with the memory: every ten seconds on an idle node.
    api.wait_for(SOON * 3, &what, |_| {
        let all = view.messages("OOMKilled");
        all.into_iter().find(|message| message.starts_with(start))
    })
    .await
}
