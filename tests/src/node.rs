//! Runs a whole agent under tokio's paused clock: simulated files, an API server in memory, and
//! kernel records that the test writes.
//!
//! The agent is the real one from the decoder to the request body, without probes, TLS and process.
// tidy: long: one builder, whose settings all tests share

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use nodepulse::testing::Notify;
use nodepulse::testing::{Listener, Pages, Site};
use nodepulse::testing::{ReadConfig, Reloads};
use nodepulse::{Agent, AppError, KernelSource, RunMode};
use nodepulse::{Config, Overrides};
use nodepulse_core::backoff::Jitter;
use nodepulse_core::clock::{BootNanos, Now};
use nodepulse_core::node_status::setters::Setters;
use nodepulse_core::subjects::recording::RunRecorder;
use nodepulse_io::clock::Clock;
use nodepulse_io::names::Names;
use nodepulse_linux::cri::Connector;
use nodepulse_linux::kernel::Support;
use nodepulse_linux::kernel::counters::ProbeCounters;
use nodepulse_linux::kernel::support::Missing;
use nodepulse_linux::logind::PowerMessage;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::SOON;
use crate::api_server::{ApiServer, Identity};
use crate::cri_server::CriServer;
use crate::host_root::MadeUpHost;
use crate::http1::{self, Answer};
use crate::openmetrics::Exposition;
use crate::tape::Tape;

mod kernel;
mod network;

pub use kernel::{Kernel, Kill, Limit};
pub use network::BOOTSTRAP;

use network::{Network, awaiting};

/// Uptime of the machine when the API server was started.
const UPTIME: Duration = Duration::from_hours(1);

/// Turns off thresholds that depend on the test machine's file system below the temporary
/// directory.
const NO_DISK_SPACE: &str = "nodefs.available<0%,nodefs.inodesFree<0%";

/// The user of an agent in companion mode.
pub const COMPANION: &str = "system:serviceaccount:nodepulse:nodepulse";
/// Permissions of the chart for companion mode without taints: verbs and resources.
pub const COMPANION_PERMISSIONS: [(&str, &str); 7] = [
    ("get", "nodes"),
    ("patch", "nodes/status"),
    ("create", "events"),
    ("patch", "events"),
    ("list", "pods"),
    ("watch", "pods"),
    ("get", "pods"),
];

/// Configures an agent before its start.
#[derive(Debug)]
pub struct Node {
    host: Arc<MadeUpHost>,
    overrides: Overrides,
    jitter: Jitter,
    runtime: Option<Connector>,
    setters: Option<Setters>,
    reachable: bool,
    support: Option<Support>,
    alone: bool,
    log: Option<File>,
    file: Option<String>,
    user: Option<String>,
    run_mode: RunMode,
    notify: Notify,
    alarms_fail_after: Option<Duration>,
    recorder: Option<Box<dyn RunRecorder>>,
    certificates: Option<PathBuf>,
    names: Names,
}

impl Node {
    /// Creates a calm node in node mode, Ready, without jitter, and with the default thresholds
    /// except for disk space.
    pub fn named(name: &str) -> Self {
        let text = |text: &str| Some(text.to_owned());
        Self {
            host: Arc::new(MadeUpHost::calm()),
            overrides: Overrides {
                mode: text("node"),
                node_name: text(name),
                // Uses the default route instead of DNS, which would be real and slow.
                node_ip: text("0.0.0.0"),
                eviction_hard: text(NO_DISK_SPACE),
                allow_ready_without_runtime: text("true"),
                runtime_endpoint: text("none"),
                // One slow window is enough.
                disk_io_slow_for: text("1s"),
                ..Overrides::default()
            },
            jitter: Jitter::NONE,
            runtime: None,
            setters: None,
            reachable: true,
            support: None,
            alone: false,
            log: None,
            file: None,
            user: None,
            run_mode: RunMode::UntilStopped,
            notify: Notify::default(),
            alarms_fail_after: None,
            recorder: None,
            certificates: None,
            names: Names::system(),
        }
    }

