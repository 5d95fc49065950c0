//! The loop's side of the status writer: when a sync of the status is requested, and what it reports.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::start::log_sync;
use super::{SyncRequest, Why};
use crate::api::ApiError;
use crate::api::status::Sent;
use crate::clock::{BootNanos, Stamp};
use crate::node_status::budget::{Admission, EdgeBudget};
use crate::reading::Resource;

/// Whether a sync is under way. The first registers or finds the Node too.
///
/// ```text
/// NotStarted ──request──► Syncing ◄──────────request─────────── Waiting { due }
///                          │   ▲ │                                 ▲
///                  request │   │ └────────────ended────────────────┘
///                          ▼   │ ended: `why` is requested at once
///                     SyncingAgain { why }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    /// None was requested.
    NotStarted,
    /// None is under way.
    Waiting {
        /// The next regular one.
        due: BootNanos,
    },
    /// One is under way.
    Syncing,
    /// One is under way, and another was requested since it started.
    SyncingAgain {
        /// What requested it. Of several, an edge counts.
        why: Why,
    },
}

/// What happens to a [`SyncState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncInput {
    Request(Why),
    /// The one under way has ended.
    Ended {
        /// The next regular one.
        due: BootNanos,
    },
}

impl SyncState {
    /// The state after `input`, and the request to send.
    fn step(self, input: SyncInput) -> (Self, Option<Why>) {
        match (self, input) {
            (Self::NotStarted | Self::Waiting { .. }, SyncInput::Request(why)) => {
                (Self::Syncing, Some(why))
            }
            (Self::Syncing, SyncInput::Request(why)) => (Self::SyncingAgain { why }, None),
            (Self::SyncingAgain { why }, SyncInput::Request(newer)) => {
                let why = why.max(newer);
                (Self::SyncingAgain { why }, None)
            }
            (Self::SyncingAgain { why }, SyncInput::Ended { .. }) => (Self::Syncing, Some(why)),
            (Self::NotStarted | Self::Waiting { .. } | Self::Syncing, SyncInput::Ended { due }) => {
                (Self::Waiting { due }, None)
            }
        }
    }

    /// When the next regular sync is due; `None` if one is under way or none was requested yet.
    const fn due(self) -> Option<BootNanos> {
        match self {
            Self::Waiting { due } => Some(due),
            Self::NotStarted | Self::Syncing | Self::SyncingAgain { .. } => None,
        }
    }
}

/// Requests syncs of the status, one at a time.
pub(super) struct Syncs {
    state: SyncState,
    /// An edge that waits for the budget.
    edge_due: Option<BootNanos>,
    budget: EdgeBudget,
    /// The causes of changes that were not reported yet.
    stamps: BTreeMap<Resource, Stamp>,
    /// The warning about an outage was logged.
    failing: bool,
    requests: mpsc::Sender<SyncRequest>,
}

impl Syncs {
    pub(super) const fn new(requests: mpsc::Sender<SyncRequest>, now: BootNanos) -> Self {
        Self {
            state: SyncState::NotStarted,
            edge_due: None,
            budget: EdgeBudget::new(now),
            stamps: BTreeMap::new(),
            failing: false,
            requests,
        }
    }

    /// When the next regular sync is due.
    pub(super) const fn due(&self) -> Option<BootNanos> {
        self.state.due()
    }

    /// When the edge that waits is due.
    pub(super) const fn edge_due(&self) -> Option<BootNanos> {
        self.edge_due
    }

    /// Requests a sync for the edge that waits, if it is due.
    pub(super) fn on_time(&mut self, now: BootNanos) {
        if self.edge_due.is_some_and(|due| due <= now) {
            self.edge_due = None;
            self.edge(now);
        }
    }

    pub(super) fn caused_by(&mut self, resource: Resource, stamp: Stamp) {
        self.stamps.entry(resource).or_insert(stamp);
    }

    /// A condition changed: requests a sync as soon as the budget allows.
    pub(super) fn edge(&mut self, now: BootNanos) {
        if self.edge_due.is_some() {
            return; // It goes with the one that waits.
        }
        match self.budget.admit(now) {
            Admission::Now => self.request(Why::Edge),
            Admission::At(moment) => {
                debug!(wait_ms = moment.since(now).as_millis(), "an edge waits");
                self.edge_due = Some(moment);
            }
        }
    }

    pub(super) fn request(&mut self, why: Why) {
        self.step(SyncInput::Request(why));
    }

    /// Whether one is under way.
    pub(super) const fn is_under_way(&self) -> bool {
        matches!(
            self.state,
            SyncState::Syncing | SyncState::SyncingAgain { .. }
        )
    }

