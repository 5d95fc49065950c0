//! Registration of file descriptors with the runtime, which happens only here.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use aya::maps::{MapData, RingBuf};
use nix::sys::inotify::Inotify;
use nix::sys::timerfd::TimerFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Owns one descriptor that it never changes.
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
// SAFETY: a ring owns its map, and a map keeps its descriptor from creation to drop.
unsafe impl OneDescriptor for RingBuf<MapData> {}

#[cfg(feature = "ebpf-log")]
// SAFETY: a logger owns its ring, as above.
unsafe impl<T> OneDescriptor for aya_log::EbpfLogger<T> {}

/// A descriptor in the form that [`AsyncFd`] requires.
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
