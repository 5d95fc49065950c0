//! The status writer of both modes: sends the status if it is due, and records a kubelet's Events.
//! Events about other changes of conditions are delivered from the history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use nodepulse_core::backoff::Jitter;
use nodepulse_core::clock::{Now, Stamp};
use nodepulse_core::incident::Position;
use nodepulse_core::kube_event::Draft;
use nodepulse_core::node_status::Condition;
use nodepulse_core::node_status::ledger::Began;
use nodepulse_core::node_status::release::Release;
use nodepulse_core::node_status::report::{self, ReportSchedule as Schedule};
use nodepulse_core::node_status::transition::{Edge, edges, unsent};
use nodepulse_core::reading::Resource;
use nodepulse_io::clock::Clock;
use nodepulse_kube::access;
use nodepulse_kube::recorder::EventSink;
use nodepulse_kube::status::{SendRule, Sent, StatusWriter, SyncOutcome};
use nodepulse_kube::{ApiError, Client};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::{Published, Report};

/// Resources with which every task sends requests, and reports their results to the loop.
#[derive(Clone)]
pub(super) struct LoopLink {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) reports: mpsc::Sender<Box<Report>>,
}

/// The stored Node as last seen, and the time of its next write.
pub(super) struct Writer {
    pub(super) link: LoopLink,
    pub(super) node: String,
    pub(super) computed: watch::Receiver<Published>,
    pub(super) uid: watch::Sender<String>,
    pub(super) events: EventSink,
    /// The API server has the status with all changes up to this revision of an incident.
    pub(super) written: watch::Sender<Position>,
    pub(super) jitter: Jitter,
    pub(super) status: StatusWriter,
    pub(super) schedule: Schedule,
    /// Transitions of the syncs that failed since the last success: a patch may have been applied
    /// although its answer was lost. At most [`MAX_UNRECORDED`]; the oldest are dropped.
    pub(super) unrecorded: Vec<Edge>,
    /// Number of times that each condition had become True in the last status that was sent or
    /// compared. A change that failed to reach the API server is not recorded.
    pub(super) sent: Arc<Began>,
    /// `true` after the API server's release was read.
    pub(super) release_known: bool,
}

/// Maximum number of unrecorded transitions: more than there are conditions.
const MAX_UNRECORDED: usize = 32;

pub(super) struct LoopEnded;

pub(super) struct Synced {
    /// `None` if nothing had changed.
    pub(super) outcome: Result<Option<Sent>, ApiError>,
    /// Transitions that are not recorded yet; none if the sync failed.
    pub(super) transitions: Vec<Edge>,
    /// The computed conditions, written or not.
    pub(super) conditions: Vec<Condition>,
}

impl Writer {
    /// Sends the computed status if it is due or differs from what is stored.
    pub(super) async fn sync(&mut self) -> Synced {
        let (clock, schedule) = (self.link.clock, self.schedule);
        let Published { computed, changes } = self.computed.borrow_and_update().clone();
        let mut why = report::SendReason::Heartbeat;
        let (mut transitions, mut conditions) = (Vec::new(), Vec::new());
        let (unrecorded, sent) = (&self.unrecorded, &self.sent);
        let (mut missed, mut applied) = (Vec::new(), Vec::new());
        let outcome = self.status.sync(&self.link.client, |stored| {
            let now = clock.now();
            let status = computed.at(stored, now);
            missed = unsent(computed.began(), sent, stored, &status);
            // Those of all tries: one whose answer was lost may have been applied, and then the
            // next one finds no difference.
            let reflected = unrecorded.iter().filter(|edge| stored.reflects(edge));
            applied = reflected.cloned().collect();
            for edge in applied.iter().cloned().chain(edges(stored, &status)) {
                if !transitions.contains(&edge) {
                    transitions.push(edge);
                }
            }
            conditions.clone_from(&status.conditions);
            let decision = match schedule.decide(now.boot) {
                report::ReportDue::Now(due) => {
                    why = due;
                    SendRule::Always
                }
                report::ReportDue::IfChanged => SendRule::IfChanged,
            };
            (status, decision)
        });
        let outcome = match outcome.await {
            Ok(outcome) => {
                transitions.retain(|edge| missed.iter().all(|(_, _, ended)| edge != ended));
                self.record_unsent(missed, &applied);
                self.publish_written(changes);
                Ok(self.synced(outcome, why))
            }
            Err(err) => {
                self.keep(std::mem::take(&mut transitions));
                Err(err)
            }
        };
        self.sent = Arc::clone(computed.began());
        Synced {
            outcome,
            transitions,
            conditions,
        }
    }

