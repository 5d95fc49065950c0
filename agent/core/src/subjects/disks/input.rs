//! The inputs about disks.

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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DiskInput {
    /// All disks; `None` if the list could not be read.
    Listed(Option<Vec<Disk>>),
    Announced(DiskChange),
    AnnouncementsLost,
    Found {
        change: DiskChange,
        /// `None` if there is no such disk, or it cannot be watched.
        disk: Option<Disk>,
    },
    /// The answer to [`crate::subjects::MapUpdate::WatchDisks`]: the disks that the kernel did not
    /// refuse.
    Watched(Vec<WatchedDisk>),
    Reported {
        device: DeviceNumber,
        report: DiskReport,
        stamp: Stamp,
    },
    /// The answer to [`super::DiskQuery::Statistics`].
    Confirmed {
        device: DeviceNumber,
        /// The I/O statistics of the disk are on, so that the window counts.
        valid: bool,
        window: SlowWindow,
        /// Counters of the disk, read after the window.
        totals: DiskTotals,
        stamp: Stamp,
    },
    /// The answer to [`crate::subjects::BlockingQuery::IoWait`], with the names of pods.
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
    /// A trigger reported that tasks wait for I/O.
    IoStalled,
    /// nodefs and imagefs were sampled, which is the time to check I/O statistics too.
    StorageSampled {
        /// The file systems whose access is known, each with true if it is read-only.
        read_only: Vec<(NodeFilesystem, bool)>,
        /// The sum of the errors that the file systems of the node have counted.
        errors: u64,
    },
    /// The answer to [`super::DiskQuery::Filesystems`], as far as they can be read.
    FilesystemsRead(Vec<FilesystemReading>),
    Tick {
        /// Work that is due until then, and need not be exact, is done in this wake-up.
        soon: BootNanos,
    },
    Configured(DiskIo),
    /// The other signals have been read once: from now on the state of the disks is published.
    Started,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    pub device: DeviceNumber,
    pub counters: CountersRead,
    /// Time of the last completion, according to the completion probe; `None` if unknown.
    pub last_completion: Option<BootNanos>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountersRead {
    Read(DiskSample),
    Removed,
    Failed,
}
