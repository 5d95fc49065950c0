//! The way in, and the account of what went in.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};

use crate::kube_event::{Draft, KillOutcomes, ReportedKills};

/// What became of observations so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    /// All of them.
    pub recorded: u64,
    /// Are at the API server, alone or folded.
    pub delivered: u64,
    /// Were folded while they waited, because the queue was full.
    pub folded: u64,
    /// Were held back by the limit at first.
    pub held: u64,
    /// Found no room.
    pub lost_full: u64,
    /// Were refused by the API server.
    pub lost_refused: u64,
    /// Had nobody to go to for too long.
    pub lost_unreachable: u64,
    /// Wait to be written, the one under way not counted.
    pub waiting: u64,
}

impl EventCounts {
    /// Lost, for whatever reason.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_full + self.lost_refused + self.lost_unreachable
    }

    /// Neither at the API server nor lost, wherever they are.
    #[must_use]
    pub const fn pending(&self) -> u64 {
        self.recorded.saturating_sub(self.delivered + self.lost())
    }
}

/// [`EventCounts`] that the recorder raises and its sinks raise and read: a message would need an
/// answer, and reading must not wait for a write.
#[derive(Debug, Default)]
pub(super) struct EventTally {
    pub(super) recorded: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) folded: AtomicU64,
    pub(super) held: AtomicU64,
    pub(super) lost_full: AtomicU64,
    pub(super) lost_refused: AtomicU64,
    pub(super) lost_unreachable: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// The recorder adds, the loop takes. In a channel they could find no room, and the loop would wait
    /// for an outcome that never comes.
    kills: Mutex<KillOutcomes>,
}

pub(super) fn add(counter: &AtomicU64, times: u32) {
    counter.fetch_add(u64::from(times), Ordering::Relaxed);
}

impl EventTally {
    pub(super) fn acknowledged(&self, kills: ReportedKills) {
        self.outcomes(|outcomes| outcomes.acknowledged.add_all(kills));
    }

    pub(super) fn dropped(&self, kills: ReportedKills) {
        self.outcomes(|outcomes| outcomes.dropped.add_all(kills));
    }

    fn outcomes<T>(&self, change: impl FnOnce(&mut KillOutcomes) -> T) -> T {
        change(&mut self.kills.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn counts(&self) -> EventCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventCounts {
            recorded: read(&self.recorded),
            delivered: read(&self.delivered),
            folded: read(&self.folded),
            held: read(&self.held),
            lost_full: read(&self.lost_full),
            lost_refused: read(&self.lost_refused),
            lost_unreachable: read(&self.lost_unreachable),
            waiting: read(&self.waiting),
        }
    }
}

/// Takes Events. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventSink {
    /// Whoever records to the recorder's task. Holds 1000, more than one turn of the loop makes.
    /// When it is full the newest is lost and counted; the recorder keeps it empty even while the
    /// API server is away.
    pub(super) inputs: mpsc::Sender<Draft>,
    pub(super) tally: Arc<EventTally>,
    /// From whoever ends the agent to the recorder. Only the change to true matters.
    leaving: watch::Sender<bool>,
}

impl EventSink {
    pub(super) const fn new(
        inputs: mpsc::Sender<Draft>,
        tally: Arc<EventTally>,
        leaving: watch::Sender<bool>,
    ) -> Self {
        Self {
            inputs,
            tally,
            leaving,
        }
    }

    /// Queues an Event. Never blocks.
    pub fn record(&self, input: Draft) {
        add(&self.tally.recorded, input.times);
        if let Err(refused) = self.inputs.try_send(input) {
            let input = refused.into_inner();
            add(&self.tally.lost_full, input.times);
            self.tally.dropped(input.kills);
        }
    }

    /// What became of recorded kills since the last call.
    #[must_use]
    pub fn kill_outcomes(&self) -> KillOutcomes {
        self.tally.outcomes(std::mem::take)
    }

    /// What became of everything recorded so far.
    #[must_use]
    pub fn counts(&self) -> EventCounts {
        self.tally.counts()
    }

    /// The end is near: what is recorded is written without waiting for anything, and then the
    /// recorder ends. It ends at once where the API server is away.
    pub fn leave(&self) {
        self.leaving.send_replace(true);
    }
}
