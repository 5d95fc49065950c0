//! `nodepulse run`: the daemon.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use nodepulse_core::settings::Mode;
use nodepulse_io::clock::Clock;
use nodepulse_io::fd;
use nodepulse_kube::Client;
use nodepulse_linux::kernel::support::Missing;
use nodepulse_linux::kernel::{KillHook, Support, Wanted, loader, object};
use nodepulse_linux::logind;
use nodepulse_linux::os::kmsg;
use nodepulse_linux::state::Claim;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::log::{LogThread, LogWriter};
use super::obstacle::{self, Obstacle};
use super::settings::{self, Settings, configuration};
use super::supervision::{Claiming, StateClaim};
use super::{certificate, dry_run, fail, log, logging, refuse, supervision};
use crate::app::{
    Agent, AppError, CertificateSetup, KernelSource, ReadConfig, Reloads, RunMode, SetLogging,
};
use crate::config::{Config, IgnoredKeys, LoadedConfig, Overrides, ProbeGroup, Sandbox, Tier, key};
use crate::history::{HistoryFiles, HistorySetup};
use crate::sandbox::{self, Plugin, Profile, Used, memory};
use crate::sinks;

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    one_shot: OneShotFlags,
}

/// Flags of a run that is not a daemon.
#[derive(Debug, Clone, Copy, Args)]
struct OneShotFlags {
    /// Send the status once and exit: 0 if the API server accepted it, else 1.
    #[arg(long, action = ArgAction::SetTrue)]
    once: bool,
    /// Print write requests instead of sending them.
    #[arg(long, action = ArgAction::SetTrue)]
    dry_run: bool,
}

impl OneShotFlags {
    const fn run_mode(self) -> RunMode {
        if self.once {
            RunMode::Once
        } else {
            RunMode::UntilStopped
        }
    }
}

/// After this time, the code of the start is not executed any more.
const START: Duration = Duration::from_secs(10);

/// Runs the agent until SIGTERM or SIGINT.
pub fn run(arguments: Arguments) -> ExitCode {
    // Before the configuration is read, because there may be no descriptor left for it.
    let kept_open = fd::close_inherited();
    if let Err(err) = supervision::postpone_reloads() {
        return fail(&err);
    }
    let flags = arguments.one_shot;
    let overrides = arguments.settings.overrides();
    let (mut config, ignored) = match settings::loaded(&overrides) {
        Ok(LoadedConfig {
            config, ignored, ..
        }) => (config, ignored),
        Err(obstacle) => return obstacle.report(),
    };
    if let Some(reason) = settings::excessive_reservations(&config) {
        return refuse(&reason);
    }
    if flags.dry_run {
        // A daemon may be running at the same time.
        config.serve = None;
    }
    let (lines, writer) = log::channel();
    let start_logging =
        |config: &Config| logging::start(config.log_level, config.log_format, lines.clone());
    // Claimed before the programs are attached: what happens while another agent runs is reported
    // by that agent.
    let (claim, logging) = match claim(&config, flags, &writer, &start_logging) {
        Ok(claimed) => claimed,
        Err(code) => return code,
    };
    // Before long-lived allocations: parsing BTF takes 20 MiB, which are returned completely only
    // if the heap is empty.
    let kernel = match kernel_source(&config) {
        Ok(kernel) => kernel,
        Err(missing) => {
            return refuse(&format!(
                "{key}: \"btf\", but {missing}; example: {key}: auto",
                key = key::kernel_tier
            ));
        }
    };
    let logging = logging.unwrap_or_else(|| start_logging(&config));
    if let Err(err) = kept_open {
        let err = &err as &dyn std::error::Error;
        warn!(err, "cannot close inherited file descriptors");
    }
    log_ignored_keys(&ignored);
    let prepared = Prepared::new(config, kernel, claim, &writer, flags);
    // Threads inherit the capabilities of their creator: the first one starts here.
    let mut log = LogThread::start(writer);
    let reload = Reload { overrides, logging };
    let code = prepared.map_or_else(|code| code, |prepared| prepared.run(reload, &mut log));
    log.end(&lines);
    code
}

