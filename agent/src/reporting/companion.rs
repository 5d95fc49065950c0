//! The status writer of companion mode: conditions and taints on a Node of a kubelet.

use std::time::Duration;

use nodepulse_core::backoff::Backoff;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::node_status::{Condition, Status, Taint};
use nodepulse_kube::status::Sent;
use nodepulse_kube::taints::{NodepulseTaints, TaintOutcome};
use nodepulse_kube::{ApiError, Disposition, Refusal};
use tokio::sync::mpsc;

use super::writer::{LoopEnded, Synced, Writer, log_unknown};
use super::{Report, SyncRequest, Wait};
use crate::config::Config;

/// Interval between reads of a Node that does not exist: a kubelet that was just started creates it
/// soon, and a Node that was removed for good needs no fast reads.
const SAMPLE_INTERVAL: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Wait before the first of these reads after the Node was deleted. It grows each time that the
/// Node is found but its status is not.
const DELETED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Maximum share by which these waits are stretched: all agents retry when the server is back.
const SPREAD: f64 = 0.5;

/// Reads the Node once, then writes on request.
pub(super) struct Companion {
    writer: Writer,
    /// The configured taints, each with its condition.
    taints: Vec<(NodepulseCondition, Taint)>,
}

impl Companion {
    pub(super) fn new(config: &Config, writer: Writer) -> Self {
        let taints = config.nodepulse_taints.clone();
        Self {
            writer,
            taints: taints.into_iter().collect(),
        }
    }

    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
        let Some(mut request) = requests.recv().await else {
            return;
        };
        let mut absence = Absence::default();
        if self.find_node(&mut absence.logged).await.is_err() {
            return;
        }
        if self.writer.report_found(false).await.is_err() {
            return;
        }
        loop {
            let synced = self.writer.sync().await;
            if let Err(err) = &synced.outcome
                && err.refusal() == Some(Refusal::NotFound)
            {
                // It is never created here; the request waits until it exists.
                if self.find_again(err, &mut absence).await.is_err() {
                    return;
                }
                continue;
            }
            absence = Absence::default();
            if self.follow(request, synced).await.is_err() {
                return;
            }
            match requests.recv().await {
                Some(next) => request = next,
                None => return,
            }
        }
    }

    /// Completes a sync: taints, and the report to the loop.
    async fn follow(&mut self, request: SyncRequest, synced: Synced) -> Result<(), LoopEnded> {
        let Synced {
            outcome,
            conditions,
            ..
        } = synced;
        // A rejected status does not prevent taints, but an outage does.
        let answers = outcome.as_ref().err().is_none_or(|err| !err.is_outage());
        let tainted = if answers {
            Some(self.taint(&conditions).await)
        } else {
            None
        };
        self.report(request, outcome, tainted).await
    }

    /// Handles a Node or a status that does not exist: waits, longer each time, and reads it again.
    async fn find_again(&mut self, err: &ApiError, absence: &mut Absence) -> Result<(), LoopEnded> {
        log_unknown(err, &mut absence.logged);
        let wait = absence.backoff.advance();
        let wait = self.writer.jitter.stretch(wait, SPREAD);
        self.wait(wait).await?;
        self.find_node(&mut absence.logged).await
    }

    async fn find_node(&mut self, logged: &mut bool) -> Result<(), LoopEnded> {
        let mut backoff = SAMPLE_INTERVAL;
        self.writer.status.forget();
        while let Err(err) = self.writer.status.fetch(&self.writer.link.client).await {
            log_unknown(&err, logged);
            let wait = self.writer.jitter.stretch(backoff.advance(), SPREAD);
            self.wait(wait).await?;
        }
        self.writer.publish_uid();
        Ok(())
    }

    async fn wait(&self, time: Duration) -> Result<(), LoopEnded> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.writer.link.reports.closed() => Err(LoopEnded),
        }
    }

    /// Taints the Node by its conditions. Unknown taints nothing: missing data keeps no pods away.
    async fn taint(&mut self, conditions: &[Condition]) -> TaintOutcome {
        let is_true = |of: NodepulseCondition| {
            let mut all = conditions.iter();
            all.any(|c| c.type_ == of.type_() && c.status == Status::True)
        };
        let wanted: Vec<Taint> = self
            .taints
            .iter()
            .filter(|(of, _)| is_true(*of))
            .map(|(_, taint)| taint.clone())
            .collect();
        let configured: Vec<Taint> = self.taints.iter().map(|(_, t)| t.clone()).collect();
        let taints = NodepulseTaints {
            wanted: &wanted,
            configured: &configured,
        };
        let writer = &mut self.writer;
        writer.status.taint(&writer.link.client, taints).await
    }

    async fn report(
        &mut self,
        request: SyncRequest,
        outcome: Result<Option<Sent>, ApiError>,
        tainted: Option<TaintOutcome>,
    ) -> Result<(), LoopEnded> {
        let mends = |err: &ApiError| err.disposition() != Disposition::GiveUp;
        let not_tainted = tainted.as_ref().and_then(|tainted| tainted.failed.as_ref());
        let again = outcome.as_ref().is_err_and(mends) || not_tainted.is_some_and(mends);
        let next = match self.writer.schedule.due() {
            _ if again => Wait::Short,
            // After a permanent rejection there is no hurry, although it may be overdue.
            Some(due) if outcome.is_ok() => Wait::Until(due),
            Some(_) | None => Wait::Long,
        };
        if let Some(tainted) = tainted {
            self.writer.send(Report::Tainted(tainted)).await?;
        }
        let report = Report::Synced {
            why: request.why,
            stamps: request.stamps,
            outcome,
            node: self.writer.on_node(),
            next,
        };
        self.writer.send(report).await
    }
}

/// State while the Node does not exist.
struct Absence {
    backoff: Backoff,
    /// `true` if the warning was logged.
    logged: bool,
}

impl Default for Absence {
    fn default() -> Self {
        Self {
            backoff: DELETED,
            logged: false,
        }
    }
}
