//! File systems that do not respond, with the real program and with simulated time: one purpose is
//! unavailable, every other continues, and no restart is needed. As root.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::hung_files::HungDirectory;
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::process::{Process, finished, node_mode};
use nodepulse_tests::view::View;
use tempfile::tempdir;

const NODEFS: &str = "var/lib/kubelet";
const BLOCKED: &str = "nodepulse_blocked_calls";

/// Advances the paused time also while a thread works, at which it stops by default.
async fn pass_anyway(time: Duration) {
    const STEP: Duration = Duration::from_millis(50);
    for _ in 0..time.as_millis() / STEP.as_millis() {
        tokio::time::advance(STEP).await;
    }
}

/// Returns whether it becomes true. Simulated time passes faster than a thread may be scheduled.
async fn eventually(is_true: impl AsyncFn() -> bool) -> bool {
    for _ in 0..10_000 {
        if is_true().await {
            return true;
        }
        pass_anyway(Duration::from_millis(50)).await;
        tokio::task::spawn_blocking(std::thread::yield_now)
            .await
            .unwrap();
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_hung_file_system_blocks_one_purpose_and_is_reported_until_it_responds() {
    let host = MadeUpHost::calm();
    let nodefs = host.path().join(NODEFS);
    fs::create_dir_all(&nodefs).unwrap();
    let api = in_memory();
    let node = Node::named("worker-1").host(host).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    let blocked = async |purpose: &str| {
        let read = node.scrape().await;
        read.value(BLOCKED, &[("purpose", purpose)])
    };
    assert_eq!(blocked("nodefs").await, Some(0.0));

    let hung = HungDirectory::over(&nodefs);
    let renewals = view.renewals().len();
    // Asked every ten seconds; five of them are patience.
    pass_anyway(Duration::from_secs(40)).await;
    let responds =
        async |purpose: &str| eventually(async || blocked(purpose).await == Some(0.0)).await;
    let others = [
        "configuration",
        "credentials",
        "disks",
        "names",
        "container_logs",
        "kill_details",
        "state",
    ];
    for purpose in others {
        assert!(responds(purpose).await, "{purpose}");
    }
    assert_eq!(blocked("nodefs").await, Some(1.0));
    let ready = node.get("/readyz").await;
    assert_eq!(ready.code, Some(503), "{ready:?}");
    assert!(
        ready.body.contains("blocked file system calls: nodefs"),
        "{ready:?}"
    );
    assert_eq!(node.get("/livez").await.code, Some(200));
    let explained = node.get("/v1/explain").await;
    assert!(
        explained.body.contains(r#""blockedCalls":["nodefs"]"#),
        "{explained:?}"
    );
    assert!(renewals + 3 <= view.renewals().len(), "the lease goes on");
    // Another purpose of the file system continues to work.
    node.reload(|now| now.eviction_hard = Some("pid.available<5%".to_owned()))
        .await;
    let applied = async || {
        let read = node.scrape().await;
        read.value("nodepulse_config_reloads_total", &[("result", "applied")]) == Some(1.0)
    };
    assert!(eventually(applied).await, "the configuration");

    hung.answers();
    assert!(responds("nodefs").await);
    pass(Duration::from_secs(20)).await;
    assert_eq!(blocked("nodefs").await, Some(0.0));
    assert_eq!(node.get("/readyz").await.code, Some(200));
    let left = [("signal", "nodefs.available")];
    let read = node.scrape().await;
    assert!(
        read.value("nodepulse_signal_value", &left).is_some(),
        "read again"
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_agent_starts_although_the_root_file_system_and_the_disks_do_not_respond() {
    let host = MadeUpHost::calm();
    host.disk("sda", "8:0");
    let hung = ["etc", "sys/block"].map(|dir| HungDirectory::over(&host.path().join(dir)));
    let api = in_memory();
    let node = Node::named("worker-1").host(host).start(&api);
    let view = View::of(&api, "worker-1");
    // The list of disks and the machine's files have five seconds.
    pass_anyway(Duration::from_secs(10)).await;
    view.settled(SOON).await;
    let watched = async || {
        let read = node.scrape().await;
        let labels = [("device", "sda"), ("state", "slow")];
        read.value("nodepulse_disk_unhealthy", &labels)
    };
    let machine = || view.node().unwrap()["status"]["nodeInfo"]["machineID"].clone();
    assert_eq!(view.status("DiskIOPressure"), "Unknown");
    assert_eq!(watched().await, None);
    assert_eq!(machine(), "");

    drop(hung);
    assert!(eventually(async || machine() != "").await, "read again");
    let listed = async || watched().await == Some(0.0);
    assert!(eventually(listed).await, "listed again");
    let healthy = async || view.status("DiskIOPressure") == "False";
    assert!(eventually(healthy).await);
    node.stop().await.unwrap();
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn a_blocked_configuration_file_is_reported_and_read_once_the_read_returns() {
    let (dir, api) = (tempdir().unwrap(), ApiServer::start().await);
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    let config = files.join("config.yaml");
    fs::write(
        &config,
        "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n",
    )
    .unwrap();
    let kubeconfig = api.kubeconfig(&dir.path().join("kubeconfig"), &Identity::node("worker-1"));
    // Finds the server by its name.
    let by_name = fs::read_to_string(&kubeconfig)
        .unwrap()
        .replace("127.0.0.1", "localhost");
    fs::write(&kubeconfig, by_name).unwrap();
    let agent = Process::start(node_mode(&[
        "--kernel-tier",
        "files",
        "--serve-address",
        "off",
        "--kubeconfig",
        &text(&kubeconfig),
        "--config",
        &text(&config),
    ]));
    View::of(&api, "worker-1").settled(SOON).await;

    let hung = HungDirectory::over(&files);
    agent.hang_up();
    let line = agent
        .wait_for_line("a file system does not answer", SOON)
        .await;
    assert!(line.contains("purpose=\"configuration\""), "{line}");
    let check = finished(
        [
            "check",
            "--kernel-tier",
            "files",
            "--state-directory",
            &text(agent.state()),
        ],
        "",
    )
    .await;
    let line = check
        .stdout
        .lines()
        .find(|line| line.contains("calls to file systems"));
    let line = line.unwrap_or_else(|| panic!("{check:?}"));
    assert!(
        line.starts_with("degraded") && line.contains("blocked: configuration"),
        "{line}"
    );

    hung.answers();
    agent
        .wait_for_line("the file system has answered", SOON)
        .await;
    agent.hang_up();
    agent.wait_for_line("configuration reloaded", SOON).await;
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}
