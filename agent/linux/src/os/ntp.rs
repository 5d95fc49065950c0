//! The synchronisation state of the kernel's clock.

use std::io;
use std::mem;
use std::time::Duration;

use nix::libc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSync {
    /// Synchronised, with this maximum error.
    Synchronised(Duration),
    /// Not synchronised, or not for a long time.
    Unsynchronised,
}

/// Reads the state with `adjtimex(2)`. Needs no capability.
pub fn clock_sync() -> io::Result<ClockSync> {
    // SAFETY: all fields are integers, for which zero is valid; `modes` of zero only reads.
    let mut clock: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: `clock` has the size that the kernel writes, and is valid for the call.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    if state == libc::TIME_ERROR || clock.status & libc::STA_UNSYNC != 0 {
        return Ok(ClockSync::Unsynchronised);
    }
    let off = u64::try_from(clock.maxerror).unwrap_or_default();
    Ok(ClockSync::Synchronised(Duration::from_micros(off)))
}
