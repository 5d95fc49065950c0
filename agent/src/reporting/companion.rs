//! The writer of companion mode: conditions of our own, and their taints, on a Node that a kubelet
//! keeps.

use std::time::Duration;

use tokio::sync::mpsc;

use super::writer::{Gone, Synced, Writer, log_unknown};
use super::{Report, SyncRequest, Wait};
use crate::api::backoff::Backoff;
use crate::api::status::Sent;
use crate::api::taints::{NodepulseTaints, TaintOutcome};
use crate::api::{ApiError, Disposition, Refusal};
use crate::config::Config;
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::{Condition, Status, Taint};

/// Between looks for a Node that is not there: a kubelet that has just been started is quick, and
/// for one that was sent away for good nobody has to hurry.
const SAMPLE_INTERVAL: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// Before the first of them, once it is gone, and longer each time that it is found and its status
/// is not: whoever answers so is not to be asked at full speed.
const GONE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The wait between them is stretched by up to this share: all agents of a cluster look for a
/// server that is back.
const SPREAD: f64 = 0.5;

/// Reads the Node once, then writes when asked to.
pub(super) struct Companion {
    writer: Writer,
    /// Those that are configured, each with its condition.
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
        if self.find_node(&mut absence.told).await.is_err() {
            return;
        }
        if self.writer.tell_found().await.is_err() {
            return;
        }
        loop {
            let synced = self.writer.sync().await;
            if let Err(err) = &synced.outcome
                && err.refusal() == Some(Refusal::NotFound)
            {
                // Never created here: what was asked for waits for whoever does.
                if self.look_again(err, &mut absence).await.is_err() {
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

    /// What comes after a sync: Events, taints, and a word to the loop.
    async fn follow(&mut self, request: SyncRequest, synced: Synced) -> Result<(), Gone> {
        let Synced {
            outcome,
            news,
            said,
        } = synced;
        let now = self.writer.line.clock.now();
        self.writer.record(news, now, &request.stamps);
        // What is said against the status says nothing of taints, unless nobody is there to say it.
        let answers = outcome.as_ref().err().is_none_or(|err| !err.is_outage());
        let tainted = if answers {
            Some(self.taint(&said).await)
        } else {
            None
        };
        self.report(request, outcome, tainted).await
    }

    /// The Node is gone, or its status is: waits, longer each time, and looks for it.
    async fn look_again(&mut self, err: &ApiError, absence: &mut Absence) -> Result<(), Gone> {
        log_unknown(err, &mut absence.told);
        let wait = absence.backoff.advance();
        let wait = self.writer.jitter.stretch(wait, SPREAD);
        self.wait(wait).await?;
        self.find_node(&mut absence.told).await
    }

    /// Reads the Node, however long it takes until it is there.
    async fn find_node(&mut self, told: &mut bool) -> Result<(), Gone> {
        let mut backoff = SAMPLE_INTERVAL;
        self.writer.status.forget();
        while let Err(err) = self.writer.status.fetch(&self.writer.line.client).await {
            log_unknown(&err, told);
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

    /// Taints the Node by what its conditions should say. One that is Unknown taints nothing: nobody
    /// is kept away because we cannot see.
    async fn taint(&mut self, said: &[Condition]) -> TaintOutcome {
        let is_true = |own: NodepulseCondition| {
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
        let ours = NodepulseTaints {
            wanted: &wanted,
            configured: &configured,
        };
        let writer = &mut self.writer;
        writer.status.taint(&writer.line.client, ours).await
    }

    async fn report(
        &mut self,
        request: SyncRequest,
        outcome: Result<Option<Sent>, ApiError>,
        tainted: Option<TaintOutcome>,
    ) -> Result<(), Gone> {
        let mends = |err: &ApiError| err.disposition() != Disposition::GiveUp;
        let not_tainted = tainted.as_ref().and_then(|tainted| tainted.failed.as_ref());
        let again = outcome.as_ref().is_err_and(mends) || not_tainted.is_some_and(mends);
        let next = match self.writer.schedule.due() {
            _ if again => Wait::Short,
            // What is refused for good is no reason to hurry, though it may be overdue.
            Some(due) if outcome.is_ok() => Wait::Until(due),
            Some(_) | None => Wait::Long,
        };
        if let Some(tainted) = tainted {
            self.writer.tell(Report::Tainted(tainted)).await?;
        }
        let report = Report::Synced {
            why: request.why,
            stamps: request.stamps,
            outcome,
            node: self.writer.on_node(),
            next,
        };
        self.writer.tell(report).await
    }
}

/// How long the Node has not been there.
struct Absence {
    /// Between two looks.
    backoff: Backoff,
    /// So that it is told once.
    told: bool,
}

impl Default for Absence {
    fn default() -> Self {
        Self {
            backoff: GONE,
            told: false,
        }
    }
}
