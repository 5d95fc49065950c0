//! Two clocks, two types; and the only calls that read them or wait for them.

#![forbid(unsafe_code)]

use std::io;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::fd::{self, Watched};

/// Nanoseconds since boot, suspend included: `CLOCK_BOOTTIME`, `bpf_ktime_get_boot_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
        Self(
            self.0
                .saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// One moment on both clocks, read together, once per turn of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// When the kernel saw it.
    pub kernel: BootNanos,
    /// When we read it: from a ring, or from a file.
    pub read: BootNanos,
}

/// Reads time and arms alarms.
///
/// In the field that is the kernel's boot clock. In a simulation it is the runtime's clock, which
/// can be paused: then a whole agent lives through minutes in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Source);

#[derive(Debug, Clone, Copy)]
enum Source {
    Kernel,
    Runtime { from: Instant, at: Now },
}

impl Clock {
    /// The kernel's clocks.
    #[must_use]
    pub const fn kernel() -> Self {
        Self(Source::Kernel)
    }

    /// The runtime's clock, which says `at` at this moment. Must be called in a runtime.
    #[must_use]
    pub fn runtime(at: Now) -> Self {
        Self(Source::Runtime {
            from: Instant::now(),
            at,
        })
    }

    /// This moment.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that may read the clock"
    )]
    pub fn now(&self) -> Now {
        match self.0 {
            Source::Kernel => Now {
                boot: boot_now(),
                wall: SystemTime::now(),
            },
            Source::Runtime { from, at } => {
                let passed = from.elapsed();
                Now {
                    boot: at.boot.plus(passed),
                    wall: at.wall + passed,
                }
            }
        }
    }

    /// Time on `CLOCK_MONOTONIC`, which a service manager counts by: suspend is not in it.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        match self.0 {
            Source::Kernel => nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
                .map_or(Duration::ZERO, Duration::from),
            Source::Runtime { .. } => self.now().boot.since(BootNanos(0)),
        }
    }

    /// An alarm on this clock. Must be called in a runtime with I/O and time enabled.
    ///
    /// # Errors
    ///
    /// When the kernel has no timer descriptor left for this process.
    pub fn alarm(&self) -> io::Result<Alarm> {
        Ok(match self.0 {
            Source::Kernel => {
                let timer = TimerFd::new(
                    ClockId::CLOCK_BOOTTIME,
                    TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
                )?;
                Alarm(Bell::Kernel(Box::new(fd::watch(
                    timer,
                    Interest::READABLE,
                )?)))
            }
            Source::Runtime { .. } => Alarm(Bell::Runtime(*self)),
        })
    }
}

/// Boot time by `CLOCK_BOOTTIME`, which cannot fail on a kernel that we support (2.6.39).
fn boot_now() -> BootNanos {
    let passed = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map_or(Duration::ZERO, Duration::from);
    BootNanos(0).plus(passed)
}

/// Waits for a moment. A timer descriptor costs one wake-up an expiry; the runtime's own timer
/// wheel costs about two, because it cascades long waits through coarser slots.
#[derive(Debug)]
pub struct Alarm(Bell);

#[derive(Debug)]
enum Bell {
    Kernel(Box<AsyncFd<Watched<TimerFd>>>),
    Runtime(Clock),
}

impl Alarm {
    /// Returns once `moment` has come; at once where it has passed. Dropping the future disarms
    /// nothing, but the next call arms anew.
    ///
    /// # Errors
    ///
    /// When the timer cannot be armed, which no valid moment causes.
    pub async fn at(&mut self, moment: BootNanos) -> io::Result<()> {
        match &mut self.0 {
            // Also without waiting for the runtime to look at descriptors, which it does rarely
            // while other work is ready all the time.
            Bell::Kernel(_) if moment <= boot_now() => {}
            Bell::Kernel(timer) => {
                // Zero would disarm the timer instead of firing it.
                let due = TimeSpec::from_duration(Duration::from_nanos(moment.0.max(1)));
                timer.get_ref().0.set(
                    Expiration::OneShot(due),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )?;
                loop {
                    let mut ready = timer.readable().await?;
                    match ready.get_inner().0.wait() {
                        Ok(()) => break,
                        // Readiness left over from an alarm that nobody waited for any more.
                        Err(Errno::EAGAIN) => ready.clear_ready(),
                        Err(err) => return Err(err.into()),
                    }
                }
            }
            Bell::Runtime(clock) => {
                let left = moment.since(clock.now().boot);
                tokio::time::sleep(left).await;
            }
        }
        Ok(())
    }
}
