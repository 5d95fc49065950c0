//! Settings that user space writes for the programs, and the state that the two share.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::layout;

/// A disk as the maps and records name it: the kernel's internal `dev_t`.
pub const fn device_key(major: u32, minor: u32) -> u32 {
    major << MINOR_BITS | minor & MINOR_MASK
}

/// Major and minor number of a [`device_key`].
pub const fn device_numbers(key: u32) -> (u32, u32) {
    (key >> MINOR_BITS, key & MINOR_MASK)
}

/// `MINORBITS`: <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/kdev_t.h#L7-L8>
const MINOR_BITS: u32 = 20;
const MINOR_MASK: u32 = (1 << MINOR_BITS) - 1;

/// When the fork probe wakes user space. In a map, so that thresholds can be changed at run time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct PidSettings {
    /// At or over this many pids: state 1. Zero turns crossings off.
    pub high: u32,
    /// At or under this many: state 0.
    pub low: u32,
    /// Pids by which the count must change for a trend record. Zero turns them off.
    pub trend_step: u32,
    /// Always zero.
    pub pad: u32,
}
layout!(PidSettings, 16);

/// State of the fork probe. User space writes it too, to end a state on the falling edge, at which no
/// fork happens. An update that races with the probe can repeat a record or lose a trend step; user
/// space compares the state and reads the count again, so neither does harm.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct PidState {
    /// Address of `pid_allocated` of the initial pid namespace; 0 before the first fork.
    /// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/pid_namespace.h#L29>
    pub counter: u64,
    /// 1 over the high level.
    pub state: u32,
    /// Count at the last trend record.
    pub last_trend: u32,
}
layout!(PidState, 16, state @ 8);

/// Slots of [`DiskEntry::histogram`].
pub const HISTOGRAM_SLOTS: usize = 32;

/// One watched disk, keyed by [`device_key`]. Disks without an entry are ignored in the kernel.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct DiskEntry {
    /// Written by user space: at or over this latency a request is slow.
    pub slow_ns: u64,
    /// Written by user space: length of a window.
    pub window_ns: u64,
    /// `bpf_ktime_get_ns` at the start of the window; 0 before the first completion.
    pub window_start: u64,
    /// Reads and writes completed, ever; errors are not among them.
    pub completed: u64,
    /// `completed` at the start of the window.
    pub window_completed: u64,
    /// Of this window, those at or over `slow_ns`.
    pub slow: u64,
    /// Longest timed latency of this window. Two CPUs can overwrite each other here, so it is a lower
    /// bound.
    pub max_ns: u64,
    /// [`DISK_WELL`], [`DISK_SLOW`] or [`DISK_FAILING`]. User space writes the first when nothing
    /// completes and nothing is in flight.
    pub state: u64,
    /// While slow: good windows in a row. While failing: windows that ended since the last error,
    /// the one with the error among them.
    pub good_windows: u64,
    /// Reads and writes that ended with an error, ever. Not counted elsewhere.
    pub errors: u64,
    /// The kernel's tick in which a request was timed last, in the bits of [`TICK_MASK`], and
    /// `bpf_ktime_get_ns` then, in those above. Written as a whole.
    pub tick: u64,
    /// Number of the disk, for the records about it: [`device_key`].
    pub dev: u32,
    /// Always zero.
    pub pad: u32,
    /// Latency of reads and writes. Slot 0 is under 1.024 µs, slot n from 2^(n-1) to 2^n times that;
    /// the last one is open. Of the young requests only one in [`YOUNG_TIMED`] is timed, and counts
    /// for all of those.
    pub histogram: [u64; HISTOGRAM_SLOTS],
}
layout!(DiskEntry, 352, slow_ns @ 0, window_start @ 16, state @ 56, histogram @ 96);

impl DiskEntry {
    /// An entry that has seen nothing yet.
    pub const fn new(slow_ns: u64, window_ns: u64) -> Self {
        Self {
            dev: 0,
            pad: 0,
            slow_ns,
            window_ns,
            window_start: 0,
            completed: 0,
            window_completed: 0,
            slow: 0,
            max_ns: 0,
            state: 0,
            good_windows: 0,
            errors: 0,
            tick: 0,
            histogram: [0; HISTOGRAM_SLOTS],
        }
    }
}

/// Low bits of [`DiskEntry::tick`]: those of `jiffies`.
pub const TICK_MASK: u64 = 0xffff;
/// A request is young if it began and ended in the tick in which another one was timed before it: it
/// took less than a tick, which is 1 to 10 ms, unless ticks did not advance. This is longer than any
/// tick, in nanoseconds; a timed request that took longer is not young.
pub const YOUNG_NS: u64 = 1 << 24;
/// One of this many young requests is timed if `slow_ns` is at least [`YOUNG_NS`]: reading the clock
/// costs more than everything else, and none of them is slow.
pub const YOUNG_TIMED: u64 = 4;

/// [`DiskEntry::state`]: neither slow nor failing.
pub const DISK_WELL: u64 = 0;
/// [`DiskEntry::state`]: requests take too long.
pub const DISK_SLOW: u64 = 1;
/// [`DiskEntry::state`]: a read or write ended with an error while the disk was well. Latencies are
/// not evaluated in this state. It ends after as many windows without an error as slowness does.
pub const DISK_FAILING: u64 = 2;

/// A window with fewer requests than this does not change the state.
pub const DISK_MIN_REQUESTS: u64 = 5;
/// Percent of slow requests at which a disk becomes slow.
pub const DISK_ENTER_PERCENT: u64 = 20;
/// Percent of slow requests up to which a window is good.
pub const DISK_LEAVE_PERCENT: u64 = 5;
/// Good windows in a row after which a disk is no longer slow.
pub const DISK_GOOD_WINDOWS: u64 = 3;
/// A single request this many times over the limit makes the disk slow at once: the slowest disks
/// complete fewer than five requests a second.
pub const DISK_SINGLE_FACTOR: u64 = 10;
