//! Causes real kills in simulated pods on this kernel, and measures when an agent reports each on
//! the right Pod.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nodepulse::{Agent, AppError, KernelSource};
use nodepulse::{Config, Overrides};
use nodepulse_core::backoff::Jitter;
use nodepulse_core::incident::Position;
use nodepulse_core::subjects::recording::RunRecorder;
use nodepulse_io::clock::Clock;
use nodepulse_kube::credentials::CredentialSource;
use nodepulse_kube::{Client, Endpoint};
use nodepulse_linux::kernel::{Wanted, loader, object};
use nodepulse_linux::state::State;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::SOON;
use crate::api_server::ApiServer;
use crate::pod::Pod;
use crate::process::{Process, node_mode};
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::{Crowd, Provoke};
use crate::tape::Tape;
use crate::view::View;

mod events;
pub mod sinks;

pub use events::{IN_USE, details_after, is_detailed, kills_in};

const MIB: u64 = 1 << 20;
/// Limit with room for the program itself, which is soon full.
const LIMIT: u64 = 8 * MIB;
/// Size that exceeds any limit.
const MORE: u64 = 64 * MIB;
/// Number of threads that provoke kills at the same time.
const WORKERS: usize = 4;

/// The level at which a limit is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Container,
    Pod,
}

/// Pid of the victim and number of the pod.
pub type Killed = (u32, usize);

/// Pods on this kernel and at an API server, for an agent that observes both.
#[derive(Debug)]
pub struct Cluster {
    pub api: ApiServer,
    /// The first process of each container, which survives the kills. Dropped before its cgroup is
    /// removed.
    _mains: Vec<Crowd>,
    tree: CgroupTree,
    /// The pods, and the level of their limits.
    pub pods: Vec<(Pod, At)>,
    provoke: Provoke,
    dir: tempfile::TempDir,
}

fn uid(pod: usize) -> String {
    format!("{pod:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")
}

/// Returns the cgroup of a container, below the pods' root.
fn cgroup(pod: usize, container: usize) -> String {
    let id = format!("{pod:032x}{container:032x}");
    format!("kubepods/burstable/pod{}/{id}", uid(pod))
}

