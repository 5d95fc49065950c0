//! `kubectl nodepulse`: the real program against an API server with the Nodes and Events that the
//! real agent has written.

/// All nodes.
mod fleet;
/// OOM kills.
mod kills;
/// One node.
mod node;
/// Proxies between the plugin and the API server.
mod proxy;
/// What fails, and how it is reported.
mod refused;
/// Changes of all nodes.
mod watch;
/// One pod.
mod why;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use nodepulse_core::record::ScopeSource;
use nodepulse_io::clock::Clock;

use agent_common::OomKill;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::made_up;
use nodepulse_tests::node::{COMPANION, COMPANION_PERMISSIONS, Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::pod::{CONTAINER, ID, Pod, UID};
use nodepulse_tests::process::{program, program_of};
use nodepulse_tests::view::{EVENTS, View};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const NODES: &str = "/api/v1/nodes";
const SHOP_EVENTS: &str = "/api/v1/namespaces/shop/events";

/// A cluster with the kubeconfig of an administrator.
struct Cluster {
    api: ApiServer,
    dir: TempDir,
}

/// What the program has printed.
struct Printed {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Cluster {
    async fn new() -> Self {
        Self {
            api: ApiServer::start().await,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// With `worker-1`, which has too many tasks, and a pod of which a process was OOM-killed: as
    /// the agent has reported them 10 seconds ago.
    async fn reported() -> Self {
        let cluster = Self::new().await;
        for object in reported_objects() {
            cluster.api.put_object(object);
        }
        cluster
    }

    fn kubeconfig(&self) -> PathBuf {
        self.api.admin_kubeconfig(self.dir.path())
    }

    /// Of a user who may do nothing but this.
    fn kubeconfig_of(&self, user: &str, permissions: &[(&str, &str)]) -> PathBuf {
        self.api.grant_all(user, permissions);
        let path = self.dir.path().join(user);
        self.api.kubeconfig(&path, &Identity::user(user))
    }

    async fn run(&self, args: &[&str]) -> Printed {
        run(args, &self.kubeconfig(), &[]).await
    }
}

fn plugin() -> PathBuf {
    program_of("kubectl-nodepulse")
}

fn command(args: &[&str], kubeconfig: &Path, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(plugin());
    command
        .args(args)
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn run(args: &[&str], kubeconfig: &Path, environment: &[(&str, &str)]) -> Printed {
    let output = command(args, kubeconfig, environment).output();
    let output = tokio::time::timeout(3 * SOON, output).await;
    let output = output.expect("it ends").expect("start the plugin");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

impl Printed {
    fn good(self) -> String {
        assert_eq!(
            (self.code, self.stderr.as_str()),
            (Some(0), ""),
            "{}",
            self.stdout
        );
        self.stdout
    }

    /// The one line of a failure.
    fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""));
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        self.stderr
    }
}

/// The words of the first line that begins with this one.
fn row<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect());
    let found = lines.find(|words: &Vec<&str>| words.first() == Some(&first));
    found.unwrap_or_else(|| panic!("no line {first} in:\n{text}"))
}

/// The time so many seconds ago.
fn ago(seconds: u64) -> String {
    let at = Clock::kernel().now().wall - Duration::from_secs(seconds);
    Timestamp::try_from(at).unwrap().to_string()
}

/// A Node with one condition of nodepulse, which was written a minute ago.
fn node(name: &str, type_: &str, status: &str) -> Value {
    let mut node = made_up::node(name);
    let condition = json!({
        "type": type_, "status": status, "reason": "Because", "message": "m",
        "lastHeartbeatTime": ago(60), "lastTransitionTime": ago(3660),
    });
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.insert(0, condition);
    node
}

/// The agent's pod on a node, as the chart's `DaemonSet` makes it.
fn agent_pod(node: &str, state: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("nodepulse-{node}"), "namespace": "nodepulse",
            "labels": {
                "app.kubernetes.io/name": "nodepulse",
                "app.kubernetes.io/component": "agent",
            },
        },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "nodepulse", "image": "registry.example/nodepulse:0.1.0" }],
        },
        "status": {
            "phase": "Running",
            "containerStatuses":
                [{ "name": "nodepulse", "ready": true, "restartCount": 2, "state": state }],
        },
    })
}

