//! The loop's side of the status writer: the schedule of syncs of the status, and their results.

use std::collections::BTreeMap;

use nodepulse_core::clock::{BootNanos, Stamp};
use nodepulse_core::node_status::ledger::Update;
use nodepulse_core::node_status::urgent::UrgentPatches;
use nodepulse_core::node_status::{Condition, Status};
use nodepulse_core::reading::Resource;
use nodepulse_kube::ApiError;
use nodepulse_kube::status::Sent;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::start::log_sync;
use super::{SyncRequest, Why};

/// State of the syncs. The first one registers or finds the Node too.
///
/// ```text
/// NotStarted ──request──► Syncing ◄──────────request─────────── Waiting { due }
///                          │   ▲ │                                 ▲
///                  request │   │ └────────────ended────────────────┘
///                          ▼   │ ended: `why` is requested at once
///                     SyncingAgain { why }, the most urgent cause
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    NotStarted,
    Waiting { due: BootNanos },
    Syncing,
    SyncingAgain { why: Why },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncInput {
    Request(Why),
    Ended { due: BootNanos },
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

    /// Returns the time of the next regular sync; `None` if one is under way or none was requested.
    const fn due(self) -> Option<BootNanos> {
        match self {
            Self::Waiting { due } => Some(due),
            Self::NotStarted | Self::Syncing | Self::SyncingAgain { .. } => None,
        }
    }
}

pub(super) struct EndedSync<'a> {
    pub(super) request: SyncRequest,
    /// `None` if nothing had changed.
    pub(super) outcome: Result<Option<Sent>, ApiError>,
    pub(super) node: &'a [Condition],
}

pub(super) struct Syncs {
    state: SyncState,
    /// Conditions that became True and were not sent yet.
    urgent: UrgentPatches,
    /// A change that is not urgent is sent by then. A regular sync can be later: in companion mode
    /// nothing is computed for minutes while nothing changes.
    change_due: Option<BootNanos>,
    /// The causes of changes that were not reported yet.
    stamps: BTreeMap<Resource, Stamp>,
    /// `true` after the warning about an outage was logged.
    failing: bool,
    requests: mpsc::Sender<SyncRequest>,
}

impl Syncs {
    pub(super) const fn new(requests: mpsc::Sender<SyncRequest>) -> Self {
        Self {
            state: SyncState::NotStarted,
            urgent: UrgentPatches::new(),
            change_due: None,
            stamps: BTreeMap::new(),
            failing: false,
            requests,
        }
    }

    /// Time of the next regular sync, or of the deadline of a change if that is earlier.
    pub(super) fn due(&self) -> Option<BootNanos> {
        let due = self.state.due()?;
        Some(self.change_due.map_or(due, |change| change.min(due)))
    }

    pub(super) fn urgent_due(&self) -> Option<BootNanos> {
        match self.state {
            // Nothing is due: an urgent sync is requested already.
            SyncState::SyncingAgain { why: Why::Edge } => None,
            _ => self.urgent.due(),
        }
    }

    pub(super) fn send_urgent(&mut self, now: BootNanos) {
        match self.urgent_due() {
            Some(due) if due <= now => self.request(Why::Edge, now),
            Some(due) => debug!(wait_ms = due.since(now).as_millis(), "a True waits"),
            None => {}
        }
    }

    pub(super) fn caused_by(&mut self, resource: Resource, stamp: Stamp) {
        self.stamps.entry(resource).or_insert(stamp);
    }

    /// Records changed conditions. A change that is not urgent is sent at `regular` at the latest.
    pub(super) fn changed(&mut self, update: &Update, regular: BootNanos) {
        for type_ in &update.ended {
            self.urgent.settled(type_);
        }
        for type_ in &update.began {
            self.urgent.began(type_);
        }
        if update.conditions {
            self.change_due.get_or_insert(regular);
        }
    }

    pub(super) fn request(&mut self, why: Why, now: BootNanos) {
        self.step(SyncInput::Request(why), now);
    }

