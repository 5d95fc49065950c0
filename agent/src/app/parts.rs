//! All that the agent gets from outside, and why it can stop by itself.

use std::fs::File;
use std::io;

use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info};

use super::reload::Reloads;
use super::watchers::Watchers;
use crate::api::Client;
use crate::api::backoff::Jitter;
use crate::api::holder::Holder;
use crate::clock::Clock;
use crate::config::{Config, Mode};
use crate::host::cgroup::pods::PodsPath;
use crate::host::{HostRoot, listeners};
use crate::kernel::counters::ProbeCounters;
use crate::kernel::{Kernel, LoadedKernel, Support, ring};
use crate::logind::PowerMessage;
use crate::node_status::setters::{COMPANION, SETTERS, Setters};
use crate::notify::Notify;
use crate::os::psi::Trigger;
use crate::reading::Stall;
use crate::record::Received;
use crate::serve::{Site, socket::Socket};
use crate::subjects::KillSource;

/// Decoded events: the ring readers to the loop. Holds about one drain of a full ring. When it is
/// full the readers stop, the rings fill, and the probes count the loss: there is one place where
/// events are lost, and it is measured.
const EVENTS: usize = 1024;

/// All that the agent gets from outside.
#[derive(Debug)]
pub struct AgentParts {
    /// What to do.
    pub config: Config,
    /// Where the cgroups are: [`super::pods_path`].
    pub pods: PodsPath,
    /// Which clock to go by.
    pub clock: Clock,
    /// Where kernel events come from.
    pub kernel: KernelSource,
    /// The kernel's log, opened where no program reports kills and it may be read.
    pub kmsg: Option<File>,
    /// The API server; `None` evaluates and logs, and opens no connection.
    pub client: Option<Client>,
    /// What the status of a Node is made of: [`setters_of`] the mode, and what else there is to say.
    pub setters: Setters,
    /// What tells of tasks that wait: [`super::triggers`].
    pub triggers: Vec<Trigger>,
    /// Spreads periodic requests in time.
    pub jitter: Jitter,
    /// Where metrics and health are served; `None`: at the ports that the configuration names.
    pub sites: Option<Vec<Site>>,
    /// What the kernel has counted, where somebody else speaks for it.
    pub figures: Option<watch::Receiver<ProbeCounters>>,
    /// Where more is told to whoever may open it.
    pub control: Option<Socket>,
    /// How the configuration is read again; `None`: it is not.
    pub reloads: Option<Reloads>,
    /// Whoever started us.
    pub notify: Notify,
    /// For how long.
    pub run_mode: RunMode,
    /// What logind says; `None`: shutdowns of the machine are not announced.
    pub logind: Option<mpsc::Receiver<PowerMessage>>,
}

/// For how long the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// Until it is asked to stop.
    UntilStopped,
    /// Until it has said once how the node is.
    Once,
}

/// What the agent itself says of a Node in this mode.
#[must_use]
pub const fn setters_of(mode: Mode) -> Setters {
    match mode {
        Mode::Companion => COMPANION,
        Mode::Node => SETTERS,
    }
}

/// Where kernel events come from.
#[derive(Debug)]
pub enum KernelSource {
    /// The running kernel, by our programs.
    Attached(Box<LoadedKernel>),
    /// Whoever holds the other end: records of a simulation.
    Fed(mpsc::Receiver<Received>),
    /// Nowhere: files only, for the reason that stands in each probe's state.
    None(Support),
}

/// The tier that the source of kills and the programs that run add up to.
pub(super) fn tier(source: KillSource, support: &Support) -> &'static str {
    match (source, support.tier()) {
        (KillSource::Log, "files") => "kmsg",
        (_, tier) => tier,
    }
}

impl KernelSource {
    /// What every probe came to.
    #[must_use]
    pub fn support(&self) -> Support {
        match self {
            Self::Attached(loaded) => loaded.kernel.support().clone(),
            Self::Fed(_) => Support::all(),
            Self::None(support) => support.clone(),
        }
    }
}

