//! `block_rq_complete`: latency per disk, and its state changes.
//!
//! This runs at every request of every disk, so it reads what it needs by plain loads: the verifier
//! knows the type of the request and of its queue, and neither can be null or freed while the
//! request completes, because `blk_rq_init` and `blk_mq_rq_ctx_init` set `request.q`:
//! <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-mq.c#L406>, <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-mq.c#L442>. Everything behind further pointers is read by the
//! helper that can fail, ten times a second for each queue.
//!
//! The latency is the time since the kernel allocated the request, so it includes the time in the
//! queue, as `await` does:
//! <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-mq.c#L418-L424>. Reading the clock is
//! the most expensive part. Requests that began and ended in one tick of the kernel cannot be slow,
//! so most of them are counted and not timed. Of a disk that completes less than one request per
//! tick all are timed.
//!
//! A deep queue of large writes must take long; that is throughput and no slowness. So only
//! requests that a task waits for are judged. A window is closed by the first completion that is
//! timed after its end. If most of its judged requests were slow, a record is written, and
//! otherwise nothing.

use core::hint::black_box;

use agent_common::event::{DiskError, SlowWindow};
use agent_common::settings::{
    CLASS_JUDGED, CLASS_WRITE, ERRORS_PER_WINDOW, FIRST_BUCKET_BITS, HISTOGRAM_BUCKETS,
    JUDGED_BYTES, SLOW_PERCENT, TICK_MASK, WINDOW_EXTENSION, WINDOW_REQUESTS, YOUNG_NS,
    YOUNG_TIMED, device_key,
};
use agent_common::{DiskEntry, DropReason, EventKind, KernelOffsets};
use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_ktime_get_ns};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;

use crate::cell::add;
use crate::emit;
use crate::maps::{DISKS, QUEUES, SLOTS};
use crate::offsets::{Address, Typed, offset};

mod error;

/// `REQ_OP_MASK`: the low 8 bits of `cmd_flags`.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blk_types.h#L308-L309>
const OP_MASK: u32 = 0xff;
/// `REQ_OP_WRITE`; reads are 0. Higher numbers are flush, discard, zones or passthrough:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blk_types.h#L327-L331>
const OP_WRITE: u32 = 1;

/// See [`REQUEST_CLASSES`](agent_common::settings::REQUEST_CLASSES).
const CLASS_MASK: usize = CLASS_JUDGED | CLASS_WRITE;

/// How long a lookup of a queue's disk stays valid: 2^5 ticks, 32 to 320 ms. The kernel reuses ids
/// of queues: <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-core.c#L263>,
/// <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-core.c#L405>
const KNOWN_FOR: u32 = 5;
/// Low bits of an entry of `QUEUES`: the slot of the disk.
const SLOT_BITS: u32 = 16;
/// That slot if the disk is not watched, or there is none.
const UNWATCHED: u64 = (1 << SLOT_BITS) - 1;

/// `block_rq_complete(request, error, nr_bytes)`.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/trace/events/block.h#L167>
#[btf_tracepoint(function = "block_rq_complete")]
pub fn disk_complete(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of this tracepoint is a request.
    let rq = unsafe { Typed::new(ctx.arg::<u64>(0)) };
    // SAFETY: the offsets are those of these members.
    let (flags, left) = unsafe {
        (
            rq.load::<u32>(offset!(rq_cmd_flags)),
            rq.load::<u32>(offset!(rq_data_len)),
        )
    };
    let (status, done) = (ctx.arg::<u32>(1), ctx.arg::<u32>(2));
    // An empty flush is a write of 0 bytes. A part of a request is not counted, unless it failed.
    if flags & OP_MASK > OP_WRITE || done == 0 || (done < left && status == 0) {
        return 0;
    }
    // SAFETY: takes nothing. The verifier makes it a load.
    let jiffies = unsafe { bpf_jiffies64() };
    let Some(entry) = DISKS.get_ptr_mut(slot_of(rq, jiffies)) else {
        return 0;
    };
    // SAFETY: the lookup above returned a map value that stays mapped, and any bit pattern is valid
    // in it. User space may write it at the same time, which loses some counts.
    let entry = unsafe { &mut *entry };
    if status != 0 {
        failed(entry, flags & OP_WRITE, status, jiffies);
        #[cfg(feature = "log")]
        aya_log_ebpf::debug!(&ctx, "request failed on device {}", entry.dev);
        return 0;
    }
    let class = class_of(flags, left);
    // SAFETY: the offset is that of this member.
    match unsafe { rq.load::<u64>(offset!(rq_start_time_ns)) } {
        0 => emit::dropped(DropReason::NoStartTime),
        start => succeeded(entry, class, start, jiffies),
    }
    0
}

