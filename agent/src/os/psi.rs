//! PSI triggers: the kernel notifies when tasks were stalled too long
//! (`Documentation/accounting/psi.rst`). A trigger that fires wakes this process at most every two
//! seconds; one that does not costs nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use tokio::io::Interest;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::fd;
use crate::reading::{Stall, StallKind};
use crate::record::{Received, Record};

/// An active trigger. Dropping it removes the trigger.
#[derive(Debug)]
pub struct Trigger {
    stall: Stall,
    file: File,
}

/// Why a trigger cannot be set, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// No such file, or `EOPNOTSUPP`.
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
    /// Any other error.
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

impl Trigger {
    /// The group and resource of the trigger.
    pub const fn stall(&self) -> Stall {
        self.stall
    }
}

/// Stall in microseconds per window of two seconds. Without `CAP_SYS_RESOURCE` the window must be a
/// multiple of two seconds, and the kernel checks it every two seconds instead of every 200 ms.
const fn text(kind: StallKind) -> &'static [u8] {
    match kind {
        StallKind::Memory => b"some 150000 2000000\0",
        StallKind::Io => b"some 300000 2000000\0",
    }
}

/// Sets a trigger on the pressure file at `path`.
///
/// Permissions are checked here; dropping capabilities later has no effect.
pub fn open(path: &Path, stall: Stall) -> Result<Trigger, TriggerError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let text = text(stall.kind);
    if file.write(text)? != text.len() {
        return Err(TriggerError::Refused(io::ErrorKind::WriteZero.into()));
    }
    Ok(Trigger { stall, file })
}

/// Sends a record whenever the trigger fires, until the receiver is dropped. Fails if its cgroup is
/// removed.
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
        // After one more record, so that the file is found missing.
        if removed {
            return Err(io::Error::other("the cgroup of the trigger was removed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
