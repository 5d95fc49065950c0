//! Which disks are not well: by what the kernel tells of the edges, where it judges disks, else by
//! their counters; and by what is looked up while one is not well.
//!
//! The kernel judges when a request completes: it cannot end a state when I/O stops, nor see a hang.
//! So while a disk is not well somebody looks every two seconds. A hang that begins on a disk that
//! was well is seen by two looks: one when tasks are known to wait for I/O, and one a moment later.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::units::DeviceNumber;

/// How often a disk is looked at while it is not well.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// A disk that completes nothing for so long, although requests are in flight, is stalled. Ten
/// times the limit of a rotating disk, as for a single request in the kernel: a full cache that is
/// written out takes hundreds of milliseconds.
pub const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Fewer reads and writes than this between two looks decide nothing, as in the kernel's windows.
const MIN_REQUESTS: u64 = 5;

/// Good looks in a row after which a disk that is judged by its counters is quick again.
const GOOD_LOOKS: u32 = 3;

/// How a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// It answers in time.
    Healthy,
    /// It answers, but late.
    Slow,
    /// Requests are in flight, and none completes.
    Stalled,
    /// It answers with errors.
    Failing,
}

/// What looking at a disk shows. All but `in_flight` are counters since the disk came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskSample {
    /// Requests of every kind that ended, also those with an error.
    pub completed: u64,
    /// Reads and writes among them.
    pub answered: u64,
    /// For how long those waited, added up.
    pub waited: Duration,
    /// Requests in flight now.
    pub in_flight: u64,
}

/// A disk that seems well, but for which tasks may be waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    None,
    /// It is to be looked at.
    Asked,
    /// It had requests in flight, and is looked at once more.
    InFlight,
}

#[derive(Debug, Clone)]
struct Disk {
    name: String,
    limit: Duration,
    health: Health,
    last: Option<(DiskSample, BootNanos)>,
    good_looks: u32,
    suspicion: Suspicion,
    /// The last moment at which it was not well.
    unwell_at: Option<BootNanos>,
}

/// The watched disks.
#[derive(Debug, Clone, Default)]
pub struct DiskBoard {
    disks: BTreeMap<DeviceNumber, Disk>,
    sample_at: Option<BootNanos>,
    /// The last moment at which a disk that is gone was not well.
    gone_unwell_at: Option<BootNanos>,
}

impl DiskBoard {
    /// Watches a disk, quick until somebody says otherwise. Judged by its counters, it is slow when
    /// an average request takes `limit`.
    pub fn watch(&mut self, device: DeviceNumber, name: String, limit: Duration) {
        let disk = Disk {
            name,
            limit,
            health: Health::Healthy,
            last: None,
            good_looks: 0,
            suspicion: Suspicion::None,
            unwell_at: None,
        };
        self.disks.insert(device, disk);
    }

    /// Watches a disk no longer, since it is gone. `true` where it was not well.
    pub fn forget(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let Some(gone) = self.disks.remove(&device) else {
            return false;
        };
        self.plan(now);
        let unhealthy = gone.health != Health::Healthy;
        let unwell_at = if unhealthy { Some(now) } else { gone.unwell_at };
        self.gone_unwell_at = self.gone_unwell_at.max(unwell_at);
        unhealthy
    }

    /// Watches a disk no longer, though it is there: nothing measures it. `true` where it ever was not
    /// well, which from here on says nothing.
    pub fn unwatch(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let unwatched = self.disks.remove(&device);
        self.plan(now);
        unwatched.is_some_and(|disk| disk.unwell_at.is_some())
    }

    /// The last moment at which a disk was not well that is watched, or is gone.
    #[must_use]
    pub fn last_unhealthy(&self, now: BootNanos) -> Option<BootNanos> {
        let unhealthy = self.unhealthy().next().map(|_| now);
        let disks = self.disks.values().filter_map(|disk| disk.unwell_at).max();
        unhealthy.max(disks).max(self.gone_unwell_at)
    }

    /// Every watched disk and its name.
    pub fn watched(&self) -> impl Iterator<Item = (DeviceNumber, &str)> {
        let disks = self.disks.iter();
        disks.map(|(device, disk)| (*device, disk.name.as_str()))
    }

    /// Name of a watched disk.
    #[must_use]
    pub fn name(&self, device: DeviceNumber) -> Option<&str> {
        self.disks.get(&device).map(|disk| disk.name.as_str())
    }

    /// How a watched disk is.
    #[must_use]
    pub fn health(&self, device: DeviceNumber) -> Option<Health> {
        self.disks.get(&device).map(|disk| disk.health)
    }

    /// The limit of a watched disk.
    #[must_use]
    pub fn limit(&self, device: DeviceNumber) -> Option<Duration> {
        self.disks.get(&device).map(|disk| disk.limit)
    }

    /// The kernel says how `device` is now. `true` where that is news.
    pub fn set_health(&mut self, device: DeviceNumber, health: Health, now: BootNanos) -> bool {
        let Some(disk) = self.disks.get_mut(&device) else {
            return false;
        };
        let news = disk.health != health;
        disk.became(health, now);
        disk.good_looks = 0;
        self.plan(now);
        news
    }

