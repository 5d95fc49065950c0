//! For the tests of this repository, and in no shipped object: a flood of records, and programs
//! that do nothing, with which the cost of the others is compared.

use agent_common::EventKind;
use agent_common::event::PidTrend;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::emit;

/// Overridden by the test: the process whose calls write a record each.
#[unsafe(no_mangle)]
static FLOOD_TGID: u32 = 0;

/// Overridden by the test: the number of the system call.
#[unsafe(no_mangle)]
static FLOOD_CALL: u64 = 0;

/// `sys_enter(regs, number)`: one record in BULK for each of the chosen calls.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn flood(ctx: RawTracePointContext) -> i32 {
    // SAFETY: both are statics above; volatile, because they are overridden at load time.
    let (tgid, call) = unsafe {
        (
            (&raw const FLOOD_TGID).read_volatile(),
            (&raw const FLOOD_CALL).read_volatile(),
        )
    };
    if ctx.arg::<u64>(1) == call && (bpf_get_current_pid_tgid() >> 32) as u32 == tgid {
        emit::bulk(EventKind::PidTrend, |_: &mut PidTrend| ());
    }
    0
}

/// `sched_process_fork`, without any work.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn empty_fork(_ctx: RawTracePointContext) -> i32 {
    0
}

/// `block_rq_complete`, without any work.
#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn empty_complete(_ctx: RawTracePointContext) -> i32 {
    0
}