fn running() -> Value {
    json!({ "running": { "startedAt": ago(7200) } })
}

/// What the agent writes, on a paused clock in another thread. Times are moved to this moment.
fn reported_objects() -> Vec<Value> {
    let simulated = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(simulate())
    });
    let (mut objects, end) = simulated.join().unwrap();
    let now = Timestamp::try_from(Clock::kernel().now().wall).unwrap();
    let end = Timestamp::try_from(UNIX_EPOCH + end).unwrap();
    let shift = now.duration_since(end) - SignedDuration::from_secs(10);
    for object in &mut objects {
        move_times(object, shift);
    }
    objects
}

fn move_times(value: &mut Value, shift: SignedDuration) {
    match value {
        Value::String(text) => {
            if let Ok(time) = text.parse::<Timestamp>() {
                *text = (time + shift).to_string();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|one| move_times(one, shift)),
        Value::Object(map) => map.values_mut().for_each(|one| move_times(one, shift)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

async fn simulate() -> (Vec<Value>, Duration) {
    let api = in_memory();
    api.grant_all(COMPANION, &COMPANION_PERMISSIONS);
    api.put_object(made_up::node("worker-1"));
    let cart = Pod::new("shop", "cart-0", UID).container("web", ID);
    cart.put(&api);
    let host = Arc::new(crowded_host());
    let node = Node::companion("worker-1")
        .host(Arc::clone(&host))
        .start(&api);
    let is_reported = |api: &ApiServer| {
        let node = api.object("/api/v1/nodes/worker-1")?;
        node.to_string().contains("PIDsLow").then_some(())
    };
    api.wait_for(SOON, "the first status", is_reported).await;
    pass(Duration::from_secs(3)).await;
    let kill = Kill {
        victim: ("stress", 4321),
        cgroup: CONTAINER,
        limit: Limit::Of(CONTAINER),
        source: ScopeSource::Exact,
    };
    let container = host.path().join("sys/fs/cgroup").join(CONTAINER);
    let container = container.metadata().unwrap().ino();
    // A small child of a process in the same container.
    let change = |record: &mut OomKill| {
        (record.ns_tgid, record.cg_reference) = (17, container);
        record.anon_pages = 100;
    };
    node.kernel().oom_kill_with(kill, change).await;
    api.wait_for(SOON, "the details", |api| {
        let events = cart.events(api);
        let message = events.first()?["message"].as_str()?;
        message.contains("largest other").then_some(())
    })
    .await;
    node.kernel().crowd().await;
    let view = View::of(&api, "worker-1");
    view.event("LowPIDs", SOON).await;
    node.stop().await.unwrap();
    let lists = [NODES, EVENTS, SHOP_EVENTS, "/api/v1/namespaces/shop/pods"];
    let objects = lists.into_iter().flat_map(|path| api.list(path));
    (objects.collect(), api.wall())
}

/// A host on which a container has two processes besides the one that is killed.
fn crowded_host() -> MadeUpHost {
    let host = MadeUpHost::calm();
    host.pid_max(10_000);
    host.container(CONTAINER);
    let cgroup = |name: &str| format!("sys/fs/cgroup/{CONTAINER}/{name}");
    let stat =
        "anon 41943040\nfile 3145728\nkernel 1048576\nsock 0\nshmem 1048576\ninactive_file 0\n";
    host.write(&cgroup("memory.stat"), stat)
        .write(&cgroup("memory.current"), "50331648\n")
        .write(&cgroup("cgroup.procs"), "4321\n77\n78\n");
    let processes = [(77, "java\u{1b}[2J", 8192), (78, "sh", 256)];
    for (pid, comm, pages) in processes {
        host.write(
            &format!("proc/{pid}/statm"),
            format!("9999 {pages} 1 1 0 1 0\n"),
        )
        .write(&format!("proc/{pid}/comm"), format!("{comm}\n"));
    }
    host
}
