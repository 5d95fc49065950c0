//! Adapts limits to the latency of the disks: `slow: auto`.
//!
//! The counters of the program are read once an hour, when the file systems are sampled anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DiskDecision, DiskWatch, WatchedDisk, log};
use crate::clock::BootNanos;
use crate::pressure::disks::{DiskLimit, LatencyDay};
use crate::subjects::{Effect, MapUpdate, Query};
use crate::units::DeviceNumber;
use crate::units::latency::Buckets;

/// The interval at which the limits are computed.
const INTERVAL: Duration = Duration::from_hours(1);

/// The limit of a disk with `slow: auto`, and the values from which it was computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedLimit {
    pub name: String,
    /// A judged request that takes this long or longer is slow.
    pub limit: Duration,
    /// The fixed limit of its kind.
    pub fixed: Duration,
    /// The 99.9th percentile of the judged requests; `None` if there are too few.
    pub percentile: Option<Duration>,
    /// Judged requests of the last day.
    pub requests: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct AutoLimits {
    #[serde(with = "crate::pairs")]
    disks: BTreeMap<DeviceNumber, AutoDisk>,
    /// Time of the next read of the counters; `None` until the first wake-up.
    next: Option<BootNanos>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AutoDisk {
    name: String,
    fixed: Duration,
    limit: Duration,
    day: LatencyDay,
}

impl AutoLimits {
    /// Adds a disk, or keeps the state of one that is watched again. Returns its limit, if the
    /// kernel has another.
    pub(super) fn watch(&mut self, disk: &WatchedDisk) -> Option<Duration> {
        if !disk.auto {
            self.disks.remove(&disk.device);
            return None;
        }
        let new = |disk: &WatchedDisk| AutoDisk {
            name: disk.name.clone(),
            fixed: disk.slow,
            limit: disk.slow,
            day: LatencyDay::default(),
        };
        let known = self.disks.entry(disk.device).or_insert_with(|| new(disk));
        if known.name != disk.name || known.fixed != disk.slow {
            *known = new(disk);
        }
        (known.limit != disk.slow).then_some(known.limit)
    }

    pub(super) fn contains(&self, device: DeviceNumber) -> bool {
        self.disks.contains_key(&device)
    }

    /// Returns the limit of a disk in the kernel and its computation; `None` if it is configured.
    pub(super) fn limit(&self, device: DeviceNumber) -> Option<DiskLimit> {
        let disk = self.disks.get(&device)?;
        Some(DiskLimit {
            limit: disk.limit,
            computed: Some((disk.fixed, disk.day.limit(disk.fixed))),
        })
    }

    pub(super) fn forget(&mut self, device: DeviceNumber) {
        self.disks.remove(&device);
    }

    fn due(&mut self, now: BootNanos) -> Vec<DeviceNumber> {
        let next = *self.next.get_or_insert(now.plus(INTERVAL));
        if now < next || self.disks.is_empty() {
            return Vec::new();
        }
        self.next = Some(now.plus(INTERVAL));
        self.disks.keys().copied().collect()
    }

    /// Takes the counters of a disk. Returns its limit if it changed.
    fn read(&mut self, device: DeviceNumber, counters: Buckets) -> Option<ComputedLimit> {
        let disk = self.disks.get_mut(&device)?;
        disk.day.add(counters);
        let auto = disk.day.limit(disk.fixed);
        if auto.limit == disk.limit {
            return None;
        }
        disk.limit = auto.limit;
        Some(ComputedLimit {
            name: disk.name.clone(),
            limit: auto.limit,
            fixed: disk.fixed,
            percentile: auto.percentile,
            requests: auto.requests,
        })
    }
}

impl DiskWatch {
    pub(super) fn read_latency(&mut self, now: BootNanos) -> Option<Effect> {
        let due = self.auto_limits.due(now);
        (!due.is_empty()).then_some(Effect::Query(Query::JudgedLatency(due)))
    }

    pub(super) fn latency_read(&mut self, read: Vec<(DeviceNumber, Buckets)>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (device, counters) in read {
            if let Some(computed) = self.auto_limits.read(device, counters) {
                let limit = computed.limit;
                effects.push(Effect::Map(MapUpdate::DiskLimit { device, limit }));
                effects.push(log(DiskDecision::LimitComputed(computed)));
            }
        }
        effects
    }
}
