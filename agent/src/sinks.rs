//! EDGE: delivers incidents to other programs: an API server, an OpenTelemetry collector, a
//! webhook.
//!
//! Each sink has a task and a cursor, so that none delays another. Delivery is at least once, in
//! order, until the receiver accepts an incident or refuses it for good.

#![forbid(unsafe_code)]

pub mod kubernetes;
mod otlp;
mod receiver;
mod setup;
#[cfg(test)]
mod tests;
mod webhook;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::backoff::{Backoff, Jitter};
use nodepulse_core::incident::{Cursor, Entry, JsonIncident, Position};
use nodepulse_io::clock::Clock;
use nodepulse_linux::store::Reader;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::history::outbox::{Outbox, Work};
use crate::history::{Disk, ReadFailed};
use crate::telemetry::metering::Metering;
use crate::telemetry::series::SinkSeries;

use otlp::Otlp;
use receiver::{Answer, Receiver};
pub use setup::open;
use webhook::Webhook;

/// The delay after a failed delivery doubles from one second.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The receiver may ask for a longer delay, up to this one.
const LONGEST: Duration = Duration::from_mins(5);

/// The number of attempts at what the receiver cannot process, and at a file of the history.
const ATTEMPTS: u32 = 8;

/// The number of attempts while the receiver has not accepted anything, which are an hour: the
/// answers may be those of something else on the way to it.
const FIRST_ATTEMPTS: u32 = 64;

/// Time for recording what was delivered.
const SAVE: Duration = Duration::from_millis(100);

/// Delay after the history could not be read.
const PAUSE: Duration = Duration::from_secs(10);

/// A receiver of incidents.
#[derive(Debug)]
pub struct Sink {
    /// The name in metrics and log lines.
    name: &'static str,
    form: Form,
    receiver: Receiver,
    /// Empty: all.
    kinds: Vec<String>,
}

#[derive(Debug)]
enum Form {
    Otlp(Otlp),
    Webhook(Webhook),
}

impl Sink {
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The maximum number of incidents in a request. Its body is made on the thread of the main
    /// loop, which must not wait for more than a few milliseconds.
    const fn batch(&self) -> usize {
        match self.form {
            Form::Otlp(_) => 16,
            Form::Webhook(_) => 1,
        }
    }

    async fn send(&self, incidents: &[&JsonIncident]) -> Answer {
        let body = match (&self.form, incidents) {
            (Form::Otlp(form), incidents) => form.body(incidents),
            (Form::Webhook(form), [incident, ..]) => form.body(incident),
            (Form::Webhook(_), []) => return Answer::Accepted,
        };
        match body {
            Ok(body) => self.receiver.post(body).await,
            Err(err) => Answer::Refused(err.to_string()),
        }
    }

    fn takes(&self, incident: &JsonIncident) -> bool {
        let is_taken = |kind: &str| self.kinds.iter().any(|one| one == kind);
        self.kinds.is_empty() || incident.kind().is_none_or(is_taken)
    }
}

/// The number of turns of the tasks, with a margin, from an incident to the request for its Event:
/// the sink, the recorder, the connection.
const EVENT: u32 = 8;

/// The task of a sink.
pub struct Delivery {
    sink: Sink,
    number: usize,
    outbox: Arc<Outbox>,
    disk: Option<Disk>,
    series: SinkSeries,
    /// Entries that were read and are not delivered.
    entries: VecDeque<Arc<Entry>>,
    reader: Option<Reader>,
    /// The number of attempts at which the history could not be read.
    unread: u32,
    retries: Backoff,
    jitter: Jitter,
    /// The number of entries that are sent one by one, because a batch with them was refused.
    single: usize,
    /// The number of attempts at which the receiver could not process the next incident.
    failed: u32,
    /// The number of attempts at what the receiver cannot process.
    attempts: u32,
}

impl Delivery {
    pub fn new(
        sink: Sink,
        number: usize,
        outbox: Arc<Outbox>,
        disk: Option<Disk>,
        metering: &Metering,
    ) -> Self {
        let series = metering.sink_series(sink.name());
        Self {
            sink,
            number,
            outbox,
            disk,
            series,
            entries: VecDeque::new(),
            reader: None,
            unread: 0,
            retries: RETRIES,
            // Spreads the retries of many nodes.
            jitter: Jitter::seeded(RandomState::new().hash_one(number)),
            single: 0,
            failed: 0,
            attempts: FIRST_ATTEMPTS,
        }
    }

    /// Never returns.
    pub async fn run(mut self) {
        let mut changes = self.outbox.changes();
        // The cursor of a new sink.
        self.advance(|_| {}).await;
        loop {
            if !self.entries.is_empty() {
                self.deliver_entries().await;
                continue;
            }
            match self.outbox.work(self.number) {
                Work::Wait => {
                    self.reader = None;
                    // The outbox lives as long as this task.
                    let _changed = changes.changed().await;
                    // The Event is written before anything is made of the incident here.
                    for _ in 0..EVENT {
                        tokio::task::yield_now().await;
                    }
                }
                Work::Summary(summary) => {
                    self.outbox.begin(self.number);
                    let result = self.attempt(&[&summary]).await;
                    let is_done = result.is_ok();
                    self.advance(|cursor| {
                        if is_done {
                            cursor.summarized();
                        }
                    })
                    .await;
                    self.pause(result).await;
                }
                Work::Entries(entries) => self.entries.extend(entries),
                Work::Read { after, through } => self.read(after, through).await,
            }
        }
    }