    /// Sets the configuration file; other methods override it.
    #[must_use]
    pub fn file(mut self, text: &str) -> Self {
        self.file = Some(text.to_owned());
        self
    }

    /// Runs alongside a kubelet, whose Node of this name the test creates, as [`COMPANION`], whose
    /// permissions must be granted.
    pub fn companion(name: &str) -> Self {
        let mut node = Self::named(name).config(|overrides| {
            overrides.mode = Some("companion".to_owned());
        });
        node.user = Some(COMPANION.to_owned());
        node
    }

    /// Ends after one sync.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.run_mode = RunMode::Once;
        self
    }

    /// Sets the service manager.
    #[must_use]
    pub fn notify(mut self, manager: Notify) -> Self {
        self.notify = manager;
        self
    }

    /// Makes the machine's timers fail this long after the start.
    #[must_use]
    pub fn alarms_fail_after(mut self, time: Duration) -> Self {
        self.alarms_fail_after = Some(time);
        self
    }

    /// Removes the source of kernel events: records that are sent to it are lost.
    #[must_use]
    pub fn on_files(self) -> Self {
        self.support(Support::none(&Missing::TurnedOff))
    }

    /// Supports these probes, but sends no record of them.
    #[must_use]
    pub fn support(mut self, support: Support) -> Self {
        self.support = Some(support);
        self
    }

    /// Removes the API server.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Sets the kernel's log: records in the format of `/dev/kmsg`.
    #[must_use]
    pub fn log(mut self, log: impl Into<OwnedFd>) -> Self {
        self.log = Some(File::from(log.into()));
        self
    }

    /// Reads files, with this as the kernel's log.
    #[must_use]
    pub fn on_log(self, log: impl Into<OwnedFd>) -> Self {
        self.log(log).on_files()
    }

    /// Sets the resolver for the addresses of its name.
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self.config(|overrides| overrides.node_ip = None)
    }

    /// Sets the host; the test may keep a clone.
    #[must_use]
    pub fn host(mut self, host: impl Into<Arc<MadeUpHost>>) -> Self {
        self.host = host.into();
        self
    }

    /// Sets the container runtime, which Ready requires.
    #[must_use]
    pub fn runtime(mut self, runtime: &CriServer) -> Self {
        self.runtime = Some(runtime.connector());
        self.config(|overrides| {
            overrides.allow_ready_without_runtime = Some("false".to_owned());
            overrides.runtime_endpoint = Some("auto".to_owned());
        })
    }

    /// Changes settings like the command line.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(&mut Overrides)) -> Self {
        change(&mut self.overrides);
        self
    }

    /// Adds hard thresholds to the defaults: `memory.available<1Gi,…`.
    #[must_use]
    pub fn hard(self, thresholds: &str) -> Self {
        let all = format!("{NO_DISK_SPACE},{thresholds}");
        self.config(|overrides| overrides.eviction_hard = Some(all))
    }

    /// Sets the seed of random numbers.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.jitter = Jitter::seeded(seed);
        self
    }

    /// Replaces the agent's setters.
    #[must_use]
    pub fn setters(mut self, setters: Setters) -> Self {
        self.setters = Some(setters);
        self
    }

    /// Refuses every connection until [`Running::reach`].
    #[must_use]
    pub fn out_of_reach(mut self) -> Self {
        self.reachable = false;
        self
    }

    /// Reads the credentials in `directory`. If there are none, it requests them as [`BOOTSTRAP`],
    /// which must be permitted. Connections are those of the node in any case.
    #[must_use]
    pub fn requests_certificate(mut self, directory: &Path) -> Self {
        self.certificates = Some(directory.to_owned());
        self
    }

    /// Records all calls of the subjects on this tape.
    #[must_use]
    pub fn recorded_on(mut self, tape: &Tape) -> Self {
        self.recorder = Some(Box::new(tape.clone()));
        self
    }

    /// Starts the agent at the server's time, with the identity of its node. Must be called on a
    /// runtime whose clock is paused.
    #[must_use]
    pub fn start(self, api: &Arc<ApiServer>) -> Running {
        let Self {
            host,
            mut overrides,
            jitter,
            runtime,
            setters,
            reachable,
            support,
            alone,
            log,
            file,
            user,
            run_mode,
            notify,
            alarms_fail_after,
            recorder,
            certificates,
            names,
        } = self;
        overrides.host_root = Some(host.path().display().to_string());
        let state = host.path().join("run/nodepulse");
        overrides.state_directory = Some(state.display().to_string());
        let config = load(&overrides, file.as_deref()).unwrap_or_else(|err| panic!("{err}"));
        let (settings, reload, reloads) = reloads(overrides, file);
        let clock = clock(api, alarms_fail_after);
        let network = Network::new(api, identity(user, &config.node_name), reachable);
        let (files_changed, changes) = mpsc::channel(1);
        let deadline = config.lease_duration / 4;
        let certificate = certificates
            .map(|directory| network.certificate(&directory, &config.node_name, clock, changes));
        let client = (!alone).then(|| awaiting(network.client(deadline), certificate.as_ref()));
        let (send, records) = mpsc::channel(RECORDS);
        let (counted, counters) = watch::channel(ProbeCounters::default());
        let (visits, visitors) = mpsc::channel(VISITS);
        let (logind, messages) = mpsc::channel(1);
        let simulated = KernelSource::Simulated { records, counters };
        let kernel = support.map_or(simulated, KernelSource::None);
        let mut agent = Agent::new(config, clock)
            .kernel(kernel)
            .kernel_log(log)
            .client(client)
            .certificate(certificate)
            .jitter(jitter)
            .names(names)
            .sites(vec![Site {
                listener: Listener::InMemory(visitors),
                pages: Pages::Control,
            }])
            .reloads(reloads)
            .notify(notify)
            .run_mode(run_mode)
            .logind(messages)
            .run_recorder(recorder);
        if let Some(runtime) = runtime {
            agent = agent.runtime_connector(runtime);
        }
        if let Some(setters) = setters {
            agent = agent.setters(setters);
        }
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            if stopped.await.is_err() {
                // The test has ended, and with it the runtime.
                std::future::pending().await
            }
        };
        Running {
            settings,
            reload,
            logind,
            kernel: Some(Kernel::new(send, clock, Arc::clone(&host))),
            counted,
            visits,
            network,
            files_changed,
            stop,
            run: tokio::spawn(agent.run(shutdown)),
        }
    }
}

