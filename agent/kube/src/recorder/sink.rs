//! The input of the recorder, and the counts of what was recorded.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nodepulse_core::incident::Position;
use nodepulse_core::kube_event::Draft;
use tokio::sync::{mpsc, watch};

/// What became of an Event about a revision of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub position: Position,
    /// False if the server has refused it for good.
    pub is_accepted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    pub recorded: u64,
    /// Observations that the API server accepted, separately or folded.
    pub delivered: u64,
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
    pub(super) delayed: AtomicU64,
    pub(super) lost_full: AtomicU64,
    pub(super) lost_refused: AtomicU64,
    pub(super) lost_unreachable: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// See [`EventSink::next`].
    pub(super) next: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, times: u32) {
    counter.fetch_add(u64::from(times), Ordering::Relaxed);
}

impl EventTally {
    pub(super) fn counts(&self) -> EventCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventCounts {
            recorded: read(&self.recorded),
            delivered: read(&self.delivered),
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
    /// Events about incidents. The recorder takes them when it has room.
    pub(super) incidents: mpsc::Sender<Box<Draft>>,
    pub(super) tally: Arc<EventTally>,
    /// The shutdown signal to the recorder. Only the change to true matters.
    pub(super) leaving: watch::Sender<bool>,
}

impl EventSink {
    /// Never blocks.
    pub fn record(&self, draft: Draft) {
        add(&self.tally.recorded, draft.times);
        if let Err(refused) = self.inputs.try_send(Box::new(draft)) {
            let draft = refused.into_inner();
            // The next start delivers what is about an incident.
            if draft.position.is_none() {
                add(&self.tally.lost_full, draft.times);
            }
        }
    }

    /// Passes the first of the drafts about incidents to the recorder as soon as that has room.
    /// Cancel safe.
    pub async fn deliver(&self, drafts: &mut VecDeque<Draft>) {
        // Fails when the recorder has ended. The next start delivers them.
        let room = self.incidents.reserve().await;
        if let (Some(draft), Ok(room)) = (drafts.pop_front(), room) {
            add(&self.tally.recorded, draft.times);
            room.send(Box::new(draft));
        }
    }

    /// Returns the number of Events that are written as soon as the server accepts them.
    pub fn next(&self) -> u64 {
        self.tally.next.load(Ordering::Relaxed)
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