    pub(super) const fn is_under_way(&self) -> bool {
        matches!(
            self.state,
            SyncState::Syncing | SyncState::SyncingAgain { .. }
        )
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// Records the end of a sync; the next regular one is due at `due`.
    pub(super) fn ended(&mut self, ended: EndedSync<'_>, due: BootNanos, now: BootNanos) {
        let SyncRequest { why, stamps } = ended.request;
        match ended.outcome {
            Ok(sent) => {
                if std::mem::take(&mut self.failing) {
                    info!("node status can be sent again");
                }
                let is_true = |c: &&Condition| c.status == Status::True;
                for condition in ended.node.iter().filter(is_true) {
                    self.urgent.settled(&condition.type_);
                }
                if let Some(sent) = sent {
                    log_sync(why, &sent, &stamps);
                } else if why == Why::Edge {
                    self.urgent.nothing_sent();
                }
            }
            Err(err) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let err = &err as &dyn std::error::Error;
                    warn!(err, "node status not sent, will retry");
                }
                // The oldest cause that was not reported yet counts.
                self.stamps.extend(stamps);
            }
        }
        self.step(SyncInput::Ended { due }, now);
    }

    fn step(&mut self, input: SyncInput, now: BootNanos) {
        let (state, request) = self.state.step(input);
        self.state = state;
        let Some(why) = request else {
            return;
        };
        self.urgent.sent(why == Why::Edge, now);
        self.change_due = None;
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
        #[rustfmt::skip]
        let rows = [
            (NotStarted, Request(Tick), Syncing, Some(Tick), "the first"),
            (waiting, Request(Tick), Syncing, Some(Tick), "a regular one"),
            (waiting, Request(Edge), Syncing, Some(Edge), "a change"),
            (Syncing, Request(Tick), again(Tick), None, "one is under way"),
            (Syncing, Request(Edge), again(Edge), None, "one is under way"),
            (again(Tick), Request(Edge), again(Edge), None, "an urgent change counts"),
            (again(Edge), Request(Tick), again(Edge), None, "also if it is first"),
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

    const SECOND: u64 = 1_000_000_000;

    fn began(type_: &str) -> Update {
        Update {
            conditions: true,
            began: vec![type_.to_owned()],
            ..Update::default()
        }
    }

    fn ended(type_: &str) -> Update {
        Update {
            conditions: true,
            ended: vec![type_.to_owned()],
            ..Update::default()
        }
    }

    /// Returns the end of a sync that had nothing to send.
    fn unchanged(request: SyncRequest) -> EndedSync<'static> {
        EndedSync {
            request,
            outcome: Ok(None),
            node: &[],
        }
    }

    #[test]
    fn a_request_has_the_oldest_causes_that_were_not_reported() {
        let (send, mut requests) = mpsc::channel(1);
        let mut syncs = Syncs::new(send);
        let stamp = |kernel| Stamp {
            kernel: BootNanos(kernel),
            read: BootNanos(kernel),
        };
        syncs.caused_by(Resource::Memory, stamp(1));
        syncs.caused_by(Resource::Memory, stamp(2));
        syncs.changed(&began("a"), DUE);
        syncs.send_urgent(BootNanos(3));
        let first = requests.try_recv().unwrap();
        assert_eq!(first.stamps, [(Resource::Memory, stamp(1))].into());

        syncs.caused_by(Resource::Memory, stamp(4));
        let why = "an outage".to_owned();
        let failed = EndedSync {
            outcome: Err(ApiError::InCluster { why }),
            ..unchanged(first)
        };
        syncs.ended(failed, DUE, BootNanos(5));
        assert!(requests.try_recv().is_err(), "none was requested meanwhile");
        syncs.request(Why::Tick, BootNanos(6));
        let second = requests.try_recv().unwrap();
        assert_eq!(second.stamps, [(Resource::Memory, stamp(1))].into());
    }

    #[test]
    fn only_a_condition_that_becomes_true_is_urgent_and_the_rest_is_sent_by_the_regular_sync() {
        let (send, mut requests) = mpsc::channel(1);
        let mut syncs = Syncs::new(send);
        syncs.request(Why::Tick, BootNanos(0));
        let far = BootNanos(300 * SECOND);
        syncs.ended(unchanged(requests.try_recv().unwrap()), far, BootNanos(0));

        let (first, later) = (BootNanos(10 * SECOND), BootNanos(12 * SECOND));
        syncs.changed(&ended("a"), first);
        syncs.changed(&ended("b"), later);
        assert_eq!((syncs.due(), syncs.urgent_due()), (Some(first), None));
        syncs.send_urgent(BootNanos(SECOND));
        assert!(requests.try_recv().is_err(), "not urgent");

        syncs.changed(&began("a"), later);
        syncs.send_urgent(BootNanos(SECOND));
        let request = requests.try_recv().unwrap();
        assert_eq!(request.why, Why::Edge);
        syncs.ended(unchanged(request), far, BootNanos(SECOND));
        assert_eq!(syncs.due(), Some(far), "everything was sent with it");
    }

    #[test]
    fn a_true_that_waits_for_a_sync_is_requested_once_and_not_if_the_node_has_it() {
        let (send, mut requests) = mpsc::channel(1);
        let mut syncs = Syncs::new(send);
        syncs.request(Why::Tick, BootNanos(0));
        let first = requests.try_recv().unwrap();
        syncs.changed(&began("a"), DUE);
        assert_eq!(syncs.urgent_due(), Some(BootNanos(0)));
        syncs.send_urgent(BootNanos(1));
        assert_eq!(syncs.urgent_due(), None, "requested");
        syncs.ended(unchanged(first), DUE, BootNanos(2));
        let second = requests.try_recv().unwrap();
        assert_eq!(second.why, Why::Edge);

        syncs.changed(&began("b"), DUE);
        assert_eq!(syncs.urgent_due(), Some(BootNanos(SECOND + 2)));
        let condition = Condition {
            type_: "b".to_owned(),
            status: Status::True,
            reason: String::new(),
            message: String::new(),
            last_heartbeat_time: std::time::SystemTime::UNIX_EPOCH,
            last_transition_time: std::time::SystemTime::UNIX_EPOCH,
        };
        let found = EndedSync {
            node: &[condition],
            ..unchanged(second)
        };
        syncs.ended(found, DUE, BootNanos(3));
        assert_eq!(syncs.urgent_due(), None, "the Node has it");
        syncs.changed(&began("b"), DUE);
        assert_eq!(syncs.urgent_due(), Some(BootNanos(0)), "nothing was sent");
    }
}
