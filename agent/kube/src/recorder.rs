//! Kubernetes Events: queues, combines, limits and writes them.
//!
//! Recording never blocks, and writing never delays lease and status. While the API server is
//! unavailable, Events wait with their times from the kernel; the first is tried every one to two
//! seconds, and the others follow it at a random moment and one at a time. Further ones about
//! incidents wait in the history, if there is one.

#![forbid(unsafe_code)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use nodepulse_core::clock::{BootNanos, Stamp};
use nodepulse_core::incident::IncidentId;
use nodepulse_core::kube_event::{Draft, EventId, Involved};
use nodepulse_io::clock::Clock;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::{ApiError, Client, Endpoint};
use nodepulse_core::backoff::Jitter;

mod body;
mod correlate;
mod delivery;
mod failure;
mod lru;
mod sink;
mod version;

use correlate::{Backlog, Correlator, CreatedEvent, EventWrite, PendingEvent};
use delivery::{Delivery, RETRY_WAIT, Written};
use lru::Lru;
pub use sink::{EventCounts, EventSink, Outcome};
use sink::{EventTally, add};
use version::{Update, WrittenEvent};

/// Capacity of the channel to the recorder.
const ROOM: usize = 1000;
/// Capacity of the channel with Events about incidents, which wait for room in the queue.
const INCIDENTS: usize = 4;
/// A write that was delayed longer than this waited for the server.
const OUTAGE: Duration = Duration::from_secs(2);
/// The delay before the second Event after an outage is a random part of this, so that the nodes of
/// a cluster do not send their Events at once.
const SPREAD: Duration = Duration::from_secs(10);
/// Interval of writes that catch up after an outage.
const PACE: Duration = Duration::from_millis(200);
/// Maximum number of written Events of which later versions are expected.
const WRITTEN: usize = 256;
/// Maximum length of a stored and written message in characters: the limit of the newer Event API.
const MESSAGE_LIMIT: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    pub reason: String,
    pub message: String,
    /// The incident of which this is the first write.
    pub incident: Option<IncidentId>,
    /// Number of observations in this write; more than 1 if similar ones were folded.
    pub times: u32,
    /// Times of the newest observation.
    pub stamp: Option<Stamp>,
    /// Time before the accepted request was written.
    pub sent: BootNanos,
    /// Time after its answer was read.
    pub acked: BootNanos,
}

/// Writes the Event about one observation at once, without queue, limit or fold. `number` makes its
/// name unique, such as the time in nanoseconds.
pub async fn write_once(
    client: &Client,
    draft: &Draft,
    node: &str,
    number: u64,
) -> Result<(), ApiError> {
    let reporter = Reporter {
        node: node.to_owned(),
        uid: watch::Sender::default().subscribe(),
        queue: 0,
    };
    let object = match &draft.object {
        Involved::Node => node,
        Involved::Pod { name, .. } => name,
    };
    let name = body::name(object, number);
    let event = body::once(&name, draft, &reporter);
    let collection = Endpoint::new_event(body::namespace(&draft.object), &name);
    client.create(&collection, &event).await.map(drop)
}

#[derive(Debug)]
pub struct Reporter {
    pub node: String,
    /// `metadata.uid` of the Node; empty until it is known, and then omitted.
    pub uid: watch::Receiver<String>,
    /// Maximum number of Events that wait for the API server.
    pub queue: usize,
}

