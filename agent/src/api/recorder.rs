//! Kubernetes Events: queue, fold, limit, write.
//!
//! Recording never blocks and writing never hurries anybody: lease and status go their own way.
//! While the API server is away Events wait, with the times that the kernel gave them; when it is
//! back they come behind lease and status, at a random moment and one by one.

#![forbid(unsafe_code)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::backoff::Jitter;
use super::{ApiError, Client, Refusal};
use crate::clock::{BootNanos, Clock, Stamp};
use crate::kube_event::{Draft, Involved};

mod body;
mod correlate;
mod delivery;
mod lru;
mod sink;

use correlate::{Backlog, Correlator, CreatedEvent, Overflow, PendingEvent, Write};
use delivery::{Delivery, Written};
pub use sink::{EventCounts, EventSink};
use sink::{EventTally, add};

/// Events on their way to the recorder.
const ROOM: usize = 1000;
/// A write that was held up for longer waited for the server.
const OUTAGE: Duration = Duration::from_secs(5);
/// Between the writes that catch up after an outage.
const PACE: Duration = Duration::from_millis(200);
/// How often refusals are told.
const TOLD_AGAIN: Duration = Duration::from_hours(1);
/// The longest message that is kept and written: what the API lets through in newer forms of an
/// Event.
const MESSAGE_LIMIT: usize = 1024;

/// An Event that the API server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// As recorded.
    pub reason: String,
    /// As written.
    pub message: String,
    /// Observations in this write; more than one where similar ones were folded.
    pub times: u32,
    /// Of the newest of them.
    pub stamp: Option<Stamp>,
    /// Before the accepted request was written.
    pub sent: BootNanos,
    /// After its answer was read.
    pub acked: BootNanos,
}

/// Who reports.
#[derive(Debug)]
pub struct Reporter {
    /// Name of our Node.
    pub node: String,
    /// Its `metadata.uid`; empty until it is known, and then left out.
    pub uid: watch::Receiver<String>,
    /// How many Events may wait for the API server.
    pub queue: usize,
}

/// Writes Events, one after the other.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    reporter: Reporter,
    jitter: Jitter,
    inputs: mpsc::Receiver<Draft>,
    /// From the recorder to whoever logs. When it is full, nobody learns of that one delivery.
    deliveries: mpsc::Sender<Delivered>,
    tally: Arc<EventTally>,
    leaving: watch::Sender<bool>,
    backlog: Backlog,
    correlator: Correlator,
    /// The number in the last name that was given: no two Events have one.
    last_name: u128,
    /// Set while what waited through an outage is written: when the next may be.
    paced: Option<BootNanos>,
    /// [`EventCounts::lost`] when last told.
    lost_told: u64,
    /// When a refusal was told.
    refusal_told: Option<BootNanos>,
}

/// A write under way.
type Writing = Pin<Box<dyn Future<Output = (Write, Result<Written, ApiError>)> + Send>>;

impl Recorder {
    /// A recorder to be run, and a sink for it. `deliveries` may be of any size.
    #[must_use]
    pub fn new(
        client: Client,
        clock: Clock,
        reporter: Reporter,
        jitter: Jitter,
        deliveries: mpsc::Sender<Delivered>,
    ) -> (EventSink, Self) {
        let (sender, inputs) = mpsc::channel(ROOM);
        let tally = Arc::<EventTally>::default();
        let leaving = watch::Sender::new(false);
        let backlog = Backlog::new(reporter.queue);
        let sink = EventSink::new(sender, Arc::clone(&tally), leaving.clone());
        let recorder = Self {
            client,
            clock,
            reporter,
            jitter,
            inputs,
            deliveries,
            tally,
            leaving,
            backlog,
            correlator: Correlator::new(),
            last_name: 0,
            paced: None,
            lost_told: 0,
            refusal_told: None,
        };
        (sink, recorder)
    }

    /// Runs until every sink is dropped and everything is written or lost, or until
    /// [`EventSink::leave`] and what can be written at once is written. Whoever wants it to end
    /// sooner drops the future.
    pub async fn run(mut self) {
        let mut leaving = self.leaving.subscribe();
        let mut writing: Option<Writing> = None;
        let mut open = true;
        loop {
            let in_haste = *leaving.borrow_and_update();
            let last = in_haste || !open;
            while in_haste && let Ok(input) = self.inputs.try_recv() {
                self.queue(input);
            }
            if in_haste {
                self.paced = None;
            }
            if writing.is_none() {
                writing = self.next_write(last).map(|write| self.start(write));
            }
            let depth = u64::try_from(self.backlog.len()).unwrap_or(u64::MAX);
            self.tally.waiting.store(depth, Ordering::Relaxed);
            if writing.is_none() && last && self.backlog.len() == 0 {
                return;
            }
            let due = self.next_due();
            tokio::select! {
                input = self.inputs.recv(), if open => match input {
                    Some(input) => self.queue(input),
                    None => open = false,
                },
                (write, result) = finished(&mut writing) => {
                    writing = None;
                    if in_haste && result.as_ref().is_err_and(ApiError::is_outage) {
                        return; // Nor would the others reach anybody.
                    }
                    self.finish(write, result);
                }
                () = tokio::time::sleep(due.unwrap_or_default()), if writing.is_none() && due.is_some() => {}
                Ok(()) = leaving.changed(), if !in_haste => {}
            }
        }
    }

    fn queue(&mut self, input: Draft) {
        self.push(PendingEvent::once(input));
    }

    fn push(&mut self, mut noted: PendingEvent) {
        let message = &mut noted.newest.message;
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
        match self.backlog.push(noted) {
            Overflow::None => {}
            Overflow::Folded => add(&self.tally.folded, 1),
            Overflow::Lost(lost) => {
                add(&self.tally.lost_full, lost.times);
                self.tally.dropped(lost.kills);
            }
        }
    }

