//! Tests limits on the tasks of pods, on this machine's cgroups, with real rejected forks.
//!
//! Always compiled; run with the feature `kernel`, as root. Everything that is created is removed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::id;
use std::time::Duration;

use nodepulse_io::clock::Clock;
use nodepulse_linux::os::cgroup_watch::{self, WatchedTree};

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::pod::{POD, UID};
use nodepulse_tests::process::{Process, node_mode};
use nodepulse_tests::provoke::cgroup::CgroupTree;
use nodepulse_tests::view::View;
use tokio::sync::mpsc;

use super::provoke;

/// On version 1 it is compared at a sample, which comes every 10 s at the latest, after 10 s.
const COMPARED: Duration = Duration::from_secs(40);

#[tokio::test]
async fn forks_refused_in_a_pod_that_came_later_are_an_event_with_their_number() {
    let name = format!("nodepulse-pids-{}", id());
    let root = format!("/{name}");
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let view = View::of(&api, "worker-1");
    let kubeconfig = kubeconfig.display().to_string();
    let _agent = Process::start(node_mode(&[
        "--kernel-tier",
        "files",
        // Detection reads the memory hierarchy; on version 1, this test creates its pod in that of
        // pids.
        "--cgroup-driver",
        "cgroupfs",
        "--cgroup-root",
        &root,
        "--kubeconfig",
        &kubeconfig,
    ]));
    view.becomes("Ready", "True", SOON).await;

    // A tenant's cgroup, named to mislead a terminal: 255 bytes, an escape, no UTF-8. The kernel
    // refuses a line break.
    let mut hostile = b"x\x1b[2J\xff".to_vec();
    hostile.resize(255, b'y');
    let mut tree = CgroupTree::of("pids", &name).unwrap();
    tree.add(format!("{POD}/container")).unwrap();
    fs::write(tree.dir(POD).join("pids.max"), "4").unwrap();
    let nested = tree.dir(format!("{POD}/container"));
    let nested = Nested(nested.join(OsStr::from_bytes(&hostile)));
    fs::create_dir(&nested.0).unwrap();
    let refused = provoke().fork_in(&nested.0, 10).unwrap();
    assert!(refused > 0, "the limit is real");

    let event = view.event("PIDLimitReached", COMPARED).await;
    assert_eq!(event["type"], "Warning");
    let message = event["message"].as_str().unwrap();
    println!("{message}");
    let limit = format!("the limit of {root}/{POD} is 4 tasks");
    for words in [
        &format!("{refused} forks refused"),
        &format!("of pod {UID}"),
        &limit,
    ] {
        assert!(message.contains(words.as_str()), "{words}: {message}");
    }
    assert!(message.len() < 1024 && !message.chars().any(char::is_control));
}

/// Returns the voluntary context switches of this thread, which is also that of the runtime.
fn switches() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// A cgroup below one of a [`CgroupTree`], with a name that is not UTF-8.
struct Nested(PathBuf);

impl Drop for Nested {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

#[tokio::test]
async fn a_thousand_cgroups_a_second_wake_the_agent_once_a_second() {
    let mut tree = CgroupTree::of("pids", &format!("nodepulse-churn-{}", id())).unwrap();
    let watched = WatchedTree {
        top: tree.dir("kubepods"),
        depth: 4,
        files: &["pids.events.local", "pids.events"],
    };
    let (send, mut events) = mpsc::channel(64);
    let watching = tokio::spawn(cgroup_watch::read(vec![watched], Clock::kernel(), send));
    events.recv().await.unwrap();
    tree.add("kubepods").unwrap();
    let came = tokio::time::timeout(SOON, events.recv()).await;
    assert!(came.unwrap().is_some(), "the pods cgroup came");

    let top = tree.dir("kubepods");
    let before = switches();
    let churn = tokio::task::spawn_blocking(move || {
        let began = tokio::time::Instant::now();
        let mut made = 0_u64;
        while began.elapsed() < Duration::from_secs(4) {
            let dir = top.join(format!("pod{made}"));
            fs::create_dir(&dir).unwrap();
            fs::remove_dir(&dir).unwrap();
            made += 1;
        }
        (made, began.elapsed())
    });
    let (made, took) = churn.await.unwrap();
    let woken = switches() - before;
    let mut received = 0_u64;
    while events.try_recv().is_ok() {
        received += 1;
    }
    println!("{made} cgroups made and removed in {took:?}: {received} events, {woken} wake-ups");
    assert!(
        woken <= 20 * (took.as_secs() + 2),
        "{woken} wake-ups in {took:?}"
    );
    assert!(
        (1..=took.as_secs() + 2).contains(&received),
        "{received} events in {took:?}"
    );
    watching.abort();
}
