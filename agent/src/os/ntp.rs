//! Whether the kernel's clock is kept by somebody.

use std::io;
use std::mem;
use std::time::Duration;

use nix::libc;

/// What the kernel says of its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSync {
    /// Somebody keeps it: it is at most so far off.
    Synchronised(Duration),
    /// Nobody does, or nobody has for so long that the kernel no longer believes it.
    Unsynchronised,
}

/// Asks the kernel (`adjtimex(2)`). Changes nothing, and needs no right.
///
/// # Errors
///
/// Where a filter refuses the call.
pub fn clock_sync() -> io::Result<ClockSync> {
    // SAFETY: all fields are integers, for which zero is a value; `modes` of zero asks and sets
    // nothing.
    let mut clock: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: `clock` is as large as the kernel writes, and lives for the call.
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