    fn synced(&mut self, outcome: SyncOutcome, why: report::SendReason) -> Option<Sent> {
        self.unrecorded.clear();
        match outcome {
            SyncOutcome::Unchanged => None,
            SyncOutcome::Sent(sent) => {
                let why = if sent.changed {
                    report::SendReason::Changed
                } else {
                    why
                };
                let fraction = self.jitter.fraction();
                self.schedule.sent(sent.acked, why, fraction);
                self.publish_uid();
                Some(sent)
            }
        }
    }

    fn keep(&mut self, transitions: Vec<Edge>) {
        // Of equal ones the newest is kept.
        self.unrecorded.retain(|edge| !transitions.contains(edge));
        self.unrecorded.extend(transitions);
        let over = self.unrecorded.len().saturating_sub(MAX_UNRECORDED);
        self.unrecorded.drain(..over);
    }

    /// Records conditions that became True and ended without a patch. If a patch whose answer was
    /// lost had the end of an earlier True, that reads the same and comes first.
    fn record_unsent(&self, missed: Vec<(Edge, SystemTime, Edge)>, applied: &[Edge]) {
        let now = self.link.clock.now();
        let uncaused = BTreeMap::new();
        for (began, at, ended) in missed {
            let earlier = applied.contains(&ended).then(|| ended.clone());
            let then = Now { wall: at, ..now };
            self.record(earlier.into_iter().chain([began]), then, &uncaused);
            self.record([ended], now, &uncaused);
        }
    }

    /// Records transitions as Events, each with the time of its cause.
    pub(super) fn record(
        &self,
        transitions: impl IntoIterator<Item = Edge>,
        now: Now,
        stamps: &BTreeMap<Resource, Stamp>,
    ) {
        for edge in transitions {
            self.events.record(event(&edge, &self.node, now, stamps));
        }
    }

    pub(super) fn on_node(&self) -> Vec<Condition> {
        self.status.stored().unwrap_or_default().conditions
    }

    /// Publishes that the API server has all changes up to this revision, or later ones.
    pub(super) fn publish_written(&self, changes: Position) {
        self.written.send_if_modified(|known| {
            let is_later = *known < changes;
            *known = changes.max(*known);
            is_later
        });
    }

    /// Publishes the Node's UID, which its Events need.
    pub(super) fn publish_uid(&self) {
        let uid = self.status.stored().unwrap_or_default().uid;
        self.uid.send_if_modified(|known| {
            let changed = *known != uid;
            *known = uid;
            changed
        });
    }

    /// Reports the stored Node, and waits until the loop has taken it into account.
    pub(super) async fn report_found(&self, is_new: bool) -> Result<(), LoopEnded> {
        let (acknowledged, seen) = oneshot::channel();
        let stored = Box::new(self.status.stored().unwrap_or_default());
        self.send(Report::Registered {
            stored,
            is_new,
            acknowledged,
        })
        .await?;
        seen.await.map_err(|_| LoopEnded)
    }

    /// Reads the API server's release until it is known; the status reports no newer one. Returns
    /// the error if the server cannot be reached.
    pub(super) async fn read_release(&mut self) -> Result<Option<ApiError>, LoopEnded> {
        if self.release_known {
            return Ok(None);
        }
        let version = match access::version(&self.link.client).await {
            Ok(version) => {
                self.release_known = true;
                version
            }
            Err(err @ ApiError::Unreachable { .. }) => return Ok(Some(err)),
            Err(source) => {
                let err = &source as &dyn std::error::Error;
                debug!(err, "cannot read the version of the API server");
                if source.refusal().is_none() {
                    return Ok(None);
                }
                None
            }
        };
        let release = version.as_deref().and_then(Release::parse);
        let (acknowledged, seen) = oneshot::channel();
        self.send(Report::ApiServer {
            release,
            acknowledged,
        })
        .await?;
        seen.await.map_err(|_| LoopEnded)?;
        Ok(None)
    }

    pub(super) async fn send(&self, report: Report) -> Result<(), LoopEnded> {
        let sent = self.link.reports.send(Box::new(report)).await;
        sent.map_err(|_| LoopEnded)
    }
}

/// Returns the Event about a transition. One that the kernel caused has the kernel's time.
fn event(edge: &Edge, node: &str, now: Now, stamps: &BTreeMap<Resource, Stamp>) -> Draft {
    let resource = edge.resource();
    let stamp = resource.and_then(|resource| stamps.get(&resource)).copied();
    let at = stamp.map_or(now.wall, |stamp| now.wall_at(stamp.kernel));
    Draft {
        stamp,
        ..Draft::transition(edge.type_(), edge.reason(), edge.message(node), at)
    }
}

/// Logs a warning once while it lasts.
pub(super) fn log_unknown(err: &ApiError, logged: &mut bool) {
    let err = err as &dyn std::error::Error;
    if std::mem::replace(logged, true) {
        debug!(err, "node not known");
    } else {
        warn!(err, "node not known to the API server, will retry");
    }
}
