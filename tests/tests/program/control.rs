//! The real program and its operator: the control socket and the commands that use it, reloads,
//! the service manager, one sync, and a dry run.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Identity};
use nodepulse_tests::http1::{Answer, exchange, get, request};
use nodepulse_tests::process::Process;
use nodepulse_tests::view::View;
use nodepulse_tests::{SOON, eventually};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::net::{TcpStream, UnixStream};

use super::text;

const ALONE: [&str; 7] = [
    "run",
    "--mode",
    "node",
    "--node-name",
    "worker-1",
    "--kernel-tier",
    "files",
];

fn alone(more: &[&str]) -> Process {
    Process::start(ALONE.iter().chain(more))
}

async fn ask(state: &Path, path: &str) -> std::io::Result<Answer> {
    let stream = UnixStream::connect(state.join("nodepulse.sock")).await?;
    Ok(exchange(stream, &request("GET", path)).await)
}

/// The status of a page; `None` without a server.
async fn code(address: &str, path: &str) -> Option<u16> {
    get(address, path).await.ok()?.code
}

/// A request that is not HTTP is logged at level debug.
async fn logs_debug_lines(agent: &Process, address: &str) {
    let stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(exchange(stream, "?\r\n\r\n").await.code, Some(400));
    agent.wait_for_line("DEBUG", SOON).await;
}

#[tokio::test]
async fn the_control_socket_is_private_and_belongs_to_one_daemon() {
    let dir = tempdir().unwrap();
    let state = dir.path().join("state");
    let state_path = text(&state);
    let flags = [
        "--state-directory",
        &state_path,
        "--serve-address",
        "127.0.0.1:0",
    ];
    let first = alone(&flags);
    first.wait_for_line("eBPF programs attached", SOON).await;
    let socket = state.join("nodepulse.sock");
    let mode = fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    for path in ["/v1/status", "/v1/explain", "/metrics", "/livez"] {
        let answer = ask(&state, path).await.unwrap();
        assert_eq!(answer.code, Some(200), "{path}: {answer:?}");
    }
    let port = first.address().await;
    assert_eq!(code(&port, "/metrics").await, Some(200));
    for path in ["/v1/status", "/v1/explain"] {
        assert_eq!(code(&port, path).await, Some(404), "{path} at a port");
    }

    first.kill();
    first.ends(SOON).await;
    assert!(socket.exists(), "left over");
    let third = alone(&["--state-directory", &state_path]);
    third.wait_for_line("eBPF programs attached", SOON).await;
    assert_eq!(ask(&state, "/livez").await.unwrap().code, Some(200));
    third.terminate();
    assert_eq!(third.ends(SOON).await.code, Some(0));
    assert!(!socket.exists(), "it cleans up");
}

fn conditions(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let conditions = status["conditions"].as_array().unwrap().iter();
    conditions
        .map(|condition| (text(&condition["type"]), text(&condition["status"])))
        .collect()
}

