//! Selects the disks to watch, from the list and from single disks that the kernel announced.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DiskDecision, DiskWatch, log};
use crate::clock::BootNanos;
use crate::pressure::sample::LONGEST;
use crate::reading::{Disk, DiskRole};
use crate::record::{DiskAction, DiskChange};
use crate::settings::{DiskIo, SlowLimit};
use crate::subjects::{Effect, MapUpdate};
use crate::units::DeviceNumber;

/// The interval between reads of the list, for a kernel whose announcements cannot be received.
const LIST_INTERVAL: Duration = Duration::from_mins(5);

/// The least limits of `auto`: above the latency of healthy disks.
const SOLID_STATE_SLOW: Duration = Duration::from_millis(20);
const ROTATIONAL_SLOW: Duration = Duration::from_millis(100);

/// Before Linux 5.17 a disk is announced a moment before its queue is in sysfs.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// A disk, and the limits that apply to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedDisk {
    pub device: DeviceNumber,
    /// The name under `/sys/block`.
    pub name: String,
    /// A request that takes this long or longer is slow.
    pub slow: Duration,
    /// The limit is computed from the latency of the disk; `slow` is the least limit.
    pub auto: bool,
    /// The time over which the share of slow requests is taken.
    pub window: Duration,
    pub role: DiskRole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnwatchReason {
    Removed,
    StatisticsOff,
}

/// A disk that was unhealthy is present but no longer watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwatched {
    /// Time at which a disk that is watched, or was removed, was last unhealthy.
    pub others: Option<BootNanos>,
}

/// The schedule of reads of the list, and the result of the last one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listing {
    /// The last read succeeded.
    known: bool,
    next: BootNanos,
    /// Time of an earlier read: the list could not be read, or a disk was announced before it was
    /// in sysfs.
    retry: Option<BootNanos>,
    /// The window by which all disks are watched.
    window: Duration,
}

impl Listing {
    pub(super) fn new(window: Duration, now: BootNanos) -> Self {
        Self {
            known: false,
            next: now.plus(LIST_INTERVAL),
            retry: None,
            window,
        }
    }

    pub(super) const fn is_known(&self) -> bool {
        self.known
    }

    pub(super) const fn retry_at(&self) -> Option<BootNanos> {
        self.retry
    }

    /// Returns true if the list is to be read now. If so, the next read is scheduled.
    pub(super) fn due(&mut self, now: BootNanos, soon: BootNanos) -> bool {
        let retry = self.retry.is_some_and(|at| at <= now);
        let due = retry || self.next <= soon;
        if due {
            self.next = now.plus(LIST_INTERVAL);
            self.retry = None;
        }
        due
    }
}

impl DiskWatch {
    pub(super) fn listed(&mut self, found: Option<Vec<Disk>>, now: BootNanos) -> Vec<Effect> {
        self.listing.known = found.is_some();
        let Some(found) = found else {
            self.listing.retry = Some(now.plus(LONGEST));
            return self.publish(None);
        };
        let mut effects = Vec::new();
        let present: BTreeSet<DeviceNumber> = found.iter().map(|disk| disk.device).collect();
        let removed: Vec<_> = self.devices().filter(|it| !present.contains(it)).collect();
        for device in removed {
            self.forget(device, now, &mut effects);
        }
        self.unmeasured
            .retain(|name| found.iter().any(|disk| disk.name == *name));
        let mut watch = Vec::new();
        for disk in found {
            let others = watch.len();
            watch.extend(self.select(disk, others, now, &mut effects));
        }
        self.listing.window = self.settings.window;
        effects.extend(self.watch(watch));
        effects
    }

    pub(super) fn found(
        &mut self,
        change: &DiskChange,
        disk: Option<Disk>,
        now: BootNanos,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if disk.is_none() && change.action == DiskAction::Added {
            self.listing.retry = Some(now.plus(RETRY));
        }
        let watch = disk.and_then(|disk| self.select(disk, 0, now, &mut effects));
        effects.extend(self.watch(watch.into_iter().collect()));
        effects
    }

    /// Watches disks. Without disks, the state is published at once.
    fn watch(&mut self, disks: Vec<WatchedDisk>) -> Vec<Effect> {
        if disks.is_empty() {
            return self.publish(None);
        }
        vec![Effect::Map(MapUpdate::WatchDisks(disks))]
    }

