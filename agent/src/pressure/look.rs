//! One look: what a pass is given.

use crate::reading::{Reading, Signal};

/// One look at one signal. A signal that a pass does not name keeps what was last seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// There was something to read.
    Seen(Reading),
    /// There is nothing to observe: no pods cgroup, no limit, no inodes. No threshold is met then.
    Absent(Signal),
    /// The read failed, or was not answered.
    Missing(Signal),
}

impl Look {
    /// What was looked at.
    #[must_use]
    pub const fn signal(&self) -> Signal {
        match self {
            Self::Seen(reading) => reading.signal,
            Self::Absent(signal) | Self::Missing(signal) => *signal,
        }
    }
}

/// One look at all disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskLook<'a> {
    /// Nothing tells how quickly disks answer.
    Blind,
    /// The disks that are not well; both empty when all are.
    Seen {
        /// They answer, but late.
        slow: &'a [String],
        /// Requests in flight, and none completes.
        stalled: &'a [String],
        /// They answer with errors.
        failing: &'a [String],
    },
}
