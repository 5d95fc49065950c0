//! `nodepulse run`: the daemon.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use tracing_subscriber::filter::LevelFilter;

use super::log::Lines;
use super::settings::{self, Settings, configuration};
use super::{log, refuse};
use crate::api::Client;
use crate::api::backoff::Jitter;
use crate::app::{self, AppError, KernelLine, Outside};
use crate::clock::Clock;
use crate::config::{Config, Ignored, Loaded, LogFormat, LogLevel, ProbeFor, Sandbox, Tier};
use crate::kernel::support::Missing;
use crate::kernel::{Rung, Support, Wanted, kmsg, loader, object};
use crate::sandbox::{self, Plugin, Profile, memory};
use crate::state;

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// Runs the agent until SIGTERM or SIGINT.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let Loaded {
        config, ignored, ..
    } = match configuration(arguments.settings.overrides()) {
        Ok(loaded) => loaded,
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
    tell(&ignored);
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
            setters: app::setters_of(config.mode),
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

/// What was accepted in the configuration and says nothing here.
fn tell(ignored: &Ignored) {
    if !ignored.kubelet.is_empty() {
        let keys = ignored.kubelet.join(",");
        info!(
            keys,
            "keys of the kubelet's configuration that mean nothing here"
        );
    }
    if !ignored.server.is_empty() {
        let keys = ignored.server.join(",");
        warn!(
            keys,
            "ignored: these keys are for a server on port 10250, and there is none"
        );
    }
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

pub(super) fn wanted(probes: &BTreeSet<ProbeFor>) -> Wanted {
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
    settings::client(config, config.lease_duration / 4).await
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

fn failed(err: &(dyn std::error::Error + 'static)) -> ExitCode {
    error!(err, "stopped by a fault");
    ExitCode::FAILURE
}
