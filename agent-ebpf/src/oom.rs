//! Kills: who was killed, in which cgroup, against which limit. A ladder of three ways to learn of
//! one, of which user space attaches the best that this kernel has, and a pair that adds the kernel's
//! own word on what was short of memory.
//!
//! All of it but `oom_exit` runs in the context of whoever hit the limit: `current` is the trigger,
//! not the victim.

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
mod victim;

use choice::Choice;

/// `mark_victim(task, uid)`: attached only where the kernel's BTF says that argument 0 is the task.
#[raw_tracepoint(tracepoint = "mark_victim")]
pub fn oom_victim(ctx: RawTracePointContext) -> i32 {
    let task = Address::new(ctx.arg::<u64>(0));
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(&ctx, "a victim is marked");
    tell(task, &Choice::now(task), VIA_TASK);
    0
}

/// `mark_oom_victim(task)`. Entered again and again for a victim that takes long to die; only the
/// first time is news.
#[fentry(function = "mark_oom_victim")]
pub fn oom_fentry(ctx: FEntryContext) -> i32 {
    let task = Address::new(ctx.arg::<u64>(0));
    if victim::is_marked(task) != Some(true) {
        tell(task, &Choice::now(task), VIA_FENTRY);
    }
    0
}

/// `mark_victim`, where it hands out only the thread's id: keeps what the moment shows until that
/// thread exits. The thread that is marked need not be the leader, which may have exited before.
/// Nothing leads from the id to the task here, so that the limit is looked for above the trigger,
/// which is below it too.
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

/// `sched_process_exit(task)`: runs at each exit of a thread on the node, in that thread. All but
/// victims leave after one look-up.
///
/// Up to 6.15 the hook comes after the memory was given back, which waits for the lock that the
/// kernel holds while it marks: a victim is never here before its id. Since then it comes earlier,
/// but those kernels hand out the task.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn oom_exit(ctx: RawTracePointContext) -> i32 {
    let pid = bpf_get_current_pid_tgid() as u32;
    // SAFETY: only this thread removes the entry of its id. Another CPU can take the slot for a new
    // victim when more than 1024 are dying: then what is copied is that one's.
    let Some(choice) = (unsafe { VICTIMS.get(pid) }).copied() else {
        return 0;
    };
    // Fails only where another CPU took the slot.
    let _ = VICTIMS.remove(pid);
    let task = Address::new(ctx.arg::<u64>(0));
    // An id left by a thread that changed it by `exec` in the last moment: nobody's kill.
    if victim::is_marked(task) != Some(false) {
        tell(task, &choice, VIA_EXIT);
    }
    0
}

/// `out_of_memory(oom_control)`: remembers where it stands.
#[fentry(function = "out_of_memory")]
pub fn scope_enter(ctx: FEntryContext) -> i32 {
    // Full only with 1024 tasks in there at once: their scope is inferred.
    let _ = SCOPES.insert(bpf_get_current_pid_tgid(), ctx.arg::<u64>(0), 0);
    0
}

/// The end of `out_of_memory`: what was remembered is on a stack that is being left.
#[fexit(function = "out_of_memory")]
pub fn scope_leave(_ctx: FExitContext) -> i32 {
    // Fails only where there was no room at the entry.
    let _ = SCOPES.remove(bpf_get_current_pid_tgid());
    0
}

/// Writes the record. It goes out with what there is: a kill half described is still a kill.
#[inline(always)]
fn tell(task: Address, choice: &Choice, via: u8) {
    emit::crit(EventKind::OomKill, |record: &mut OomKill| {
        choice.put(record);
        record.via = via;
        // All three, whatever the first comes to. What exits may have given its memory back.
        let sizes = victim::memory(record, task).is_some() || via == VIA_EXIT;
        let identity = victim::identity(record, task).is_some();
        let cgroups = cgroup::fill(record, task).is_some();
        if !(sizes & identity & cgroups) {
            emit::dropped(DropReason::Unreadable);
        }
    });
}
