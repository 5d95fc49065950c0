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

/// State of the fork probe. User space writes it too, to end a state on the falling edge, at which
/// no fork happens. An update that races with the probe can repeat a record or lose a trend step;
/// user space compares the state and reads the count again, so neither does harm.
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

/// Buckets of a latency histogram. Bucket 0 is under [`FIRST_BUCKET_NS`], bucket n from 2^(n-1) to
/// 2^n times that; the last one is open, from 1.07 s.
pub const HISTOGRAM_BUCKETS: usize = 16;
/// Upper bound of the first bucket, in nanoseconds.
pub const FIRST_BUCKET_NS: u64 = 1 << FIRST_BUCKET_BITS;
/// Binary logarithm of [`FIRST_BUCKET_NS`].
pub const FIRST_BUCKET_BITS: u32 = 16;

/// [`REQUEST_CLASSES`]: a write. Without it, a read.
pub const CLASS_WRITE: usize = 1;
/// [`REQUEST_CLASSES`]: a judged request, that is, one that a task waits for.
pub const CLASS_JUDGED: usize = 2;
/// Requests are counted in four classes, numbered by [`CLASS_WRITE`] and [`CLASS_JUDGED`].
pub const REQUEST_CLASSES: usize = 4;

/// One watched disk, keyed by [`device_key`]. Disks without an entry are ignored in the kernel.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct DiskEntry {
    /// Written by user space: a judged request that takes this long is slow.
    pub slow_ns: u64,
    /// Written by user space: length of a window.
    pub window_ns: u64,
    /// The kernel's tick in which a request was timed last, in the bits of [`TICK_MASK`], and
    /// `bpf_ktime_get_ns` then, in those above. Written as a whole. The last completion was in that
    /// tick too.
    pub tick: u64,
    /// Reads and writes completed, ever, by class; errors are not among them.
    pub completed: [u64; REQUEST_CLASSES],
    /// `bpf_ktime_get_ns` at the start of the window; 0 before the first completion.
    pub window_start: u64,
    /// Judged requests in `completed` at the start of the window.
    pub window_judged: u64,
    /// Slow requests of this window.
    pub slow: u64,
    /// Longest latency of a judged request of this window. Two CPUs can overwrite each other here,
    /// so it is a lower bound.
    pub max_ns: u64,
    /// Reads and writes that failed with an error of the medium or the transport, ever.
    pub errors: u64,
    /// `bpf_ktime_get_ns` at the first error of the current window of errors.
    pub error_window_start: u64,
    /// Errors of that window for which a record was written: at most [`ERRORS_PER_WINDOW`].
    pub errors_reported: u64,
    /// Number of the disk, for the records about it: [`device_key`].
    pub dev: u32,
    /// Always zero.
    pub pad: u32,
    /// Latencies in nanoseconds, added up: of reads, and of writes.
    pub sum_ns: [u64; 2],
    /// Requests by latency, for each class. Of the young requests only one in [`YOUNG_TIMED`] is
    /// timed, and counts for all of those, here and in `sum_ns`.
    pub histogram: [[u64; HISTOGRAM_BUCKETS]; REQUEST_CLASSES],
}
layout!(DiskEntry, 648, slow_ns @ 0, window_start @ 56, dev @ 112, sum_ns @ 120, histogram @ 136);

impl DiskEntry {
    /// An entry that has seen nothing yet.
    pub const fn new(slow_ns: u64, window_ns: u64) -> Self {
        Self {
            slow_ns,
            window_ns,
            tick: 0,
            completed: [0; REQUEST_CLASSES],
            window_start: 0,
            window_judged: 0,
            slow: 0,
            max_ns: 0,
            errors: 0,
            error_window_start: 0,
            errors_reported: 0,
            dev: 0,
            pad: 0,
            sum_ns: [0; 2],
            histogram: [[0; HISTOGRAM_BUCKETS]; REQUEST_CLASSES],
        }
    }
}

/// Low bits of [`DiskEntry::tick`]: those of `jiffies`.
pub const TICK_MASK: u64 = 0xffff;
/// A request is young if it began and ended in the tick in which another one was timed before it:
/// it took less than a tick, which is 1 to 10 ms, unless ticks did not advance. This is longer than
/// any tick, in nanoseconds; a timed request that took longer is not young.
pub const YOUNG_NS: u64 = 1 << 24;
/// One of this many young requests is timed if `slow_ns` is at least [`YOUNG_NS`]: reading the
/// clock costs more than everything else, and none of them is slow.
pub const YOUNG_TIMED: u64 = 4;

/// A synchronous write, or a read ahead, of more bytes than this is not judged: it takes long
/// because it is large.
pub const JUDGED_BYTES: u32 = 64 << 10;
/// A window with slow requests goes on until it has this many judged requests.
pub const WINDOW_REQUESTS: u64 = 5;
/// But not for longer than this many times its length: the slowest disks complete less than one
/// request in a window.
pub const WINDOW_EXTENSION: u64 = 5;
/// Percent of slow requests at which a window is slow.
pub const SLOW_PERCENT: u64 = 50;
/// Records about errors of a disk, in a window. Others are only counted.
pub const ERRORS_PER_WINDOW: u64 = 3;
