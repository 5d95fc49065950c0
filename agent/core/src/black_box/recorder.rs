//! Makes records of what is observed, and decides when they have to be on the disk.

use std::time::Duration;

use super::{Marks, NONE, Origin, Range, Readings, Record, SLOTS, UnhealthyDisk, offset};
use crate::clock::{BootNanos, Now};
use crate::incident::Incident;
use crate::kube_event::DiskTrouble;
use crate::node_status::Disks;
use crate::pressure::Policy;
use crate::pressure::sample::Sample;
use crate::pressure::stall::{StallReading, StallSample};
use crate::reading::{StallKind, StallOf};

/// The shortest time between two records.
const INTERVAL: Duration = Duration::from_secs(5);
/// The longest time until a record is on the disk.
const CALM: Duration = Duration::from_mins(1);
/// The greatest age of the newest record on the disk while a threshold is near.
const NEAR: Duration = Duration::from_secs(10);
/// Time for a sample and a write.
const WRITE: Duration = Duration::from_secs(1);

/// Records to be written, with their offsets in the ring.
pub type Batch = Vec<(u64, [u8; super::RECORD])>;

/// Samples, and what else is known when they come.
#[derive(Debug)]
pub struct Observed<'a> {
    pub samples: &'a [Sample],
    pub policy: &'a Policy,
    /// Of the conditions that are on.
    pub stalls: &'a [StallReading],
    /// How long tasks of the node waited, if that was read.
    pub waits: &'a [(StallKind, StallSample)],
    pub disks: &'a Disks,
    /// When the next samples are due.
    pub next: BootNanos,
}

/// The records since the last batch, and what was observed since the last record.
#[derive(Debug)]
pub struct Recorder {
    origin: Origin,
    number: u64,
    readings: Readings,
    newest: Option<u64>,
    is_near: bool,
    is_shutting_down: bool,
    recorded: BootNanos,
    /// The time of the newest record that was taken.
    taken: BootNanos,
    /// At most as many as the ring has. Beyond that, the oldest are dropped.
    pending: Batch,
    /// `None`: at once.
    due: Option<BootNanos>,
}

impl Recorder {
    /// `number`: that of the next record.
    pub fn new(origin: Origin, number: u64) -> Self {
        Self {
            origin,
            number,
            readings: Readings::default(),
            newest: None,
            is_near: false,
            is_shutting_down: false,
            recorded: BootNanos(0),
            taken: BootNanos(0),
            pending: Batch::new(),
            due: None,
        }
    }

    /// Observes samples. Makes a record if the last one is old enough.
    pub fn observe(&mut self, observed: &Observed<'_>, now: Now) {
        for sample in observed.samples {
            let Sample::Read(reading) = sample else {
                continue;
            };
            let threshold = observed.policy.threshold(reading.signal);
            let twice = threshold.map(|value| value.amount(reading.capacity).saturating_mul(2));
            let twice = twice.map(|twice| i64::try_from(twice).unwrap_or(i64::MAX));
            self.is_near |= twice.is_some_and(|twice| reading.available < twice);
            let range = Range {
                lowest: reading.available,
                highest: reading.available,
            };
            self.readings.add_signal(reading.signal.as_str(), range);
        }
        for reading in observed.stalls {
            self.observe_stall(reading);
        }
        for (kind, sample) in observed.waits {
            self.readings
                .add_stall(kind.as_str(), percent(sample.avg10));
        }
        let Disks {
            slow,
            stalled,
            failing,
            ..
        } = observed.disks;
        let by_health = [
            (DiskTrouble::Stalled, stalled),
            (DiskTrouble::Errors, failing),
            (DiskTrouble::Slow, slow),
        ];
        for (health, names) in by_health {
            for name in names.iter().cloned() {
                self.is_near = true;
                self.readings.add_disk(UnhealthyDisk { name, health });
            }
        }
        // With the next samples, it would be too late.
        let too_late = self.taken.plus(NEAR) < observed.next.plus(WRITE);
        let must = self.is_near && too_late && self.due.is_some();
        if must || INTERVAL <= now.boot.since(self.recorded) {
            self.record(now, false);
        }
        if must {
            self.due = None;
        }
    }

    fn observe_stall(&mut self, reading: &StallReading) {
        let Some((sample, at)) = reading.last else {
            return;
        };
        if reading.stall.of != StallOf::Node || at < self.recorded {
            return;
        }
        let kind = reading.stall.kind.as_str();
        self.readings.add_stall(kind, percent(sample.avg10));
        self.is_near |= reading.threshold <= sample.avg10 * 2.0;
    }

    pub fn observe_incident(&mut self, incident: &Incident) {
        let kills = u32::try_from(incident.added).unwrap_or(u32::MAX);
        self.readings.kills = self.readings.kills.saturating_add(kills);
        self.newest = self.newest.max(Some(incident.id.number));
    }

    /// Marks this record and the ones that follow, until the shutdown is cancelled.
    pub fn shut_down(&mut self, is_announced: bool, now: Now) {
        self.is_shutting_down = is_announced;
        self.record(now, false);
        self.due = None;
    }

    /// Returns all that remains, with these marks; with that of a shutdown also if one was
    /// announced.
    pub fn stop(mut self, marks: Marks, now: Now) -> Batch {
        self.is_shutting_down |= marks.shutdown;
        self.record(now, marks.agent_stopped);
        self.pending
    }

    /// Returns true if [`Self::take`] has to be called.
    pub fn is_due(&self, now: Now) -> bool {
        !self.pending.is_empty() && self.due.is_none_or(|due| due <= now.boot)
    }

    pub fn take(&mut self, now: Now) -> Batch {
        // The first batch of a start has next to nothing, and a boot can end within a minute.
        let limit = if self.due.is_none() { NEAR } else { CALM };
        self.is_near = false;
        self.taken = self.recorded;
        self.due = Some(now.boot.plus(limit));
        std::mem::take(&mut self.pending)
    }

    fn record(&mut self, now: Now, agent_stopped: bool) {
        let record = Record {
            number: self.number,
            origin: self.origin,
            at: now,
            marks: Marks {
                shutdown: self.is_shutting_down,
                agent_stopped,
            },
            readings: std::mem::take(&mut self.readings),
            newest: self.newest,
        };
        let room = usize::try_from(SLOTS).unwrap_or_default();
        if self.pending.len() >= room {
            self.pending.remove(0);
        }
        self.pending.push((offset(self.number), record.encode()));
        self.number = self.number.saturating_add(1);
        self.recorded = now.boot;
    }
}

/// Rounds down.
fn percent(share: f32) -> u8 {
    let is_below = |percent: &u8| f32::from(*percent) <= share;
    (1..NONE).take_while(is_below).last().unwrap_or(0)
}