/// [`CLASS_WRITE`], and [`CLASS_JUDGED`] if a task is likely to wait for this request: a read,
/// unless it reads ahead; a write of metadata, of a journal or through the cache; a small
/// synchronous write.
///
/// The kernel marks every read through the page cache as read ahead, also that of a single page for
/// which a task waits: <https://github.com/gregkh/linux/blob/v6.12.107/fs/mpage.c#L176-L177>. So a
/// small one is judged.
#[inline(always)]
fn class_of(flags: u32, length: u32) -> usize {
    // SAFETY: all of them are in `table`.
    let (readahead, urgent, sync) = unsafe {
        (
            offset!(req_readahead),
            offset!(req_urgent),
            offset!(req_sync),
        )
    };
    let judged = if flags & OP_WRITE == 0 {
        flags & readahead == 0 || length <= JUDGED_BYTES
    } else {
        flags & urgent != 0 || (flags & sync != 0 && length <= JUDGED_BYTES)
    };
    let class = if judged { CLASS_JUDGED } else { 0 };
    class | ((flags & OP_WRITE) as usize * CLASS_WRITE)
}

#[inline(always)]
fn succeeded(entry: &mut DiskEntry, class: usize, start: u64, jiffies: u64) {
    let mut young = is_young(entry, start, jiffies);
    if !young || is_drawn(start) {
        // SAFETY: takes nothing and reads the clock by which the request was stamped.
        let now = unsafe { bpf_ktime_get_ns() };
        let latency = now.saturating_sub(start);
        // Ticks do not advance while the CPU that counts them is delayed.
        young &= latency < YOUNG_NS;
        if now.saturating_sub(entry.window_start) >= entry.window_ns {
            end_window(entry, start, now);
        }
        if !young {
            set_tick(entry, now, jiffies);
        }
        timed(entry, class, latency, if young { YOUNG_TIMED } else { 1 });
    }
    // After the window before it was evaluated.
    // SAFETY: a field of a live map value; `class` has two bits.
    unsafe { add(&raw mut entry.completed[masked(class, CLASS_MASK)], 1) };
}

/// Remembers that a request was timed.
#[inline(always)]
fn set_tick(entry: &mut DiskEntry, now: u64, jiffies: u64) {
    // SAFETY: a field of a live map value.
    unsafe { (&raw mut entry.tick).write_volatile(now & !TICK_MASK | jiffies & TICK_MASK) };
}

/// Whether this one of [`YOUNG_TIMED`] is timed: chosen by a time in nanoseconds, which is as good
/// as random once its bits are mixed (Fibonacci hashing). The last digits of a clock alone are not.
#[inline(always)]
const fn is_drawn(start: u64) -> bool {
    start.wrapping_mul(0x9e37_79b9_7f4a_7c15) < u64::MAX / YOUNG_TIMED
}

/// See [`YOUNG_NS`]. It also bounds the time of the tick, because the stored bits of a tick repeat
/// after a minute or more.
#[inline(always)]
fn is_young(entry: &DiskEntry, start: u64, jiffies: u64) -> bool {
    // SAFETY: a field of a live map value.
    let tick = unsafe { (&raw const entry.tick).read_volatile() };
    // The time is rounded down in `tick`, and up here. The result is huge for a request that began
    // before it.
    let after = start.wrapping_sub(tick | TICK_MASK);
    (tick ^ jiffies) & TICK_MASK == 0 && after < YOUNG_NS && entry.slow_ns >= YOUNG_NS
}