/// Writes Events, one at a time.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    reporter: Reporter,
    jitter: Jitter,
    /// Boxed, because tokio keeps up to four blocks of 32 messages.
    inputs: mpsc::Receiver<Box<Draft>>,
    incidents: mpsc::Receiver<Box<Draft>>,
    /// One outcome for each draft with a position, so that it has no more than there are drafts.
    outcomes: mpsc::UnboundedSender<Outcome>,
    /// The last Events about incidents that were written.
    written: Lru<EventId, WrittenEvent>,
    /// The channel to the logger. A delivery is not reported if it is full.
    deliveries: mpsc::Sender<Box<Delivered>>,
    tally: Arc<EventTally>,
    leaving: watch::Sender<bool>,
    backlog: Backlog,
    correlator: Correlator,
    /// The Event that is being written.
    writing: Option<EventId>,
    /// The number in the last assigned name. No two Events share one.
    last_number: u64,
    /// Time at which the server last answered again. Events that are older have waited for it.
    returned: BootNanos,
    /// The time of the next write while Events of an outage are written.
    paced: Option<BootNanos>,
    /// When one of the Events that the server could not process is tried again.
    retry_at: BootNanos,
    /// The last reported value of [`EventCounts::lost`].
    lost_reported: u64,
    refusal_logged: Option<BootNanos>,
}

/// A write in progress.
type Writing = Pin<Box<dyn Future<Output = (EventWrite, Result<Written, ApiError>)> + Send>>;

impl Recorder {
    /// Creates a recorder to run, and a sink for it. `deliveries` may have any capacity.
    pub fn new(
        client: Client,
        clock: Clock,
        reporter: Reporter,
        deliveries: mpsc::Sender<Box<Delivered>>,
        outcomes: mpsc::UnboundedSender<Outcome>,
    ) -> (EventSink, Self) {
        let (sender, inputs) = mpsc::channel(ROOM);
        let (of_incidents, incidents) = mpsc::channel(INCIDENTS);
        let tally = Arc::<EventTally>::default();
        let leaving = watch::Sender::new(false);
        let sink = EventSink {
            inputs: sender,
            incidents: of_incidents,
            tally: Arc::clone(&tally),
            leaving: leaving.clone(),
        };
        let recorder = Self {
            jitter: client.jitter(),
            client,
            clock,
            reporter,
            inputs,
            incidents,
            outcomes,
            written: Lru::new(WRITTEN),
            deliveries,
            tally,
            leaving,
            backlog: Backlog::default(),
            correlator: Correlator::new(),
            writing: None,
            last_number: 0,
            returned: BootNanos(0),
            paced: None,
            retry_at: BootNanos(0),
            lost_reported: 0,
            refusal_logged: None,
        };
        (sink, recorder)
    }

    /// Runs until every sink is dropped and everything is written or lost, or until
    /// [`EventSink::leave`] and everything that can be written at once is written. Drop the future
    /// to end it earlier.
    pub async fn run(mut self) {
        let mut leaving = self.leaving.subscribe();
        let mut writing: Option<Writing> = None;
        let mut open = true;
        loop {
            let is_stopping = *leaving.borrow_and_update();
            let last = is_stopping || !open;
            if is_stopping {
                self.queue_rest();
                self.paced = None;
            }
            if writing.is_none() {
                let next = self.next_write(last);
                writing = next.map(|write| self.start(write));
            }
            let count = |events| u64::try_from(events).unwrap_or(u64::MAX);
            let [depth, next] = [self.backlog.len(), self.backlog.waiting()].map(count);
            self.tally.waiting.store(depth, Ordering::Relaxed);
            self.tally.next.store(next, Ordering::Relaxed);
            if writing.is_none() && last && self.backlog.is_empty() {
                return;
            }
            let due = self.next_due();
            let has_room = self.backlog.len() < self.reporter.queue;
            tokio::select! {
                input = self.inputs.recv(), if open => match input {
                    Some(input) => self.queue_change(*input),
                    None => open = false,
                },
                Some(input) = self.incidents.recv(), if has_room => self.queue(*input),
                (write, result) = finished(&mut writing) => {
                    writing = None;
                    self.writing = None;
                    if is_stopping && result.as_ref().is_err_and(ApiError::is_outage) {
                        return; // No further write can succeed.
                    }
                    self.finish(write, result, is_stopping);
                }
                () = tokio::time::sleep(due.unwrap_or_default()), if writing.is_none() && due.is_some() => {}
                Ok(()) = leaving.changed(), if !is_stopping => {}
            }
        }
    }

