//! Reserve, fill, submit, or count the loss: the only writer of the rings.

use core::ptr;

use agent_common::{ABI_VERSION, DropReason, EventKind, Header};
use aya_ebpf::bindings::BPF_RB_FORCE_WAKEUP;
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns};
use aya_ebpf::maps::RingBuf;

use crate::maps::{BULK, CRIT, DROPPED, SEQUENCE};

/// Writes a kill, and always wakes user space:
/// <https://github.com/gregkh/linux/blob/v6.12.107/kernel/bpf/ringbuf.c#L509-L512>
#[inline(always)]
pub fn crit<T: 'static>(kind: EventKind, fill: impl FnOnce(&mut T)) {
    if !write(&CRIT, 0, kind, u64::from(BPF_RB_FORCE_WAKEUP), fill) {
        dropped(DropReason::CritFull);
    }
}

/// Writes a state change. Wakes user space unless it still reads:
/// <https://github.com/gregkh/linux/blob/v6.12.107/kernel/bpf/ringbuf.c#L511-L512>
#[inline(always)]
pub fn bulk<T: 'static>(kind: EventKind, fill: impl FnOnce(&mut T)) {
    if !write(&BULK, 1, kind, 0, fill) {
        dropped(DropReason::BulkFull);
    }
}

/// Counts a record that could not be written.
#[inline(always)]
pub fn dropped(reason: DropReason) {
    increment(DROPPED.get_ptr_mut(reason.slot()));
}

/// `T` is a record of `agent_common::event`: plain data that starts with a [`Header`].
#[inline(always)]
fn write<T: 'static>(
    ring: &RingBuf,
    slot: u32,
    kind: EventKind,
    flags: u64,
    fill: impl FnOnce(&mut T),
) -> bool {
    let seq = increment(SEQUENCE.get_ptr_mut(slot));
    let Some(mut entry) = ring.reserve::<T>(0) else {
        return false;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the ring has reserved `size_of::<T>()` bytes, aligned to 8
    // (<https://github.com/gregkh/linux/blob/v6.12.107/kernel/bpf/ringbuf.c#L415>). Zero is a valid
    // value of every field of a record, so that `fill` gets an initialised one. Every record starts
    // with the header.
    unsafe {
        ptr::write_bytes(record, 0, 1);
        record
            .cast::<Header>()
            .write(header(kind, size_of::<T>() as u32, seq));
        fill(&mut *record);
    }
    entry.submit(flags);
    true
}

#[inline(always)]
fn header(kind: EventKind, size: u32, seq: u64) -> Header {
    Header {
        version: ABI_VERSION,
        kind: kind.raw(),
        size,
        // SAFETY: takes nothing and reads the clock.
        time: unsafe { bpf_ktime_get_boot_ns() },
        seq,
        // SAFETY: takes nothing and reads this CPU's number.
        cpu: unsafe { bpf_get_smp_processor_id() },
        pad: 0,
    }
}

/// Adds one to this CPU's counter and returns what it was before.
#[inline(always)]
fn increment(slot: Option<*mut u64>) -> u64 {
    let Some(slot) = slot else {
        return 0; // Unreachable: the index is constant. The verifier requires the check.
    };
    // SAFETY: the lookup has bounded `slot` to this CPU's value, which lives as long as the map. A
    // probe that interrupts this one on the same CPU can lose one count, so it is a lower bound.
    unsafe {
        let before = slot.read();
        slot.write(before.wrapping_add(1));
        before
    }
}
