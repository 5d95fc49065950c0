//! The process: its end, its readiness, and what it sends on an idle node.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nodepulse::testing::Notify;
use nodepulse_tests::api_server::{ApiServer, Recorded};
use nodepulse_tests::days::{NAME, Stage};
use nodepulse_tests::node::pass;
use nodepulse_tests::process::{Process, node_mode, program};
use nodepulse_tests::view::View;
use nodepulse_tests::{SOON, eventually, skip};
use serde_json::Value;
use tempfile::tempdir;

use super::events::{global, settled, writes};

fn on_files(further: &[&str]) -> Vec<String> {
    node_mode(&[&["--kernel-tier", "files"], further].concat())
}

/// On SIGTERM the lease remains, and so does Ready.
#[tokio::test]
async fn a095_the_end_of_the_process_does_not_change_the_node() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), NAME);
    let agent = Process::start(on_files(&[
        "--kubeconfig",
        &kubeconfig.display().to_string(),
    ]));
    let view = View::of(&api, NAME);
    view.settled(SOON).await;
    view.becomes("Ready", "True", SOON).await;
    let before = (view.condition("Ready"), view.lease().map(holder));
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
    assert_eq!((view.condition("Ready"), view.lease().map(holder)), before);
    let deletes = api.requests_where(|request| request.method == "DELETE");
    assert_eq!(deletes, []);
}

fn holder(lease: Value) -> (Value, Value) {
    (
        lease["metadata"]["uid"].clone(),
        lease["spec"]["holderIdentity"].clone(),
    )
}

/// The program with these arguments in a separate network, with loopback only, which is up.
/// `None`, and the test is skipped, if this user may not create one.
fn alone(args: &[String]) -> Option<Process> {
    const UP: &str = "ip link set lo up && ip route add default dev lo && exec \"$@\"";
    let may = Command::new("unshare")
        .args(["--net", "sh", "-c", UP, "sh", "true"])
        .status();
    if !may.is_ok_and(|status| status.success()) {
        skip("no network namespace", "`unshare --net` or `ip` failed");
        return None;
    }
    let agent = program().display().to_string();
    let wrapper = ["--net", "sh", "-c", UP, "sh", &agent].map(str::to_owned);
    let args = wrapper.into_iter().chain(args.iter().cloned());
    Some(Process::start_program(Path::new("unshare"), args))
}

/// What a command prints in the network of a process.
fn in_its_network(agent: &Process, command: &[&str]) -> String {
    let pid = agent.id().to_string();
    let output = Command::new("nsenter")
        .args(["-n", "-t", &pid])
        .args(command)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `/healthz` on port 10248 returns `ok` with 200, and on loopback only.
#[tokio::test]
async fn a096_healthz_answers_where_a_kubelet_answers() {
    const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/10248; \
         printf 'GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; cat <&3";
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    // Not reachable from the agent's network, but it answers every other client.
    let kubeconfig = api.node_kubeconfig(dir.path(), NAME).display().to_string();
    let serve = [
        "--kubeconfig",
        &kubeconfig,
        "--serve-address",
        "127.0.0.1:0",
    ];
    let Some(agent) = alone(&on_files(&serve)) else {
        return;
    };
    agent
        .wait_for_line("serving address=127.0.0.1:10248", SOON)
        .await;
    let answer = in_its_network(&agent, &["bash", "-c", ASK]);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    // 10248 in hexadecimal, and who may come.
    let tcp = in_its_network(&agent, &["cat", "/proc/net/tcp", "/proc/net/tcp6"]);
    let open = tcp
        .lines()
        .filter(|line| line.contains(":2808 ") && line.contains(" 0A "));
    let open: Vec<_> = open.collect();
    assert_eq!(open.len(), 1, "{tcp}");
    assert!(open[0].contains("0100007F:2808 "), "{open:?}");
}

/// How many connections were asked for in the network of a process.
fn dials(agent: &Process) -> u64 {
    let counters = in_its_network(agent, &["cat", "/proc/net/snmp"]);
    let mut of_tcp = counters.lines().filter(|line| line.starts_with("Tcp: "));
    let (names, values) = of_tcp.next().zip(of_tcp.next()).expect("counters of TCP");
    let mut both = names.split(' ').zip(values.split(' '));
    let opens = both.find(|(name, _)| *name == "ActiveOpens");
    opens.expect("the count").1.parse().expect("a number")
}

/// The service manager is notified once of readiness, and the watchdog at half of its interval.
#[tokio::test(start_paused = true)]
async fn a097_the_watchdog_is_notified_at_half_of_its_interval() {
    const HALF: Duration = Duration::from_secs(15);
    let dir = tempdir().unwrap();
    let address = dir.path().join("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_nonblocking(true).unwrap();
    let notify = Notify::connect(address.to_str().unwrap(), Some(HALF)).unwrap();
    let stage = Stage::open(|node| node.notify(notify));
    let (mut others, mut beats) = (Vec::new(), Vec::new());
    let mut buf = [0; 256];
    while stage.api.now() < Duration::from_mins(10) {
        pass(Duration::from_millis(100)).await;
        while let Ok(len) = manager.recv(&mut buf) {
            match &buf[..len] {
                b"WATCHDOG=1" => beats.push(stage.api.now()),
                other => others.push(String::from_utf8_lossy(other).into_owned()),
            }
        }
    }
    assert_eq!(others, ["READY=1"]);
    assert!((39..=41).contains(&beats.len()), "{}", beats.len());
    for (one, next) in beats.iter().zip(beats.iter().skip(1)) {
        // Earlier if that saves a wake-up, never later.
        let earliest = HALF - Duration::from_millis(500);
        let gap = *next - *one;
        assert!(
            (earliest..=HALF + Duration::from_millis(100)).contains(&gap),
            "{gap:?}"
        );
    }
    stage.node.stop().await.unwrap();
}

/// Without a kubeconfig no connection is opened, to any host; with one, there is one by then.
#[tokio::test]
async fn a098_without_a_kubeconfig_no_connection_is_opened() {
    let Some(without) = alone(&on_files(&[])) else {
        return;
    };
    without.wait_for_line("eBPF programs attached", SOON).await;
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), NAME).display().to_string();
    let with = alone(&on_files(&["--kubeconfig", &kubeconfig])).expect("as before");
    eventually("connection of the other", || match dials(&with) {
        0 => Err(0),
        dialled => Ok(dialled),
    })
    .await;
    assert_eq!(dials(&without), 0);
}

