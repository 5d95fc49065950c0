//! `sched_process_fork`: the kernel's count of pids, and its crossings of the threshold.

use agent_common::event::{PidCrossing, PidTrend};
use agent_common::{DropReason, EventKind, PidSettings, PidState};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::emit;
use crate::maps::{PID_SETTINGS, PID_STATE};
use crate::offsets::{Address, offset};

/// Without `PIDNS_ADDING`, the flag that shares a word with the count:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/pid_namespace.h#L48>
const COUNT_MASK: u32 = 0x7fff_ffff;

/// `sched_process_fork(parent, child)`.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/trace/events/sched.h#L372-L374>
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn pid_fork(ctx: RawTracePointContext) -> i32 {
    let (Some(settings), Some(state)) = (PID_SETTINGS.get_ptr(0), PID_STATE.get_ptr_mut(0)) else {
        return 0; // Unreachable: both arrays have one slot.
    };
    // SAFETY: the lookups above bounded both to live map values; any bit pattern is valid in them.
    // Other CPUs may write `state` at the same time: at worst a record is sent twice.
    let (settings, state) = unsafe { (&*settings, &mut *state) };
    let first = state.counter == 0;
    let Some(value) = count(Address::new(ctx.arg::<u64>(1)), state) else {
        emit::dropped(DropReason::Unreadable);
        return 0;
    };
    #[cfg(feature = "log")]
    if first {
        aya_log_ebpf::debug!(&ctx, "first fork: {} ids", value);
    }
    crossing(settings, state, value);
    trend(settings, state, value, first);
    0
}

/// Pids that exist. Level 0 of any pid is the initial namespace, also in a container, and that
/// namespace is a static object of the kernel, so that its address is read once:
/// <https://github.com/gregkh/linux/blob/v6.12.107/kernel/pid.c#L194-L252>, <https://github.com/gregkh/linux/blob/v6.12.107/kernel/pid.c#L79-L82>
#[inline(always)]
fn count(child: Address, state: &mut PidState) -> Option<u32> {
    if state.counter == 0 {
        // SAFETY: all offsets come from `table`.
        let (thread_pid, ns, allocated) = unsafe {
            (
                offset!(task_thread_pid),
                offset!(pid_ns),
                offset!(pid_ns_allocated),
            )
        };
        let ns = child.at(thread_pid).follow()?.at(ns).follow()?;
        state.counter = ns.at(allocated).get();
    }
    Some(Address::new(state.counter).read::<u32>()? & COUNT_MASK)
}

#[inline(always)]
fn crossing(settings: &PidSettings, state: &mut PidState, value: u32) {
    let (next, threshold) = match state.state {
        _ if settings.high == 0 => return,
        0 if value >= settings.high => (1, settings.high),
        1 if value <= settings.low => (0, settings.low),
        _ => return,
    };
    state.state = next;
    emit::bulk(EventKind::PidCrossing, |record: &mut PidCrossing| {
        record.value = value;
        record.state = next;
        record.threshold = threshold;
    });
}

/// The first fork is always sent: it shows by how much this count and the number of tasks differ.
#[inline(always)]
fn trend(settings: &PidSettings, state: &mut PidState, value: u32, first: bool) {
    let moved = value.abs_diff(state.last_trend);
    if settings.trend_step == 0 || (moved < settings.trend_step && !first) {
        return;
    }
    state.last_trend = value;
    emit::bulk(EventKind::PidTrend, |record: &mut PidTrend| {
        record.value = value
    });
}
