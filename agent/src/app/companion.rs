//! The writer of companion mode: conditions of our own, and their taints, on a Node that a kubelet
//! keeps.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::reporting::{Report, SyncRequest, Wait};
use super::tasks::{Line, events, log_failed};
use crate::api::backoff::{Backoff, Jitter};
use crate::api::recorder::EventSink;
use crate::api::status::{Decision, Part, Sent, StatusWriter, SyncOutcome};
use crate::api::{ApiError, Disposition, Refusal};
use crate::config::Config;
use crate::node_status::own::OwnCondition;
use crate::node_status::report::{self, Reporter as Schedule};
use crate::node_status::setters::{self, Setters};
use crate::node_status::transition::{Edge, edges};
use crate::node_status::{Facts, NodeStatus, Status, Taint};

/// Between looks for a Node that is not there: a kubelet that has just been started is quick, and
/// for one that was sent away for good nobody has to hurry.
const LOOK_AGAIN: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Before the first of them, once it is gone: whoever answers that it is both there and not is not
/// to be asked at full speed.
const GONE: Duration = Duration::from_secs(1);

/// The wait between them is stretched by up to this share: all agents of a cluster look for a
/// server that is back.
const SPREAD: f64 = 0.5;

/// What the task is made of.
pub(super) struct Parts {
    pub(super) line: Line,
    pub(super) facts: watch::Receiver<Facts>,
    pub(super) uid: watch::Sender<String>,
    pub(super) events: EventSink,
    pub(super) jitter: Jitter,
    /// What a status is made of.
    pub(super) setters: Setters,
}

/// Reads the Node once, then writes when asked to.
pub(super) struct Companion {
    parts: Parts,
    status: StatusWriter,
    schedule: Schedule,
    /// Those that are configured, each with its condition.
    taints: Vec<(OwnCondition, Taint)>,
    /// What the conditions said last.
    said: NodeStatus,
}

/// The loop is gone.
struct Gone;

