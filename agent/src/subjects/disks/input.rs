//! What can happen to the disks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::WatchedDisk;
use crate::clock::{BootNanos, Stamp};
use crate::config::DiskIo;
use crate::pressure::disks::{DiskSample, Health};
use crate::pressure::io_wait::IoWait;
use crate::reading::Disk;
use crate::record::DiskChange;
use crate::units::DeviceNumber;

/// Everything that can happen to the disks. `soon` is the moment up to which work that need not be
/// exact is done in this wake-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DiskInput {
    /// All disks were listed; `None`: the list was not read.
    Listed(Option<Vec<Disk>>),
    /// The kernel announced that a disk came, went or changed.
    Announced(DiskChange),
    /// Announcements were lost.
    AnnouncementsLost,
    /// An announced disk was read.
    Found {
        /// The announcement.
        change: DiskChange,
        /// `None`: there is no such disk, or it cannot be watched.
        disk: Option<Disk>,
    },
    /// The answer to [`crate::subjects::MapUpdate::WatchDisks`]: those that the kernel did not refuse.
    Watched(Vec<WatchedDisk>),
    /// The completion probe reported on a disk.
    Reported {
        /// The disk.
        device: DeviceNumber,
        /// What it reported.
        report: DiskReport,
        /// When.
        stamp: Stamp,
    },
    /// The answer to [`super::DiskQuery::Statistics`].
    Confirmed {
        /// The disk.
        device: DeviceNumber,
        /// Whether its I/O statistics are on, so that the report counts.
        valid: bool,
        /// What the probe has of the disk now; `None`: not read.
        probe: Option<Health>,
        /// Of the report.
        stamp: Stamp,
    },
    /// The answer to [`super::DiskQuery::Counters`].
    Sampled(Vec<DiskCounters>),
    /// The answer to [`super::DiskQuery::Switched`].
    StatisticsChecked {
        /// I/O statistics of at least one disk were switched on or off.
        switched: bool,
    },
    /// The answer to [`crate::subjects::Query::IoWait`], with the names of pods.
    IoWaitRead(IoWait),
    /// Tasks wait for I/O.
    IoStalled,
    /// The file system of the root directory was sampled, on the thread that also reads disks.
    StorageSampled,
    /// The loop woke up.
    Tick {
        /// What is due until then is due now.
        soon: BootNanos,
    },
    /// The configuration changed.
    Configured(DiskIo),
    /// The other signals have been read once: from now on the state of the disks is published.
    Started,
}

/// A report of the completion probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskReport {
    /// The disk became slow.
    Slow(Window),
    /// It responds in time again.
    Healthy(Window),
    /// It returned an error.
    Errors,
}

/// The window of reads and writes that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// All of them.
    pub total: u32,
    /// The slow ones.
    pub slow: u32,
    /// The longest.
    pub max: Duration,
}

/// What was read of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// The disk.
    pub device: DeviceNumber,
    /// Its counters.
    pub counters: CountersRead,
    /// What the probe has of the disk; `None`: not read.
    pub probe: Option<Health>,
}

/// What a read of a disk's counters came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountersRead {
    /// The counters.
    Read(DiskSample),
    /// There is no such disk any more.
    Removed,
    /// They cannot be read.
    Failed,
}
