//! Detects unhealthy disks: slow, stalled, or returning errors.
//!
//! The kernel program reports slow windows and errors as requests complete; without the program,
//! slow windows are derived from the disks' counters. A hung disk completes nothing, so it is
//! detected by two samples: one when tasks are known to wait for I/O, and one when no request can
//! have completed for `diskIO.stalledAfter`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::reading::{DiskRole, SlowWindow};
use crate::units::DeviceNumber;

mod auto_limit;
mod details;
mod errors;
mod progress;
mod slow;

pub use auto_limit::{AutoLimit, LatencyDay};
pub use details::{DiskCounts, DiskDetails, DiskLimit};
pub use errors::ERRORS;
pub use slow::{DiskTotals, EndedWindow, SlowRequests};

use errors::Errors;
use progress::{Progress, Requests};
use slow::{OthersWait, Slowness};

/// The interval between samples of an unhealthy disk.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// The least number of reads between two samples that can be a slow window, as in the kernel
/// program.
const MIN_READS: u64 = 5;

/// The shortest time between two samples that can be a window.
const MIN_WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DiskRules {
    /// `diskIO.slowFor`.
    pub slow_for: Duration,
    /// `diskIO.minStall`, in percent.
    pub min_stall: f32,
    /// `diskIO.stalledAfter`.
    pub stalled_after: Duration,
}

impl DiskRules {
    /// Returns the time within which slow windows count.
    fn period(&self) -> Duration {
        self.slow_for.saturating_mul(2)
    }
}

/// The state of a disk: the worst one, if several apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Health {
    Healthy,
    /// The disk responds late, and tasks wait for it.
    Slow,
    Failing,
    /// The disk has requests in flight and completes none.
    Stalled,
}

impl Health {
    /// Returns the name in log fields and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Slow => "slow",
            Self::Failing => "failing",
            Self::Stalled => "stalled",
        }
    }
}