impl Cluster {
    /// Creates pods of two containers: `web`, in which kills are provoked, and `proxy`. Must be
    /// called in a runtime.
    pub async fn with(name: &str, pods: usize, provoke: Provoke) -> Self {
        let api = ApiServer::start().await;
        let name = format!("nodepulse-{name}-{}", std::process::id());
        let mut tree = CgroupTree::new(&name).expect("a cgroup for the test");
        let (mut made, mut mains) = (Vec::new(), Vec::new());
        for n in 0..pods {
            let at = if n % 2 == 0 { At::Container } else { At::Pod };
            for container in 0..2 {
                tree.add(cgroup(n, container)).expect("a cgroup");
            }
            let limited = match at {
                At::Container => cgroup(n, 0),
                At::Pod => format!("kubepods/burstable/pod{}", uid(n)),
            };
            tree.limit(limited, LIMIT).expect("a limit");
            let main = provoke.wait_in(&tree.dir(cgroup(n, 0)));
            mains.push(main.expect("the first process of a container"));
            let [web, proxy] = [0, 1].map(|container| format!("{n:032x}{container:032x}"));
            let pod = Pod::new("shop", &format!("cart-{n}"), &uid(n))
                .container("web", &web)
                .container("proxy", &proxy);
            pod.put(&api);
            made.push((pod, at));
        }
        Self {
            api,
            tree,
            pods: made,
            provoke,
            _mains: mains,
            dir: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// Starts the agent of this program, and waits until the Node has a status.
    pub async fn agent(&self, program: &Path) -> Process {
        self.agent_of(program, &[]).await
    }

    /// Creates the links of the kubelet for the logs of the containers, whose ids are not at the
    /// API server yet. Returns a root with the links, and with `/proc` and `/sys` of this machine.
    #[must_use]
    pub fn with_links_only(&self) -> PathBuf {
        let root = self.dir.path().join("root");
        let links = root.join("var/log/containers");
        fs::create_dir_all(&links).expect("a directory for the links");
        for dir in ["proc", "sys"] {
            symlink(Path::new("/").join(dir), root.join(dir)).expect("a link to this machine's");
        }
        for n in 0..self.pods.len() {
            let name = format!("cart-{n}");
            for (container, called) in ["web", "proxy"].into_iter().enumerate() {
                let id = format!("{n:032x}{container:032x}");
                let link = links.join(format!("{name}_shop_{called}-{id}.log"));
                symlink(format!("/var/log/pods/shop_{name}/0.log"), link).expect("a link");
            }
            let pod = Pod::new("shop", &name, &uid(n));
            pod.new_container("web")
                .new_container("proxy")
                .put(&self.api);
        }
        root
    }

    /// Starts the agent of this program with the files below `root`, and waits until the Node has a
    /// status.
    pub async fn agent_at(&self, program: &Path, root: &Path) -> Process {
        let kubeconfig = self.api.node_kubeconfig(self.dir.path(), "worker-1");
        let config = self.dir.path().join("config.yaml");
        let text = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\nhostRoot: {}\n",
            root.display()
        );
        fs::write(&config, text).expect("a configuration");
        let paths = [kubeconfig, self.dir.path().join("state"), config];
        let [kubeconfig, state, config] = paths.map(|path| path.display().to_string());
        let paths = [
            ["--kubeconfig", &kubeconfig],
            ["--state-directory", &state],
            ["--config", &config],
        ];
        let agent = self.agent_with(program, paths.as_flattened());
        agent.wait_for_line("OOM kill source selected", SOON).await;
        View::of(&self.api, "worker-1").settled(SOON).await;
        agent
    }

    /// Starts the agent with further arguments. Successive agents have the same state directory.
    pub async fn agent_of(&self, program: &Path, further: &[&str]) -> Process {
        let state = self.dir.path().join("state").display().to_string();
        let kubeconfig = self.api.node_kubeconfig(self.dir.path(), "worker-1");
        let kubeconfig = kubeconfig.display().to_string();
        let paths = ["--kubeconfig", &kubeconfig, "--state-directory", &state];
        let agent = self.agent_with(program, &[&paths[..], further].concat());
        // An earlier agent may have created the Node.
        agent.wait_for_line("OOM kill source selected", SOON).await;
        View::of(&self.api, "worker-1").settled(SOON).await;
        agent
    }

    /// Starts the agent of this program with these arguments and those that it needs.
    pub fn agent_with(&self, program: &Path, further: &[&str]) -> Process {
        let mut arguments = node_mode(&["--cgroup-root", &self.tree.path("")]);
        arguments.extend(further.iter().map(|&argument| argument.to_owned()));
        Process::start_program(program, arguments)
    }

    /// Starts an agent in this process, with all programs, and records it. Waits until the Node has
    /// a status.
    pub async fn recorded_agent(&self, tape: &Tape) -> RecordedAgent {
        let agent = self.in_process(tape).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // Returns when the sender is used or dropped, at the end of the test.
            let _: Result<(), _> = stopped.await;
        };
        let run = tokio::spawn(agent.run(shutdown));
        View::of(&self.api, "worker-1").settled(SOON).await;
        RecordedAgent { stop, run }
    }

    async fn in_process(&self, tape: &Tape) -> Agent {
        let text = |text: &str| Some(text.to_owned());
        let state = self.dir.path().join("state");
        fs::create_dir(&state).expect("a state directory");
        let settings = Overrides {
            mode: text("node"),
            node_name: text("worker-1"),
            node_ip: text("0.0.0.0"),
            allow_ready_without_runtime: text("true"),
            cgroup_root: Some(self.tree.path("")),
            state_directory: Some(state.display().to_string()),
            ..Overrides::default()
        };
        let read = |path: &Path| fs::read_to_string(path);
        let config = Config::load(&settings, &|_| None, &read, "not-named").expect("settings");
        let object = object::embedded().expect("the tests are built with the eBPF object");
        let loaded = loader::load(object, &Wanted::ALL).expect("programs that this kernel accepts");
        Agent::new(config, Clock::kernel())
            .set_triggers()
            .kernel(KernelSource::Attached(Box::new(loaded)))
            .client(self.client().await)
            .jitter(Jitter::NONE)
            .sites(Vec::new())
            .run_recorder(Some(Box::new(tape.clone()) as Box<dyn RunRecorder>))
    }

    /// Kills processes, each in the next pod, without a pause. Returns the kills and the time.
    pub async fn kill(&self, kills: usize) -> (Vec<Killed>, Duration) {
        let count = self.pods.len();
        let jobs: Vec<(usize, PathBuf)> = (0..kills)
            .map(|n| (n % count, self.tree.dir(cgroup(n % count, 0))))
            .rev()
            .collect();
        let provoke = self.provoke.clone();
        let began = Instant::now();
        let done = tokio::task::spawn_blocking(move || {
            let (jobs, done) = (Mutex::new(jobs), Mutex::new(Vec::new()));
            std::thread::scope(|scope| {
                for _ in 0..WORKERS {
                    scope.spawn(|| {
                        while let Some((pod, dir)) = pop(&jobs) {
                            let (pid, status) = provoke.eat_in(&dir, MORE).expect("a process");
                            assert!(!status.success(), "it was killed");
                            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                            done.push((pid, pod));
                        }
                    });
                }
            });
            done.into_inner().unwrap_or_else(PoisonError::into_inner)
        });
        (done.await.expect("no panic"), began.elapsed())
    }

