//! The writer of companion mode: conditions of our own, and their taints, on a Node that a kubelet
//! keeps.

use std::time::Duration;

use tokio::sync::mpsc;

use super::reporting::{Report, SyncRequest, Wait};
use super::writer::{Gone, Synced, Writer, log_unknown};
use crate::api::backoff::Backoff;
use crate::api::status::Sent;
use crate::api::{ApiError, Disposition, Refusal};
use crate::config::Config;
use crate::node_status::own::OwnCondition;
use crate::node_status::{Condition, Status, Taint};

/// Between looks for a Node that is not there: a kubelet that has just been started is quick, and
/// for one that was sent away for good nobody has to hurry.
const LOOK_AGAIN: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Before the first of them, once it is gone: whoever answers that it is both there and not is not
/// to be asked at full speed.
const GONE: Duration = Duration::from_secs(1);

/// The wait between them is stretched by up to this share: all agents of a cluster look for a
/// server that is back.
const SPREAD: f64 = 0.5;

/// Reads the Node once, then writes when asked to.
pub(super) struct Companion {
    writer: Writer,
    /// Those that are configured, each with its condition.
    taints: Vec<(OwnCondition, Taint)>,
}

impl Companion {
    pub(super) fn new(config: &Config, writer: Writer) -> Self {
        let taints = config.own_taints.clone();
        Self {
            writer,
            taints: taints.into_iter().collect(),
        }
    }

    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
        let Some(mut request) = requests.recv().await else {
            return;
        };
        if self.find_node().await.is_err() || self.writer.tell_found().await.is_err() {
            return;
        }
        loop {
            let outcome = self.writer.sync().await;
            if matches!(&outcome, Err(err) if is_gone(err)) {
                // Never created here: what was asked for waits for whoever does.
                if self.wait(GONE).await.is_err() || self.find_node().await.is_err() {
                    return;
                }
                continue;
            }
            let (outcome, tainted) = match outcome {
                Ok(Synced { sent, news, said }) => {
                    let now = self.writer.line.clock.now();
                    self.writer.record(news, now, &request.stamps);
                    (Ok(sent), self.taint(&said).await)
                }
                Err(err) => (Err(err), Ok(false)),
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
        self.writer.status.forget();
        while let Err(err) = self.writer.status.fetch(&self.writer.line.client).await {
            log_unknown(&err, &mut told);
            let wait = self.writer.jitter.stretch(backoff.advance(), SPREAD);
            self.wait(wait).await?;
        }
        self.writer.tell_uid();
        Ok(())
    }

    async fn wait(&self, time: Duration) -> Result<(), Gone> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.writer.line.reports.closed() => Err(Gone),
        }
    }

    /// Taints the Node by what its conditions say. One that is Unknown taints nothing: nobody is
    /// kept away because we cannot see.
    async fn taint(&mut self, said: &[Condition]) -> Result<bool, ApiError> {
        let is_true = |own: OwnCondition| {
            let mut all = said.iter();
            all.any(|c| c.type_ == own.type_() && c.status == Status::True)
        };
        let wanted: Vec<Taint> = self
            .taints
            .iter()
            .filter(|(own, _)| is_true(*own))
            .map(|(_, taint)| taint.clone())
            .collect();
        let configured: Vec<Taint> = self.taints.iter().map(|(_, t)| t.clone()).collect();
        let writer = &mut self.writer;
        let client = &writer.line.client;
        writer.status.taint(client, &wanted, &configured).await
    }

    async fn report(
        &self,
        request: SyncRequest,
        outcome: Result<Option<Sent>, ApiError>,
        tainted: Result<bool, ApiError>,
    ) -> Result<(), Gone> {
        let mends = |err: &ApiError| err.disposition() != Disposition::GiveUp;
        let again = outcome.as_ref().is_err_and(mends) || tainted.as_ref().is_err_and(mends);
        let next = match self.writer.schedule.due() {
            _ if again => Wait::Short,
            // What is refused for good is no reason to hurry, though it may be overdue.
            Some(due) if outcome.is_ok() => Wait::Until(due),
            Some(_) | None => Wait::Long,
        };
        if !matches!(tainted, Ok(false)) {
            self.writer.tell(Report::Tainted(tainted)).await?;
        }
        let report = Report::Synced {
            why: request.why,
            stamps: request.stamps,
            outcome,
            next,
        };
        self.writer.tell(report).await
    }
}

fn is_gone(err: &ApiError) -> bool {
    err.refusal() == Some(Refusal::NotFound)
}
