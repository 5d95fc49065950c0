//! `block_rq_complete`: latency per disk, and its state changes.
//!
//! This runs at every request of every disk, so it reads what it needs by plain loads: the verifier
//! knows the type of the request and of its queue, and neither can be null or freed while the request
//! completes, because `blk_rq_init` and `blk_mq_rq_ctx_init` set `request.q`:
//! <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-mq.c#L406>, <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-mq.c#L442>. Everything behind further pointers is read by the
//! helper that can fail, ten times a second for each queue.
//!
//! The latency is the time since the kernel allocated the request, so it includes the time in the
//! queue, as `await` does: <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-mq.c#L418-L424>. Reading the clock is the most expensive part.
//! Requests that began and ended in one tick of the kernel cannot be slow, so most of them are counted
//! and not timed. Of a disk that completes less than one request per tick all are timed. A window is
//! closed by the first completion after its end; user space ends a state when I/O stops, and detects a
//! hang.

use agent_common::event::DiskState;
use agent_common::settings::{
    DISK_ENTER_PERCENT, DISK_FAILING, DISK_GOOD_WINDOWS, DISK_LEAVE_PERCENT, DISK_MIN_REQUESTS,
    DISK_SINGLE_FACTOR, DISK_SLOW, DISK_WELL, HISTOGRAM_SLOTS, TICK_MASK, YOUNG_NS, YOUNG_TIMED,
    device_key,
};
use agent_common::{DiskEntry, DropReason, EventKind, KernelOffsets};
use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_ktime_get_ns};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;

use crate::cell::add;
use crate::emit;
use crate::maps::{DISKS, QUEUES, SLOTS};
use crate::offsets::{Address, Typed, offset};

/// `REQ_OP_MASK`: the low 8 bits of `cmd_flags`. <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blk_types.h#L308-L309>
const OP_MASK: u32 = 0xff;
/// `REQ_OP_WRITE`; reads are 0. Higher numbers are flush, discard, zones or passthrough:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blk_types.h#L327-L331>
const OP_WRITE: u32 = 1;

/// How long a lookup of a queue's disk stays valid: 2^5 ticks, 32 to 320 ms. The kernel reuses ids of
/// queues: <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-core.c#L263>, <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-core.c#L405>
const KNOWN_FOR: u32 = 5;
/// Low bits of an entry of `QUEUES`: the slot of the disk.
const SLOT_BITS: u32 = 16;
/// That slot if the disk is not watched, or there is none.
const UNWATCHED: u64 = (1 << SLOT_BITS) - 1;

