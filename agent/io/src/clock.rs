//! Reads the clocks and waits. No other module does so.

#![forbid(unsafe_code)]

use std::io;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nodepulse_core::clock::{BootNanos, Now};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::fd::{self, Watched};

/// Reads time and creates alarms.
///
/// In production this is the kernel's boot clock. In a simulation it is the runtime's clock, which
/// can be paused, so that minutes take milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Backend);

#[derive(Debug, Clone, Copy)]
enum Backend {
    Kernel,
    Runtime {
        from: Instant,
        at: Now,
        /// Alarms fail from this moment on.
        fails_at: Option<BootNanos>,
    },
}

impl Clock {
    pub const fn kernel() -> Self {
        Self(Backend::Kernel)
    }

    /// Uses the runtime's clock, which shows `at` now. Must be called in a runtime.
    pub fn runtime(at: Now) -> Self {
        Self(Backend::Runtime {
            from: Instant::now(),
            at,
            fails_at: None,
        })
    }

    /// Returns the same clock, whose alarms fail from `moment` on: a fault of the machine for a
    /// simulation. The kernel's clock stays as it is.
    #[must_use]
    pub const fn with_alarms_failing_at(self, moment: BootNanos) -> Self {
        match self.0 {
            Backend::Kernel => self,
            Backend::Runtime { from, at, .. } => Self(Backend::Runtime {
                from,
                at,
                fails_at: Some(moment),
            }),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that may read the clock"
    )]
    pub fn now(&self) -> Now {
        match self.0 {
            Backend::Kernel => Now {
                boot: boot_now(),
                wall: SystemTime::now(),
            },
            Backend::Runtime { from, at, .. } => {
                let passed = from.elapsed();
                Now {
                    boot: at.boot.plus(passed),
                    wall: at.wall + passed,
                }
            }
        }
    }

    /// Returns the time on `CLOCK_MONOTONIC`, which service managers use: it excludes suspend.
    pub fn monotonic(&self) -> Duration {
        match self.0 {
            Backend::Kernel => nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
                .map_or(Duration::ZERO, Duration::from),
            Backend::Runtime { .. } => self.now().boot.since(BootNanos(0)),
        }
    }

    /// Creates an alarm on this clock. Must be called in a runtime with I/O and time enabled. Fails
    /// if the process has no file descriptor left.
    pub fn alarm(&self) -> io::Result<Alarm> {
        Ok(match self.0 {
            Backend::Kernel => {
                let timer = TimerFd::new(
                    ClockId::CLOCK_BOOTTIME,
                    TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
                )?;
                Alarm(Timer::Kernel(Box::new(fd::watch(
                    timer,
                    Interest::READABLE,
                )?)))
            }
            Backend::Runtime { fails_at, .. } => Alarm(Timer::Runtime(*self, fails_at)),
        })
    }
}

/// Reads `CLOCK_BOOTTIME`, which cannot fail on a supported kernel (since 2.6.39).
fn boot_now() -> BootNanos {
    let passed = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map_or(Duration::ZERO, Duration::from);
    BootNanos(0).plus(passed)
}

/// Waits for a moment. A timer descriptor costs one wake-up per expiry; the runtime's timer wheel
/// costs about two, because it cascades long waits through coarser slots.
#[derive(Debug)]
pub struct Alarm(Timer);

#[derive(Debug)]
enum Timer {
    Kernel(Box<AsyncFd<Watched<TimerFd>>>),
    Runtime(Clock, Option<BootNanos>),
}

impl Alarm {
    /// Returns at `moment`, or at once if it has passed. Dropping the future does not disarm the
    /// timer, but the next call sets it again.
    pub async fn at(&mut self, moment: BootNanos) -> io::Result<()> {
        match &mut self.0 {
            // Without waiting for the runtime to poll descriptors, which is rare while other work
            // is ready.
            Timer::Kernel(_) if moment <= boot_now() => {}
            Timer::Kernel(timer) => {
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
                        // Readiness from an earlier alarm that was dropped.
                        Err(Errno::EAGAIN) => ready.clear_ready(),
                        Err(err) => return Err(err.into()),
                    }
                }
            }
            Timer::Runtime(clock, fails_at) => {
                let until = fails_at.map_or(moment, |fails_at| fails_at.min(moment));
                tokio::time::sleep(until.since(clock.now().boot)).await;
                if fails_at.is_some_and(|fails_at| fails_at <= clock.now().boot) {
                    return Err(io::ErrorKind::Other.into());
                }
            }
        }
        Ok(())
    }
}