    pub(super) fn watched_by_kernel(&mut self, disks: Vec<WatchedDisk>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for disk in disks {
            self.board
                .watch(disk.device, disk.name.clone(), disk.role, disk.slow);
            if let Some(limit) = self.auto_limits.watch(&disk) {
                let device = disk.device;
                effects.push(Effect::Map(MapUpdate::DiskLimit { device, limit }));
            }
            effects.push(log(DiskDecision::Watched(disk)));
        }
        effects.extend(self.publish(None));
        effects
    }

    /// Returns the settings for a disk that is not watched, or is watched by other limits. `others`
    /// is the number of other disks that are about to be watched.
    fn select(
        &mut self,
        disk: Disk,
        others: usize,
        now: BootNanos,
        effects: &mut Vec<Effect>,
    ) -> Option<WatchedDisk> {
        if !disk.iostats {
            self.statistics_off(disk.device, &disk.name, now, effects);
            return None;
        }
        self.unmeasured.remove(&disk.name);
        let (slow, auto) = limit(&self.settings, &disk);
        let before = self.board.name(disk.device);
        let known = before == Some(disk.name.as_str());
        if before.is_some() && !known {
            // The number belongs to another disk now.
            self.forget(disk.device, now, effects);
        }
        let same_window = self.listing.window == self.settings.window;
        let same_role = self.board.role(disk.device) == Some(disk.role);
        let same_limit = self.board.limit(disk.device) == Some(slow)
            && self.auto_limits.contains(disk.device) == auto;
        if known && same_window && same_role && same_limit {
            return None;
        }
        let Disk {
            name, device, role, ..
        } = disk;
        if !known && self.devices().count().saturating_add(others) >= Disk::MAX {
            effects.push(log(DiskDecision::TooMany { name }));
            return None;
        }
        Some(WatchedDisk {
            device,
            name,
            slow,
            auto,
            window: self.settings.window,
            role,
        })
    }

    /// Ends the watch of a disk, and the pressure that it caused, because the start times by which
    /// the kernel judges are stale, and the counters stand still. Returns true if that is a change.
    pub(super) fn statistics_off(
        &mut self,
        device: DeviceNumber,
        name: &str,
        now: BootNanos,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let changed = self.unmeasured.insert(name.to_owned());
        if changed {
            let name = name.to_owned();
            effects.push(log(DiskDecision::StatisticsOff { name }));
        }
        let another = match self.board.name(device) {
            Some(watched) if watched == name => {
                self.end_watch(device, UnwatchReason::StatisticsOff, effects);
                if self.board.unwatch(device, now) || self.unwatched.is_some() {
                    let others = self.board.last_unhealthy(now);
                    self.unwatched = Some(Unwatched { others });
                }
                false
            }
            Some(_) => self.forget(device, now, effects),
            None => false,
        };
        changed || another
    }

    /// Ends the watch of a disk that was removed. Returns true if it was unhealthy.
    pub(super) fn forget(
        &mut self,
        device: DeviceNumber,
        now: BootNanos,
        effects: &mut Vec<Effect>,
    ) -> bool {
        self.end_watch(device, UnwatchReason::Removed, effects);
        self.board.forget(device, now)
    }

    fn end_watch(
        &mut self,
        device: DeviceNumber,
        reason: UnwatchReason,
        effects: &mut Vec<Effect>,
    ) {
        self.auto_limits.forget(device);
        self.io_wait.forget(device);
        let name = self.board.name(device).unwrap_or_default().to_owned();
        effects.push(log(DiskDecision::Unwatched {
            device,
            name,
            reason,
        }));
        effects.push(Effect::Map(MapUpdate::ForgetDisk(device)));
    }
}

/// Returns the limit for a disk, and true if it is the least of a computed one: the limit set for
/// its name, else that of its kind. A virtio disk reports that it rotates, whatever it is made of.
fn limit(config: &DiskIo, disk: &Disk) -> (Duration, bool) {
    let (of_kind, fixed) = if disk.rotational && !disk.virtio {
        (config.rotational_slow, ROTATIONAL_SLOW)
    } else {
        (config.solid_state_slow, SOLID_STATE_SLOW)
    };
    let of_device = config.devices.get(&disk.name).copied();
    match of_device.unwrap_or(of_kind) {
        SlowLimit::Fixed(limit) => (limit, false),
        SlowLimit::Auto => (fixed, true),
    }
}
