//! `nodepulse run`: the daemon.

#![expect(
    clippy::print_stderr,
    reason = "what is wrong is said before there is a log"
)]

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use nix::unistd::gethostname;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use tracing_subscriber::filter::LevelFilter;

use super::log::Lines;
use super::{USAGE, log};
use crate::api::backoff::Jitter;
use crate::api::{Client, credentials};
use crate::app::{self, AppError, KernelLine, Outside};
use crate::clock::Clock;
use crate::config::{Config, LogFormat, LogLevel, Mode, Overrides, ProbeFor, Sandbox, Tier};
use crate::kernel::support::Missing;
use crate::kernel::{Rung, Support, Wanted, kmsg, loader, object};
use crate::sandbox::{self, Plugin, Profile, memory};
use crate::state;

/// In a pod with a service account this variable names the API server.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Flags of `run`. Each is the configuration key of its name; the file has them all.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to write: `node` is the whole Node, its status and its Lease.
    #[arg(long, value_name = "companion|node")]
    mode: Option<String>,
    /// How to reach the API server; without it and outside a cluster nothing is sent.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Name of the Node [default: `NODE_NAME`, else the host name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// This node's addresses: one, or one of each family.
    #[arg(long, value_name = "IP[,IP]")]
    node_ip: Option<String>,
    /// Labels of a new Node.
    #[arg(long, value_name = "KEY=VALUE,…")]
    node_labels: Option<String>,
    /// Taints of a new Node.
    #[arg(long, value_name = "KEY=VALUE:EFFECT,…")]
    register_with_taints: Option<String>,
    /// Thresholds that begin a condition.
    #[arg(long, value_name = "SIGNAL<VALUE,…")]
    eviction_hard: Option<String>,
    /// How long a condition stays after its signal is well again.
    #[arg(long, value_name = "DURATION")]
    eviction_pressure_transition_period: Option<String>,
    /// Start although a kubelet seems to look after this node.
    #[arg(long, action = ArgAction::SetTrue)]
    take_over: bool,
    /// Ready is True although no container runtime is configured.
    #[arg(long, action = ArgAction::SetTrue)]
    allow_ready_without_runtime: bool,
    /// The cgroup under which the pods cgroup is.
    #[arg(long, value_name = "PATH")]
    cgroup_root: Option<String>,
    /// Its file system is nodefs.
    #[arg(long, value_name = "DIR")]
    root_directory: Option<String>,
    /// Where kernel facts come from.
    #[arg(long, value_name = "auto|btf|kmsg|files")]
    kernel_tier: Option<String>,
    /// Where metrics and health are served [default: 127.0.0.1:20260].
    #[arg(long, value_name = "ADDRESS:PORT|off")]
    serve_address: Option<String>,
    /// Whether rights are given up after the start.
    #[arg(long, value_name = "auto|off|require")]
    sandbox: Option<String>,
    /// What is remembered from one start to the next.
    #[arg(long, value_name = "DIR")]
    state_directory: Option<String>,
    /// How much is logged.
    #[arg(long, value_name = "error|warn|info|debug")]
    log_level: Option<String>,
    /// How a log line looks.
    #[arg(long, value_name = "text|json")]
    log_format: Option<String>,
}

impl Arguments {
    fn overrides(self) -> Overrides {
        Overrides {
            config: self.config,
            mode: self.mode,
            kubeconfig: self.kubeconfig,
            node_name: self.node_name,
            node_ip: self.node_ip,
            node_labels: self.node_labels,
            register_with_taints: self.register_with_taints,
            eviction_hard: self.eviction_hard,
            eviction_pressure_transition_period: self.eviction_pressure_transition_period,
            allow_ready_without_runtime: self
                .allow_ready_without_runtime
                .then(|| "true".to_owned()),
            take_over: self.take_over.then(|| "true".to_owned()),
            cgroup_root: self.cgroup_root,
            root_directory: self.root_directory,
            kernel_tier: self.kernel_tier,
            serve_address: self.serve_address,
            sandbox: self.sandbox,
            state_directory: self.state_directory,
            log_level: self.log_level,
            log_format: self.log_format,
            ..Overrides::default()
        }
    }
}

