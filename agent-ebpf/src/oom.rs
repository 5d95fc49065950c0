//! OOM kills: which process was killed, in which cgroup, at which limit. There are three ways to
//! detect a kill, of which user space attaches the best that this kernel has, and a pair of
//! programs that adds the scope from the kernel's `oom_control`.
//!
//! All but `oom_exit` run in the context of the task that hit the limit: `current` is the trigger,
//! not the victim. The kernel marks the victim below `out_of_memory`:
//! <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L1113>, <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L954>

use agent_common::event::{OomKill, VIA_EXIT, VIA_FENTRY, VIA_TASK};
use agent_common::{DropReason, EventKind};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::{fentry, fexit, raw_tracepoint};
use aya_ebpf::programs::{FEntryContext, FExitContext, RawTracePointContext};

use crate::emit;
use crate::maps::{SCOPES, VICTIMS};
use crate::offsets::{Address, offset};

mod cgroup;
pub mod choice;
mod scope;
mod victim;

use choice::Choice;

/// Memory cgroups that are read upwards from a task's, which is included.
const MAX_DEPTH: u32 = 10;

/// `mark_victim(task, uid)`: attached only if the kernel's BTF declares argument 0 as the task.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/trace/events/oom.h#L76-L77>
#[raw_tracepoint(tracepoint = "mark_victim")]
pub fn oom_victim(ctx: RawTracePointContext) -> i32 {
    let task = Address::new(ctx.arg::<u64>(0));
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(&ctx, "a victim is marked");
    record_kill(task, &Choice::now(task), VIA_TASK);
    0
}

/// `mark_oom_victim(task)`. The kernel calls it again for a victim that takes long to exit; only
/// the first call is a new kill.
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L768-L773>
#[fentry(function = "mark_oom_victim")]
pub fn oom_fentry(ctx: FEntryContext) -> i32 {
    let task = Address::new(ctx.arg::<u64>(0));
    if victim::is_marked(task) != Some(true) {
        record_kill(task, &Choice::now(task), VIA_FENTRY);
    }
    0
}

/// `mark_victim` of kernels that pass only the thread's id: stores what is known now until that
/// thread exits.
/// <https://github.com/gregkh/linux/blob/v5.10.223/include/trace/events/oom.h#L74-L75>
///
/// The marked thread need not be the leader, which may have exited before:
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L135-L149>. No helper finds a task by its id, so the limit is searched for above
/// the trigger, which is below the same limit.
#[raw_tracepoint(tracepoint = "mark_victim")]
pub fn oom_pid(ctx: RawTracePointContext) -> i32 {
    // SAFETY: both offsets come from `table`.
    let (has_task, pid_at) = unsafe { (offset!(mark_victim_has_task), offset!(task_pid)) };
    let pid = if has_task == 0 {
        Some(ctx.arg::<u32>(0))
    } else {
        Address::new(ctx.arg::<u64>(0)).at(pid_at).read::<u32>()
    };
    let Some(pid) = pid else {
        emit::dropped(DropReason::Unreadable);
        return 0;
    };
    // SAFETY: takes nothing, gives the address of the running task.
    let trigger = Address::new(unsafe { bpf_get_current_task() });
    if VICTIMS.insert(pid, Choice::now(trigger), 0).is_err() {
        emit::dropped(DropReason::CritFull);
    }
    0
}

/// `sched_process_exit(task)`: runs at each exit of a thread on the node, in that thread. For all
/// but victims it ends after one lookup.
///
/// Up to 6.15 the tracepoint follows `exit_mm`, which takes the task lock, under which the kernel
/// marks a victim, so that a victim never exits before its id is stored:
/// <https://github.com/gregkh/linux/blob/v5.10.223/kernel/exit.c#L847-L851>, <https://github.com/gregkh/linux/blob/v5.10.223/mm/oom_kill.c#L884-L916>. Later kernels call it earlier,
/// but they pass the task to `mark_victim`:
/// <https://github.com/gregkh/linux/blob/v7.1.8/kernel/exit.c#L952-L969>
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn oom_exit(ctx: RawTracePointContext) -> i32 {
    let pid = bpf_get_current_pid_tgid() as u32;
    // SAFETY: only this thread removes the entry of its id. Another CPU can reuse the slot for a
    // new victim if more than 1024 are exiting: then the copy is that of the other victim.
    let Some(choice) = (unsafe { VICTIMS.get(pid) }).copied() else {
        return 0;
    };
    // Fails only if another CPU reused the slot.
    let _ = VICTIMS.remove(pid);
    let task = Address::new(ctx.arg::<u64>(0));
    // A thread can change its id by `exec` at the last moment: then this one was not killed.
    if victim::is_marked(task) != Some(false) {
        record_kill(task, &choice, VIA_EXIT);
    }
    0
}

/// `out_of_memory(oom_control)`: stores the address of the argument.
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L1113>
#[fentry(function = "out_of_memory")]
pub fn scope_enter(ctx: FEntryContext) -> i32 {
    // Full only if 1024 tasks are in there at once: their scope is inferred.
    let _ = SCOPES.insert(bpf_get_current_pid_tgid(), ctx.arg::<u64>(0), 0);
    0
}

/// The end of `out_of_memory`: the argument is on a stack that the kernel is leaving.
#[fexit(function = "out_of_memory")]
pub fn scope_leave(_ctx: FExitContext) -> i32 {
    // Fails only if there was no room at the entry.
    let _ = SCOPES.remove(bpf_get_current_pid_tgid());
    0
}

/// Writes the record, also if some fields cannot be read: the kill must be reported.
#[inline(always)]
fn record_kill(task: Address, choice: &Choice, via: u8) {
    emit::crit(EventKind::OomKill, |record: &mut OomKill| {
        choice.put(record);
        record.via = via;
        // All three run, also if one fails. A task that exits may have released its memory.
        let sizes = victim::memory(record, task).is_some() || via == VIA_EXIT;
        let identity = victim::identity(record, task).is_some();
        let cgroups = cgroup::fill(record, task).is_some();
        // What cannot be read stays unknown: the kill is complete without it.
        let _ = victim::position(record, task);
        let _ = cgroup::group(record, task);
        if !(sizes & identity & cgroups) {
            emit::dropped(DropReason::Unreadable);
        }
    });
}
