//! The real program after it has dropped its privileges: what remains, and that it still works.
//!
//! As root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::unistd::geteuid;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::process::{Process, node_mode};
use nodepulse_tests::view::View;
use nodepulse_tests::{SOON, skip};
use tempfile::tempdir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixDatagram, UnixListener};
use tokio::time::timeout;

/// `CAP_DAC_READ_SEARCH` of `include/uapi/linux/capability.h`.
const DAC_READ_SEARCH: u64 = 1 << 2;

/// One field of the `status` of every thread of a process.
fn of_threads(pid: u32, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    let value = |status: String| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    };
    let all: Vec<_> = tasks
        .filter_map(|task| value(status(task.unwrap())?))
        .collect();
    assert!(!all.is_empty(), "{field} of {pid}");
    all
}

fn capabilities(pid: u32, set: &str) -> Vec<u64> {
    let hex = |text: &String| u64::from_str_radix(text, 16).unwrap();
    of_threads(pid, set).iter().map(hex).collect()
}

fn node(kubeconfig: &Path, more: &[&str]) -> Process {
    let kubeconfig = kubeconfig.display().to_string();
    let files = ["--kernel-tier", "files", "--kubeconfig", &kubeconfig];
    Process::start(node_mode(&[&files, more].concat()))
}

fn root() -> bool {
    if !geteuid().is_root() {
        skip("needs root", "the sandbox gives up capabilities");
    }
    geteuid().is_root()
}

/// Whether this kernel has Landlock and uses it.
fn landlock(line: &str) -> bool {
    line.contains("landlock=\"V")
}

#[tokio::test]
async fn every_thread_has_few_privileges_and_the_agent_works() {
    if !root() {
        return;
    }
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let agent = node(&api.node_kubeconfig(dir.path(), "worker-1"), &[]);
    let view = View::of(&api, "worker-1");
    // Name resolution and the sample of the file system have started their threads by then.
    view.becomes("Ready", "True", SOON).await;

    let id = agent.id();
    let threads = of_threads(id, "Name");
    assert!(threads.len() >= 3, "main, log, and helpers: {threads:?}");
    for (set, most) in [
        ("CapEff", DAC_READ_SEARCH),
        ("CapPrm", DAC_READ_SEARCH),
        ("CapBnd", 0),
        ("CapInh", 0),
        ("CapAmb", 0),
    ] {
        for present in capabilities(id, set) {
            assert_eq!(present & !most, 0, "{set} of {threads:?}");
        }
    }
    let every = |field: &str, value: &str| {
        let all = of_threads(id, field);
        assert!(all.iter().all(|found| found == value), "{field}: {all:?}");
    };
    every("NoNewPrivs", "1");
    every("Seccomp", "2");

    let line = agent.wait_for_line("sandbox: ", SOON).await;
    assert!(line.contains("checks=8"), "{line}");
    if landlock(&line) {
        assert!(line.contains("INFO"), "{line}");
    } else {
        skip("no Landlock", &line);
    }
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}

/// The bus and the service manager are connected to before no UNIX socket can be opened any more.
#[tokio::test]
async fn unix_sockets_are_connected_before_the_sandbox() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let host = dir.path().join("host");
    fs::create_dir_all(host.join("run/dbus")).unwrap();
    for of_this_node in ["proc", "sys", "etc"] {
        let at = Path::new("/").join(of_this_node);
        std::os::unix::fs::symlink(at, host.join(of_this_node)).unwrap();
    }
    let bus = UnixListener::bind(host.join("run/dbus/system_bus_socket")).unwrap();
    let manager = UnixDatagram::bind(dir.path().join("manager")).unwrap();
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let text = |path: &Path| path.display().to_string();
    let (host, kubeconfig) = (text(&host), text(&kubeconfig));
    let files = ["--kernel-tier", "files", "--kubeconfig", &kubeconfig];
    let args = node_mode(&files);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let socket = text(&dir.path().join("manager"));
    let environment = [
        ("NOTIFY_SOCKET", &socket[..]),
        ("NODEPULSE_HOST_ROOT", &host),
    ];
    let agent = Process::start_in(&environment, &args);

    let (mut logind, _) = timeout(SOON, bus.accept()).await.unwrap().unwrap();
    let mut received = [0; 6];
    timeout(SOON, logind.read_exact(&mut received))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&received, b"\0AUTH ");
    let mut ready = [0; 64];
    let len = timeout(SOON, manager.recv(&mut ready))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&ready[..len], b"READY=1");
    let line = agent.wait_for_line("sandbox: ", SOON).await;
    assert!(!line.contains("can connect to UNIX sockets"), "{line}");
}

#[tokio::test]
async fn with_the_sandbox_off_no_privilege_is_dropped() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let agent = node(&kubeconfig, &["--sandbox", "off"]);
    agent.wait_for_line("started", SOON).await;
    assert_eq!(
        capabilities(agent.id(), "CapEff")[0],
        capabilities(std::process::id(), "CapEff")[0]
    );
}

#[tokio::test]
async fn a_required_sandbox_is_complete_or_the_agent_does_not_start() {
    if !root() {
        return;
    }
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let agent = node(
        &api.node_kubeconfig(dir.path(), "worker-1"),
        &["--sandbox", "require"],
    );
    let line = agent.wait_for_line("sandbox: ", SOON).await;
    if landlock(&line) {
        agent.wait_for_line("node created", SOON).await;
        return;
    }
    assert!(line.contains("sandbox: auto"), "{line}");
    assert_eq!(agent.ends(SOON).await.code, Some(2));
}

#[tokio::test]
async fn a_plugin_for_credentials_still_runs_and_its_profile_is_kept() {
    if !root() {
        return;
    }
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let plugin = dir.path().join("plugin");
    let runs = dir.path().join("runs");
    api.allow_token("fetched", Identity::node("worker-1"));
    // Each token is old at once, so that each request asks for another one.
    let script = format!(
        "#!/bin/sh
grep -E 'CapEff|Seccomp:' /proc/self/status >> {runs}
chmod 600 {runs}; echo chmod $? >> {runs}
echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \
         \"status\": {{\"token\": \"fetched\", \"expirationTimestamp\": \"2020-01-01T00:00:00Z\"}}}}'
",
        runs = runs.display()
    );
    fs::write(&plugin, script).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    let kubeconfig = api.token_kubeconfig(&dir.path().join("kubeconfig"), "none");
    let text = fs::read_to_string(&kubeconfig).unwrap();
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: {}}}",
        plugin.display()
    );
    fs::write(&kubeconfig, text.replace("token: none", &exec)).unwrap();
    let _agent = node(&kubeconfig, &[]);
    let view = View::of(&api, "worker-1");
    view.becomes("Ready", "True", SOON).await;
    let seen = fs::read_to_string(&runs).unwrap();
    // Also the first time.
    assert!(!seen.contains("Seccomp:\t0"), "{seen}");
    let confined = "CapEff:\t0000000000000000\nSeccomp:\t2\nchmod 1\n";
    assert!(seen.ends_with(confined), "{seen}");
}