    /// Reads entries from the history.
    async fn read(&mut self, after: Position, through: Position) {
        let read = match &self.disk {
            Some(disk) => {
                let skips = ATTEMPTS <= self.unread;
                disk.read(self.reader.take(), after, skips).await
            }
            None => Ok(None),
        };
        match read {
            Ok(Some((reader, entries))) => {
                self.reader = Some(reader);
                self.unread = 0;
                self.entries.extend(entries.into_iter().map(Arc::new));
            }
            Ok(None) => {
                self.count_unrecorded(after, through);
                self.advance(|cursor| cursor.skip_to(through)).await;
            }
            // The disk may be well later.
            Err(ReadFailed) => {
                self.unread = self.unread.saturating_add(1);
                self.pause(Err(PAUSE)).await;
            }
        }
    }

    /// Attempts to deliver the next entries, unless they were removed from the history meanwhile.
    async fn deliver_entries(&mut self) {
        let delivered = self.outbox.begin(self.number);
        let is_delivered = |entry: &mut Arc<Entry>| entry.position <= delivered;
        while self.entries.pop_front_if(is_delivered).is_some() {}
        let now = Clock::kernel().now().wall;
        let size = if self.single == 0 {
            self.sink.batch()
        } else {
            1
        };
        let batch: Vec<_> = self.entries.iter().take(size).cloned().collect();
        let wanted = batch.iter().filter(|entry| entry.is_wanted());
        let wanted = wanted.filter(|entry| self.sink.takes(&entry.incident));
        let (expired, wanted): (Vec<_>, Vec<_>) = wanted
            .map(|entry| &entry.incident)
            .partition(|incident| self.outbox.is_expired(incident, now));
        let result = if wanted.is_empty() {
            Ok(())
        } else {
            self.attempt(&wanted).await
        };
        if result.is_ok() {
            self.series.expired.inc_by(count(expired.len()));
            let mut last = delivered;
            for Entry { position, .. } in batch.iter().map(Arc::as_ref) {
                self.count_unrecorded(last, Position(position.0.saturating_sub(1)));
                last = *position;
            }
            self.entries.drain(..batch.len());
            self.single = self.single.saturating_sub(batch.len());
            self.failed = 0;
        }
        let is_done = result.is_ok();
        let advance = |cursor: &mut Cursor| {
            for entry in batch.iter().filter(|_| is_done) {
                cursor.delivered(entry);
            }
        };
        self.advance(advance).await;
        self.pause(result).await;
    }

    /// Counts the revisions after `from`, up to `to`, which neither memory nor the history has. How
    /// many there were before an earlier exit is not known.
    fn count_unrecorded(&self, from: Position, to: Position) {
        let from = from.max(Position::before_start(to.start()));
        self.series.unrecorded.inc_by(to.0.saturating_sub(from.0));
    }

    async fn attempt(&mut self, incidents: &[&JsonIncident]) -> Result<(), Duration> {
        let answer = self.sink.send(incidents).await;
        self.answered(answer, incidents.len())
    }

    /// Returns the delay before the next attempt if the receiver has not accepted these incidents,
    /// nor refused them for good.
    fn answered(&mut self, answer: Answer, incidents: usize) -> Result<(), Duration> {
        let (why, after) = match answer {
            Answer::Accepted => {
                self.accepted(count(incidents), 0, "");
                return Ok(());
            }
            // Another attempt at the rest is not allowed.
            Answer::Partial { rejected, why } => {
                self.accepted(count(incidents), rejected, &why);
                return Ok(());
            }
            Answer::Refused(_) if 1 < incidents => {
                self.single = incidents;
                return Err(Duration::ZERO);
            }
            Answer::Failed(why) if self.failed < self.attempts => {
                self.failed = self.failed.saturating_add(1);
                self.single = self.single.max(incidents);
                (why, None)
            }
            Answer::Refused(why) | Answer::Failed(why) => {
                self.accepted(1, 1, &why);
                return Ok(());
            }
            Answer::Later { why, after } => {
                // Trying to reach it costs little.
                self.single = self.single.max(1);
                (why, after)
            }
        };
        if self.series.failing.set(1) == 0 {
            warn!(
                sink = self.sink.name(),
                why, "incidents are not delivered, and are tried again"
            );
        }
        let delay = self.retries.advance();
        let delay = self.jitter.stretch(delay, 0.2);
        Err(after.map_or(delay, |after| after.min(LONGEST).max(delay)))
    }

    /// The receiver has answered about incidents, of which it has refused some for good.
    fn accepted(&mut self, incidents: u64, refused: u64, why: &str) {
        let accepted = incidents.saturating_sub(refused);
        self.series.delivered.inc_by(accepted);
        self.series.refused.inc_by(refused.min(incidents));
        let sink = self.sink.name();
        if 0 < refused {
            warn!(sink, why, "the receiver refuses an incident");
        }
        if 0 < accepted {
            self.attempts = ATTEMPTS;
        }
        if 0 < self.series.failing.set(0) && 0 < accepted {
            info!(sink, "incidents are delivered again");
        }
        self.retries = RETRIES;
    }

    /// Changes the cursor, and records it before the next delivery, unless the disk hangs: then a
    /// restart repeats deliveries.
    async fn advance(&mut self, change: impl FnOnce(&mut Cursor)) {
        self.outbox.advance(self.number, change);
        if let Some(disk) = &self.disk {
            let _saved = timeout(SAVE, disk.save(self.number)).await;
        }
    }

    async fn pause(&self, result: Result<(), Duration>) {
        if let Err(delay) = result {
            tokio::time::sleep(delay).await;
        }
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
