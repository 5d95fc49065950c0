//! Registers file descriptors with the runtime, which no other module does, and closes those that
//! the process inherited.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;
use nix::sys::inotify::Inotify;
use nix::sys::timerfd::TimerFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A type that owns one descriptor and never changes it.
///
/// # Safety
///
/// `as_fd` must return the same open descriptor for as long as the value lives.
pub unsafe trait OneDescriptor: AsFd {}

// SAFETY: a file owns its descriptor from open to drop.
unsafe impl OneDescriptor for File {}
// SAFETY: an owned descriptor is open until it is dropped.
unsafe impl OneDescriptor for OwnedFd {}
// SAFETY: a timer owns its descriptor from creation to drop.
unsafe impl OneDescriptor for TimerFd {}
// SAFETY: an inotify instance owns its descriptor from creation to drop.
unsafe impl OneDescriptor for Inotify {}

/// Adapts a descriptor to [`AsyncFd`], which requires `AsRawFd`.
#[derive(Debug)]
pub struct Watched<T>(pub T);

impl<T: OneDescriptor> AsRawFd for Watched<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Registers `inner` with the current runtime, which must have I/O enabled.
pub fn watch<T: OneDescriptor>(inner: T, interest: Interest) -> io::Result<AsyncFd<Watched<T>>> {
    // SAFETY: `OneDescriptor` promises one open descriptor for the life of `inner`, which the
    // result owns; `Watched` hands out no way to exchange it that its callers use.
    let registered = unsafe { AsyncFd::register_with_interest(Watched(inner), interest) };
    registered.map_err(Into::into)
}

/// The first descriptor after the standard ones.
const FIRST: RawFd = 3;

/// Closes every descriptor that the process inherited, except the standard ones: they count towards
/// the limit, keep files and connections of another program open, and a credential plugin would
/// inherit them.
///
/// Unlike `close_range`, it closes nothing that this process has opened, and works on every kernel.
pub fn close_inherited() -> io::Result<()> {
    // If the table is full, reading the list needs one of them.
    close_if_inherited(FIRST);
    let mut listed = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        listed.extend(number.filter(|&open: &RawFd| FIRST <= open));
    }
    for open in listed {
        close_if_inherited(open);
    }
    Ok(())
}

fn close_if_inherited(open: RawFd) {
    // SAFETY: F_GETFD reads the flags of whatever the number refers to, and fails for nothing.
    let flags = unsafe { libc::fcntl(open, libc::F_GETFD) };
    if 0 <= flags && flags & libc::FD_CLOEXEC == 0 {
        // SAFETY: it is open, and it has no owner: what has one was opened by this process, with
        // FD_CLOEXEC, as the standard library and all crates do it; nothing with that flag can be
        // inherited.
        drop(unsafe { OwnedFd::from_raw_fd(open) });
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// Fills the table, and closes the inherited descriptors. Returns the number of those that are
    /// open then.
    fn fill_and_close() -> io::Result<usize> {
        // At once: they include locked files of other tests.
        // SAFETY: descriptors of the test's process, of which this copy uses none.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, 256, hard)?;
        // SAFETY: the number may be of a descriptor of the test's process, of which this copy uses
        // none.
        unsafe { libc::dup2(0, FIRST) };
        // SAFETY: the copies have no owner.
        while 0 <= unsafe { libc::dup(0) } {}
        close_inherited()?;
        Ok(fs::read_dir("/proc/self/fd")?.count())
    }

    #[test]
    fn a_full_table_of_descriptors_is_emptied() {
        // SAFETY: the child allocates, which the C library permits, and reads no state of another
        // thread.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let left = fill_and_close().ok();
                let is_empty = left.is_some_and(|left| left < 128);
                // SAFETY: it ends this process, without the handlers of the test's.
                unsafe { libc::_exit(i32::from(!is_empty)) }
            }
        };
        let ended = waitpid(child, None).unwrap();
        assert_eq!(ended, WaitStatus::Exited(child, 0));
    }
}