    /// Kills processes, each in the next pod after the kill before it is reported. Returns the
    /// kills, and how long a bare Event create took after each.
    pub async fn kill_one_by_one(
        &self,
        kills: usize,
        pause: Duration,
    ) -> (Vec<Killed>, Vec<Duration>) {
        let client = self.client().await;
        let (mut killed, mut bare) = (Vec::new(), Vec::new());
        for n in 0..kills {
            let at = n % self.pods.len();
            let (dir, provoke) = (self.tree.dir(cgroup(at, 0)), self.provoke.clone());
            let eaten = tokio::task::spawn_blocking(move || provoke.eat_in(&dir, MORE));
            let (pid, _) = eaten.await.expect("no panic").expect("a process");
            killed.push((pid, at));
            // The words of earlier versions are included, with which this one is compared.
            let naming = format!("rocess {pid} (");
            let reported = |api: &ApiServer| {
                let (pod, _) = self.pods.get(at)?;
                let events = pod.events(api);
                let is = |event: &Value| event["message"].to_string().contains(&naming);
                events.iter().any(is).then_some(())
            };
            self.api.wait_for(SOON, &naming, reported).await;
            bare.push(bare_create(&client, n).await);
            tokio::time::sleep(pause).await;
        }
        (killed, bare)
    }

    /// Kills one process in a pod. `around` are `users`, `namespace` and `parent`, the outermost
    /// first: see [`Provoke::run`]; a parent is in the same container.
    pub async fn kill_below(&self, pod: usize, around: &[&str]) {
        let dir = self.tree.dir(cgroup(pod, 0)).into_os_string();
        let mut words: Vec<OsString> = Vec::new();
        for word in around {
            words.push(word.into());
            if *word == "parent" {
                words.push(dir.clone());
            }
        }
        words.extend(["eat".into(), dir, MORE.to_string().into()]);
        let provoke = self.provoke.clone();
        let eaten = tokio::task::spawn_blocking(move || {
            let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
            provoke.run(&words)
        });
        eaten.await.expect("no panic").expect("a process");
    }

