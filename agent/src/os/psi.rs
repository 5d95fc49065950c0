//! Pressure stall triggers: the kernel wakes us when tasks have waited too long
//! (`Documentation/accounting/psi.rst`). One that does not fire costs this process nothing; one that
//! does wakes it once in two seconds.

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

/// A trigger that is set. The kernel forgets it when this is dropped.
#[derive(Debug)]
pub struct Trigger {
    stall: Stall,
    file: File,
}

/// Why there is no trigger, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// No such file, or `EOPNOTSUPP`.
    #[error(
        "there is no such pressure file, or it is off: boot a kernel with CONFIG_PSI and psi=1, and \
         check that the cgroup exists"
    )]
    Absent,
    /// `EROFS`.
    #[error("it is mounted read-only; mount it for writing")]
    ReadOnly,
    /// `EACCES` or `EPERM`.
    #[error(
        "writing is not allowed; run as root, before Linux 6.1 with CAP_SYS_RESOURCE, and with an \
         AppArmor or SELinux profile that allows it"
    )]
    Denied,
    /// Something else.
    #[error("it takes no trigger")]
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
    /// What it is about.
    #[must_use]
    pub const fn stall(&self) -> Stall {
        self.stall
    }
}

/// Microseconds of waiting in a window of two seconds. Without `CAP_SYS_RESOURCE` the window must be
/// a multiple of that, and is then looked at every two seconds instead of ten times as often.
const fn text(kind: StallKind) -> &'static [u8] {
    match kind {
        StallKind::Memory => b"some 150000 2000000\0",
        StallKind::Io => b"some 300000 2000000\0",
    }
}

/// Sets a trigger on the pressure file at `path`.
///
/// What it may do is decided here, and not changed by dropping privileges later.
///
/// # Errors
///
/// See [`TriggerError`].
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

/// Tells of every time that it fires, until the receiver is gone.
///
/// # Errors
///
/// When it cannot be waited for, or is gone together with its cgroup.
pub async fn read(
    trigger: Trigger,
    clock: Clock,
    records: mpsc::Sender<Received>,
) -> io::Result<()> {
    let Trigger { stall, file } = trigger;
    let file = fd::watch(file, Interest::PRIORITY)?;
    loop {
        let mut ready = file.ready(Interest::PRIORITY | Interest::ERROR).await?;
        let gone = ready.ready().is_error();
        ready.clear_ready();
        let at = clock.now().boot;
        let received = Received {
            read: at,
            record: Ok(Record::Stall { at, stall }),
        };
        if records.send(received).await.is_err() {
            return Ok(());
        }
        // Told once more first, so that the file is found missing.
        if gone {
            return Err(io::Error::other("the trigger is gone with its cgroup"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_cure() {
        let rows = [
            (Errno::ENOENT, "psi=1"),
            (Errno::EOPNOTSUPP, "psi=1"),
            (Errno::ENODEV, "cgroup"),
            (Errno::EROFS, "for writing"),
            (Errno::EACCES, "AppArmor"),
            (Errno::EPERM, "CAP_SYS_RESOURCE"),
            (Errno::EINVAL, "no trigger"),
        ];
        for (errno, cure) in rows {
            let said = TriggerError::from(io::Error::from(errno)).to_string();
            assert!(said.contains(cure), "{errno}: {said}");
        }
    }
}