impl Companion {
    pub(super) fn new(config: &Config, parts: Parts) -> Self {
        let taints = config.own_taints.clone();
        Self {
            status: StatusWriter::new(
                config.node_name.clone(),
                parts.line.clock,
                Part::OwnConditions,
            ),
            schedule: Schedule::new(config.status_report_frequency),
            taints: taints.into_iter().collect(),
            said: NodeStatus::default(),
            parts,
        }
    }

    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
        let Some(mut request) = requests.recv().await else {
            return;
        };
        if self.find_node().await.is_err() || self.tell_found().await.is_err() {
            return;
        }
        loop {
            let outcome = self.sync(&request).await;
            if matches!(&outcome, Err(err) if is_gone(err)) {
                // Never created here: what was asked for waits for whoever does.
                if self.wait(GONE).await.is_err() || self.find_node().await.is_err() {
                    return;
                }
                continue;
            }
            let tainted = match &outcome {
                Ok(_) => self.taint().await,
                Err(_) => Ok(false),
            };
            if self.report(request, outcome, tainted).await.is_err() {
                return;
            }
            match requests.recv().await {
                Some(next) => request = next,
                None => return,
            }
        }
    }

    /// Reads the Node, however long it takes until it is there.
    async fn find_node(&mut self) -> Result<(), Gone> {
        let mut backoff = LOOK_AGAIN;
        let mut told = false;
        self.status.forget();
        while let Err(err) = self.status.fetch(&self.parts.line.client).await {
            tell_unknown(&err, std::mem::replace(&mut told, true));
            let wait = self.parts.jitter.stretch(backoff.advance(), SPREAD);
            self.wait(wait).await?;
        }
        self.tell_uid();
        Ok(())
    }

    async fn wait(&self, time: Duration) -> Result<(), Gone> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.parts.line.reports.closed() => Err(Gone),
        }
    }

    /// Lets the loop take note of what is stored before anything is written.
    async fn tell_found(&self) -> Result<(), Gone> {
        let (noted, seen) = oneshot::channel();
        let stored = Box::new(self.status.stored().unwrap_or_default());
        let report = Report::Registered { stored, noted };
        let sent = self.parts.line.reports.send(report).await;
        sent.map_err(|_| Gone)?;
        seen.await.map_err(|_| Gone)
    }

    fn tell_uid(&self) {
        let uid = self.status.stored().unwrap_or_default().uid;
        self.parts.uid.send_if_modified(|known| {
            let news = *known != uid;
            *known = uid;
            news
        });
    }

    async fn sync(&mut self, request: &SyncRequest) -> Result<Option<Sent>, ApiError> {
        let (clock, schedule) = (self.parts.line.clock, self.schedule);
        let setters = self.parts.setters;
        let facts = self.parts.facts.borrow_and_update().clone();
        let mut why = report::Why::Heartbeat;
        let mut news: Vec<Edge> = Vec::new();
        let said = &mut self.said;
        let outcome = self.status.sync(&self.parts.line.client, |stored| {
            let now = clock.now();
            let (status, failed) = setters::compute(setters, &facts, stored, now);
            log_failed(failed);
            // Those of all tries: one whose answer got lost may have been applied.
            for edge in edges(stored, &status) {
                if !news.contains(&edge) {
                    news.push(edge);
                }
            }
            said.clone_from(&status);
            let decision = match schedule.decide(now.boot) {
                report::Report::Now(due) => {
                    why = due;
                    Decision::Send
                }
                report::Report::IfChanged => Decision::IfChanged,
            };
            (status, decision)
        });
        let outcome = outcome.await?;
        for event in events(news, &facts.hostname, clock.now(), &request.stamps) {
            self.parts.events.record(event);
        }
        let SyncOutcome::Sent(sent) = outcome else {
            return Ok(None);
        };
        if sent.changed {
            why = report::Why::Changed;
        }
        let fraction = self.parts.jitter.fraction();
        self.schedule.sent(sent.acked, why, fraction);
        self.tell_uid();
        Ok(Some(sent))
    }

    /// Taints the Node by what its conditions say. One that is Unknown taints nothing: nobody is
    /// kept away because we cannot see.
    async fn taint(&mut self) -> Result<bool, ApiError> {
        let is_true = |own: OwnCondition| {
            let mut all = self.said.conditions.iter();
            all.any(|c| c.type_ == own.type_() && c.status == Status::True)
        };
        let wanted: Vec<Taint> = self
            .taints
            .iter()
            .filter(|(own, _)| is_true(*own))
            .map(|(_, taint)| taint.clone())
            .collect();
        let configured: Vec<Taint> = self.taints.iter().map(|(_, t)| t.clone()).collect();
        let client = &self.parts.line.client;
        self.status.taint(client, &wanted, &configured).await
    }

    async fn report(
        &self,
        request: SyncRequest,
        outcome: Result<Option<Sent>, ApiError>,
        tainted: Result<bool, ApiError>,
    ) -> Result<(), Gone> {
        let mends = |err: &ApiError| err.disposition() != Disposition::GiveUp;
        let again = outcome.as_ref().is_err_and(mends) || tainted.as_ref().is_err_and(mends);
        let next = match self.schedule.due() {
            _ if again => Wait::Short,
            // What is refused for good is no reason to hurry, though it may be overdue.
            Some(due) if outcome.is_ok() => Wait::Until(due),
            Some(_) | None => Wait::Long,
        };
        let reports = &self.parts.line.reports;
        if !matches!(tainted, Ok(false)) {
            let sent = reports.send(Report::Tainted(tainted)).await;
            sent.map_err(|_| Gone)?;
        }
        let report = Report::Synced {
            why: request.why,
            stamps: request.stamps,
            outcome,
            next,
        };
        reports.send(report).await.map_err(|_| Gone)
    }
}

fn is_gone(err: &ApiError) -> bool {
    err.refusal() == Some(Refusal::NotFound)
}

fn tell_unknown(err: &ApiError, told: bool) {
    let err = err as &dyn std::error::Error;
    if told {
        debug!(err, "node not known");
    } else {
        warn!(err, "node not known to the API server, will retry");
    }
}