/// `block_rq_complete(request, error, nr_bytes)`. <https://github.com/gregkh/linux/blob/v6.12.107/include/trace/events/block.h#L167>
#[btf_tracepoint(function = "block_rq_complete")]
pub fn disk_complete(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: argument 0 of this tracepoint is a request.
    let rq = unsafe { Typed::new(ctx.arg::<u64>(0)) };
    if !ends_a_read_or_write(rq, ctx.arg::<u32>(2)) {
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
    if ctx.arg::<u32>(1) != 0 {
        failed(entry);
        #[cfg(feature = "log")]
        aya_log_ebpf::debug!(&ctx, "request failed on device {}", entry.dev);
        return 0;
    }
    // SAFETY: the offset is that of this member.
    match unsafe { rq.load::<u64>(offset!(rq_start_time_ns)) } {
        0 => emit::dropped(DropReason::NoStartTime),
        start => succeeded(entry, start, jiffies),
    }
    0
}

#[inline(always)]
fn succeeded(entry: &mut DiskEntry, start: u64, jiffies: u64) {
    let mut young = is_young(entry, start, jiffies);
    if !young || is_drawn(start) {
        // SAFETY: takes nothing and reads the clock by which the request was stamped.
        let now = unsafe { bpf_ktime_get_ns() };
        let latency = now.saturating_sub(start);
        // Ticks do not advance while the CPU that counts them is delayed.
        young &= latency < YOUNG_NS;
        if !young {
            // SAFETY: a field of a live map value.
            unsafe { (&raw mut entry.tick).write_volatile(now & !TICK_MASK | jiffies & TICK_MASK) };
        }
        timed(entry, latency, now, if young { YOUNG_TIMED } else { 1 });
    }
    // After the window before it was evaluated.
    // SAFETY: a field of a live map value.
    unsafe { add(&raw mut entry.completed, 1) };
}

/// Whether this one of [`YOUNG_TIMED`] is timed: chosen by a time in nanoseconds, which is as good as
/// random once its bits are mixed (Fibonacci hashing). The last digits of a clock alone are not.
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
    // SAFETY: both offsets are those of the members, and the first holds a queue.
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

/// The disk of a request: `rq_disk` up to 5.16 (<https://github.com/gregkh/linux/blob/v5.10.223/include/linux/blkdev.h#L198>), `q->disk` in later
/// kernels (<https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blkdev.h#L486>). `None` for a request such as one of a controller's admin
/// queue.
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

/// Whether this completion is the last of a read or write that moved data. An empty flush is a write
/// of 0 bytes.
#[inline(always)]
fn ends_a_read_or_write(rq: Typed, nr_bytes: u32) -> bool {
    // SAFETY: the offsets are those of these members.
    let (flags, left) = unsafe {
        (
            rq.load::<u32>(offset!(rq_cmd_flags)),
            rq.load::<u32>(offset!(rq_data_len)),
        )
    };
    flags & OP_MASK <= OP_WRITE && nr_bytes != 0 && nr_bytes >= left
}

/// One error is reported at once, and the disk stays failing until some windows had no error.
#[inline(always)]
fn failed(entry: &mut DiskEntry) {
    // SAFETY: a field of a live map value.
    unsafe { add(&raw mut entry.errors, 1) };
    if entry.state == DISK_WELL {
        let total = completed(entry).saturating_sub(entry.window_completed);
        change(entry, DISK_FAILING, total, 0);
    } else if entry.state == DISK_FAILING {
        entry.good_windows = 0;
    }
}

#[inline(always)]
fn timed(entry: &mut DiskEntry, latency: u64, now: u64, counts_for: u64) {
    let elapsed = now.saturating_sub(entry.window_start);
    if elapsed >= entry.window_ns {
        // First, so that another CPU rarely closes it too.
        // SAFETY: a field of a live map value.
        unsafe { (&raw mut entry.window_start).write_volatile(now) };
        close_window(entry, elapsed);
    }
    let slow = latency >= entry.slow_ns;
    // SAFETY: fields of a live map value; the histogram index is masked to its length.
    unsafe { add(&raw mut entry.histogram[slot(latency)], counts_for) };
    if latency > entry.max_ns {
        entry.max_ns = latency;
    }
    if !slow {
        return;
    }
    // SAFETY: as above.
    unsafe { add(&raw mut entry.slow, 1) };
    if entry.state == DISK_WELL && latency >= entry.slow_ns.wrapping_mul(DISK_SINGLE_FACTOR) {
        // This one included.
        let total = completed(entry).saturating_sub(entry.window_completed) + 1;
        change(
            entry,
            DISK_SLOW,
            total,
            now.saturating_sub(entry.window_start),
        );
    }
}

/// Evaluates the window that has ended, and starts an empty one.
///
/// Two CPUs may close the same window. The second usually finds it empty, and leaves the evaluation to
/// the first: a window contains at least the request that opened it. Otherwise both come to the same
/// result, and a record may be sent twice, which is harmless: user space compares the state.
///
/// A window that is followed by a long time without I/O does not describe the present: it can end a
/// state, but not begin one.
#[inline(always)]
fn close_window(entry: &mut DiskEntry, elapsed: u64) {
    let completed = completed(entry);
    let (total, slow) = (completed.saturating_sub(entry.window_completed), entry.slow);
    if total == 0 {
        return;
    }
    let passed = windows(elapsed, entry.window_ns);
    if entry.state == DISK_WELL {
        let bad = total >= DISK_MIN_REQUESTS && slow * 100 >= total * DISK_ENTER_PERCENT;
        if bad && passed < DISK_GOOD_WINDOWS {
            change(entry, DISK_SLOW, total, elapsed);
        }
    } else {
        let failing = entry.state == DISK_FAILING;
        let good = failing || slow * 100 <= total * DISK_LEAVE_PERCENT;
        // The windows without any I/O that followed were good ones.
        let before = if good {
            entry.good_windows.saturating_add(1)
        } else {
            0
        };
        entry.good_windows = before.saturating_add(passed - 1);
        // The window with the error counts too.
        if entry.good_windows >= DISK_GOOD_WINDOWS + u64::from(failing) {
            change(entry, DISK_WELL, total, elapsed);
        }
    }
    // Not a sum: a CPU that closes it at the same time writes nearly the same value.
    entry.window_completed = completed;
    entry.slow = 0;
    entry.max_ns = 0;
}

/// Other CPUs may add to it at the same time.
#[inline(always)]
fn completed(entry: &DiskEntry) -> u64 {
    // SAFETY: a field of a live map value.
    unsafe { (&raw const entry.completed).read_volatile() }
}

/// Whole windows in `elapsed`, up to [`DISK_GOOD_WINDOWS`].
///
/// Wrapping, because the target has no 128-bit product to saturate with; user space writes at most an
/// hour into either number.
#[inline(always)]
fn windows(elapsed: u64, window_ns: u64) -> u64 {
    let mut whole = 1;
    while whole < DISK_GOOD_WINDOWS && elapsed >= window_ns.wrapping_mul(whole + 1) {
        whole += 1;
    }
    whole
}

#[inline(always)]
fn change(entry: &mut DiskEntry, state: u64, total: u64, window_ns: u64) {
    entry.state = state;
    entry.good_windows = 0;
    let (dev, slow, max_ns) = (entry.dev, entry.slow, entry.max_ns);
    emit::bulk(EventKind::DiskState, |record: &mut DiskState| {
        record.dev = dev;
        record.state = state as u32;
        record.total = total as u32;
        record.slow = slow as u32;
        record.window_ns = window_ns;
        record.max_ns = max_ns;
    });
}

/// Slot of the log2 histogram: 0 under 1.024 µs, n from 2^(n-1) times that.
#[inline(always)]
fn slot(latency_ns: u64) -> usize {
    let units = latency_ns >> 10;
    // Bits by halving: the target has no instruction that counts leading zeroes.
    let mut rest = units;
    let mut bits = 0u32;
    let mut half = 32u32;
    while half > 0 {
        if rest >> half != 0 {
            rest >>= half;
            bits += half;
        }
        half >>= 1;
    }
    let slot = if units == 0 { 0 } else { bits as usize + 1 };
    if slot < HISTOGRAM_SLOTS {
        slot
    } else {
        HISTOGRAM_SLOTS - 1
    }
}