/// Runs the agent until SIGTERM or SIGINT.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let config = match configuration(&arguments.overrides()) {
        Ok(config) => config,
        Err(err) => return refuse(&err),
    };
    // Before anything that stays: parsing the kernel's types takes 20 MiB for a moment, which comes
    // back whole only from an empty heap.
    let kernel = match kernel_line(&config) {
        Ok(kernel) => kernel,
        Err(missing) => {
            return refuse(&format!(
                "kernel.tier: \"btf\", but {missing}; example: kernel.tier: auto"
            ));
        }
    };
    let (lines, writer) = log::channel();
    logging(&config, lines.clone());
    let prepared = Prepared::new(config, kernel);
    // Threads take over what their starter may do: the first one starts here.
    let flush = match writer.start() {
        Ok(flush) => flush,
        Err(err) => return refuse(&format!("no thread for the log: {err}")),
    };
    let code = prepared.map_or_else(|code| code, Prepared::run);
    lines.end();
    flush.wait();
    code
}

/// An agent that has opened what it needs rights for, and has given them up.
struct Prepared {
    runtime: Runtime,
    outside: Outside,
}

impl Prepared {
    /// Starts no thread.
    fn new(config: Config, kernel: KernelLine) -> Result<Self, ExitCode> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Two for files, and some for names; kept between looks, which are ten seconds apart.
            .max_blocking_threads(8)
            .thread_keep_alive(Duration::from_mins(1))
            .build()
            .map_err(|err| failed(&err))?;
        let client = runtime.block_on(client(&config));
        let client = client.map_err(|why| refuse(&why))?;
        memory::stay();
        // What needs more rights than stay is opened here.
        let kmsg = kernel_log(&config, &kernel);
        if let Err(err) = state::make(&config.state_directory) {
            warn!(err = &err as &dyn std::error::Error, "nothing is kept");
        }
        let triggers = app::triggers(&config);
        confine(&config, &kernel, client.as_ref()).map_err(|why| {
            refuse(&format!(
                "sandbox: \"require\", but {why}; example: sandbox: auto"
            ))
        })?;
        let clock = Clock::kernel();
        let jitter = Jitter::seeded(clock.now().boot.0 | 1);
        let outside = Outside {
            sites: None,
            figures: None,
            config,
            clock,
            kernel,
            kmsg,
            triggers,
            client,
            jitter,
        };
        Ok(Self { runtime, outside })
    }

    fn run(self) -> ExitCode {
        let code = self.runtime.block_on(on_runtime(self.outside));
        // A call that hangs in the file system must not hold up the end.
        self.runtime.shutdown_background();
        code
    }
}

async fn on_runtime(outside: Outside) -> ExitCode {
    let shutdown = match asked_to_stop() {
        Ok(shutdown) => shutdown,
        Err(err) => return failed(&err),
    };
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = outside.config.node_name.as_str(),
        api_server = outside.client.is_some(),
        "started"
    );
    match app::run(outside, shutdown).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err @ (AppError::Ports(_) | AppError::Held(_))) => refuse(&err),
        Err(err) => failed(&err),
    }
}

