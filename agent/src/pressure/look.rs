//! One look: what a pass is given.

use crate::reading::{Reading, Signal};

/// One look at one signal. A signal that a pass does not name keeps what was last seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// There was something to read.
    Seen(Reading),
    /// There was not: no limit, no such file system, or the read failed. No threshold is met then.
    Missing(Signal),
}

impl Look {
    /// What was looked at.
    #[must_use]
    pub const fn signal(&self) -> Signal {
        match self {
            Self::Seen(reading) => reading.signal,
            Self::Missing(signal) => *signal,
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
