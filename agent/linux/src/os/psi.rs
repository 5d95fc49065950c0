//! PSI triggers, by which the kernel notifies of long stalls (`Documentation/accounting/psi.rst`).
//! One that fires wakes this process at most once in its window; otherwise it costs nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nodepulse_core::reading::{Stall, StallKind};
use nodepulse_core::record::{Received, Record};
use nodepulse_io::clock::Clock;
use nodepulse_io::fd;
use tokio::io::Interest;
use tokio::sync::mpsc;

/// An active trigger. Dropping it removes the trigger.
#[derive(Debug)]
pub struct Trigger {
    pub stall: Stall,
    file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// The file does not exist, or the kernel returned `EOPNOTSUPP`.
    #[error(
        "the pressure file does not exist or PSI is disabled; boot a kernel with CONFIG_PSI and \
         psi=1, and check that the cgroup exists"
    )]
    Absent,
    /// `EROFS`.
    #[error("the file system is mounted read-only; mount it for writing")]
    ReadOnly,
    /// `EACCES` or `EPERM`.
    #[error(
        "writing is not permitted; run as root, before Linux 6.1 with CAP_SYS_RESOURCE, and with \
         an AppArmor or SELinux profile that allows it"
    )]
    Denied,
    #[error("the kernel refused the trigger")]
    Refused(#[source] io::Error),
}

impl From<io::Error> for TriggerError {
    fn from(err: io::Error) -> Self {
        match err.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => Self::Absent,
            Some(Errno::EROFS) => Self::ReadOnly,
            Some(Errno::EACCES | Errno::EPERM) => Self::Denied,
            _ => Self::Refused(err),
        }
    }
}

/// The level at which a trigger fires: this much stall within a window, in microseconds.
///
/// avg60 can only rise to a threshold if tasks were stalled for about that share of the last
/// window. The kernel's windows may split that time in two, so two fifths of it are enough to fire
/// before avg60 reaches the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TriggerLevel {
    stall: u64,
    window: u64,
}

impl TriggerLevel {
    /// `threshold` is in percent. Without `CAP_SYS_RESOURCE` the window must be a multiple of two
    /// seconds, and the kernel checks it every two seconds instead of ten times in a window.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and the size of a window"
    )]
    fn new(kind: StallKind, threshold: f32) -> Self {
        // The window of memory limits wake-ups on a node that reclaims memory all the time. The
        // stall on I/O must be short, because it also reports disks that do not respond.
        let (window, longest) = match kind {
            StallKind::Memory => (4_000_000_u32, 240_000_u32),
            StallKind::Io => (2_000_000, 300_000),
        };
        let stall = f64::from(threshold) / 100.0 * 0.4 * f64::from(window);
        Self {
            stall: stall.clamp(1.0, f64::from(longest)).round() as u64,
            window: window.into(),
        }
    }

    /// Formats the level as the kernel expects it.
    fn text(self) -> String {
        let Self { stall, window } = self;
        format!("some {stall} {window}\0")
    }
}

/// Sets a trigger on the pressure file at `path`, which fires before avg60 reaches `threshold`, in
/// percent.
///
/// Permissions are checked here; dropping capabilities later has no effect.
pub fn open(path: &Path, stall: Stall, threshold: f32) -> Result<Trigger, TriggerError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let text = TriggerLevel::new(stall.kind, threshold).text();
    if file.write(text.as_bytes())? != text.len() {
        return Err(TriggerError::Refused(io::ErrorKind::WriteZero.into()));
    }
    Ok(Trigger { stall, file })
}

