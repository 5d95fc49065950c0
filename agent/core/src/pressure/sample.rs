//! The input of one evaluation, and the maximum interval between two.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reading::{NodeFilesystem, Reading, Signal};

/// The maximum interval between samples: the kubelet's monitoring interval.
pub const LONGEST: Duration = Duration::from_secs(10);

/// A sample of one signal. A signal without a sample keeps its last known state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sample {
    Read(Reading),
    /// There is nothing to observe: no pods cgroup, no limit, no inodes. No threshold is met then.
    Absent(Signal),
    /// The read failed or timed out.
    Missing(Signal),
}

impl Sample {
    pub const fn signal(&self) -> Signal {
        match self {
            Self::Read(reading) => reading.signal,
            Self::Absent(signal) | Self::Missing(signal) => *signal,
        }
    }
}

/// The unhealthy disks, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Disks {
    /// Disks that respond late.
    pub slow: Vec<String>,
    /// Disks that have requests in flight and complete none.
    pub stalled: Vec<String>,
    /// Disks that return errors.
    pub failing: Vec<String>,
    /// File systems that became read-only.
    pub read_only: Vec<NodeFilesystem>,
    /// File systems that returned errors, with their mount points and devices.
    pub failed_filesystems: Vec<String>,
    /// Disks whose I/O statistics are off, so that their state is unknown.
    pub unwatched: Vec<String>,
}