/// One sample of a disk. All fields but `in_flight` are counters since the disk appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskSample {
    /// Completed requests of every kind, including failed ones.
    pub completed: u64,
    pub reads: u64,
    /// The total latency of the completed reads.
    pub read_time: Duration,
    pub bytes: u64,
    pub in_flight: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LatencySource {
    /// The kernel program, which reports slow windows.
    Program,
    /// The counters of the disks, between two samples. Only reads are judged: the counters do not
    /// distinguish bulk writes from writes that a task waits for.
    Counters,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct MonitoredDisk {
    name: String,
    role: DiskRole,
    limit: Duration,
    slowness: Slowness,
    others: OthersWait,
    progress: Progress,
    errors: Errors,
    /// Start of the time in which tasks wait for I/O, if no sample has been taken since.
    waiting: Option<BootNanos>,
    /// The last sample that began or ended a window of counters.
    last: Option<(DiskSample, BootNanos)>,
    /// Time at which the disk was last unhealthy.
    unhealthy_at: Option<BootNanos>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskBoard {
    rules: DiskRules,
    measured: LatencySource,
    #[serde(with = "crate::pairs")]
    disks: BTreeMap<DeviceNumber, MonitoredDisk>,
    sample_at: Option<BootNanos>,
    /// Time at which a removed disk of the node was last unhealthy.
    removed_unhealthy_at: Option<BootNanos>,
}

impl DiskBoard {
    pub fn new(rules: DiskRules, measured: LatencySource) -> Self {
        Self {
            rules,
            measured,
            disks: BTreeMap::new(),
            sample_at: None,
            removed_unhealthy_at: None,
        }
    }

    pub fn configure(&mut self, rules: DiskRules) {
        self.rules = rules;
    }

    /// Monitors a disk, which is healthy at first. A disk that is monitored already keeps its
    /// state, unless its name has changed.
    pub fn watch(&mut self, device: DeviceNumber, name: String, role: DiskRole, limit: Duration) {
        if let Some(known) = self.disks.get_mut(&device)
            && known.name == name
        {
            known.role = role;
            known.limit = limit;
            return;
        }
        let disk = MonitoredDisk {
            name,
            role,
            limit,
            slowness: Slowness::default(),
            others: OthersWait::default(),
            progress: Progress::default(),
            errors: Errors::default(),
            waiting: None,
            last: None,
            unhealthy_at: None,
        };
        self.disks.insert(device, disk);
    }

    /// Stops monitoring a disk that was removed. Returns true if it was unhealthy.
    pub fn forget(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let Some(removed) = self.disks.remove(&device) else {
            return false;
        };
        self.schedule(now);
        let unhealthy = removed.health() != Health::Healthy;
        if removed.role == DiskRole::Node {
            let unhealthy_at = if unhealthy {
                Some(now)
            } else {
                removed.unhealthy_at
            };
            self.removed_unhealthy_at = self.removed_unhealthy_at.max(unhealthy_at);
        }
        unhealthy
    }

    /// Stops monitoring a disk that still exists but that no source measures. Returns true if it
    /// was ever unhealthy, which no longer counts.
    pub fn unwatch(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let unwatched = self.disks.remove(&device);
        self.schedule(now);
        unwatched.is_some_and(|disk| disk.unhealthy_at.is_some())
    }

    /// Returns the time at which a monitored or removed disk of the node was last unhealthy.
    pub fn last_unhealthy(&self, now: BootNanos) -> Option<BootNanos> {
        let of_node = |disk: &&MonitoredDisk| disk.role == DiskRole::Node;
        let disks = self.disks.values().filter(of_node);
        let last = |disk: &MonitoredDisk| match disk.health() {
            Health::Healthy => disk.unhealthy_at,
            Health::Slow | Health::Failing | Health::Stalled => Some(now),
        };
        disks.filter_map(last).max().max(self.removed_unhealthy_at)
    }

    pub fn watched(&self) -> impl Iterator<Item = (DeviceNumber, &str)> {
        let disks = self.disks.iter();
        disks.map(|(device, disk)| (*device, disk.name.as_str()))
    }

    pub fn name(&self, device: DeviceNumber) -> Option<&str> {
        self.disks.get(&device).map(|disk| disk.name.as_str())
    }

    pub fn health(&self, device: DeviceNumber) -> Option<Health> {
        self.disks.get(&device).map(MonitoredDisk::health)
    }

    pub fn limit(&self, device: DeviceNumber) -> Option<Duration> {
        self.disks.get(&device).map(|disk| disk.limit)
    }

    pub fn role(&self, device: DeviceNumber) -> Option<DiskRole> {
        self.disks.get(&device).map(|disk| disk.role)
    }

    /// Returns a summary of the slow windows of a disk that still count; `None` if there are none.
    pub fn slow_requests(&self, device: DeviceNumber, now: BootNanos) -> Option<SlowRequests> {
        let slowness = &self.disks.get(&device)?.slowness;
        slowness.requests(&self.rules, self.measured, now)
    }

    /// Returns the time since which a disk with requests in flight has completed none.
    pub fn pending_since(&self, device: DeviceNumber) -> Option<BootNanos> {
        self.disks.get(&device)?.progress.since()
    }

    /// Takes a slow window that the kernel program reported. Returns the new state if it changed.
    pub fn slow_window(&mut self, device: DeviceNumber, ended: EndedWindow) -> Option<Health> {
        self.change(device, ended.counted, |disk| disk.slowness.add(ended))
    }

    /// Returns the number of errors in the last minute, at most [`ERRORS`].
    pub fn recent_errors(&self, device: DeviceNumber, now: BootNanos) -> usize {
        let disk = self.disks.get(&device);
        disk.map_or(0, |disk| disk.errors.recent(now))
    }

    /// Takes an error that the kernel program reported. Returns the new state if it changed.
    pub fn error(&mut self, device: DeviceNumber, at: BootNanos, now: BootNanos) -> Option<Health> {
        self.change(device, now, |disk| disk.errors.add(at))
    }

    /// Takes the share of the time in which tasks other than the main user of a disk wait for I/O,
    /// in percent; `None` without PSI. Returns the new state if it changed.
    pub fn io_wait(
        &mut self,
        device: DeviceNumber,
        percent: Option<f32>,
        now: BootNanos,
    ) -> Option<Health> {
        let others = OthersWait::Read { percent, at: now };
        self.change(device, now, |disk| disk.others = others)
    }

    /// Returns a disk whose state depends on the I/O wait of other tasks: of several, the one for
    /// which it was read the longest time ago.
    pub fn needs_io_wait(&self, now: BootNanos) -> Option<DeviceNumber> {
        let disks = self.disks.iter();
        let need = disks.filter(|(_, disk)| {
            let slowness = &disk.slowness;
            slowness.needs_io_wait(&self.rules, disk.others, now)
        });
        let longest_ago = need.min_by_key(|(_, disk)| disk.others.read_at());
        longest_ago.map(|(device, _)| *device)
    }

    /// Marks all disks to be sampled, because tasks wait for I/O since about `since`.
    pub fn suspect(&mut self, since: BootNanos) {
        for disk in self.disks.values_mut() {
            disk.waiting.get_or_insert(since);
        }
    }

    /// Returns the new state if it changed.
    pub fn apply_sample(
        &mut self,
        device: DeviceNumber,
        sample: DiskSample,
        last_completion: Option<BootNanos>,
        now: BootNanos,
    ) -> Option<Health> {
        let (rules, measured) = (self.rules, self.measured);
        self.change(device, now, |disk| {
            let requests = Requests {
                completed: sample.completed,
                in_flight: sample.in_flight,
                last_completion,
            };
            let waiting = disk.waiting.take();
            disk.progress = disk.progress.after(requests, waiting, &rules, now);
            disk.count(sample, measured, now);
        })
    }

    /// Returns the sorted names of the disks of the node in a state. A disk can be in several.
    pub fn named(&self, health: Health) -> Vec<String> {
        let disks = self.disks.values();
        let unhealthy = disks.filter(|disk| disk.role == DiskRole::Node && disk.is(health));
        let mut names: Vec<String> = unhealthy.map(|disk| disk.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns the time at which to sample the unhealthy and suspected disks; `None` if there are
    /// none.
    pub const fn sample_at(&self) -> Option<BootNanos> {
        self.sample_at
    }

    /// Starts the sampling that is due, and returns the disks to sample. The next sampling is
    /// scheduled even if this one is never answered.
    pub fn begin_sampling(&mut self, now: BootNanos) -> Vec<(DeviceNumber, String)> {
        let (rules, measured) = (self.rules, self.measured);
        let disks = self.disks.iter();
        let need = disks.filter(|(_, disk)| disk.wait(&rules, measured, now).is_some());
        let disks = need
            .map(|(device, disk)| (*device, disk.name.clone()))
            .collect();
        self.sample_at = None;
        self.schedule(now);
        disks
    }

    fn change(
        &mut self,
        device: DeviceNumber,
        now: BootNanos,
        change: impl FnOnce(&mut MonitoredDisk),
    ) -> Option<Health> {
        let rules = self.rules;
        let disk = self.disks.get_mut(&device)?;
        let before = disk.state();
        change(disk);
        disk.slowness.update(&rules, disk.others, now);
        disk.errors.update(now);
        let (after, health) = (disk.state(), disk.health());
        if before != after || health != Health::Healthy {
            disk.unhealthy_at = Some(now);
        }
        self.schedule(now);
        (before != after).then_some(health)
    }

    /// Never postpones a scheduled sampling.
    fn schedule(&mut self, now: BootNanos) {
        let (rules, measured) = (self.rules, self.measured);
        let wait = |disk: &MonitoredDisk| disk.wait(&rules, measured, now);
        let next = self.disks.values().filter_map(wait).min();
        self.sample_at = next.map(|next| {
            let scheduled = self.sample_at.filter(|at| *at > now);
            scheduled.map_or(next, |at| at.min(next))
        });
    }
}

impl MonitoredDisk {
    fn is(&self, health: Health) -> bool {
        match health {
            Health::Healthy => self.health() == Health::Healthy,
            Health::Slow => self.slowness.is_slow(),
            Health::Failing => self.errors.is_failing(),
            Health::Stalled => self.progress.is_stalled(),
        }
    }

    fn state(&self) -> [bool; 3] {
        [Health::Slow, Health::Failing, Health::Stalled].map(|health| self.is(health))
    }

    fn health(&self) -> Health {
        let worst = [Health::Stalled, Health::Failing, Health::Slow];
        let worst = worst.into_iter().find(|health| self.is(*health));
        worst.unwrap_or(Health::Healthy)
    }

    /// Returns the time at which the disk has to be sampled; `None` if only a report can change its
    /// state.
    fn wait(
        &self,
        rules: &DiskRules,
        measured: LatencySource,
        now: BootNanos,
    ) -> Option<BootNanos> {
        let by_counters = measured == LatencySource::Counters && self.slowness.is_suspected();
        let unhealthy = self.health() != Health::Healthy || by_counters;
        let regular = unhealthy.then(|| now.plus(SAMPLE_INTERVAL));
        // A sample that was not answered is repeated.
        let decided = self.progress.decided_at(rules);
        let decided = decided.map(|at| {
            if at > now {
                at
            } else {
                now.plus(SAMPLE_INTERVAL)
            }
        });
        regular.into_iter().chain(decided).min()
    }

    /// Ends a window of counters, which is slow if an average read took the limit or longer.
    fn count(&mut self, sample: DiskSample, measured: LatencySource, now: BootNanos) {
        // Counters that decreased belong to another disk.
        let last = self
            .last
            .filter(|(last, _)| last.completed <= sample.completed);
        if let Some((last, at)) = last {
            let length = now.since(at);
            if length < MIN_WINDOW {
                return;
            }
            let reads = sample.reads.saturating_sub(last.reads);
            let time = sample.read_time.saturating_sub(last.read_time);
            let judged = u32::try_from(reads).unwrap_or(u32::MAX);
            let average = time.checked_div(judged).unwrap_or_default();
            let slow = reads >= MIN_READS && average >= self.limit;
            if slow && measured == LatencySource::Counters {
                self.slowness.add(EndedWindow {
                    window: SlowWindow {
                        judged,
                        slow: judged,
                        length,
                        longest: average,
                    },
                    end: now,
                    counted: now,
                    totals: DiskTotals {
                        bytes: Some(sample.bytes),
                        judged: None,
                    },
                });
            }
        }
        self.last = Some((sample, now));
    }
}

#[cfg(test)]
mod tests;