#[tokio::test]
async fn status_comes_from_a_daemon_or_is_computed_and_explain_needs_a_daemon() {
    let agent = alone(&["--eviction-hard", "pid.available<99.9%"]);
    agent.wait_for_line("eBPF programs attached", SOON).await;
    let json = ["status", "-o", "json"];
    let status = Process::output(Some(&agent), &json).await;
    assert_eq!(status.code, Some(0), "{status:?}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let pids = ("PIDPressure".to_owned(), "True".to_owned());
    assert!(conditions(&status).contains(&pids), "{status:#}");
    let yaml = Process::output(Some(&agent), &["status"]).await;
    assert!(
        yaml.stdout.contains("\n- lastHeartbeatTime: \""),
        "{yaml:?}"
    );

    let explained = Process::output(Some(&agent), &["explain", "PIDPressure"]).await;
    assert_eq!(explained.code, Some(0), "{explained:?}");
    let first = explained.stdout.lines().next().unwrap();
    let expected = "PIDPressure is True (KubeletHasInsufficientPID) since ";
    assert!(first.starts_with(expected), "{first}");
    for words in [
        "cause: pid.available was",
        "available (",
        "below the threshold ",
        "earliest end",
        "Unknown to True",
    ] {
        assert!(explained.stdout.contains(words), "{words}: {explained:?}");
    }
    let broken = agent.state().join("broken.yaml");
    fs::write(&broken, "mode: [").unwrap();
    for command in ["status", "explain"] {
        let args = [command, "--config", &text(&broken)];
        let asked = Process::output(Some(&agent), &args).await;
        assert_eq!(asked.code, Some(0), "{command}: {asked:?}");
        assert!(asked.stdout.contains("PIDPressure"), "{command}: {asked:?}");
        let alone = Process::output(None, &args).await;
        assert_eq!(alone.code, Some(2), "{command}: {alone:?}");
        assert!(alone.stderr.contains("broken.yaml"), "{command}: {alone:?}");
    }
    let unknown = Process::output(Some(&agent), &["explain", "PidPressure"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    let meant = "did you mean PIDPressure?";
    assert!(unknown.stderr.contains(meant), "{unknown:?}");
    let absent = Process::output(Some(&agent), &["explain", "PIDsLow"]).await;
    assert_eq!(absent.code, Some(2), "{absent:?}");
    assert!(
        absent.stderr.contains("it has MemoryPressure"),
        "{absent:?}"
    );
    let all = Process::output(Some(&agent), &["explain", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&all.stdout).unwrap();
    assert_eq!(all["node"], "worker-1");

    let spot = ["status", "--mode", "node", "-o", "json"];
    let spot = Process::output(None, &spot).await;
    assert_eq!(spot.code, Some(0), "{spot:?}");
    let spot: Value = serde_json::from_str(&spot.stdout).unwrap();
    assert_eq!(spot["nodeInfo"]["bootID"], status["nodeInfo"]["bootID"]);
    let types = |status: &Value| conditions(status).into_iter().map(|(type_, _)| type_);
    assert!(types(&spot).eq(types(&status)), "{spot:#}");
    let without_daemon = Process::output(None, &["explain"]).await;
    assert_eq!(without_daemon.code, Some(1), "{without_daemon:?}");
    assert!(
        without_daemon.stderr.contains("no daemon is listening"),
        "{without_daemon:?}"
    );
}

fn configuration(log: &str, more: &str) -> String {
    format!(
        "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
         log: {{level: {log}}}\n{more}"
    )
}

#[tokio::test]
async fn sighup_reloads_the_file_and_an_invalid_file_is_refused_in_one_line() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    fs::write(&file, configuration("info", "")).unwrap();
    let environment = [("NODEPULSE_SERVE_ADDRESS", "127.0.0.1:0")];
    let config = text(&file);
    let flags = [&ALONE[..], &["--config", &config]].concat();
    let agent = Process::start_in(&environment, &flags);
    agent.wait_for_line("eBPF programs attached", SOON).await;
    assert_eq!(agent.lines_with("DEBUG"), [""; 0]);

    fs::write(&file, configuration("debug", "sandbox: off\n")).unwrap();
    agent.hang_up();
    agent.wait_for_line("configuration reloaded", SOON).await;
    logs_debug_lines(&agent, &agent.address().await).await;
    let restart = agent.wait_for_line("after a restart", SOON).await;
    assert!(restart.contains("keys=sandbox"), "{restart}");

    fs::write(&file, configuration("info", "maxPod: 5\n")).unwrap();
    agent.hang_up();
    let refused = agent.wait_for_line("configuration refused", SOON).await;
    for word in ["ERROR", "maxPod", "maxPods", "line 4"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0));
}

#[tokio::test]
async fn a_changed_file_is_read_without_a_signal_and_so_is_a_mounted_config_map() {
    let dir = tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    // As a kubelet mounts a ConfigMap.
    let version = |name: &str, log: &str, address: &str| {
        let version = dir.path().join(name);
        fs::create_dir(&version).unwrap();
        let serve = format!("serve: {{address: \"{address}\"}}\n");
        fs::write(version.join("config.yaml"), configuration(log, &serve)).unwrap();
        symlink(name, dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
    };
    version("..1", "info", "127.0.0.1:0");
    symlink("..data/config.yaml", &config).unwrap();
    // The variable of the other tests would win over the file.
    let environment = [("NODEPULSE_SERVE_ADDRESS", "")];
    let config = text(&config);
    let flags = [&ALONE[..], &["--config", &config]].concat();
    let agent = Process::start_in(&environment, &flags);
    let first = agent.address().await;
    assert_eq!(code(&first, "/livez").await, Some(200));

    version("..2", "debug", "localhost:0");
    agent.wait_for_line("configuration refused", SOON).await;
    assert_eq!(code(&first, "/livez").await, Some(200), "the last good one");

    version("..3", "debug", "[::1]:0");
    let second = agent.address_again(2).await;
    logs_debug_lines(&agent, &second).await;
    assert_eq!(code(&second, "/livez").await, Some(200));
    assert_eq!(code(&first, "/livez").await, None, "not served any more");
    let metrics = get(&second, "/metrics").await.unwrap();
    for line in [
        "nodepulse_config_reloads_total{node=\"worker-1\",result=\"refused\"} 1\n",
        "nodepulse_config_reloads_total{node=\"worker-1\",result=\"applied\"} 1\n",
    ] {
        assert!(metrics.body.contains(line), "{line}: {}", metrics.body);
    }
}

/// A service manager.
struct Manager {
    socket: UnixDatagram,
    address: String,
}

impl Manager {
    fn at(dir: &Path) -> Self {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            address: text(&path),
        }
    }

    fn received(&self) -> Option<String> {
        let mut buf = [0; 512];
        let len = self.socket.recv(&mut buf).ok()?;
        Some(String::from_utf8_lossy(&buf[..len]).into_owned())
    }

    async fn hears(&self, words: &str) {
        let received = eventually(words, || self.received().ok_or("nothing")).await;
        assert!(received.starts_with(words), "{received:?}, not {words:?}");
    }
}

#[tokio::test]
async fn the_service_manager_receives_ready_reloading_watchdog_and_stopping() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    // Nothing is ready before the first status is there.
    api.faults()
        .push(Fault::on("POST", "/api/v1/nodes", Effect::Status(500)).always());
    let manager = Manager::at(dir.path());
    let environment = [
        ("NOTIFY_SOCKET", manager.address.as_str()),
        ("WATCHDOG_USEC", "2000000"),
    ];
    let flags = [
        &ALONE[..],
        &["--kubeconfig", &kubeconfig, "--allow-ready-without-runtime"],
    ];
    let agent = Process::start_in(&environment, &flags.concat());
    manager.hears("WATCHDOG=1").await;
    assert_eq!(View::of(&api, "worker-1").node(), None);
    api.faults().clear();
    // The watchdog comes each second, whatever else there is to hear.
    let next = async || {
        for _ in 0..20 {
            let received = eventually("word", || manager.received().ok_or("nothing")).await;
            if received != "WATCHDOG=1" {
                return received;
            }
        }
        panic!("only WATCHDOG=1");
    };
    assert_eq!(next().await, "READY=1");
    assert!(View::of(&api, "worker-1").node().is_some());
    agent.hang_up();
    let reloading = next().await;
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(micros.unwrap().parse::<u64>().unwrap() > 0, "{reloading}");
    assert_eq!(next().await, "READY=1");
    agent.terminate();
    assert_eq!(next().await, "STOPPING=1");
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}

#[tokio::test]
async fn run_once_synchronizes_once_and_its_exit_code_is_the_result() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    let args = [&ALONE[..], &["--kubeconfig", &kubeconfig, "--once"]].concat();
    let done = Process::start(&args).ends(SOON).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let view = View::of(&api, "worker-1");
    assert_eq!(view.status("MemoryPressure"), "False");
    assert!(view.lease().is_some());

    api.faults()
        .push(Fault::on("PUT", &view.lease_path(), Effect::Status(403)).always());
    let failed = Process::start(&args).ends(SOON).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
}