fn identity(user: Option<String>, node: &str) -> Identity {
    user.map_or_else(|| Identity::node(node), |user| Identity::user(&user))
}

fn clock(api: &ApiServer, alarms_fail_after: Option<Duration>) -> Clock {
    let clock = Clock::runtime(Now {
        boot: BootNanos(0).plus(UPTIME + api.now()),
        wall: UNIX_EPOCH + api.wall(),
    });
    alarms_fail_after.map_or(clock, |time| {
        clock.with_alarms_failing_at(clock.now().boot.plus(time))
    })
}

fn load(overrides: &Overrides, file: Option<&str>) -> Result<Config, String> {
    let read = |_: &Path| Ok(file.ok_or(io::ErrorKind::NotFound)?.to_owned());
    Config::load(overrides, &|_| None, &read, "not-named").map_err(|err| err.to_string())
}

/// The configuration, which the test changes and the agent reads.
type Settings = Arc<Mutex<Overrides>>;

fn reloads(overrides: Overrides, file: Option<String>) -> (Settings, mpsc::Sender<()>, Reloads) {
    let settings = Arc::new(Mutex::new(overrides));
    let (reload, asked) = mpsc::channel(1);
    let now = Arc::clone(&settings);
    let read = move || {
        let overrides = now.lock().unwrap_or_else(PoisonError::into_inner);
        load(&overrides, file.as_deref())
    };
    let reloads = Reloads {
        asked,
        read: ReadConfig::new(read),
        logging: Box::new(|_, _| ()),
    };
    (settings, reload, reloads)
}

