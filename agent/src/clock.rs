//! Two clocks, two types; and the only calls that read them or wait for them.

use std::time::{Duration, SystemTime};

/// Nanoseconds since boot, suspend included: `CLOCK_BOOTTIME`, `bpf_ktime_get_boot_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootNanos(pub u64);

impl BootNanos {
    /// Time from `earlier` to `self`; zero where the two arrived out of order.
    ///
    /// Records from different CPUs can be drained out of order by a few microseconds.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `delay` after this one; the end of time where that does not fit.
    #[must_use]
    pub fn plus(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// One moment on both clocks, read together, once per turn of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For durations.
    pub boot: BootNanos,
    /// For what a person or the API server reads.
    pub wall: SystemTime,
}

impl Now {
    /// The wall time at which `boot` was, on today's difference between the two clocks.
    #[must_use]
    pub fn wall_at(self, boot: BootNanos) -> SystemTime {
        if boot <= self.boot {
            self.wall - self.boot.since(boot)
        } else {
            self.wall + boot.since(self.boot)
        }
    }
}

/// When something happened, and when we learnt of it. Travels with what it caused, so that the
/// way from the kernel to the API server's answer can be told in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When the kernel saw it.
    pub kernel: BootNanos,
    /// When we read it: from a ring, or from a file.
    pub read: BootNanos,
}
