//! What can happen to the disks.

use serde::{Deserialize, Serialize};

use super::WatchedDisk;
use crate::clock::{BootNanos, Stamp};
use crate::pressure::disks::{DiskSample, DiskTotals};
use crate::pressure::io_wait::IoWait;
use crate::reading::{Disk, DiskReport, FilesystemReading, NodeFilesystem, SlowWindow};
use crate::record::DiskChange;
use crate::settings::DiskIo;
use crate::units::DeviceNumber;
use crate::units::latency::Buckets;

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
        /// Whether its I/O statistics are on, so that the window counts.
        valid: bool,
        /// The slow window.
        window: SlowWindow,
        /// Counters of the disk, read after it.
        totals: DiskTotals,
        /// Of the report.
        stamp: Stamp,
    },
    /// The answer to [`crate::subjects::Query::IoWait`], with the names of pods.
    IoWaitRead(IoWait),
    /// The answer to [`crate::subjects::Query::JudgedLatency`]: the judged requests of each disk by
    /// latency, as far as they can be read.
    LatencyRead(Vec<(DeviceNumber, Buckets)>),
    /// The answer to [`super::DiskQuery::Counters`].
    Sampled(Vec<DiskCounters>),
    /// The answer to [`super::DiskQuery::Switched`].
    StatisticsChecked {
        /// I/O statistics of at least one disk were switched on or off.
        switched: bool,
    },
    /// Tasks wait for I/O.
    IoStalled,
    /// nodefs and imagefs were sampled, which is the time to check I/O statistics too.
    StorageSampled {
        /// Whether they are read-only, as far as that is known.
        read_only: Vec<(NodeFilesystem, bool)>,
        /// Errors that the file systems of the node have counted, added up.
        errors: u64,
    },
    /// The answer to [`super::DiskQuery::Filesystems`], as far as they can be read.
    FilesystemsRead(Vec<FilesystemReading>),
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

/// What was read of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// The disk.
    pub device: DeviceNumber,
    /// Its counters.
    pub counters: CountersRead,
    /// When a request completed last, by the completion probe; `None`: not known.
    pub last_completion: Option<BootNanos>,
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