/// Gives up what is not needed from here on. `Err` only where the configuration requires that all
/// of it holds.
fn confine(config: &Config, kernel: &KernelLine, client: Option<&Client>) -> Result<(), String> {
    if config.sandbox == Sandbox::Off {
        return Ok(());
    }
    let plugin = match client {
        Some(client) if client.runs_a_plugin() => Plugin::Runs,
        Some(_) | None => Plugin::None,
    };
    let held = sandbox::enter(&Profile::new(config, plugin), || match kernel {
        KernelLine::Attached(loaded) => loaded.kernel.losses().is_ok(),
        KernelLine::Fed(_) | KernelLine::None(_) => true,
    });
    match held.weakness() {
        Some(weakness) if config.sandbox == Sandbox::Require => Err(weakness),
        Some(_) | None => {
            held.log();
            Ok(())
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment is handed on as a whole here"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn configuration(overrides: &Overrides) -> Result<Config, String> {
    let hostname = gethostname().map_err(|err| format!("no host name: {err}; set --node-name"))?;
    let hostname = hostname.to_string_lossy();
    Config::load(
        overrides,
        &variable,
        &|path| std::fs::read_to_string(path),
        &hostname,
    )
    .map_err(|err| err.to_string())
}

/// Loads the programs, or says why files have to do. `Err`, with what is missing, only where the
/// configuration asks for the programs or nothing.
fn kernel_line(config: &Config) -> Result<KernelLine, String> {
    if matches!(config.tier, Tier::Kmsg | Tier::Files) {
        return Ok(KernelLine::None(Support::none(&Missing::TurnedOff)));
    }
    let loaded = match object::embedded() {
        Some(object) => loader::load(object, &wanted(&config.probes)),
        None => Err(Missing::NotBuilt),
    };
    let line = match loaded {
        Ok(loaded) => KernelLine::Attached(Box::new(loaded)),
        Err(missing) => KernelLine::None(Support::none(&missing)),
    };
    let support = line.support();
    if config.tier != Tier::Btf || support.tier() == "btf" {
        return Ok(line);
    }
    let mut lacking = support.lacking();
    lacking.dedup_by_key(|(_, why)| *why);
    let lacking = lacking.iter();
    let said: Vec<String> = lacking
        .map(|(probe, why)| format!("{}: {why}", probe.program()))
        .collect();
    Err(said.join("; "))
}

fn wanted(probes: &BTreeSet<ProbeFor>) -> Wanted {
    let wanted = |probe| probes.contains(&probe);
    Wanted {
        kills: wanted(ProbeFor::Oom).then_some(Rung::Task),
        scope: wanted(ProbeFor::Scope),
        pids: wanted(ProbeFor::Pids),
        disks: wanted(ProbeFor::Disks),
    }
}

/// The kernel's log, where no program reports kills. Opened here, while we still may.
fn kernel_log(config: &Config, kernel: &KernelLine) -> Option<File> {
    if config.tier == Tier::Files || kernel.support().kills().is_some() {
        return None;
    }
    let path = config.host_root.join(kmsg::PATH);
    let refused = |err: &io::Error| {
        warn!(
            path = %path.display(),
            err = err as &dyn std::error::Error,
            "the kernel's log cannot be read, so victims of kills stay unknown; give this process \
             CAP_SYSLOG, and the device where it runs in a container, or set \
             kernel.dmesg_restrict=0"
        );
    };
    kmsg::open(&path).inspect_err(refused).ok()
}

/// The API server, where there is one. Opens no connection.
async fn client(config: &Config) -> Result<Option<Client>, String> {
    let source = match &config.kubeconfig {
        Some(path) => credentials::Source::Kubeconfig(path),
        None if variable(IN_CLUSTER).is_some() => credentials::Source::InCluster,
        None => return Ok(None),
    };
    if config.mode == Mode::Companion {
        return Err(
            "mode: \"companion\" cannot report to an API server yet; example: --mode node"
                .to_owned(),
        );
    }
    let client = Client::from_credentials(source, config.lease_duration / 4).await;
    client.map(Some).map_err(|err| err.to_string())
}

fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn logging(config: &Config, lines: Lines) {
    let level = match config.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(lines);
    match config.log_format {
        LogFormat::Text => lines.with_ansi(false).init(),
        LogFormat::Json => lines.json().init(),
    }
}

fn refuse(why: &impl Display) -> ExitCode {
    eprintln!("nodepulse: {why}");
    ExitCode::from(USAGE)
}

fn failed(err: &(dyn std::error::Error + 'static)) -> ExitCode {
    error!(err, "stopped by a fault");
    ExitCode::FAILURE
}
