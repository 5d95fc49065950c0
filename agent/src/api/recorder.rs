//! Kubernetes Events: queue, fold, limit, write.
//!
//! Recording never blocks and writing never hurries anybody: lease and status go their own way.

#![forbid(unsafe_code)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::sync::{mpsc, watch};
use tracing::debug;

use super::backoff::Jitter;
use super::{ApiError, Client, Refusal};
use crate::clock::{BootNanos, Clock, Stamp};
use crate::node_status::transition::EventType;

mod body;
mod correlate;
mod delivery;
mod lru;

use correlate::{Backlog, Correlator, Known, Noted, Overflow, Write};
use delivery::{Delivery, RETRY_WAIT, Written};

/// Events that wait; as many as a kubelet lets wait.
const ROOM: usize = 1000;

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Involved {
    /// Our Node. Its Events live in namespace `default`.
    Node,
    /// A pod of ours. Its Events live beside it.
    Pod {
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// `metadata.uid`.
        uid: String,
        /// The part of it that is meant: `spec.containers{web}`.
        field_path: Option<Box<str>>,
    },
}

impl Involved {
    /// The object as a whole: limits are for it, whatever part of it an Event is about.
    fn whole(&self) -> Self {
        let mut whole = self.clone();
        if let Self::Pod { field_path, .. } = &mut whole {
            *field_path = None;
        }
        whole
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventInput {
    /// What it is about.
    pub object: Involved,
    /// Whether a person should look.
    pub type_: EventType,
    /// CamelCase token.
    pub reason: String,
    /// For people. Cut after 1024 bytes.
    pub message: String,
    /// When it happened: the kernel's time where the kernel saw it.
    pub at: SystemTime,
    /// Its way so far, where the kernel saw it.
    pub stamp: Option<Stamp>,
}

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

/// What became of observations so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Are at the API server, alone or folded.
    pub delivered: u64,
    /// Were folded while they waited, because the queue was full.
    pub folded: u64,
    /// Were held back by the limit at first.
    pub held: u64,
    /// Found no room.
    pub lost_full: u64,
    /// Were refused by the API server.
    pub lost_refused: u64,
    /// Had nobody to go to for too long.
    pub lost_unreachable: u64,
    /// Wait to be written, the one under way not counted.
    pub waiting: u64,
}

/// [`Counts`] that the recorder raises and its sinks raise and read: a message would need an
/// answer, and reading must not wait for a write.
#[derive(Debug, Default)]
struct Tally {
    delivered: AtomicU64,
    folded: AtomicU64,
    held: AtomicU64,
    lost_full: AtomicU64,
    lost_refused: AtomicU64,
    lost_unreachable: AtomicU64,
    waiting: AtomicU64,
}

fn add(counter: &AtomicU64, times: u32) {
    counter.fetch_add(u64::from(times), Ordering::Relaxed);
}

/// Takes Events. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventSink {
    /// Whoever records to the recorder's task. Holds 1000, more than one turn of the loop makes.
    /// When it is full the newest is lost and counted; the recorder keeps it empty even while the
    /// API server is away.
    inputs: mpsc::Sender<EventInput>,
    tally: Arc<Tally>,
}

impl EventSink {
    /// Queues an Event. Never blocks.
    pub fn record(&self, input: EventInput) {
        if self.inputs.try_send(input).is_err() {
            add(&self.tally.lost_full, 1);
        }
    }

    /// What became of everything recorded so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            delivered: read(&self.tally.delivered),
            folded: read(&self.tally.folded),
            held: read(&self.tally.held),
            lost_full: read(&self.tally.lost_full),
            lost_refused: read(&self.tally.lost_refused),
            lost_unreachable: read(&self.tally.lost_unreachable),
            waiting: read(&self.tally.waiting),
        }
    }
}

/// Who reports.
#[derive(Debug)]
pub struct Reporter {
    /// Name of our Node.
    pub node: String,
    /// Its `metadata.uid`; empty until it is known, and then left out.
    pub uid: watch::Receiver<String>,
}