/// Ten idle minutes cost at most 61 requests about the lease and 5 status patches, no Event and no
/// read.
#[tokio::test(start_paused = true)]
async fn a099_an_idle_node_sends_few_requests() {
    for seed in [1, 2, 3] {
        let stage = Stage::open(|node| node.seed(seed));
        stage.view().settled(SOON).await;
        // Not what the start itself costs.
        pass(Duration::from_secs(1)).await;
        let from = stage.api.now();
        pass(Duration::from_mins(10)).await;
        let watches = |request: &Recorded| request.query.contains("watch");
        let requests = stage.api.requests_where(|r| from < r.at && !watches(r));
        let of = |method: &str| requests.iter().filter(|r| r.method == method).count();
        assert!(
            (57..=61).contains(&of("PUT")),
            "{seed}: {} renewals",
            of("PUT")
        );
        assert!(
            (1..=5).contains(&of("PATCH")),
            "{seed}: {} patches",
            of("PATCH")
        );
        assert_eq!(
            requests.len(),
            of("PUT") + of("PATCH"),
            "{seed}: {requests:?}"
        );
        assert_eq!(writes(&stage.api, from), [], "{seed}");
        assert_eq!(stage.api.connections().opened, 1, "{seed}");
        let opened = stage.api.requests_where(|r| from < r.at && watches(r));
        assert!(
            opened.len() <= 4,
            "{seed}: watches on node and pods: {opened:?}"
        );
        let refused = stage
            .api
            .requests_where(|r| from < r.at && !watches(r) && r.status != Some(200));
        assert_eq!(refused, [], "{seed}");
    }
}

/// Whatever happens to the node, every request of its agent is permitted by the rules for nodes
/// (here those of the embedded API server; a real cluster was not tested).
#[tokio::test(start_paused = true)]
async fn a100_every_request_is_permitted_for_a_node() {
    let stage = settled().await;
    stage.node.kernel().crowd().await;
    stage.node.kernel().oom_kill(global(4321)).await;
    stage.view().event("SystemOOM", SOON).await;
    stage.api.delete_object(&stage.view().lease_path()).unwrap();
    pass(Duration::from_mins(5)).await;
    stage.api.delete_object(&stage.view().path()).unwrap();
    pass(Duration::from_mins(1)).await;
    let Stage { api, host, node } = stage;
    node.stop().await.unwrap();
    let stage = Stage::on(&api, host, |node| node);
    pass(Duration::from_mins(1)).await;
    let refused = stage
        .api
        .requests_where(|request| request.status == Some(403));
    assert_eq!(refused, []);
    assert!(stage.view().renewals().len() > 10);
}