/// Claims the state directory, unless nothing is written. While another agent has it, a daemon
/// starts logging and waits. `Err` is the exit code.
fn claim(
    config: &Config,
    flags: OneShotFlags,
    log: &LogWriter,
    start_logging: &dyn Fn(&Config) -> SetLogging,
) -> Result<(Option<StateClaim>, Option<SetLogging>), ExitCode> {
    if flags.dry_run {
        return Ok((None, None));
    }
    let mut claiming = Claiming::new(&config.state_directory);
    match claiming.attempt() {
        Ok(claim) => return Ok((Some(claim), None)),
        Err(Obstacle::Passing(_)) if !flags.once => {}
        Err(obstacle) => return Err(obstacle.report()),
    }
    let logging = start_logging(config);
    let runtime = runtime().map_err(|err| fail(&err))?;
    let waited = runtime.block_on(wait_out(config, log, async || claiming.attempt()));
    log.write_queued();
    Ok((Some(waited?), Some(logging)))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

struct Reload {
    overrides: Overrides,
    logging: SetLogging,
}

/// An agent that has opened everything privileged, and has dropped its privileges.
struct Prepared {
    runtime: Runtime,
    agent: Agent,
    _claim: Option<Claim>,
}

impl Prepared {
    /// Starts no thread.
    fn new(
        config: Config,
        kernel: KernelSource,
        claim: Option<StateClaim>,
        log: &LogWriter,
        flags: OneShotFlags,
    ) -> Result<Self, ExitCode> {
        let runtime = runtime().map_err(|err| failed(&err))?;
        let notify = supervision::notify(flags.run_mode()).map_err(|why| refuse(&why))?;
        let client = if flags.once || flags.dry_run {
            let client = runtime.block_on(client(&config, flags));
            client.map_err(|obstacle| obstacle.report())?
        } else {
            let attempt = async || client(&config, flags).await;
            runtime.block_on(wait_out(&config, log, attempt))?
        };
        let (client, certificate) = client;
        let (claim, control) = claim.map_or((None, None), |claim| {
            let _entered = runtime.enter();
            supervision::open(&config.state_directory, claim)
        });
        let is_daemon = !flags.once && !flags.dry_run;
        let directory = config.history_directory.as_deref().filter(|_| is_daemon);
        let state = claim.as_ref().map(|_| config.state_directory.as_path());
        let mut history = HistorySetup {
            files: directory.and_then(|directory| supervision::history(directory, state)),
            sinks: Vec::new(),
        };
        if is_daemon {
            let _entered = runtime.enter();
            let sinks = sinks::open(&config, client.is_some());
            history.sinks = sinks.map_err(|why| refuse(&why))?;
        }
        let open = history.files.as_ref().filter(|files| files.is_open());
        let black_box = open.and_then(|files| supervision::black_box(files, &config));
        let journald = is_daemon.then(|| supervision::journald(&config)).flatten();
        memory::protect();
        // Everything that requires privileges is opened here.
        let kmsg = kernel_log(&config, &kernel);
        let has_status = config.mode == Mode::Node && client.is_some();
        let logind = (has_status && !flags.dry_run).then(|| {
            let _entered = runtime.enter();
            logind::start(config.system_bus())
        });
        let agent = Agent::new(config, Clock::kernel()).set_triggers();
        let used = Used {
            certificates: certificate.as_ref().map(|setup| setup.store.directory()),
            history: history.files.as_ref().map(HistoryFiles::directory),
            journal: journald.is_some(),
        };
        confine(agent.config(), &kernel, client.as_ref(), used).map_err(|why| {
            refuse(&format!(
                "sandbox: \"require\", but {why}; example: sandbox: auto"
            ))
        })?;
        let agent = agent
            .kernel(kernel)
            .kernel_log(kmsg)
            .client(client)
            .certificate(certificate)
            .control(control)
            .history(history)
            .black_box(black_box)
            .journald(journald)
            .notify(notify)
            .run_mode(flags.run_mode())
            .logind(logind);
        Ok(Self {
            runtime,
            agent,
            _claim: claim,
        })
    }

    fn run(self, reload: Reload, log: &mut LogThread) -> ExitCode {
        let code = self.runtime.block_on(on_runtime(self.agent, reload, log));
        // A hanging file system call must not delay the exit.
        self.runtime.shutdown_background();
        code
    }
}

async fn on_runtime(agent: Agent, reload: Reload, log: &mut LogThread) -> ExitCode {
    let shutdown = match stop_signal() {
        Ok(shutdown) => shutdown,
        Err(err) => return failed(&err),
    };
    let Reload { overrides, logging } = reload;
    let requests = match supervision::reload_requests(settings::files(&overrides)) {
        Ok(requests) => requests,
        Err(err) => return failed(&err),
    };
    let agent = agent.reloads(Reloads {
        asked: requests,
        read: ReadConfig::new(move || reread_configuration(&overrides)),
        logging,
    });
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = agent.config().node_name.as_str(),
        api_server = agent.has_client(),
        "started"
    );
    let agent = agent.run(shutdown);
    let settled = async {
        tokio::time::sleep(START).await;
        // It reads code from the disk, which may hang. The thread is not one of tokio: see
        // `use_lane_threads`.
        while std::thread::Builder::new().spawn(memory::settle).is_err() {
            tokio::time::sleep(START).await;
        }
        std::future::pending().await
    };
    let ended = Box::pin(async {
        tokio::select! {
            ended = agent => ended,
            never = settled => never,
            never = log.retry() => never,
        }
    });
    match ended.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err @ (AppError::Ports(_) | AppError::OtherHolder(_))) => refuse(&err),
        Err(err) => failed(&err),
    }
}