    /// From now until something can be written that cannot be written now.
    fn next_due(&self) -> Option<Duration> {
        let due = if self.backlog.len() > 0 {
            self.paced?
        } else {
            // What the rate limit releases is paced as well.
            let released = self.correlator.next_due()?;
            self.paced.map_or(released, |paced| paced.max(released))
        };
        Some(due.since(self.clock.now().boot))
    }

    fn next_write(&mut self, last: bool) -> Option<Write> {
        let now = self.clock.now().boot;
        if self.paced.is_some_and(|at| now < at) {
            return None;
        }
        while let Some(noted) = self.backlog.pop() {
            let times = noted.times;
            let write = self.correlator.admit(noted, now);
            let (forgotten, kills) = self.correlator.take_lost();
            add(&self.tally.lost_full, forgotten);
            self.tally.dropped(kills);
            match write {
                Some(write) => {
                    self.paced = self.paced.map(|_| now.plus(PACE));
                    return Some(write);
                }
                None => add(&self.tally.held, times),
            }
        }
        self.paced = None;
        if last {
            self.correlator.release_last()
        } else {
            self.correlator.release(now)
        }
    }

    fn start(&mut self, write: Write) -> Writing {
        let name = self.next_name(&write);
        let event = body::event(&name, &write, &self.reporter);
        let known = write.known.as_ref().map(|known| {
            let count = known.count.saturating_add(write.count);
            let name = known.name.clone();
            (CreatedEvent { name, count }, body::patch(count, &write))
        });
        let delivery = Delivery {
            client: self.client.clone(),
            clock: self.clock,
            namespace: body::namespace(&write.noted.newest.object).to_owned(),
            known,
            fresh: (name, event),
            jitter: self.jitter.fork(),
            leaving: self.leaving.subscribe(),
        };
        Box::pin(async move {
            let result = delivery.deliver(write.count).await;
            (write, result)
        })
    }

    fn finish(&mut self, mut write: Write, result: Result<Written, ApiError>) {
        let times = write.noted.times;
        let written = match result {
            Ok(written) => written,
            Err(err) => {
                let gone = matches!(err.refusal(), Some(Refusal::Forbidden | Refusal::NotFound));
                // The namespace of a pod that is gone is going or gone too. Of the Node it is told
                // anywhere.
                if let Some(instead) = gone.then(|| write.noted.clone().of_node()).flatten() {
                    self.push(instead);
                    return;
                }
                let kills = std::mem::take(&mut write.noted.kills);
                match err.refusal() {
                    Some(_) => add(&self.tally.lost_refused, times),
                    None => add(&self.tally.lost_unreachable, times),
                }
                if is_final(&err) {
                    self.tally.acknowledged(kills);
                } else {
                    self.tally.dropped(kills);
                }
                self.tell_lost(&write, &err);
                return;
            }
        };
        add(&self.tally.delivered, times);
        self.tally
            .acknowledged(std::mem::take(&mut write.noted.kills));
        if let Some(held_up) = written.held_up.filter(|held_up| OUTAGE < *held_up) {
            self.back(held_up, written.acked);
        }
        let delivered = Delivered {
            reason: write.noted.newest.reason,
            message: write.message,
            times,
            stamp: write.noted.newest.stamp,
            sent: written.sent,
            acked: written.acked,
        };
        self.correlator.written(write.key, written.known);
        if self.deliveries.try_send(delivered).is_err() {
            debug!("nobody heard of this delivery");
        }
    }

    /// The server takes Events again.
    fn back(&mut self, away: Duration, now: BootNanos) {
        self.paced = Some(now.plus(PACE));
        let lost = self.tally.counts().lost();
        let lost = lost - std::mem::replace(&mut self.lost_told, lost);
        let (away_s, waiting) = (away.as_secs(), self.backlog.len());
        if lost > 0 {
            warn!(
                lost,
                away_s, waiting, "events were lost while the API server was away"
            );
        } else {
            info!(away_s, waiting, "events are taken again");
        }
    }

    fn tell_lost(&mut self, write: &Write, err: &ApiError) {
        let (reason, times) = (write.noted.newest.reason.as_str(), write.noted.times);
        let (err, now) = (err.as_dyn(), self.clock.now().boot);
        if self
            .refusal_told
            .is_none_or(|told| TOLD_AGAIN <= now.since(told))
        {
            self.refusal_told = Some(now);
            warn!(
                reason,
                times, err, "event lost; others are only counted for an hour"
            );
        } else {
            debug!(reason, times, err, "event lost");
        }
    }

    /// No two Events have one name, even in one nanosecond.
    fn next_name(&mut self, write: &Write) -> String {
        let input = &write.noted.newest;
        let about = match &input.object {
            Involved::Node => &self.reporter.node,
            Involved::Pod { name, .. } => name,
        };
        let since_epoch = input.at.duration_since(SystemTime::UNIX_EPOCH);
        let nanos = since_epoch.map_or(0, |since| since.as_nanos());
        self.last_name = nanos.max(self.last_name + 1);
        body::name(about, self.last_name)
    }
}

/// Whether the server has refused an Event for good, so that the same kills need not be reported again.
/// While the server fails, is overloaded or does not answer, they are reported later.
fn is_final(err: &ApiError) -> bool {
    err.refusal()
        .is_some_and(|refusal| refusal != Refusal::Server && !err.is_outage())
}

/// The end of a write; never, where there is none.
async fn finished(writing: &mut Option<Writing>) -> (Write, Result<Written, ApiError>) {
    match writing {
        Some(writing) => writing.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