    /// Tasks wait for I/O: all disks are to be looked at, and those with requests in flight once
    /// more after [`STALLED_AFTER`].
    pub fn suspect(&mut self) {
        for disk in self.disks.values_mut() {
            if disk.suspicion == Suspicion::None && disk.health == Health::Healthy {
                disk.suspicion = Suspicion::Asked;
            }
        }
    }

    /// What a look showed, and what the kernel says of the disk; `None` where the kernel does not
    /// judge it. Gives its new health where that changed.
    pub fn apply_sample(
        &mut self,
        device: DeviceNumber,
        sample: DiskSample,
        told: Option<Health>,
        now: BootNanos,
    ) -> Option<Health> {
        let disk = self.disks.get_mut(&device)?;
        let before = disk.health;
        match disk.last {
            // Too early to say anything; what the older look saw in flight is worth more.
            Some((last, at)) if now.since(at) < STALLED_AFTER && last.in_flight > 0 => return None,
            Some((_, at)) if now.since(at) < STALLED_AFTER => {}
            last => {
                let health = disk.judge(last.map(|(last, _)| last), &sample, told);
                disk.became(health, now);
            }
        }
        disk.last = Some((sample, now));
        let suspect = disk.suspicion == Suspicion::Asked
            && disk.health == Health::Healthy
            && sample.in_flight > 0;
        disk.suspicion = if suspect {
            Suspicion::InFlight
        } else {
            Suspicion::None
        };
        let health = disk.health;
        self.plan(now);
        (health != before).then_some(health)
    }

    /// The disks that are not well.
    pub fn unhealthy(&self) -> impl Iterator<Item = (DeviceNumber, &str, Health)> {
        let disks = self
            .disks
            .iter()
            .filter(|(_, disk)| disk.health != Health::Healthy);
        disks.map(|(device, disk)| (*device, disk.name.as_str(), disk.health))
    }

    /// Names of the disks that are in a state, sorted.
    #[must_use]
    pub fn named(&self, health: Health) -> Vec<String> {
        let mut names: Vec<String> = self
            .unhealthy()
            .filter(|(_, _, h)| *h == health)
            .map(|(_, n, _)| n.to_owned())
            .collect();
        names.sort();
        names
    }

    /// When to look at the disks that are not well, or suspected; `None` while there is none.
    #[must_use]
    pub const fn sample_at(&self) -> Option<BootNanos> {
        self.sample_at
    }

    /// Begins the look that is due: the disks to look at. The next one at those that are not well
    /// is planned, whether this one is answered or not.
    pub fn begin_sampling(&mut self, now: BootNanos) -> Vec<(DeviceNumber, String)> {
        let mut disks = Vec::new();
        for (device, disk) in &mut self.disks {
            if disk.needs_a_look() {
                disks.push((*device, disk.name.clone()));
                disk.suspicion = Suspicion::None;
            }
        }
        self.sample_at = None;
        self.plan(now);
        disks
    }

    /// Never puts off a look that is planned.
    fn plan(&mut self, now: BootNanos) {
        let wait = |disk: &Disk| match disk.suspicion {
            Suspicion::InFlight => Some(STALLED_AFTER),
            _ => disk.needs_a_look().then_some(SAMPLE_INTERVAL),
        };
        let next = self.disks.values().filter_map(wait).min();
        self.sample_at = next.map(|wait| {
            let planned = self.sample_at.filter(|at| *at > now);
            planned.map_or(now.plus(wait), |at| at.min(now.plus(wait)))
        });
    }
}

impl Disk {
    fn became(&mut self, health: Health, now: BootNanos) {
        if self.health != Health::Healthy || health != Health::Healthy {
            self.unwell_at = Some(now);
        }
        self.health = health;
    }

    fn needs_a_look(&self) -> bool {
        self.health != Health::Healthy || self.suspicion == Suspicion::InFlight
    }

    fn judge(
        &mut self,
        last: Option<DiskSample>,
        sample: &DiskSample,
        told: Option<Health>,
    ) -> Health {
        // Counters that went back are those of another disk.
        let last = last.filter(|last| last.completed <= sample.completed);
        let silent = last.filter(|last| last.completed == sample.completed);
        if silent.is_some_and(|last| last.in_flight > 0 && sample.in_flight > 0) {
            self.good_looks = 0;
            return Health::Stalled;
        }
        match (last, told) {
            // I/O stopped, which the kernel cannot see.
            (_, Some(_)) if silent.is_some() && sample.in_flight == 0 => Health::Healthy,
            (_, Some(told)) => told,
            (None, None) => self.health,
            (Some(last), None) => self.by_counters(&last, sample),
        }
    }

    fn by_counters(&mut self, last: &DiskSample, sample: &DiskSample) -> Health {
        let requests = sample.answered.saturating_sub(last.answered);
        let waited = sample.waited.saturating_sub(last.waited);
        let limit = self
            .limit
            .saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        if requests >= MIN_REQUESTS && waited >= limit {
            self.good_looks = 0;
            return Health::Slow;
        }
        self.good_looks = self.good_looks.saturating_add(1);
        if self.health == Health::Healthy || self.good_looks >= GOOD_LOOKS {
            Health::Healthy
        } else {
            Health::Slow
        }
    }
}

#[cfg(test)]
mod tests;