/// Index of the entry of the request's disk; beyond the end of [`DISKS`] if there is none.
#[inline(always)]
fn slot_of(rq: Typed, jiffies: u64) -> u32 {
    // SAFETY: both offsets are those of the members, and the first contains a queue.
    let id = unsafe { rq.follow(offset!(rq_q)).load::<u32>(offset!(queue_id)) };
    let Some(known) = QUEUES.get_ptr_mut(id) else {
        return look_up(rq) as u32; // A machine with thousands of disks.
    };
    let time = jiffies >> KNOWN_FOR;
    // SAFETY: a live, aligned map value. Other CPUs write it as a whole, and the same value.
    unsafe {
        let mut it = known.read_volatile();
        if it >> SLOT_BITS != time {
            it = (time << SLOT_BITS) | look_up(rq);
            known.write_volatile(it);
        }
        (it & UNWATCHED) as u32
    }
}

/// The slot of the request's disk, by its number.
#[inline(never)]
fn look_up(rq: Typed) -> u64 {
    let slot = device(rq.address()).and_then(|dev| SLOTS.get_ptr(dev));
    // SAFETY: the lookup returned a live, aligned map value.
    slot.map_or(UNWATCHED, |slot| unsafe { *slot } as u64 & UNWATCHED)
}

/// The disk of a request: `rq_disk` up to 5.16
/// (<https://github.com/gregkh/linux/blob/v5.10.223/include/linux/blkdev.h#L198>), `q->disk` in
/// later kernels (<https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blkdev.h#L486>).
/// `None` for a request such as one of a controller's admin queue.
#[inline(always)]
fn device(rq: Address) -> Option<u32> {
    // SAFETY: all offsets come from `table`.
    let (direct, queue, queue_disk, major, minor) = unsafe {
        (
            offset!(rq_disk),
            offset!(rq_q),
            offset!(queue_disk),
            offset!(disk_major),
            offset!(disk_first_minor),
        )
    };
    let disk = if direct == KernelOffsets::MISSING {
        rq.at(queue).follow()?.at(queue_disk).follow()?
    } else {
        rq.at(direct).follow()?
    };
    Some(device_key(
        disk.at(major).read::<u32>()?,
        disk.at(minor).read::<u32>()?,
    ))
}

/// Counts an error of the disk, and reports it, unless there are many.
#[inline(always)]
fn failed(entry: &mut DiskEntry, op: u32, status: u32, jiffies: u64) {
    // SAFETY: takes nothing and reads the clock.
    let now = unsafe { bpf_ktime_get_ns() };
    set_tick(entry, now, jiffies); // It completed, however.
    let Some(errno) = error::of_disk(status) else {
        return;
    };
    // SAFETY: a field of a live map value.
    unsafe { add(&raw mut entry.errors, 1) };
    if now.saturating_sub(entry.error_window_start) >= entry.window_ns {
        entry.error_window_start = now;
        entry.errors_reported = 0;
    }
    if entry.errors_reported >= ERRORS_PER_WINDOW {
        return;
    }
    entry.errors_reported += 1;
    let dev = entry.dev;
    emit::bulk(EventKind::DiskError, |record: &mut DiskError| {
        record.dev = dev;
        record.op = op;
        record.errno = errno;
    });
}

#[inline(always)]
fn timed(entry: &mut DiskEntry, class: usize, latency: u64, counts_for: u64) {
    // SAFETY: fields of a live map value. All indexes are masked to the length of their array.
    unsafe {
        let histogram = &raw mut entry.histogram[masked(class, CLASS_MASK)];
        let bucket = masked(bucket(latency), HISTOGRAM_BUCKETS - 1);
        add(&raw mut (*histogram)[bucket], counts_for);
        // A young request is short, so this does not overflow.
        let latency = latency.wrapping_mul(counts_for);
        add(&raw mut entry.sum_ns[masked(class, CLASS_WRITE)], latency);
    }
    if class & CLASS_JUDGED == 0 {
        return;
    }
    if latency > entry.max_ns {
        entry.max_ns = latency;
    }
    if latency >= entry.slow_ns {
        // SAFETY: as above.
        unsafe { add(&raw mut entry.slow, 1) };
    }
}