    /// Starts processes in the container of a pod, whose limit leaves room for one more to be
    /// killed.
    pub async fn crowded(&self, pod: usize, processes: u32) -> Crowd {
        let container = cgroup(pod, 0);
        self.tree.unlimit(&container).expect("no limit");
        let crowd = Provoke::sleepers_in(&self.tree.dir(&container), processes);
        let crowd = crowd.expect("processes");
        // A process that has not run yet will use more.
        let usage = || self.tree.usage(&container).expect("memory in use");
        let mut used = 0;
        while used < usage() {
            used = usage();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.tree.limit(&container, used + LIMIT).expect("a limit");
        crowd
    }

    /// Kills once in each of the first pods, with more than the interval of reads between them.
    /// Returns how long after the answer to each Event the patch with its details was answered.
    pub async fn kill_for_details(&self, kills: usize) -> Vec<Duration> {
        const INTERVAL: Duration = Duration::from_millis(2100);
        let before = details_after(&self.api).len();
        for n in 0..kills {
            tokio::time::sleep(INTERVAL).await;
            self.kill_below(n % self.pods.len(), &["namespace"]).await;
            let is_added = |api: &ApiServer| (details_after(api).len() > before + n).then_some(());
            self.api.wait_for(SOON, "details of a kill", is_added).await;
        }
        details_after(&self.api).split_off(before)
    }

    /// Returns the messages of Events with details.
    pub fn detailed(&self) -> Vec<String> {
        let all = self.pods.iter().flat_map(|(pod, _)| pod.events(&self.api));
        let messages = all.map(|event| event["message"].to_string());
        messages.filter(|message| is_detailed(message)).collect()
    }

    /// Returns the number of kills in Events, by pod.
    pub fn reported(&self) -> BTreeMap<usize, u64> {
        let pods = self.pods.iter().enumerate();
        pods.map(|(n, (pod, _))| {
            let events = pod.events(&self.api);
            (n, events.iter().map(kills_in).sum())
        })
        .collect()
    }

    /// Returns the number of kills that the kernel counted, by pod. It can exceed that of provoked
    /// kills: a victim releases its memory a moment later, and until then the next in its cgroup is
    /// short too.
    pub fn counted(&self) -> BTreeMap<usize, u64> {
        let kills = |pod, container| {
            let kills = self.tree.kills(cgroup(pod, container));
            kills.expect("a count of kills")
        };
        let pods = 0..self.pods.len();
        pods.map(|pod| (pod, kills(pod, 0) + kills(pod, 1)))
            .collect()
    }

    /// Waits until Events report every kill that the kernel counted, and no more.
    pub async fn all_reported(&self, when: &str) {
        let what = format!("all kills reported, {when}");
        let mut seen = (BTreeMap::new(), BTreeMap::new());
        let all = |_: &ApiServer| {
            seen = (self.reported(), self.counted());
            (seen.0 == seen.1).then_some(())
        };
        // The counters are read at most 10 s after a loss, and again before it is reported.
        self.api.wait_for(SOON * 6, &what, all).await;
    }

    /// Waits until the state file contains the kills that Events report, at least this many, and
    /// the cursor of the sink is after them: until then a SIGKILL makes counts rise again.
    pub async fn saved(&self, at_least: u64) {
        let path = self.dir.path().join("state/state");
        let cursor = self.dir.path().join("state/history/sink-kubernetes.json");
        let saved = |_: &ApiServer| {
            let state = State::from_text(&fs::read_to_string(&path).ok()?)?;
            // Excludes those of the node, which have no cgroup.
            let kills = state.kills.cgroups.iter();
            let kills = kills.filter(|(cgroup, _)| cgroup.0 != 0);
            let saved: u64 = kills.map(|(_, kills)| kills).sum();
            let reported: u64 = self.reported().values().sum();
            // On version 2, the cgroup of all pods counts each once more.
            let is_saved = saved == reported || saved == 2 * reported;
            let cursor: Value = serde_json::from_slice(&fs::read(&cursor).ok()?).ok()?;
            let is_delivered = state.kills.until <= Position(cursor["position"].as_u64()?);
            (at_least <= reported && is_saved && is_delivered).then_some(())
        };
        let what = "a state file with what is reported";
        self.api.wait_for(SOON * 6, what, saved).await;
    }

    /// Returns a client like the agent's.
    async fn client(&self) -> Client {
        let kubeconfig = self.api.node_kubeconfig(self.dir.path(), "worker-1");
        let client = Client::from_credentials(CredentialSource::Kubeconfig(&kubeconfig), SOON);
        client.await.expect("a client")
    }
}

/// An agent in this process.
#[derive(Debug)]
pub struct RecordedAgent {
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<(), AppError>>,
}

impl RecordedAgent {
    /// Stops it, and waits for it.
    pub async fn stop(self) {
        drop(self.stop);
        let ended = timeout(SOON, self.run).await.expect("it stops when asked");
        ended.expect("it does not panic").expect("it ends well");
    }
}

fn pop<T>(jobs: &Mutex<Vec<T>>) -> Option<T> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Measures the create of an Event alone.
async fn bare_create(client: &Client, n: usize) -> Duration {
    let name = format!("bare.{n}");
    let place = Endpoint::new_event("shop", &name);
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": name, "namespace": "shop" },
        "involvedObject": { "kind": "Pod", "namespace": "shop", "name": "bare" },
        "reason": "Bare", "message": "x".repeat(250), "type": "Normal",
    });
    let began = Instant::now();
    client.create(&place, &event).await.expect("it is created");
    began.elapsed()
}

/// Stops the agent, which reports kills that a limit had delayed. Returns its log.
pub async fn stop(agent: Process) -> Vec<String> {
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr.join("\n"));
    ended.stderr
}

/// The latencies of one kill.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Time from the kernel to the read.
    pub read: Duration,
    /// Time from the read to the request.
    pub sent: Duration,
    /// Time from the request to the answer.
    pub acked: Duration,
}

impl Way {
    pub fn whole(&self) -> Duration {
        self.read + self.sent + self.acked
    }
}

/// Returns the latencies of each kill from the agent's log, in the order of the reports.
pub fn ways(log: &[String]) -> Vec<Way> {
    let at = |line: &str, key: &str| -> Option<u64> {
        let (_, rest) = line.split_once(key)?;
        rest.split(' ').next()?.parse().ok()
    };
    let is_report = |line: &&String| line.contains("event reported") && line.contains("OOMKilled");
    log.iter()
        .filter(is_report)
        .filter_map(|line| {
            let keys = ["kernel_ns=", "read_ns=", "sent_ns=", "acked_ns="];
            let [kernel, read, sent, acked] = keys.map(|key| at(line, key));
            let part = |from: Option<u64>, to: Option<u64>| {
                Some(Duration::from_nanos(to?.saturating_sub(from?)))
            };
            Some(Way {
                read: part(kernel, read)?,
                sent: part(read, sent)?,
                acked: part(sent, acked)?,
            })
        })
        .collect()
}
