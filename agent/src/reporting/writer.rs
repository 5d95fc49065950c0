//! What both modes write a Node's status with: compute, send what is due, and tell what was new.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::Report;
use super::start::events;
use crate::api::backoff::Jitter;
use crate::api::recorder::EventSink;
use crate::api::status::{Decision, Sent, StatusWriter, SyncOutcome};
use crate::api::{ApiError, Client};
use crate::clock::{Clock, Now, Stamp};
use crate::node_status::Condition;
use crate::node_status::ledger::Computed;
use crate::node_status::report::{self, ReportSchedule as Schedule};
use crate::node_status::transition::{Edge, edges};
use crate::reading::Resource;

/// What every task needs to say something and to tell what came of it.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) reports: mpsc::Sender<Report>,
}

/// Holds the Node as last seen, and when it is written next.
pub(super) struct Writer {
    pub(super) line: Line,
    /// Name of the Node.
    pub(super) node: String,
    pub(super) computed: watch::Receiver<Arc<Computed>>,
    pub(super) uid: watch::Sender<String>,
    pub(super) events: EventSink,
    pub(super) jitter: Jitter,
    pub(super) status: StatusWriter,
    pub(super) schedule: Schedule,
    /// What was new in syncs that failed since the last that did not: one of their patches may have
    /// been applied and its answer lost. At most [`MOST_UNTOLD`], beyond which the oldest go.
    pub(super) untold: Vec<Edge>,
}

/// More than there are conditions.
const MOST_UNTOLD: usize = 32;

/// The loop is gone.
pub(super) struct Gone;

/// What a sync came to.
pub(super) struct Synced {
    /// `None`: nothing had changed.
    pub(super) outcome: Result<Option<Sent>, ApiError>,
    /// What was new in it, not recorded yet. Nothing, where it failed.
    pub(super) news: Vec<Edge>,
    /// What its conditions should be, whether or not they could be written.
    pub(super) said: Vec<Condition>,
}

impl Writer {
    /// Sends the computed status if it is due or differs from what is stored.
    pub(super) async fn sync(&mut self) -> Synced {
        let (clock, schedule) = (self.line.clock, self.schedule);
        let computed = Arc::clone(&self.computed.borrow_and_update());
        let mut why = report::SendReason::Heartbeat;
        let (mut news, mut said) = (Vec::new(), Vec::new());
        let untold = &self.untold;
        let outcome = self.status.sync(&self.line.client, |stored| {
            let now = clock.now();
            let status = computed.at(stored, now);
            // Those of all tries: one whose answer got lost may have been applied, and then the next
            // one finds nothing new.
            let applied = untold.iter().filter(|edge| stored.reflects(edge));
            for edge in applied.cloned().chain(edges(stored, &status)) {
                if !news.contains(&edge) {
                    news.push(edge);
                }
            }
            said.clone_from(&status.conditions);
            let decision = match schedule.decide(now.boot) {
                report::ReportDue::Now(due) => {
                    why = due;
                    Decision::Send
                }
                report::ReportDue::IfChanged => Decision::IfChanged,
            };
            (status, decision)
        });
        let outcome = match outcome.await {
            Ok(outcome) => Ok(self.synced(outcome, why)),
            Err(err) => {
                self.keep(std::mem::take(&mut news));
                Err(err)
            }
        };
        Synced {
            outcome,
            news,
            said,
        }
    }

    fn synced(&mut self, outcome: SyncOutcome, why: report::SendReason) -> Option<Sent> {
        self.untold.clear();
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
                self.tell_uid();
                Some(sent)
            }
        }
    }

    fn keep(&mut self, news: Vec<Edge>) {
        // The newest of those that are alike says when it came last.
        self.untold.retain(|edge| !news.contains(edge));
        self.untold.extend(news);
        let over = self.untold.len().saturating_sub(MOST_UNTOLD);
        self.untold.drain(..over);
    }

    /// Records what was new as Events, each at the time of what it was caused by.
    pub(super) fn record(&self, news: Vec<Edge>, now: Now, stamps: &BTreeMap<Resource, Stamp>) {
        for event in events(news, &self.node, now, stamps) {
            self.events.record(event);
        }
    }

    /// The conditions of the Node as last seen.
    pub(super) fn on_node(&self) -> Vec<Condition> {
        self.status.stored().unwrap_or_default().conditions
    }

    /// Whose Events they are.
    pub(super) fn tell_uid(&self) {
        let uid = self.status.stored().unwrap_or_default().uid;
        self.uid.send_if_modified(|known| {
            let news = *known != uid;
            *known = uid;
            news
        });
    }

    /// Lets the loop take note of what is stored before anything is written.
    pub(super) async fn tell_found(&self) -> Result<(), Gone> {
        let (noted, seen) = oneshot::channel();
        let stored = Box::new(self.status.stored().unwrap_or_default());
        self.tell(Report::Registered { stored, noted }).await?;
        seen.await.map_err(|_| Gone)
    }

    pub(super) async fn tell(&self, report: Report) -> Result<(), Gone> {
        let sent = self.line.reports.send(report).await;
        sent.map_err(|_| Gone)
    }
}

/// Once aloud, as long as it lasts.
pub(super) fn log_unknown(err: &ApiError, told: &mut bool) {
    let err = err as &dyn std::error::Error;
    if std::mem::replace(told, true) {
        debug!(err, "node not known");
    } else {
        warn!(err, "node not known to the API server, will retry");
    }
}
