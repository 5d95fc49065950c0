//! `mark_victim`: who was killed, in which cgroup, against which limit.

use core::ffi::c_void;

use agent_common::event::{
    CONSTRAINT_UNKNOWN, ORDER_UNKNOWN, OomKill, SCOPE_GLOBAL, SCOPE_MEMCG, SOURCE_INFERRED,
    VIA_TASK,
};
use agent_common::{DropReason, EventKind};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_kernel_str};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::emit;
use crate::offsets::{Address, offset};

/// `MM_FILEPAGES`, `MM_ANONPAGES`, `MM_SHMEMPAGES` (`include/linux/mm_types_task.h`).
const FILE_PAGES: u32 = 0;
const ANON_PAGES: u32 = 1;
const SHMEM_PAGES: u32 = 3;

/// Ancestors that are looked at, the victim's own cgroup included.
const MAX_DEPTH: u32 = 10;
/// How close to its limit a cgroup has to be to be the one that was hit. The kernel charges in
/// batches per CPU and gives back what did not fit, so that the use at the moment of the kill can
/// be some pages short of the limit.
const LIMIT_SLACK_PAGES: u64 = 512;

/// `mark_victim(task, uid)`: attached only where the kernel's BTF says that argument 0 is the task.
/// Runs in the context of whoever hit the limit: `current` is the trigger, not the victim.
#[raw_tracepoint(tracepoint = "mark_victim")]
pub fn oom_victim(ctx: RawTracePointContext) -> i32 {
    let task = Address::new(ctx.arg::<u64>(0));
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(&ctx, "a victim is marked");
    emit::crit(EventKind::OomKill, |record: &mut OomKill| {
        record.order = ORDER_UNKNOWN;
        record.constraint = CONSTRAINT_UNKNOWN;
        record.via = VIA_TASK;
        trigger(record);
        // Both, whatever the first comes to.
        if victim(record, task).is_none() | cgroups(record, task).is_none() {
            // The record goes out with what there is: a kill half described is still a kill.
            emit::dropped(DropReason::Unreadable);
        }
    });
    0
}

#[inline(always)]
fn trigger(record: &mut OomKill) {
    record.trigger_tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let comm = &mut record.trigger_comm;
    // SAFETY: the helper writes at most the given number of bytes, NUL included.
    unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast::<c_void>(), comm.len() as u32) };
}

/// Ids, names and memory of the victim; `None` as soon as something cannot be read.
#[inline(always)]
fn victim(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: all offsets in this function come from `table`.
    unsafe {
        record.pid = task.at(offset!(task_pid)).read()?;
        record.tgid = task.at(offset!(task_tgid)).read()?;
        record.comm = task.at(offset!(task_comm)).read()?;
        let signal = task.at(offset!(task_signal)).follow()?;
        record.oom_score_adj = signal.at(offset!(signal_oom_score_adj)).read()?;
        let cred = task.at(offset!(task_real_cred)).follow()?;
        record.uid = cred.at(offset!(cred_uid)).read()?;
        let mm = task.at(offset!(task_mm)).follow()?;
        record.total_vm_pages = mm.at(offset!(mm_total_vm)).read()?;
        record.pgtable_bytes = mm.at(offset!(mm_pgtables_bytes)).read()?;
        record.anon_pages = resident(mm, ANON_PAGES)?;
        record.file_pages = resident(mm, FILE_PAGES)?;
        record.shmem_pages = resident(mm, SHMEM_PAGES)?;
    }
    Some(())
}

/// One resident-set counter. They are signed, and a lagging one can be below zero.
#[inline(always)]
fn resident(mm: Address, index: u32) -> Option<u64> {
    // SAFETY: both offsets come from `table`.
    let (base, stride) = unsafe { (offset!(mm_rss), offset!(mm_rss_stride)) };
    let pages = mm
        .at(base.wrapping_add(stride.wrapping_mul(index)))
        .read::<i64>()?;
    Some(if pages < 0 { 0 } else { pages as u64 })
}

/// Both cgroup ids, the names of the memory cgroup's last three levels, and the limiting one.
#[inline(always)]
fn cgroups(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: all offsets in this function come from `table`.
    unsafe {
        let set = task.at(offset!(task_cgroups)).follow()?;
        let unified = set.at(offset!(css_set_dfl_cgrp)).follow()?;
        let node = unified.at(offset!(cgroup_kn)).follow()?;
        record.cg_default = node.at(offset!(kernfs_id)).read()?;
        let css = set.at(offset!(css_set_memory)).follow()?;
        record.cg_memory = id(css)?;
        names(record, css);
        limiting(record, css);
    }
    Some(())
}

/// Id of the cgroup that a controller's state belongs to.
#[inline(always)]
fn id(css: Address) -> Option<u64> {
    // SAFETY: all offsets come from `table`.
    let (cgroup, kn, id) = unsafe { (offset!(css_cgroup), offset!(cgroup_kn), offset!(kernfs_id)) };
    css.at(cgroup).follow()?.at(kn).follow()?.at(id).read()
}

/// The last three names of the path, for when the cgroup is gone before user space looks.
#[inline(always)]
fn names(record: &mut OomKill, css: Address) -> Option<()> {
    // SAFETY: all offsets come from `table`.
    let (cgroup, kn, parent) = unsafe {
        (
            offset!(css_cgroup),
            offset!(cgroup_kn),
            offset!(kernfs_parent),
        )
    };
    let node = css.at(cgroup).follow()?.at(kn).follow()?;
    name(&mut record.leaf, node)?;
    let node = node.at(parent).follow()?;
    name(&mut record.parent, node)?;
    let node = node.at(parent).follow()?;
    name(&mut record.grandparent, node)
}

#[inline(always)]
fn name(to: &mut [u8], node: Address) -> Option<()> {
    // SAFETY: the offset comes from `table`.
    let text = node.at(unsafe { offset!(kernfs_name) }).follow()?;
    // SAFETY: the helper writes at most the given number of bytes, NUL included, and checks what
    // it reads.
    unsafe {
        bpf_probe_read_kernel_str(
            to.as_mut_ptr().cast::<c_void>(),
            to.len() as u32,
            text.get() as *const c_void,
        )
    };
    Some(())
}

/// The first ancestor at its limit. None at its limit: a global kill, or one for a reason that the
/// counters do not show (cpuset, memory policy, sysrq, v1 swap): user space confirms.
#[inline(always)]
fn limiting(record: &mut OomKill, victim: Address) -> Option<()> {
    // SAFETY: all offsets come from `table`.
    let (usage_at, max_at, parent) = unsafe {
        (
            offset!(memcg_usage),
            offset!(memcg_max),
            offset!(css_parent),
        )
    };
    record.scope_source = SOURCE_INFERRED;
    let mut css = victim;
    for _ in 0..MAX_DEPTH {
        let usage = css.at(usage_at).read::<u64>()?;
        let max = css.at(max_at).read::<u64>()?;
        if usage.saturating_add(LIMIT_SLACK_PAGES) >= max {
            record.scope = SCOPE_MEMCG;
            record.cg_limiting = id(css)?;
            record.limit_usage_pages = usage;
            record.limit_max_pages = max;
            return Some(());
        }
        let Some(next) = css.at(parent).follow() else {
            record.scope = SCOPE_GLOBAL;
            return Some(());
        };
        css = next;
    }
    None
}