    /// Whether the last one failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// One has ended; the next regular one is due at `due`.
    pub(super) fn ended(
        &mut self,
        request: SyncRequest,
        outcome: Result<Option<Sent>, ApiError>,
        due: BootNanos,
    ) {
        let SyncRequest { why, stamps } = request;
        match outcome {
            Ok(sent) => {
                if std::mem::take(&mut self.failing) {
                    info!("node status can be sent again");
                }
                if let Some(sent) = sent {
                    log_sync(why, &sent, &stamps);
                }
            }
            Err(err) => {
                if !std::mem::replace(&mut self.failing, true) {
                    warn!(
                        err = &err as &dyn std::error::Error,
                        "node status not sent, will retry"
                    );
                }
                // The oldest cause that was not reported yet counts.
                self.stamps.extend(stamps);
            }
        }
        self.step(SyncInput::Ended { due });
    }

    fn step(&mut self, input: SyncInput) {
        let (state, request) = self.state.step(input);
        self.state = state;
        let Some(why) = request else {
            return;
        };
        let stamps = std::mem::take(&mut self.stamps);
        if self.requests.try_send(SyncRequest { why, stamps }).is_err() {
            debug!("the status writer has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: BootNanos = BootNanos(7);

    #[test]
    fn one_sync_is_under_way_and_at_most_one_waits_for_it() {
        use SyncInput::{Ended, Request};
        use SyncState::{NotStarted, Syncing, SyncingAgain, Waiting};
        use Why::{Edge, Tick};

        let waiting = Waiting { due: DUE };
        let ended = Ended { due: DUE };
        let again = |why| SyncingAgain { why };
        let rows = [
            (NotStarted, Request(Tick), Syncing, Some(Tick), "the first"),
            (waiting, Request(Tick), Syncing, Some(Tick), "a regular one"),
            (waiting, Request(Edge), Syncing, Some(Edge), "a change"),
            (
                Syncing,
                Request(Tick),
                again(Tick),
                None,
                "one is under way",
            ),
            (
                Syncing,
                Request(Edge),
                again(Edge),
                None,
                "one is under way",
            ),
            (
                again(Tick),
                Request(Edge),
                again(Edge),
                None,
                "an edge counts",
            ),
            (
                again(Edge),
                Request(Tick),
                again(Edge),
                None,
                "also if it is first",
            ),
            (again(Tick), Request(Tick), again(Tick), None, "two are one"),
            (Syncing, ended, waiting, None, "until then"),
            (again(Edge), ended, Syncing, Some(Edge), "sent at once"),
            (again(Tick), ended, Syncing, Some(Tick), "sent at once"),
        ];
        for (state, input, next, request, why) in rows {
            assert_eq!(state.step(input), (next, request), "{state:?}: {why}");
        }
        let due = [NotStarted, waiting, Syncing, again(Tick)].map(SyncState::due);
        assert_eq!(due, [None, Some(DUE), None, None], "only while it waits");
    }

    #[test]
    fn a_request_has_the_oldest_causes_that_were_not_reported() {
        let (send, mut requests) = mpsc::channel(1);
        let mut syncs = Syncs::new(send, BootNanos(0));
        let stamp = |kernel| Stamp {
            kernel: BootNanos(kernel),
            read: BootNanos(kernel),
        };
        syncs.caused_by(Resource::Memory, stamp(1));
        syncs.caused_by(Resource::Memory, stamp(2));
        syncs.edge(BootNanos(3));
        let first = requests.try_recv().unwrap();
        assert_eq!(first.stamps, [(Resource::Memory, stamp(1))].into());

        syncs.caused_by(Resource::Memory, stamp(4));
        let why = "an outage".to_owned();
        syncs.ended(first, Err(ApiError::InCluster { why }), DUE);
        assert!(requests.try_recv().is_err(), "none was requested meanwhile");
        syncs.request(Why::Tick);
        let second = requests.try_recv().unwrap();
        assert_eq!(second.stamps, [(Resource::Memory, stamp(1))].into());
    }

    #[test]
    fn an_edge_beyond_the_budget_waits_and_later_ones_go_with_it() {
        let (send, mut requests) = mpsc::channel(1);
        let mut syncs = Syncs::new(send, BootNanos(0));
        let second = 1_000_000_000;
        syncs.edge(BootNanos(0));
        syncs.ended(requests.try_recv().unwrap(), Ok(None), DUE);
        syncs.edge(BootNanos(1));
        syncs.edge(BootNanos(2));
        assert_eq!(syncs.edge_due(), Some(BootNanos(second)));
        syncs.on_time(BootNanos(second - 1));
        assert!(requests.try_recv().is_err(), "a nanosecond short");
        syncs.on_time(BootNanos(second));
        assert_eq!(requests.try_recv().unwrap().why, Why::Edge);
        assert_eq!((syncs.edge_due(), syncs.due()), (None, None));
    }
}