    fn queue(&mut self, input: Draft) {
        let pending = PendingEvent::once(input);
        if pending.is_details()
            && let Some(id) = pending.newest.id
            && !self.is_known(id)
        {
            return self.report(&pending, true);
        }
        self.push(pending);
    }

    /// Returns true if details can be added to this Event, which was not combined with others.
    fn is_known(&mut self, id: EventId) -> bool {
        self.writing == Some(id)
            || self.backlog.has(id)
            || self.written.get(&id).is_some()
            || self.correlator.delays(id)
    }

    /// Queues an Event about the Node's status. If kills fill the queue, one that is not about an
    /// incident is lost, of which there are few.
    fn queue_change(&mut self, input: Draft) {
        if self.backlog.len() < self.reporter.queue || input.position.is_some() {
            self.queue(input);
        } else {
            add(&self.tally.lost_full, input.times);
        }
    }

    fn queue_rest(&mut self) {
        while let Ok(input) = self.inputs.try_recv() {
            self.queue(*input);
        }
        while let Ok(input) = self.incidents.try_recv() {
            self.queue(*input);
        }
    }

    fn push(&mut self, mut pending: PendingEvent) {
        let message = &mut pending.newest.message;
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
        let now = self.clock.now().boot;
        let separate = self.correlator.separate(&pending.newest, now);
        self.backlog.push(pending, separate);
    }

    /// Reports that the Events about these revisions are written, or never will be.
    fn report(&self, pending: &PendingEvent, is_accepted: bool) {
        for position in pending.positions.iter().copied() {
            let outcome = Outcome {
                position,
                is_accepted,
            };
            // Nothing waits for it any more.
            let _ended = self.outcomes.send(outcome);
        }
    }

    /// Returns the time until something can be written that cannot be written now.
    fn next_due(&self) -> Option<Duration> {
        let due = if self.backlog.is_empty() {
            let failed = self.backlog.has_failed().then_some(self.retry_at);
            let due = [self.correlator.next_due(), failed]
                .into_iter()
                .flatten()
                .min()?;
            // These are paced too.
            self.paced.map_or(due, |paced| paced.max(due))
        } else {
            self.paced?
        };
        Some(due.since(self.clock.now().boot))
    }

    fn next_write(&mut self, last: bool) -> Option<EventWrite> {
        let now = self.clock.now().boot;
        if self.paced.is_some_and(|at| now < at) {
            return None;
        }
        while let Some(pending) = self.next_pending(now, last) {
            let pending = match self.update(pending) {
                Update::Write(write) => {
                    self.paced = self.paced.map(|_| now.plus(PACE));
                    return Some(*write);
                }
                Update::Done => continue,
                Update::Separate(pending) => *pending,
            };
            let (times, reason) = (pending.times, pending.newest.reason.clone());
            let write = self.correlator.admit(pending, now);
            if write
                .as_ref()
                .is_none_or(|write| write.pending.newest.reason != reason)
            {
                add(&self.tally.delayed, times);
            }
            if let Some(write) = write {
                self.paced = self.paced.map(|_| now.plus(PACE));
                return Some(write);
            }
        }
        self.paced = None;
        if last {
            self.correlator.release_last()
        } else {
            self.correlator.release(now)
        }
    }

    /// Returns what waits, or else one of those that the server could not process.
    fn next_pending(&mut self, now: BootNanos, last: bool) -> Option<PendingEvent> {
        let waiting = self.backlog.pop();
        if waiting.is_some() || last || now < self.retry_at {
            return waiting;
        }
        self.retry_at = now.plus(RETRY_WAIT);
        self.backlog.pop_failed()
    }

