//! The sources of kernel events, and the errors that end the agent.

use std::fs::File;
use std::io;

use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info};

use crate::api::holder::Holder;
use crate::clock::Clock;
use crate::config::{Config, Mode};
use crate::host::cgroup::pods::PodsPath;
use crate::host::{HostRoot, listeners};
use crate::kernel::{Kernel, LoadedKernel, Support, ring};
use crate::os::psi::Trigger;
use crate::os::watchers::Watchers;
use crate::queries::cgroups::watched_trees;
use crate::reading::Stall;
use crate::record::Received;
use crate::subjects::KillSource;

/// Capacity of the channel of decoded events from the ring readers to the loop: about the content of
/// one full ring. If it is full, the readers stop, the rings fill up and the probes count the losses:
/// events are lost in one place only, where they are counted.
const EVENTS: usize = 1024;

/// Where kernel events come from.
#[derive(Debug)]
pub enum KernelSource {
    /// The running kernel, by the attached programs.
    Attached(Box<LoadedKernel>),
    /// The records of a simulation.
    Fed(mpsc::Receiver<Received>),
    /// No kernel events, only files. The state of each probe contains the reason.
    None(Support),
}

impl KernelSource {
    /// The state of every probe.
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
    /// The alarm cannot be set or read.
    #[error("cannot wait for a deadline on the boot clock")]
    Alarm(#[source] io::Error),
    /// A ring cannot be read any more.
    #[error("cannot read the {ring} ring of the probes")]
    Ring {
        /// The name of the ring.
        ring: &'static str,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// A kubelet's port is taken.
    #[error(
        "something listens on port {}, as a kubelet does, and node mode must not run alongside one; \
         stop it, or set --take-over", list(.0)
    )]
    Ports(Vec<u16>),
    /// Another process renews the lease of this Node.
    #[error(
        "the lease of this node is renewed by {0}, and node mode must not run alongside a kubelet; \
         stop it, or set --take-over"
    )]
    OtherHolder(Holder),
    /// A write of `--once` failed.
    #[error("the {0} could not be written to the API server; see the log for the reason")]
    NotWritten(&'static str),
    /// A task of the agent ended.
    #[error("the {0} task ended early")]
    EndedEarly(&'static str),
}

fn list(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    ports.join(" and ")
}

/// The kubelet's `healthzPort` and `port`.
const KUBELET_PORTS: [u16; 2] = [10248, 10250];

/// Node mode must not compete with a kubelet: a kubelet's port in use is an error before the first
/// request is sent.
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

/// What the loop needs in addition to its state.
pub(super) struct LoopInputs {
    pub(super) kernel: Option<Kernel>,
    pub(super) support: Support,
    pub(super) kills: KillSource,
    /// The stalls that PSI triggers report.
    pub(super) stalls: Vec<Stall>,
    pub(super) readers: tokio::task::JoinSet<(&'static str, io::Result<()>)>,
    /// If set to true, the readers end once their rings are empty.
    pub(super) stop: watch::Sender<bool>,
    /// `None` in a simulation.
    pub(super) _watchers: Option<Watchers>,
    /// Kept if there is no ring, so that the channel stays open.
    pub(super) _records: Option<mpsc::Sender<Received>>,
}

pub(super) fn inputs(
    source: KernelSource,
    log: Option<File>,
    triggers: Vec<Trigger>,
    pods: &PodsPath,
    clock: Clock,
) -> (mpsc::Receiver<Received>, LoopInputs) {
    let (send, events) = mpsc::channel(EVENTS);
    let mut stalls = triggers.iter().map(Trigger::stall).collect();
    let mut readers = tokio::task::JoinSet::new();
    let (stop, stop_requested) = watch::channel(false);
    let support = source.support();
    let kills = match &log {
        _ if support.kills().is_some() => KillSource::Program,
        Some(_) => KillSource::Log,
        None => KillSource::Counters,
    };
    info!(tier = kills.tier(support.tier()), source = %kills.as_str(), "OOM kill source selected");
    let (mut kernel, mut watchers, mut records) = (None, None, None);
    let events = match source {
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
                let mut stop_requested = stop_requested.clone();
                readers.spawn(async move {
                    tokio::select! {
                        ended = crate::kernel::log::read(logged) => ("log", ended),
                        _ = stop_requested.wait_for(|requested| *requested) => ("log", Ok(())),
                    }
                });
            }
            watchers = Some(Watchers::start(
                watched_trees(pods),
                log,
                triggers,
                clock,
                &send,
            ));
            let crit = ring::read(crit, clock, send.clone(), stop_requested.clone());
            readers.spawn(async move { ("CRIT", crit.await) });
            let bulk = ring::read(bulk, clock, send, stop_requested);
            readers.spawn(async move { ("BULK", bulk.await) });
            events
        }
        KernelSource::Fed(fed) => {
            stalls = Stall::ALL.to_vec();
            fed
        }
        KernelSource::None(_) => {
            watchers = Some(Watchers::start(
                watched_trees(pods),
                log,
                triggers,
                clock,
                &send,
            ));
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
        stop,
        _watchers: watchers,
        _records: records,
    };
    (events, inputs)
}

/// Without a reader no kernel event is received: its end is an error.
pub(super) fn ring_ended(
    ended: Result<(&'static str, io::Result<()>), tokio::task::JoinError>,
) -> AppError {
    match ended {
        Ok((ring, Err(source))) => AppError::Ring { ring, source },
        Ok((ring, Ok(()))) => AppError::EndedEarly(ring),
        Err(err) => {
            error!(err = &err as &dyn std::error::Error, "a ring reader failed");
            AppError::EndedEarly("ring")
        }
    }
}