/// Maximum number of records in transit to the agent.
const RECORDS: usize = 64;
/// Maximum number of connections that the agent has not accepted yet.
const VISITS: usize = 64;
/// Buffer of one of these connections, in bytes.
const PIPE: usize = 4096;

pub struct Running {
    settings: Settings,
    reload: mpsc::Sender<()>,
    logind: mpsc::Sender<PowerMessage>,
    /// `None` after its ring has ended.
    kernel: Option<Kernel>,
    counted: watch::Sender<ProbeCounters>,
    visits: mpsc::Sender<DuplexStream>,
    network: Arc<Network>,
    files_changed: mpsc::Sender<()>,
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<(), AppError>>,
}

impl Running {
    /// Returns the simulated kernel.
    pub fn kernel(&self) -> &Kernel {
        self.kernel.as_ref().expect("the ring has not ended")
    }

    /// Ends the ring of kernel records.
    pub fn end_ring(&mut self) {
        self.kernel = None;
    }

    /// Makes the task that opens the next connection panic.
    pub fn panic_at_next_connection(&self) {
        self.network.panic.store(true, Ordering::Relaxed);
    }

    /// Sets the kernel's counters.
    pub fn counted(&self, figures: ProbeCounters) {
        self.counted.send_replace(figures);
    }

    /// Opens a connection to the agent's metrics and health endpoints.
    pub async fn visit(&self) -> DuplexStream {
        let (here, there) = tokio::io::duplex(PIPE);
        self.visits.send(there).await.expect("the agent serves");
        here
    }

    pub async fn get(&self, path: &str) -> Answer {
        http1::exchange(self.visit().await, &http1::request("GET", path)).await
    }

    /// Returns its metrics.
    pub async fn scrape(&self) -> Exposition {
        let text = self.get("/metrics").await.body;
        Exposition::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"))
    }

    /// Changes the configuration and reloads it.
    pub async fn reload(&self, change: impl FnOnce(&mut Overrides)) {
        change(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner));
        self.reload.send(()).await.expect("the agent runs");
    }

    /// Notifies it that the files of its certificate may have changed.
    pub async fn certificate_changed(&self) {
        self.files_changed.send(()).await.expect("the agent runs");
    }

    pub async fn send_from_logind(&self, word: PowerMessage) {
        self.logind.send(word).await.expect("the agent runs");
    }

    /// Accepts connections from now on.
    pub fn reach(&self) {
        self.network.reachable.store(true, Ordering::Relaxed);
    }

    /// Refuses connections from now on, and resets open ones.
    pub fn lose(&self) {
        self.network.reachable.store(false, Ordering::Relaxed);
        self.network.api.reset_connections();
    }

    /// Returns the times at which connections were opened, on the clock of [`ApiServer::now`].
    pub fn dials(&self) -> Vec<Duration> {
        let dials = &self.network.dials;
        dials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the run has stopped by itself.
    pub fn is_ended(&self) -> bool {
        self.run.is_finished()
    }

    /// Waits until the run stops by itself, and returns its result.
    pub async fn ended(self) -> Result<(), AppError> {
        timeout(SOON, self.run)
            .await
            .expect("it stops by itself")
            .expect("it does not panic")
    }

    /// Ends the run like SIGKILL: it sends and writes nothing more.
    pub fn kill(self) {
        self.lose();
        self.run.abort();
    }

    pub async fn stop(self) -> Result<(), AppError> {
        // A run that has stopped by itself has dropped the receiver, and returns the reason.
        let _: Result<(), ()> = self.stop.send(());
        timeout(SOON, self.run)
            .await
            .expect("it stops when asked")
            .expect("it does not panic")
    }
}

/// Creates a server in memory, whose time begins now.
pub fn in_memory() -> Arc<ApiServer> {
    Arc::new(ApiServer::in_memory())
}

/// Advances the simulated time while the agent runs.
pub fn pass(time: Duration) -> impl Future<Output = ()> {
    tokio::time::sleep(time)
}
