//! The two clocks, each with its type. Nothing here reads them.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// The longest time by which periodic work may run early to share a wake-up with other work.
pub const ALIGN: Duration = Duration::from_millis(400);

/// Nanoseconds since boot, suspend included: `CLOCK_BOOTTIME`, `bpf_ktime_get_boot_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BootNanos(pub u64);

impl BootNanos {
    /// Returns the time from `earlier` to `self`; zero if they are out of order.
    ///
    /// Records from different CPUs can be drained out of order by a few microseconds.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Saturates at the maximum value.
    #[must_use]
    pub fn plus(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// Saturates at zero, which is the boot.
    #[must_use]
    pub fn minus(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// One moment on both clocks, read together once per iteration of the main loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Used for durations.
    pub boot: BootNanos,
    /// Used for values that people or the API server read.
    pub wall: SystemTime,
}

impl Now {
    /// Converts `boot` to wall time by the current difference between the two clocks.
    pub fn wall_at(self, boot: BootNanos) -> SystemTime {
        if boot <= self.boot {
            self.wall - self.boot.since(boot)
        } else {
            self.wall + boot.since(self.boot)
        }
    }
}

/// The times at which something happened and at which the agent read it. Passed on with its
/// consequences, to measure the delay from the kernel to the API server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub kernel: BootNanos,
    /// The time at which the agent read it, from a ring or from a file.
    pub read: BootNanos,
}
