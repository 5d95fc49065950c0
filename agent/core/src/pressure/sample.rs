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

/// The state of all disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskStates<'a> {
    /// No source measures how quickly disks respond.
    Unavailable,
    /// The unhealthy disks; all lists are empty if every disk is healthy.
    Known {
        slow: &'a [String],
        /// The disks have requests in flight and complete none.
        stalled: &'a [String],
        failing: &'a [String],
        /// File systems that became read-only.
        read_only: &'a [NodeFilesystem],
        /// File systems that returned errors.
        failed_filesystems: &'a [String],
    },
}
