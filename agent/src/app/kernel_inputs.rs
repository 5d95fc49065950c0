//! The tasks that receive kernel events.

use std::io;

use nodepulse_core::reading::Stall;
use nodepulse_core::record::Received;
use nodepulse_core::subjects::KillSource;
use nodepulse_io::clock::Clock;
use nodepulse_linux::kernel::counters::ProbeCounters;
use nodepulse_linux::kernel::{Kernel, LoadedKernel, Support, ring};
use nodepulse_linux::os::watchers::Watchers;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::info;

use super::builder::{Agent, KernelSource};
use crate::queries::cgroups::watched_trees;

/// Capacity of the channel of decoded events from the ring readers to the loop: about the content
/// of one full ring. If it is full, the readers stop, the rings fill up and the probes count the
/// losses: events are lost in one place only, where they are counted.
const EVENTS: usize = 1024;

/// The name of a ring, and the result of the task that reads it.
pub(super) type RingEnd = (&'static str, io::Result<()>);

pub(super) struct KernelInputs {
    pub(super) records: mpsc::Receiver<Received>,
    pub(super) kernel: Option<Kernel>,
    pub(super) simulated: Option<watch::Receiver<ProbeCounters>>,
    pub(super) support: Support,
    pub(super) kills: KillSource,
    /// Stalls with a PSI trigger.
    pub(super) stalls: Vec<Stall>,
    pub(super) readers: JoinSet<RingEnd>,
    /// Once it is true, the readers end when their rings are empty.
    pub(super) stop: watch::Sender<bool>,
    /// `None` in a simulation.
    pub(super) watchers: Option<Watchers>,
    /// Kept without rings, so that the channel stays open although all watchers end.
    send: Option<mpsc::Sender<Received>>,
}

impl KernelInputs {
    pub(super) fn none(support: Support) -> Self {
        let (send, records) = mpsc::channel(EVENTS);
        Self {
            records,
            kernel: None,
            simulated: None,
            support,
            kills: KillSource::Counters,
            stalls: Vec::new(),
            readers: JoinSet::new(),
            stop: watch::Sender::new(false),
            watchers: None,
            send: Some(send),
        }
    }

    /// Starts the tasks, and takes the sources of kernel events. Must be called in a runtime.
    pub(super) fn start(agent: &mut Agent) -> Self {
        let mut inputs = Self::none(agent.kernel.support());
        let nothing = KernelSource::None(inputs.support.clone());
        let source = std::mem::replace(&mut agent.kernel, nothing);
        let log = agent.kernel_log.take();
        inputs.kills = match &log {
            _ if inputs.support.kills().is_some() => KillSource::Program,
            Some(_) => KillSource::Log,
            None => KillSource::Counters,
        };
        let tier = inputs.kills.tier(inputs.support.tier());
        info!(tier, source = %inputs.kills.as_str(), "OOM kill source selected");
        if let KernelSource::Simulated { records, counters } = source {
            inputs.records = records;
            inputs.simulated = Some(counters);
            inputs.stalls = Stall::ALL.to_vec();
            return inputs;
        }
        let triggers = std::mem::take(&mut agent.triggers);
        inputs.stalls = triggers.iter().map(|trigger| trigger.stall).collect();
        let trees = watched_trees(&agent.pods, agent.client.is_none());
        let clock = agent.clock;
        if let Some(send) = &inputs.send {
            inputs.watchers = Some(Watchers::start(trees, log, triggers, clock, send));
        }
        if let KernelSource::Attached(loaded) = source
            && let Some(send) = inputs.send.take()
        {
            inputs.read_rings(*loaded, &send, clock);
        }
        inputs
    }

    fn read_rings(&mut self, loaded: LoadedKernel, send: &mpsc::Sender<Received>, clock: Clock) {
        let LoadedKernel {
            kernel,
            crit,
            bulk,
            #[cfg(feature = "ebpf-log")]
            log,
        } = loaded;
        self.kernel = Some(kernel);
        #[cfg(feature = "ebpf-log")]
        if let Some(log) = log {
            let mut stop = self.stop.subscribe();
            self.readers.spawn(async move {
                tokio::select! {
                    ended = nodepulse_linux::kernel::log::read(log) => ("log", ended),
                    _ = stop.wait_for(|requested| *requested) => ("log", Ok(())),
                }
            });
        }
        for (name, ring) in [("CRIT", crit), ("BULK", bulk)] {
            let read = ring::read(ring, clock, send.clone(), self.stop.subscribe());
            self.readers.spawn(async move { (name, read.await) });
        }
    }
}