fn reread_configuration(overrides: &Overrides) -> Result<Config, String> {
    if settings::files(overrides).is_none() {
        return Err(
            "--config: \"-\": standard input cannot be read again; example: \
             --config /etc/nodepulse/config.yaml"
                .to_owned(),
        );
    }
    let LoadedConfig {
        config, ignored, ..
    } = configuration(overrides)?;
    if let Some(reason) = settings::excessive_reservations(&config) {
        return Err(reason);
    }
    log_ignored_keys(&ignored);
    Ok(config)
}

/// Enters the sandbox. Returns `Err` only if the configuration requires a complete one.
fn confine(
    config: &Config,
    kernel: &KernelSource,
    client: Option<&Client>,
    used: Used<'_>,
) -> Result<(), String> {
    if config.sandbox == Sandbox::Off {
        return Ok(());
    }
    let plugin = match client {
        Some(client) if client.runs_a_plugin() => Plugin::Runs,
        Some(_) | None => Plugin::None,
    };
    let profile = Profile::new(config, plugin, used);
    let report = sandbox::enter(&profile, || match kernel {
        KernelSource::Attached(loaded) => loaded.kernel.losses().is_ok(),
        KernelSource::Simulated { .. } | KernelSource::None(_) => true,
    });
    match report.gaps() {
        Some(gaps) if config.sandbox == Sandbox::Require => Err(gaps),
        Some(_) | None => {
            report.log();
            Ok(())
        }
    }
}

fn log_ignored_keys(ignored: &IgnoredKeys) {
    if !ignored.kubelet.is_empty() {
        let keys = ignored.kubelet.join(",");
        info!(keys, "ignored keys of the kubelet's configuration");
    }
    if !ignored.server.is_empty() {
        let keys = ignored.server.join(",");
        warn!(
            keys,
            "ignored keys of a kubelet's server on port 10250, which nodepulse does not have"
        );
    }
}

/// Loads the programs, or returns why files are used instead. Returns `Err` with what is missing,
/// only if the configuration requires the programs.
fn kernel_source(config: &Config) -> Result<KernelSource, String> {
    if matches!(config.tier, Tier::Kmsg | Tier::Files) {
        return Ok(KernelSource::None(Support::none(&Missing::TurnedOff)));
    }
    let loaded = match object::embedded() {
        Some(object) => loader::load(object, &wanted(&config.probes)),
        None => Err(Missing::NotBuilt),
    };
    let source = match loaded {
        Ok(loaded) => KernelSource::Attached(Box::new(loaded)),
        Err(missing) => KernelSource::None(Support::none(&missing)),
    };
    let support = source.support();
    if config.tier != Tier::Btf || support.tier() == "btf" {
        return Ok(source);
    }
    let mut unavailable = support.unavailable();
    unavailable.dedup_by_key(|(_, why)| *why);
    let reasons = unavailable.iter();
    let reasons: Vec<String> = reasons
        .map(|(probe, why)| format!("{}: {why}", probe.program()))
        .collect();
    Err(reasons.join("; "))
}

pub(super) fn wanted(probes: &BTreeSet<ProbeGroup>) -> Wanted {
    let wanted = |probe| probes.contains(&probe);
    Wanted {
        kills: wanted(ProbeGroup::Oom).then_some(KillHook::Task),
        scope: wanted(ProbeGroup::Scope),
        pids: wanted(ProbeGroup::Pids),
        disks: wanted(ProbeGroup::Disks),
    }
}

fn kernel_log(config: &Config, kernel: &KernelSource) -> Option<File> {
    if config.tier == Tier::Files || kernel.support().kills().is_some() {
        return None;
    }
    let path = config.host_root.join(kmsg::PATH);
    let refused = |err: &io::Error| {
        warn!(
            path = %path.display(),
            err = err as &dyn std::error::Error,
            "cannot read the kernel log: victims of OOM kills are unknown; grant CAP_SYSLOG and, in \
             a container, the device, or set kernel.dmesg_restrict=0"
        );
    };
    kmsg::open(&path).inspect_err(refused).ok()
}

/// The client of the API server, or one that prints the requests. Opens no connection.
async fn client(
    config: &Config,
    flags: OneShotFlags,
) -> Result<(Option<Client>, Option<CertificateSetup>), Obstacle> {
    let deadline = config.lease_duration / 4;
    if !flags.dry_run {
        return certificate::client(config, deadline, flags.run_mode()).await;
    }
    let client = settings::client(config, deadline).await?;
    let client = Client::dry_run(client, deadline, dry_run::printer())?;
    Ok((Some(client), None))
}

/// Repeats `attempt` while the cause of its failure can pass. `Err` is the exit code.
async fn wait_out<T>(
    config: &Config,
    log: &LogWriter,
    attempt: impl AsyncFnMut() -> Result<T, Obstacle>,
) -> Result<T, ExitCode> {
    let stop = stop_signal().map_err(|err| failed(&err))?;
    match obstacle::wait_out(config, log, stop, attempt).await {
        Some(done) => done.map_err(|why| refuse(&why)),
        None => Err(ExitCode::SUCCESS),
    }
}

fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn failed(err: &(dyn std::error::Error + 'static)) -> ExitCode {
    error!(err, "stopped by an error");
    ExitCode::FAILURE
}