/// What a dry run printed: method, path and body.
fn printed(stdout: &str) -> Vec<(String, String, Value)> {
    let requests = stdout.trim().split("\n\n");
    let request = |text: &str| {
        let (line, body) = text.split_once('\n').unwrap();
        let (method, path) = line.split_once(' ').unwrap();
        let body = serde_json::from_str(body).unwrap();
        (method.to_owned(), path.to_owned(), body)
    };
    requests.map(request).collect()
}

#[tokio::test]
async fn a_dry_run_prints_each_request_and_only_reads() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    let dry = [&ALONE[..], &["--once", "--dry-run"]].concat();
    let with_cluster = [&dry[..], &["--kubeconfig", &kubeconfig]].concat();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

    for (name, args) in [("no cluster", &dry), ("an empty one", &with_cluster)] {
        let run = Process::output(None, args).await;
        assert_eq!(run.code, Some(0), "{name}: {run:?}");
        let sent = printed(&run.stdout);
        let create = sent.iter().find(|sent| sent.1 == "/api/v1/nodes");
        let (method, _, body) = create.unwrap();
        assert_eq!(method, "POST", "{name}");
        assert_eq!(body["metadata"]["name"], "worker-1", "{name}");
        let methods: Vec<_> = sent.iter().map(|sent| sent.0.as_str()).collect();
        assert!(!methods.contains(&"GET"), "{name}: {methods:?}");
        let to = |path: &str| sent.iter().filter(|sent| sent.1 == path).count();
        assert_eq!(to(lease), 1, "{name}: {sent:#?}");
    }

    let run = [&ALONE[..], &["--kubeconfig", &kubeconfig, "--once"]].concat();
    assert_eq!(Process::start(&run).ends(SOON).await.code, Some(0));
    let view = View::of(&api, "worker-1");
    let (node, before) = (view.node(), api.requests().len());
    let edge = ["--eviction-hard", "pid.available<99.9%"];
    let again = Process::output(None, &[&with_cluster[..], &edge].concat()).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let patches = printed(&again.stdout);
    let status = format!("{}/status", view.path());
    let patch = patches
        .iter()
        .find(|sent| sent.0 == "PATCH" && sent.1 == status);
    let conditions = patch.unwrap().2["status"]["conditions"].clone();
    let mut edges = conditions.as_array().unwrap().clone();
    edges.retain(|condition| condition.get("status").is_some());
    assert_eq!(edges.len(), 1, "the rest is as it is: {edges:?}");
    assert_eq!(edges[0]["type"], "PIDPressure");
    let asked = api.requests_where(|_| true).split_off(before);
    assert!(asked.iter().any(|request| request.method == "GET"));
    assert!(
        asked.iter().all(|request| request.method == "GET"),
        "{asked:#?}"
    );
    assert_eq!(view.node(), node);
}