/// Ends the window, unless it has too few judged requests to decide. Reports it if it was slow.
///
/// Two CPUs may end the same window. The second finds no judged request in it, or comes to the same
/// result; a record may be sent twice then.
///
/// `start` is that of the request that completes now. If nothing completed for the length of a
/// window before it, the disk was idle, and the window ended with the last completion.
#[inline(always)]
fn end_window(entry: &mut DiskEntry, start: u64, now: u64) {
    let completed = judged(entry);
    let (judged, slow) = (completed.saturating_sub(entry.window_judged), entry.slow);
    let elapsed = now.saturating_sub(entry.window_start);
    // Wrapping, because the target has no 128-bit product to saturate with; user space writes at
    // most an hour.
    let longest = entry.window_ns.wrapping_mul(WINDOW_EXTENSION);
    if judged < WINDOW_REQUESTS && slow > 0 && elapsed < longest {
        return;
    }
    let (begun, max_ns) = (entry.window_start, entry.max_ns);
    // First, so that another CPU rarely ends it too.
    // SAFETY: a field of a live map value.
    unsafe { (&raw mut entry.window_start).write_volatile(now) };
    // Not a sum: a CPU that ends it at the same time writes nearly the same value.
    entry.window_judged = completed;
    entry.slow = 0;
    entry.max_ns = 0;
    if slow == 0 || slow * 100 < judged * SLOW_PERCENT {
        return;
    }
    let last = entry.tick & !TICK_MASK;
    let idle = start.saturating_sub(last) >= entry.window_ns;
    let end = if idle { last } else { now };
    let length = end.saturating_sub(begun);
    let length = if length < longest { length } else { longest };
    let dev = entry.dev;
    emit::bulk(EventKind::SlowWindow, |record: &mut SlowWindow| {
        record.dev = dev;
        record.judged = judged as u32;
        record.slow = slow as u32;
        record.window_ns = length;
        record.ago_ns = now.saturating_sub(end);
        record.max_ns = max_ns;
    });
}

/// Judged requests, ever. Other CPUs may add to it at the same time.
#[inline(always)]
fn judged(entry: &DiskEntry) -> u64 {
    let completed = |class: usize| &raw const entry.completed[class & CLASS_MASK];
    // SAFETY: fields of a live map value.
    unsafe {
        let reads = completed(CLASS_JUDGED).read_volatile();
        reads.wrapping_add(completed(CLASS_JUDGED | CLASS_WRITE).read_volatile())
    }
}

/// Bucket of the histogram.
#[inline(always)]
fn bucket(latency_ns: u64) -> usize {
    let units = latency_ns >> FIRST_BUCKET_BITS;
    if units >> (HISTOGRAM_BUCKETS - 2) != 0 {
        return HISTOGRAM_BUCKETS - 1;
    }
    // Bits by halving: the target has no instruction that counts leading zeroes.
    let (rest, eights) = halved(units, 8);
    let (rest, fours) = halved(rest, 4);
    let (rest, twos) = halved(rest, 2);
    let (rest, ones) = halved(rest, 1);
    // `rest` is the highest bit that is set, or 0.
    eights + fours + twos + ones + rest as usize
}

/// `rest` without its low `half` bits, and their number, if any is set above them.
#[inline(always)]
const fn halved(rest: u64, half: u32) -> (u64, usize) {
    if rest >> half == 0 {
        (rest, 0)
    } else {
        (rest >> half, half as usize)
    }
}

/// `index & mask`. The compiler drops the mask of an index that is always in range, but the
/// verifier of Linux 5.10 does not know that range of an index that the compiler saves on the stack
/// in between, and refuses the program.
#[inline(always)]
fn masked(index: usize, mask: usize) -> usize {
    black_box(index) & mask
}
