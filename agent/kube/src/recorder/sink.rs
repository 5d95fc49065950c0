//! The input of the recorder, and the counts of what was recorded.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nodepulse_core::incident::Incident;
use nodepulse_core::kube_event::{
    Draft, EventWords, KillOutcomes, NodeEvents, ReportedKills, Worded,
};
use tokio::sync::{mpsc, watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    pub recorded: u64,
    /// Observations that the API server accepted, separately or folded.
    pub delivered: u64,
    /// Observations that were folded while they waited, because the queue was full.
    pub folded: u64,
    /// Observations that the rate limit delayed at first.
    pub delayed: u64,
    pub lost_full: u64,
    pub lost_refused: u64,
    /// Observations that were lost because the server was unavailable for too long.
    pub lost_unreachable: u64,
    /// Observations that wait to be written, without the one in progress.
    pub waiting: u64,
}

impl EventCounts {
    pub const fn lost(&self) -> u64 {
        self.lost_full + self.lost_refused + self.lost_unreachable
    }

    /// Returns the number of observations neither accepted by the API server nor lost.
    pub const fn pending(&self) -> u64 {
        self.recorded.saturating_sub(self.delivered + self.lost())
    }
}

/// The counters behind [`EventCounts`]. The recorder increments them, its sinks increment and read
/// them: a message would need an answer, and reading must not wait for a write.
#[derive(Debug, Default)]
pub(super) struct EventTally {
    pub(super) recorded: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) folded: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) lost_full: AtomicU64,
    pub(super) lost_refused: AtomicU64,
    pub(super) lost_unreachable: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// The recorder adds outcomes and the loop takes them. In a channel they could find no room,
    /// and the loop would wait for an outcome that never arrives.
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
            delayed: read(&self.delayed),
            lost_full: read(&self.lost_full),
            lost_refused: read(&self.lost_refused),
            lost_unreachable: read(&self.lost_unreachable),
            waiting: read(&self.waiting),
        }
    }
}

/// Accepts Events. Clones are cheap.
#[derive(Debug, Clone)]
pub struct EventSink {
    /// The channel to the recorder's task. Its capacity is 1000, more than one iteration of the
    /// loop creates. If it is full, the newest observation is lost and counted; the recorder
    /// empties it even while the API server is unavailable.
    pub(super) inputs: mpsc::Sender<Box<Draft>>,
    /// Here, so that a draft that finds no room in the channel does not change what later ones
    /// report.
    words: Arc<Mutex<EventWords>>,
    pub(super) tally: Arc<EventTally>,
    /// The shutdown signal to the recorder. Only the change to true matters.
    leaving: watch::Sender<bool>,
}

impl EventSink {
    pub(super) fn new(
        inputs: mpsc::Sender<Box<Draft>>,
        tally: Arc<EventTally>,
        leaving: watch::Sender<bool>,
    ) -> Self {
        Self {
            inputs,
            words: Arc::new(Mutex::new(EventWords::new(NodeEvents::Companion))),
            tally,
            leaving,
        }
    }

    /// Never blocks.
    pub fn record(&self, draft: Draft) {
        add(&self.tally.recorded, draft.times);
        if let Err(refused) = self.inputs.try_send(Box::new(draft)) {
            let draft = refused.into_inner();
            add(&self.tally.lost_full, draft.times);
            self.tally.dropped(draft.kills);
        }
    }

    /// Records the Events of a revision of an incident. Never blocks.
    pub fn incident(&self, incident: &Incident) {
        let Worded { drafts, unwanted } = self.words(|words| words.word(incident));
        self.tally.acknowledged(unwanted);
        for draft in drafts {
            self.record(draft);
        }
    }

    /// Sets who records Events on the Node about incidents from now on.
    pub fn node_events(&self, node_events: NodeEvents) {
        self.words(|words| words.configure(node_events));
    }

    fn words<T>(&self, change: impl FnOnce(&mut EventWords) -> T) -> T {
        change(&mut self.words.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns and clears the outcomes of recorded kills since the last call.
    pub fn kill_outcomes(&self) -> KillOutcomes {
        self.tally.outcomes(std::mem::take)
    }

    pub fn counts(&self) -> EventCounts {
        self.tally.counts()
    }

    /// Starts the shutdown: everything recorded is written without any wait, and then the recorder
    /// ends. It ends at once if the API server is unavailable.
    pub fn leave(&self) {
        self.leaving.send_replace(true);
    }
}
