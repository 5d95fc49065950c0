//! The victim: its identity, and the memory that it uses.

use agent_common::KernelOffsets;
use agent_common::event::{OomKill, UID_UNKNOWN};

use super::cgroup;
use crate::offsets::{Address, offset};

/// `MM_FILEPAGES`, `MM_ANONPAGES`, `MM_SHMEMPAGES`:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/mm_types_task.h#L26-L29>
const FILE_PAGES: u32 = 0;
const ANON_PAGES: u32 = 1;
const SHMEM_PAGES: u32 = 3;

/// Ids and name; `None` as soon as something cannot be read.
#[inline(always)]
pub fn identity(record: &mut OomKill, task: Address) -> Option<()> {
    record.uid_in_namespace = UID_UNKNOWN;
    // SAFETY: all offsets in this function come from `table`.
    unsafe {
        record.pid = task.at(offset!(task_pid)).read()?;
        record.tgid = task.at(offset!(task_tgid)).read()?;
        record.comm = task.at(offset!(task_comm)).read()?;
        let signal = task.at(offset!(task_signal)).follow()?;
        record.oom_score_adj = signal.at(offset!(signal_oom_score_adj)).read()?;
        let cred = task.at(offset!(task_real_cred)).follow()?;
        record.uid = cred.at(offset!(cred_uid)).read()?;
        record.uid_in_namespace = in_user_namespace(cred, record.uid).unwrap_or(UID_UNKNOWN);
    }
    Some(())
}

/// Extents that fit in a map of ids. Of more, it has pointers to them:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/user_namespace.h#L14-L32>
const MAX_EXTENTS: u32 = 5;
/// Size of a `struct uid_gid_extent`: the first id, the first id of the host, and how many there
/// are.
const EXTENT_SIZE: u32 = 12;

/// The id that user `uid` of the host has in the user namespace of `cred`. The kernel stores ids of
/// the host also for a nested namespace, and unused extents are empty: `map_write` and `map_id_up`
/// in
/// <https://github.com/gregkh/linux/blob/v6.12.107/kernel/user_namespace.c>
#[inline(always)]
fn in_user_namespace(cred: Address, uid: u32) -> Option<u32> {
    // SAFETY: all offsets come from `table`.
    let (user_ns, extents, count) = unsafe {
        (
            offset!(cred_user_ns),
            offset!(user_ns_extents),
            offset!(user_ns_extent_count),
        )
    };
    if [user_ns, extents, count].contains(&KernelOffsets::MISSING) {
        return None;
    }
    let ns = cred.at(user_ns).follow()?;
    if MAX_EXTENTS < ns.at(count).read::<u32>()? {
        return None;
    }
    for n in 0..MAX_EXTENTS {
        let extent = ns.at(extents).at(n.wrapping_mul(EXTENT_SIZE));
        let [first, lower_first, length] = extent.read::<[u32; 3]>()?;
        let distance = uid.wrapping_sub(lower_first);
        if distance < length {
            return Some(first.wrapping_add(distance));
        }
    }
    None
}

/// Sizes; `None` as soon as something cannot be read, for example of a task that has released its
/// memory.
#[inline(always)]
pub fn memory(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: all offsets in this function come from `table`.
    unsafe {
        let mm = task.at(offset!(task_mm)).follow()?;
        record.total_vm_pages = mm.at(offset!(mm_total_vm)).read()?;
        record.pgtable_bytes = mm.at(offset!(mm_pgtables_bytes)).read()?;
        record.anon_pages = resident(mm, ANON_PAGES)?;
        record.file_pages = resident(mm, FILE_PAGES)?;
        record.shmem_pages = resident(mm, SHMEM_PAGES)?;
    }
    Some(())
}

/// One resident-set counter. They are signed, and one that lags can be below zero, which the kernel
/// too reads as zero:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/mm.h#L2645-L2648>
#[inline(always)]
fn resident(mm: Address, index: u32) -> Option<u64> {
    // SAFETY: both offsets come from `table`.
    let (base, stride) = unsafe { (offset!(mm_rss), offset!(mm_rss_stride)) };
    let pages = mm
        .at(base.wrapping_add(stride.wrapping_mul(index)))
        .read::<i64>()?;
    Some(if pages < 0 { 0 } else { pages as u64 })
}

/// Size of a `struct upid`, of which a pid has one for each level of namespaces:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/pid.h#L50-L71>
const UPID_SIZE: u32 = 16;
/// Levels of pid namespaces.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/pid_namespace.h#L15-L16>
const MAX_LEVEL: u32 = 32;

/// The process in its innermost pid namespace, and the process that it depends on. All of it or
/// nothing.
#[inline(always)]
pub fn position(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: all offsets come from `table`.
    let (signal_tgid, level_at, nr_at, reaper, parent) = unsafe {
        (
            offset!(signal_tgid),
            offset!(pid_level),
            offset!(pid_nr),
            offset!(pid_ns_child_reaper),
            offset!(task_real_parent),
        )
    };
    let needed = [signal_tgid, level_at, nr_at, reaper, parent];
    if needed.contains(&KernelOffsets::MISSING) {
        return None;
    }
    // SAFETY: both offsets come from `table`.
    let (signal, ns_at) = unsafe { (offset!(task_signal), offset!(pid_ns)) };
    let pid = task.at(signal).follow()?.at(signal_tgid).follow()?;
    let level = pid.at(level_at).read::<u32>()?;
    if MAX_LEVEL < level {
        return None;
    }
    let innermost = pid.at(level.wrapping_mul(UPID_SIZE));
    let nr = innermost.at(nr_at).read::<u32>()?;
    let other = if nr == 1 || level == 0 {
        task.at(parent).follow()?
    } else {
        innermost.at(ns_at).follow()?.at(reaper).follow()?
    };
    record.cg_reference = cgroup::id(cgroup::memory(other)?)?;
    record.ns_tgid = nr;
    Some(())
}

/// Whether a thread of this process was marked before.
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L771-L773>
#[inline(always)]
pub fn is_marked(task: Address) -> Option<bool> {
    // SAFETY: both offsets come from `table`.
    let (signal, oom_mm) = unsafe { (offset!(task_signal), offset!(signal_oom_mm)) };
    let oom_mm = task.at(signal).follow()?.at(oom_mm).read::<u64>()?;
    Some(oom_mm != 0)
}
