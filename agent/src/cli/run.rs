//! `nodepulse run`: the daemon.

use std::collections::BTreeSet;
use std::fs::File;
use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::settings::{self, Settings, configuration};
use super::{log, logging, refuse, supervision};
use crate::api::Client;
use crate::api::backoff::Jitter;
use crate::app::{self, AppError, KernelLine, Outside, ReadConfig, Reloads, SetLogging, Stay};
use crate::clock::Clock;
use crate::config::{
    Config, IgnoredKeys, LoadedConfig, Mode, Overrides, ProbeGroup, Sandbox, Tier,
};
use crate::kernel::support::Missing;
use crate::kernel::{KillHook, Support, Wanted, loader, object};
use crate::lane::Purpose;
use crate::logind;
use crate::os::kmsg;
use crate::sandbox::{self, Plugin, Profile, memory};
use crate::state::Claim;

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    trial: Trial,
}

/// Flags of a run that is not a daemon's.
#[derive(Debug, Args)]
struct Trial {
    /// Say once how the node is, and end: 0 if the API server has it, else 1.
    #[arg(long, action = ArgAction::SetTrue)]
    once: bool,
    /// Print what would be sent instead of sending it. Only reads.
    #[arg(long, action = ArgAction::SetTrue)]
    dry_run: bool,
}

/// What is done with what there is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    Sent,
    Printed,
}

/// Runs the agent until SIGTERM or SIGINT.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let manner = Manner {
        stay: if arguments.trial.once {
            Stay::Once
        } else {
            Stay::Running
        },
        writing: if arguments.trial.dry_run {
            Writing::Printed
        } else {
            Writing::Sent
        },
    };
    let overrides = arguments.settings.overrides();
    let (mut config, ignored) = match configuration(&overrides) {
        Ok(LoadedConfig {
            config, ignored, ..
        }) => (config, ignored),
        Err(err) => return refuse(&err),
    };
    if let Some(why) = settings::overdrawn(&config) {
        return refuse(&why);
    }
    if manner.writing == Writing::Printed {
        // A daemon may run beside it.
        config.serve = None;
    }
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
    let logging = logging::start(config.log_level, config.log_format, lines.clone());
    tell(&ignored);
    let prepared = Prepared::new(config, kernel, manner);
    // Threads take over what their starter may do: the first one starts here.
    let flush = match writer.start() {
        Ok(flush) => flush,
        Err(err) => return refuse(&format!("no thread for the log: {err}")),
    };
    let reload = Reload { overrides, logging };
    let code = prepared.map_or_else(|code| code, |prepared| prepared.run(reload));
    lines.end();
    flush.wait();
    code
}

/// How the agent is to run.
#[derive(Debug, Clone, Copy)]
struct Manner {
    stay: Stay,
    writing: Writing,
}

/// What reading the configuration again takes.
struct Reload {
    overrides: Overrides,
    logging: SetLogging,
}

/// An agent that has opened what it needs rights for, and has given them up.
struct Prepared {
    runtime: Runtime,
    outside: Outside,
    _claim: Option<Claim>,
}

impl Prepared {
    /// Starts no thread.
    fn new(config: Config, kernel: KernelLine, manner: Manner) -> Result<Self, ExitCode> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Kept between looks, which are ten seconds apart. None ever waits for another.
            .max_blocking_threads(Purpose::ALL.len())
            .thread_keep_alive(Duration::from_mins(1))
            .build()
            .map_err(|err| failed(&err))?;
        let notify = supervision::notify(manner.stay).map_err(|why| refuse(&why))?;
        let client = runtime.block_on(client(&config, manner.writing));
        let client = client.map_err(|why| refuse(&why))?;
        let (claim, control) = match manner.writing {
            Writing::Printed => (None, None),
            Writing::Sent => {
                let _entered = runtime.enter();
                supervision::claim(&config.state_directory).map_err(|why| refuse(&why))?
            }
        };
        memory::protect();
        // What needs more rights than stay is opened here.
        let kmsg = kernel_log(&config, &kernel);
        let pods = app::pods_path(&config);
        let triggers = app::triggers(&config, &pods);
        let has_status = config.mode == Mode::Node && client.is_some();
        let logind = (has_status && manner.writing == Writing::Sent).then(|| {
            let _entered = runtime.enter();
            logind::start(config.host_root.join(logind::BUS))
        });
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
            pods,
            clock,
            kernel,
            kmsg,
            triggers,
            client,
            jitter,
            control,
            reloads: None,
            notify,
            stay: manner.stay,
            logind,
        };
        Ok(Self {
            runtime,
            outside,
            _claim: claim,
        })
    }

    fn run(self, reload: Reload) -> ExitCode {
        let code = self.runtime.block_on(on_runtime(self.outside, reload));
        // A call that hangs in the file system must not hold up the end.
        self.runtime.shutdown_background();
        code
    }
}

async fn on_runtime(mut outside: Outside, reload: Reload) -> ExitCode {
    let shutdown = match asked_to_stop() {
        Ok(shutdown) => shutdown,
        Err(err) => return failed(&err),
    };
    let Reload { overrides, logging } = reload;
    let asked = match supervision::reloads(settings::files(&overrides)) {
        Ok(asked) => asked,
        Err(err) => return failed(&err),
    };
    outside.reloads = Some(Reloads {
        asked,
        read: ReadConfig::new(move || configured_anew(&overrides)),
        logging,
    });
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = outside.config.node_name.as_str(),
        api_server = outside.client.is_some(),
        "started"
    );
    match Box::pin(app::run(outside, shutdown)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err @ (AppError::Ports(_) | AppError::Held(_))) => refuse(&err),
        Err(err) => failed(&err),
    }
}

/// The configuration as it is by now. What it ignores is told again: it may be another one.
fn configured_anew(overrides: &Overrides) -> Result<Config, String> {
    if settings::files(overrides).is_none() {
        return Err(
            "--config: \"-\", and standard input cannot be read twice; example: \
                    --config /etc/nodepulse/config.yaml"
                .to_owned(),
        );
    }
    let LoadedConfig {
        config, ignored, ..
    } = configuration(overrides)?;
    if let Some(why) = settings::overdrawn(&config) {
        return Err(why);
    }
    tell(&ignored);
    Ok(config)
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
    match held.gaps() {
        Some(weakness) if config.sandbox == Sandbox::Require => Err(weakness),
        Some(_) | None => {
            held.log();
            Ok(())
        }
    }
}

/// What was accepted in the configuration and says nothing here.
fn tell(ignored: &IgnoredKeys) {
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
    let mut lacking = support.unavailable();
    lacking.dedup_by_key(|(_, why)| *why);
    let lacking = lacking.iter();
    let said: Vec<String> = lacking
        .map(|(probe, why)| format!("{}: {why}", probe.program()))
        .collect();
    Err(said.join("; "))
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

/// The API server, where there is one, or what stands for it. Opens no connection.
async fn client(config: &Config, writing: Writing) -> Result<Option<Client>, String> {
    let deadline = config.lease_duration / 4;
    let client = settings::client(config, deadline).await?;
    match writing {
        Writing::Sent => Ok(client),
        Writing::Printed => {
            let client = Client::dry_run(client, deadline, Box::new(supervision::print));
            client.map(Some).map_err(|err| err.to_string())
        }
    }
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

fn failed(err: &(dyn std::error::Error + 'static)) -> ExitCode {
    error!(err, "stopped by a fault");
    ExitCode::FAILURE
}
