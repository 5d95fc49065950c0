//! Which disks are unhealthy: according to the kernel's transitions if the kernel evaluates the
//! disk, otherwise according to its counters; and according to samples while a disk is unhealthy.
//!
//! The kernel evaluates a request when it completes: it can neither end a state when I/O stops nor
//! detect a hang. So an unhealthy disk is sampled every two seconds. A hang that begins on a
//! healthy disk is detected by two samples: one when tasks are known to wait for I/O, and one a
//! moment later.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::units::DeviceNumber;

/// How often an unhealthy disk is sampled.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// A disk that has requests in flight and completes none for this long is stalled. This is ten
/// times the limit of a rotating disk, as for a single request in the kernel: a full cache that is
/// written out takes hundreds of milliseconds.
pub const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Fewer reads and writes than this between two samples are ignored, as in the kernel's windows.
const MIN_REQUESTS: u64 = 5;

/// Consecutive good samples after which a disk that is evaluated by its counters is healthy again.
const GOOD_SAMPLES: u32 = 3;

/// The state of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// It responds in time.
    Healthy,
    /// It responds late.
    Slow,
    /// It has requests in flight and completes none.
    Stalled,
    /// It returns errors.
    Failing,
}

/// One sample of a disk. All fields but `in_flight` are counters since the disk appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskSample {
    /// Completed requests of every kind, including failed ones.
    pub completed: u64,
    /// Completed reads and writes.
    pub answered: u64,
    /// Total time that those waited.
    pub waited: Duration,
    /// Requests in flight now.
    pub in_flight: u64,
}

/// Whether a disk that seems healthy may hang.
///
/// ```text
/// None ──tasks wait for I/O──► Requested ──sample: requests in flight──► InFlight
///   ▲                              │                                        │
///   │                     sample: idle, or unhealthy                sampled once more
///   └──────────────────────────────┴────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    None,
    /// A sample is requested.
    Requested,
    /// It had requests in flight, and is sampled once more.
    InFlight,
}

#[derive(Debug, Clone)]
struct MonitoredDisk {
    name: String,
    limit: Duration,
    health: Health,
    last: Option<(DiskSample, BootNanos)>,
    good_samples: u32,
    suspicion: Suspicion,
    /// The last moment at which it was unhealthy.
    unhealthy_at: Option<BootNanos>,
}

/// The monitored disks.
#[derive(Debug, Clone, Default)]
pub struct DiskBoard {
    disks: BTreeMap<DeviceNumber, MonitoredDisk>,
    sample_at: Option<BootNanos>,
    /// The last moment at which a disk that was removed since was unhealthy.
    removed_unhealthy_at: Option<BootNanos>,
}

impl DiskBoard {
    /// Monitors a disk, which is healthy at first. If it is evaluated by its counters, it is slow
    /// when an average request takes `limit`.
    pub fn watch(&mut self, device: DeviceNumber, name: String, limit: Duration) {
        let disk = MonitoredDisk {
            name,
            limit,
            health: Health::Healthy,
            last: None,
            good_samples: 0,
            suspicion: Suspicion::None,
            unhealthy_at: None,
        };
        self.disks.insert(device, disk);
    }

    /// Stops monitoring a disk that was removed. `true` if it was unhealthy.
    pub fn forget(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let Some(removed) = self.disks.remove(&device) else {
            return false;
        };
        self.schedule(now);
        let unhealthy = removed.health != Health::Healthy;
        let unhealthy_at = if unhealthy {
            Some(now)
        } else {
            removed.unhealthy_at
        };
        self.removed_unhealthy_at = self.removed_unhealthy_at.max(unhealthy_at);
        unhealthy
    }

    /// Stops monitoring a disk that still exists but that no source measures. `true` if it was ever
    /// unhealthy, which no longer counts.
    pub fn unwatch(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let unwatched = self.disks.remove(&device);
        self.schedule(now);
        unwatched.is_some_and(|disk| disk.unhealthy_at.is_some())
    }

    /// The last moment at which a monitored or removed disk was unhealthy.
    pub fn last_unhealthy(&self, now: BootNanos) -> Option<BootNanos> {
        let unhealthy = self.unhealthy().next().map(|_| now);
        let disks = self
            .disks
            .values()
            .filter_map(|disk| disk.unhealthy_at)
            .max();
        unhealthy.max(disks).max(self.removed_unhealthy_at)
    }

    /// The monitored disks and their names.
    pub fn watched(&self) -> impl Iterator<Item = (DeviceNumber, &str)> {
        let disks = self.disks.iter();
        disks.map(|(device, disk)| (*device, disk.name.as_str()))
    }

    /// Name of a monitored disk.
    pub fn name(&self, device: DeviceNumber) -> Option<&str> {
        self.disks.get(&device).map(|disk| disk.name.as_str())
    }

    /// State of a monitored disk.
    pub fn health(&self, device: DeviceNumber) -> Option<Health> {
        self.disks.get(&device).map(|disk| disk.health)
    }

    /// Limit of a monitored disk.
    pub fn limit(&self, device: DeviceNumber) -> Option<Duration> {
        self.disks.get(&device).map(|disk| disk.limit)
    }

    /// The kernel reports the state of `device`. `true` if it changed.
    pub fn set_health(&mut self, device: DeviceNumber, health: Health, now: BootNanos) -> bool {
        let Some(disk) = self.disks.get_mut(&device) else {
            return false;
        };
        let changed = disk.health != health;
        disk.set_health(health, now);
        disk.good_samples = 0;
        self.schedule(now);
        changed
    }