#[tokio::test]
async fn in_companion_mode_one_patch_is_printed_and_its_conditions_are_the_status() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let stranger = Identity::user("system:serviceaccount:default:default");
    let kubeconfig = text(&api.kubeconfig(&dir.path().join("stranger"), &stranger));
    let flags = ["--mode", "companion"];
    let run = ["run", "--node-name", "worker-1", "--kernel-tier", "files"];
    let dry = [&run[..], &flags, &["--once", "--dry-run"]].concat();
    let without_permissions = [&dry[..], &["--kubeconfig", &kubeconfig]].concat();
    let refused = Process::output(None, &without_permissions).await;
    assert_eq!(refused.code, Some(0), "{refused:?}");
    assert!(api.requests().iter().all(|request| request.method == "GET"));
    let paths = |of: &str| printed(of).into_iter().map(|sent| sent.1);
    let status = "/api/v1/nodes/worker-1/status";
    assert!(
        paths(&refused.stdout).any(|path| path == status),
        "{refused:?}"
    );

    let run = Process::output(None, &dry).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let mut sent = printed(&run.stdout);
    // This machine may have kills to report.
    sent.retain(|sent| !sent.1.ends_with("/events"));
    let [(method, path, body)] = sent.as_slice() else {
        panic!("{sent:#?}");
    };
    assert_eq!((method.as_str(), path.as_str()), ("PATCH", status));
    let spot = Process::output(None, &[&["status", "-o", "json"], &flags[..]].concat()).await;
    assert_eq!(spot.code, Some(0), "{spot:?}");
    let spot: Value = serde_json::from_str(&spot.stdout).unwrap();
    let types = |status: &Value| conditions(status).into_iter().map(|(type_, _)| type_);
    assert!(types(&spot).eq(types(&body["status"])), "{spot:#}");
    assert!(types(&spot).any(|type_| type_ == "PIDsLow"), "{spot:#}");
}

#[tokio::test]
async fn cleanup_is_refused_while_a_daemon_answers_unless_forced() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let low = json!([{ "type": "MemoryLow", "status": "False" }]);
    let node = |name: &str, version: &str| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "status": {
                "conditions": low.clone(),
                "nodeInfo": { "kubeletVersion": version },
            },
        })
    };
    api.put_object(node("worker-7", "v1.33.0"));
    api.put_object(node("worker-8", "v1.33.0+nodepulse.0.1.0"));
    let conditions = |name: &str| {
        let stored = api.object(&format!("/api/v1/nodes/{name}")).unwrap();
        stored["status"]["conditions"].clone()
    };
    let agent = alone(&[]);
    agent.wait_for_line("started", SOON).await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    let args = ["cleanup", "--all-nodes", "--kubeconfig", &kubeconfig];
    let refused = Process::output(Some(&agent), &args).await;
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (Some(1), ""),
        "{refused:?}"
    );
    let socket = text(&agent.state().join("nodepulse.sock"));
    for part in [&socket, "--force"] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(conditions("worker-7"), low);

    let forced = Process::output(Some(&agent), &[&args[..], &["--force"]].concat()).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(
        forced.stdout.contains("worker-7: 1 conditions"),
        "{forced:?}"
    );
    assert!(
        forced.stdout.contains("worker-8: skipped (node mode)"),
        "{forced:?}"
    );
    assert_eq!(conditions("worker-7"), json!([]));
    assert_eq!(
        conditions("worker-8"),
        low,
        "an agent in node mode writes it"
    );
}