    fn start(&mut self, write: EventWrite) -> Writing {
        let number = self.next_number(&write);
        let name = self.name(&write.key.object, number);
        let event = body::event(&name, &write, &self.reporter);
        let known = write.known.map(|known| {
            let count = known.count.saturating_add(write.count);
            let name = self.name(&write.key.object, known.number);
            let known = CreatedEvent { count, ..known };
            (name, known, body::patch(count, &write))
        });
        let newest = &write.pending.newest;
        self.writing = newest.id;
        let now = self.clock.now().boot;
        // One from the history has no stamp.
        let waited = newest
            .stamp
            .is_none_or(|stamp| stamp.kernel <= self.returned || OUTAGE < now.since(stamp.kernel));
        let delivery = Delivery {
            container: newest.container.clone(),
            waited,
            client: self.client.clone(),
            clock: self.clock,
            namespace: body::namespace(&write.pending.newest.object).to_owned(),
            known,
            number,
            fresh: (name, event),
            id: newest.id,
            is_details: write.pending.is_details(),
            is_retry: write.pending.failing_since.is_some(),
            jitter: self.jitter.fork(),
            leaving: self.leaving.subscribe(),
        };
        Box::pin(async move {
            let result = delivery.deliver(write.count).await;
            (write, result)
        })
    }

    fn finish(&mut self, write: EventWrite, result: Result<Written, ApiError>, is_last: bool) {
        let written = match result {
            Ok(written) => written,
            Err(err) => return self.failed(write, &err, is_last),
        };
        let times = write.pending.times;
        self.report(&write.pending, true);
        self.retry_at = written.acked;
        add(&self.tally.delivered, times);
        if let Some(delayed_by) = written.delayed_by {
            self.returned = written.acked;
            if OUTAGE < delayed_by {
                self.back(delayed_by, written.acked);
            }
        }
        let newest = &write.pending.newest;
        let id = newest.id.filter(|_| !write.is_combined());
        let first = id.filter(|_| !write.is_update());
        if let Some(id) = id.filter(|_| newest.is_last) {
            self.written.take(&id);
        } else if let Some(id) = first {
            let event = WrittenEvent {
                key: write.key.clone(),
                prefix: write.pending.prefix.clone(),
            };
            self.written.insert(id, event);
        }
        let delivered = Delivered {
            reason: write.pending.newest.reason,
            message: write.message,
            incident: first.map(|id| id.incident),
            times,
            stamp: write.pending.newest.stamp,
            sent: written.sent,
            acked: written.acked,
        };
        self.correlator.written(&write.key, written.known);
        if self.deliveries.try_send(Box::new(delivered)).is_err() {
            debug!("this delivery is not reported");
        }
    }

    /// Logs the outage, and paces the writes that catch up, because the server accepts Events
    /// again.
    fn back(&mut self, away: Duration, now: BootNanos) {
        self.paced = Some(now.plus(PACE + self.jitter.part(SPREAD)));
        let lost = self.tally.counts().lost();
        let lost = lost - std::mem::replace(&mut self.lost_reported, lost);
        let (away_s, waiting) = (away.as_secs(), self.backlog.len());
        if lost > 0 {
            warn!(
                lost,
                away_s, waiting, "events were lost while the API server was unavailable"
            );
        } else {
            info!(away_s, waiting, "the API server accepts events again");
        }
    }

    /// Returns the number for a name: that of the incident, which is the same at a later start. No
    /// two other Events have the same name, even in one nanosecond.
    fn next_number(&mut self, write: &EventWrite) -> u64 {
        if let Some(id) = write.pending.newest.id {
            return id.number();
        }
        let at = write.pending.newest.at;
        let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH);
        let nanos = since_epoch.map_or(0, |since| since.as_nanos());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.last_number = nanos.max(self.last_number.saturating_add(1));
        self.last_number
    }

    fn name(&self, object: &Involved, number: u64) -> String {
        let object = match object {
            Involved::Node => &self.reporter.node,
            Involved::Pod { name, .. } => name,
        };
        body::name(object, number)
    }
}

/// Waits for the end of a write; for ever if there is none.
async fn finished(writing: &mut Option<Writing>) -> (EventWrite, Result<Written, ApiError>) {
    match writing {
        Some(writing) => writing.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
