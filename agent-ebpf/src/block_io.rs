//! `block_rq_complete`: latency per disk, and its state changes.
//!
//! The latency is the time since the kernel allocated the request, so it holds the wait in the
//! queue, as `await` does. A window is closed by the first completion after its end; ending a state
//! when I/O stops, and seeing a hang, is left to user space.

use agent_common::event::DiskState;
use agent_common::settings::{
    DISK_ENTER_PERCENT, DISK_FAILING, DISK_GOOD_WINDOWS, DISK_LEAVE_PERCENT, DISK_MIN_REQUESTS,
    DISK_SINGLE_FACTOR, DISK_SLOW, DISK_WELL, HISTOGRAM_SLOTS, device_key,
};
use agent_common::{DiskEntry, DropReason, EventKind, KernelOffsets};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::cell::add;
use crate::emit;
use crate::maps::DISKS;
use crate::offsets::{Address, offset};

/// `REQ_OP_MASK`: the low 8 bits of `cmd_flags` (`include/linux/blk_types.h`).
const OP_MASK: u32 = 0xff;
/// `REQ_OP_WRITE`; reads are 0. Everything above is flush, discard, zones or passthrough.
const OP_WRITE: u32 = 1;

/// `block_rq_complete(request, error, nr_bytes)`.
#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn disk_complete(ctx: RawTracePointContext) -> i32 {
    let rq = Address::new(ctx.arg::<u64>(0));
    let Some(dev) = device(rq) else {
        return 0; // A request without a disk, such as one of a controller's admin queue.
    };
    let Some(entry) = DISKS.get_ptr_mut(dev) else {
        return 0;
    };
    // SAFETY: the lookup above returned a map value that stays mapped, and any bit pattern is valid
    // in it. Where user space replaces the entry meanwhile, what is written goes to one that is not
    // looked at any more, or to the same disk's next one: some counts are lost.
    let entry = unsafe { &mut *entry };
    if !ends_a_read_or_write(rq, ctx.arg::<u32>(2)) {
        return 0;
    }
    if ctx.arg::<u32>(1) != 0 {
        failed(dev, entry);
        #[cfg(feature = "log")]
        aya_log_ebpf::debug!(&ctx, "request failed on device {}", dev);
        return 0;
    }
    // SAFETY: the offset comes from `table`.
    match rq.at(unsafe { offset!(rq_start_time_ns) }).read::<u64>() {
        None | Some(0) => emit::dropped(DropReason::NoStartTime),
        Some(start) => completed(dev, entry, start),
    }
    0
}

/// The disk of a request: `rq_disk` up to 5.16, `q->disk` since.
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

/// Whether this completion is the last of a read or write that moved data. An empty flush is a
/// write of no bytes.
#[inline(always)]
fn ends_a_read_or_write(rq: Address, nr_bytes: u32) -> bool {
    // SAFETY: both offsets come from `table`.
    let (flags, left) = unsafe { (offset!(rq_cmd_flags), offset!(rq_data_len)) };
    let (Some(flags), Some(left)) = (rq.at(flags).read::<u32>(), rq.at(left).read::<u32>()) else {
        return false;
    };
    flags & OP_MASK <= OP_WRITE && nr_bytes != 0 && nr_bytes >= left
}

/// One error is told at once, and the disk stays failing until some windows went by without any.
#[inline(always)]
fn failed(dev: u32, entry: &mut DiskEntry) {
    // SAFETY: a field of a live map value.
    unsafe { add(&raw mut entry.errors, 1) };
    if entry.state == DISK_WELL {
        change(dev, entry, DISK_FAILING, 0);
    } else if entry.state == DISK_FAILING {
        entry.good_windows = 0;
    }
}

#[inline(always)]
fn completed(dev: u32, entry: &mut DiskEntry, start: u64) {
    // SAFETY: takes nothing and reads the clock by which the request was stamped.
    let now = unsafe { bpf_ktime_get_ns() };
    let latency = now.saturating_sub(start);
    let elapsed = now.saturating_sub(entry.window_start);
    if elapsed >= entry.window_ns {
        close_window(dev, entry, elapsed);
        entry.window_start = now;
    }
    let slow = latency >= entry.slow_ns;
    // SAFETY: fields of a live map value; the histogram index is masked to its length.
    unsafe {
        add(&raw mut entry.histogram[slot(latency)], 1);
        add(&raw mut entry.completed, 1);
        add(&raw mut entry.total, 1);
        add(&raw mut entry.slow, u64::from(slow));
    }
    entry.max_ns = entry.max_ns.max(latency);
    if slow && entry.state == DISK_WELL && latency >= entry.slow_ns.wrapping_mul(DISK_SINGLE_FACTOR)
    {
        change(
            dev,
            entry,
            DISK_SLOW,
            now.saturating_sub(entry.window_start),
        );
    }
}

/// Judges the window that is over and starts an empty one.
///
/// Two CPUs may close the same window. The second finds it empty, which a window never is, since it
/// holds the request that opened it, and leaves the judgement to the first. A record may be sent
/// twice, which is harmless: user space keys on the state.
///
/// A window that was followed by a long silence says nothing about now: it can end a state, but not
/// begin one.
#[inline(always)]
fn close_window(dev: u32, entry: &mut DiskEntry, elapsed: u64) {
    let (total, slow) = (entry.total, entry.slow);
    if total == 0 {
        return;
    }
    let passed = windows(elapsed, entry.window_ns);
    if entry.state == DISK_WELL {
        let bad = total >= DISK_MIN_REQUESTS && slow * 100 >= total * DISK_ENTER_PERCENT;
        if bad && passed < DISK_GOOD_WINDOWS {
            change(dev, entry, DISK_SLOW, elapsed);
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
            change(dev, entry, DISK_WELL, elapsed);
        }
    }
    entry.total = 0;
    entry.slow = 0;
    entry.max_ns = 0;
}

/// Wrapping, since the target has no 128-bit product to saturate with; user space writes at most an
/// hour into either number.
///
/// Whole windows in `elapsed`, as far as they matter.
#[inline(always)]
fn windows(elapsed: u64, window_ns: u64) -> u64 {
    let mut whole = 1;
    while whole < DISK_GOOD_WINDOWS && elapsed >= window_ns.wrapping_mul(whole + 1) {
        whole += 1;
    }
    whole
}

#[inline(always)]
fn change(dev: u32, entry: &mut DiskEntry, state: u64, window_ns: u64) {
    entry.state = state;
    entry.good_windows = 0;
    let (total, slow, max_ns) = (entry.total, entry.slow, entry.max_ns);
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