/// Writes Events, one after the other.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    reporter: Reporter,
    jitter: Jitter,
    inputs: mpsc::Receiver<EventInput>,
    /// From the recorder to whoever logs. When it is full, nobody learns of that one delivery.
    deliveries: mpsc::Sender<Delivered>,
    tally: Arc<Tally>,
    backlog: Backlog,
    correlator: Correlator,
    /// The number in the last name that was given: no two Events have one.
    last_name: u128,
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
        let tally = Arc::<Tally>::default();
        let sink = EventSink {
            inputs: sender,
            tally: Arc::clone(&tally),
        };
        let recorder = Self {
            client,
            clock,
            reporter,
            jitter,
            inputs,
            deliveries,
            tally,
            backlog: Backlog::new(ROOM),
            correlator: Correlator::new(),
            last_name: 0,
        };
        (sink, recorder)
    }

    /// Runs until every sink is dropped and everything is written or lost. Whoever wants it to end
    /// sooner drops the future.
    pub async fn run(mut self) {
        let mut writing: Option<Writing> = None;
        let mut open = true;
        loop {
            if writing.is_none() {
                writing = self.next_write(open).map(|write| self.start(write));
            }
            let depth = u64::try_from(self.backlog.len()).unwrap_or(u64::MAX);
            self.tally.waiting.store(depth, Ordering::Relaxed);
            if writing.is_none() && !open {
                return;
            }
            let due = self.correlator.next_due();
            let due = due.map(|due| due.since(self.clock.now().boot));
            tokio::select! {
                input = self.inputs.recv(), if open => match input {
                    Some(input) => self.queue(input),
                    None => open = false,
                },
                (write, result) = finished(&mut writing) => {
                    writing = None;
                    self.finish(write, result);
                }
                () = tokio::time::sleep(due.unwrap_or_default()), if writing.is_none() && due.is_some() => {}
            }
        }
    }

    fn queue(&mut self, input: EventInput) {
        self.push(Noted::once(input));
    }

    fn push(&mut self, noted: Noted) {
        match self.backlog.push(noted) {
            Overflow::None => {}
            Overflow::Folded => add(&self.tally.folded, 1),
            Overflow::Lost(times) => add(&self.tally.lost_full, times),
        }
    }

    fn next_write(&mut self, open: bool) -> Option<Write> {
        let now = self.clock.now().boot;
        while let Some(noted) = self.backlog.pop() {
            let times = noted.times;
            let write = self.correlator.admit(noted, now);
            add(&self.tally.lost_full, self.correlator.take_lost());
            match write {
                Some(write) => return Some(write),
                None => add(&self.tally.held, times),
            }
        }
        if open {
            self.correlator.release(now)
        } else {
            self.correlator.release_last()
        }
    }

    fn start(&mut self, write: Write) -> Writing {
        let name = self.next_name(&write);
        let event = body::event(&name, &write, &self.reporter);
        let known = write.known.as_ref().map(|known| {
            let count = known.count.saturating_add(write.noted.times);
            let name = known.name.clone();
            (Known { name, count }, body::patch(count, &write))
        });
        let delivery = Delivery {
            client: self.client.clone(),
            clock: self.clock,
            namespace: body::namespace(&write.noted.newest.object).to_owned(),
            known,
            fresh: (name, event),
            first_wait: RETRY_WAIT.mul_f64(self.jitter.fraction()),
        };
        Box::pin(async move {
            let result = delivery.deliver(write.noted.times).await;
            (write, result)
        })
    }

    fn finish(&mut self, write: Write, result: Result<Written, ApiError>) {
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
                let lost = match err.refusal() {
                    Some(_) => &self.tally.lost_refused,
                    None => &self.tally.lost_unreachable,
                };
                add(lost, times);
                let reason = write.noted.newest.reason.as_str();
                debug!(reason, times, err = err.as_dyn(), "event lost");
                return;
            }
        };
        add(&self.tally.delivered, times);
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

/// The end of a write; never, where there is none.
async fn finished(writing: &mut Option<Writing>) -> (Write, Result<Written, ApiError>) {
    match writing {
        Some(writing) => writing.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