/// Sends a record when the trigger fires. Ends with the receiver; fails if its cgroup is removed.
pub async fn read(
    trigger: Trigger,
    clock: Clock,
    records: mpsc::Sender<Received>,
) -> io::Result<()> {
    let Trigger { stall, file } = trigger;
    let file = fd::watch(file, Interest::PRIORITY)?;
    loop {
        let mut ready = file.ready(Interest::PRIORITY | Interest::ERROR).await?;
        let removed = ready.ready().is_error();
        ready.clear_ready();
        let at = clock.now().boot;
        let received = Received {
            read: at,
            record: Ok(Record::Stall { at, stall }),
        };
        if records.send(received).await.is_err() {
            return Ok(());
        }
        // The loop ends after one more record, so that the file is found missing.
        if removed {
            return Err(io::Error::other("the cgroup of the trigger was removed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_fires_at_two_fifths_of_the_threshold_or_before() {
        use StallKind::{Io, Memory};
        let rows = [
            (Memory, 15.0, "some 240000 4000000\0"),
            (Memory, 90.0, "some 240000 4000000\0"),
            (Memory, 5.0, "some 80000 4000000\0"),
            (Io, 40.0, "some 300000 2000000\0"),
            (Io, 10.0, "some 80000 2000000\0"),
            // The kernel refuses 0.
            (Io, 0.000_1, "some 1 2000000\0"),
        ];
        for (kind, threshold, expected) in rows {
            let text = TriggerLevel::new(kind, threshold).text();
            assert_eq!(text, expected, "{kind:?} {threshold}");
        }
    }

    /// Computes the result of `kernel/sched/psi.c` if tasks are stalled at the end of each period:
    /// `true` if the trigger fires before avg60 reaches the threshold. All times are in
    /// microseconds.
    fn fires_before_avg60_rises(threshold: f32, stalled: u32, period: u32) -> bool {
        const STEP: u32 = 100_000;
        const UPDATE: u32 = 2_000_000;
        let TriggerLevel { stall, window } = TriggerLevel::new(StallKind::Memory, threshold);
        let decay = (-2.0_f64 / 60.0).exp();
        let (mut avg60, mut total, mut total_at_update) = (0.0, 0, 0);
        // These are the start of the window, the total then, and the growth in the window before.
        let (mut start, mut total_at_start, mut before) = (0, 0, 0);
        let mut last_stall = 0;
        for now in (STEP..1_800_000_000).step_by(100_000) {
            if (now - STEP) % period >= period - stalled {
                if now - last_stall > UPDATE {
                    // Polling had ended: the windows begin again.
                    (start, total_at_start, before) = (now - STEP, total, 0);
                }
                last_stall = now;
                total += STEP;
            }
            let (elapsed, mut growth) = (u64::from(now - start), u64::from(total - total_at_start));
            if elapsed > window {
                (start, total_at_start, before) = (now, total, growth);
            } else {
                growth += before * (window - elapsed) / window;
            }
            if growth >= stall {
                return true;
            }
            if now % UPDATE == 0 {
                let share = f64::from(total - total_at_update) / f64::from(UPDATE);
                total_at_update = total;
                avg60 = avg60 * decay + share * (1.0 - decay);
                if avg60 * 100.0 >= f64::from(threshold) {
                    return false;
                }
            }
        }
        panic!("avg60 reached {avg60} only");
    }

    #[test]
    fn a_trigger_fires_before_avg60_reaches_the_threshold() {
        // threshold, then tasks are stalled for so many tenths of a second, in each so many
        let rows = [
            (15.0, 10, 10),
            (15.0, 2, 10),
            (15.0, 5, 28),
            (15.0, 4, 23),
            (15.0, 12, 70),
            (15.0, 35, 200),
            (15.0, 110, 600),
            (5.0, 2, 30),
            (5.0, 5, 80),
            (40.0, 12, 27),
            (80.0, 9, 11),
            (80.0, 90, 100),
        ];
        for (threshold, stalled, period) in rows {
            let fires = fires_before_avg60_rises(threshold, stalled * 100_000, period * 100_000);
            assert!(fires, "{threshold} %: {stalled} of {period} tenths");
        }
    }

    #[test]
    fn every_error_names_a_remedy() {
        let rows = [
            (Errno::ENOENT, "psi=1"),
            (Errno::EOPNOTSUPP, "psi=1"),
            (Errno::ENODEV, "cgroup"),
            (Errno::EROFS, "for writing"),
            (Errno::EACCES, "AppArmor"),
            (Errno::EPERM, "CAP_SYS_RESOURCE"),
            (Errno::EINVAL, "refused"),
        ];
        for (errno, remedy) in rows {
            let text = TriggerError::from(io::Error::from(errno)).to_string();
            assert!(text.contains(remedy), "{errno}: {text}");
        }
    }
}