    /// Tasks wait for I/O: all disks have to be sampled, and those with requests in flight once
    /// more after [`STALLED_AFTER`].
    pub fn suspect(&mut self) {
        for disk in self.disks.values_mut() {
            if disk.suspicion == Suspicion::None && disk.health == Health::Healthy {
                disk.suspicion = Suspicion::Requested;
            }
        }
    }

    /// Applies a sample; `kernel` is the kernel's evaluation, `None` if it does not evaluate the
    /// disk. Returns the new state if it changed.
    pub fn apply_sample(
        &mut self,
        device: DeviceNumber,
        sample: DiskSample,
        kernel: Option<Health>,
        now: BootNanos,
    ) -> Option<Health> {
        let disk = self.disks.get_mut(&device)?;
        let before = disk.health;
        match disk.last {
            // Too early; the requests in flight in the older sample are more useful.
            Some((last, at)) if now.since(at) < STALLED_AFTER && last.in_flight > 0 => return None,
            Some((_, at)) if now.since(at) < STALLED_AFTER => {}
            last => {
                let health = disk.evaluate(last.map(|(last, _)| last), &sample, kernel);
                disk.set_health(health, now);
            }
        }
        disk.last = Some((sample, now));
        let suspect = disk.suspicion == Suspicion::Requested
            && disk.health == Health::Healthy
            && sample.in_flight > 0;
        disk.suspicion = if suspect {
            Suspicion::InFlight
        } else {
            Suspicion::None
        };
        let health = disk.health;
        self.schedule(now);
        (health != before).then_some(health)
    }

    /// The unhealthy disks.
    pub fn unhealthy(&self) -> impl Iterator<Item = (DeviceNumber, &str, Health)> {
        let disks = self
            .disks
            .iter()
            .filter(|(_, disk)| disk.health != Health::Healthy);
        disks.map(|(device, disk)| (*device, disk.name.as_str(), disk.health))
    }

    /// Sorted names of the disks in a state.
    pub fn named(&self, health: Health) -> Vec<String> {
        let mut names: Vec<String> = self
            .unhealthy()
            .filter(|(_, _, h)| *h == health)
            .map(|(_, n, _)| n.to_owned())
            .collect();
        names.sort();
        names
    }

    /// When to sample the unhealthy and suspected disks; `None` if there are none.
    pub const fn sample_at(&self) -> Option<BootNanos> {
        self.sample_at
    }

    /// Starts the sampling that is due and returns the disks to sample. The next one is scheduled
    /// whether or not this one is answered.
    pub fn begin_sampling(&mut self, now: BootNanos) -> Vec<(DeviceNumber, String)> {
        let mut disks = Vec::new();
        for (device, disk) in &mut self.disks {
            if disk.needs_sampling() {
                disks.push((*device, disk.name.clone()));
                disk.suspicion = Suspicion::None;
            }
        }
        self.sample_at = None;
        self.schedule(now);
        disks
    }

    /// Never postpones a scheduled sampling.
    fn schedule(&mut self, now: BootNanos) {
        let wait = |disk: &MonitoredDisk| match disk.suspicion {
            Suspicion::InFlight => Some(STALLED_AFTER),
            _ => disk.needs_sampling().then_some(SAMPLE_INTERVAL),
        };
        let next = self.disks.values().filter_map(wait).min();
        self.sample_at = next.map(|wait| {
            let scheduled = self.sample_at.filter(|at| *at > now);
            scheduled.map_or(now.plus(wait), |at| at.min(now.plus(wait)))
        });
    }
}

impl MonitoredDisk {
    fn set_health(&mut self, health: Health, now: BootNanos) {
        if self.health != Health::Healthy || health != Health::Healthy {
            self.unhealthy_at = Some(now);
        }
        self.health = health;
    }

    fn needs_sampling(&self) -> bool {
        self.health != Health::Healthy || self.suspicion == Suspicion::InFlight
    }

    fn evaluate(
        &mut self,
        last: Option<DiskSample>,
        sample: &DiskSample,
        kernel: Option<Health>,
    ) -> Health {
        // Counters that went back belong to another disk.
        let last = last.filter(|last| last.completed <= sample.completed);
        let silent = last.filter(|last| last.completed == sample.completed);
        if silent.is_some_and(|last| last.in_flight > 0 && sample.in_flight > 0) {
            self.good_samples = 0;
            return Health::Stalled;
        }
        match (last, kernel) {
            // I/O stopped, which the kernel cannot detect.
            (_, Some(_)) if silent.is_some() && sample.in_flight == 0 => Health::Healthy,
            (_, Some(kernel)) => kernel,
            (None, None) => self.health,
            (Some(last), None) => self.evaluate_counters(&last, sample),
        }
    }

    fn evaluate_counters(&mut self, last: &DiskSample, sample: &DiskSample) -> Health {
        let requests = sample.answered.saturating_sub(last.answered);
        let waited = sample.waited.saturating_sub(last.waited);
        let limit = self
            .limit
            .saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        if requests >= MIN_REQUESTS && waited >= limit {
            self.good_samples = 0;
            return Health::Slow;
        }
        self.good_samples = self.good_samples.saturating_add(1);
        if self.health == Health::Healthy || self.good_samples >= GOOD_SAMPLES {
            Health::Healthy
        } else {
            Health::Slow
        }
    }
}

#[cfg(test)]
mod tests;