/// Why the agent stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The alarm cannot be set.
    #[error("cannot wait for a moment on the boot clock")]
    Alarm(#[source] io::Error),
    /// A ring cannot be read any more.
    #[error("cannot read the {ring} ring of the probes")]
    Ring {
        /// Which.
        ring: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A kubelet's port is taken.
    #[error(
        "something listens on port {}, as a kubelet does, and node mode must not run beside one; \
         stop it, or say --take-over", list(.0)
    )]
    Ports(Vec<u16>),
    /// Somebody else keeps our Node alive.
    #[error(
        "the lease of this node is renewed by {0}, and node mode must not run beside a kubelet; \
         stop it, or say --take-over"
    )]
    OtherHolder(Holder),
    /// What `--once` is for was not done.
    #[error("the {0} could not be written to the API server; the log says why")]
    NotWritten(&'static str),
    /// A task of ours is gone.
    #[error("the {0} task ended early")]
    EndedEarly(&'static str),
}

fn list(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    ports.join(" and ")
}

/// The kubelet's `healthzPort` and `port`.
const KUBELET_PORTS: [u16; 2] = [10248, 10250];

/// Node mode never fights a kubelet: one that listens here is found before anything is sent.
pub(super) fn no_kubelet(config: &Config) -> Result<(), AppError> {
    if config.mode != Mode::Node || config.take_over {
        return Ok(());
    }
    match listeners::taken(&HostRoot::new(&config.host_root), &KUBELET_PORTS) {
        Ok(taken) if taken.is_empty() => Ok(()),
        Ok(taken) => Err(AppError::Ports(taken)),
        Err(err) => {
            debug!(err = &err as &dyn std::error::Error, "listeners not read");
            Ok(())
        }
    }
}

/// What the loop holds beside its state.
pub(super) struct LoopInputs {
    pub(super) kernel: Option<Kernel>,
    pub(super) support: Support,
    pub(super) kills: KillSource,
    /// What we are told of when it begins.
    pub(super) stalls: Vec<Stall>,
    pub(super) readers: tokio::task::JoinSet<(&'static str, io::Result<()>)>,
    /// To the readers: true lets them end once their rings are empty.
    pub(super) leaving: watch::Sender<bool>,
    /// `None` where somebody else speaks for the kernel.
    pub(super) _watchers: Option<Watchers>,
    /// Without a ring: kept, so that the loop waits for a record that never comes.
    pub(super) _records: Option<mpsc::Sender<Received>>,
}

pub(super) fn inputs(
    line: KernelSource,
    log: Option<File>,
    triggers: Vec<Trigger>,
    pods: &PodsPath,
    clock: Clock,
) -> (mpsc::Receiver<Received>, LoopInputs) {
    let (send, events) = mpsc::channel(EVENTS);
    let stalls = triggers.iter().map(Trigger::stall).collect();
    let mut readers = tokio::task::JoinSet::new();
    let (leaving, told) = watch::channel(false);
    let support = line.support();
    let kills = match &log {
        _ if support.kills().is_some() => KillSource::Program,
        Some(_) => KillSource::Log,
        None => KillSource::Counters,
    };
    info!(tier = tier(kills, &support), source = ?kills, "OOM kill source selected");
    let (mut kernel, mut watchers, mut records) = (None, None, None);
    let mut stalls = stalls;
    let events = match line {
        KernelSource::Attached(loaded) => {
            let LoadedKernel {
                kernel: attached,
                crit,
                bulk,
                #[cfg(feature = "ebpf-log")]
                    log: logged,
            } = *loaded;
            kernel = Some(attached);
            #[cfg(feature = "ebpf-log")]
            if let Some(logged) = logged {
                let mut told = told.clone();
                readers.spawn(async move {
                    tokio::select! {
                        ended = crate::kernel::log::read(logged) => ("log", ended),
                        _ = told.wait_for(|leaving| *leaving) => ("log", Ok(())),
                    }
                });
            }
            watchers = Some(Watchers::start(pods, log, triggers, clock, &send));
            let crit = ring::read(crit, clock, send.clone(), told.clone());
            readers.spawn(async move { ("CRIT", crit.await) });
            let bulk = ring::read(bulk, clock, send, told);
            readers.spawn(async move { ("BULK", bulk.await) });
            events
        }
        KernelSource::Fed(fed) => {
            stalls = Stall::ALL.to_vec();
            fed
        }
        KernelSource::None(_) => {
            watchers = Some(Watchers::start(pods, log, triggers, clock, &send));
            records = Some(send);
            events
        }
    };
    let inputs = LoopInputs {
        kernel,
        support,
        kills,
        stalls,
        readers,
        leaving,
        _watchers: watchers,
        _records: records,
    };
    (events, inputs)
}

/// A reader that ends takes our eyes with it.
pub(super) fn ring_ended(
    ended: Result<(&'static str, io::Result<()>), tokio::task::JoinError>,
) -> AppError {
    match ended {
        Ok((ring, Err(source))) => AppError::Ring { ring, source },
        Ok((ring, Ok(()))) => AppError::EndedEarly(ring),
        Err(err) => {
            error!(
                err = &err as &dyn std::error::Error,
                "a ring reader is gone"
            );
            AppError::EndedEarly("ring")
        }
    }
}
