//! The victim: its identity, and the memory that it uses.

use agent_common::event::OomKill;

use crate::offsets::{Address, offset};

/// `MM_FILEPAGES`, `MM_ANONPAGES`, `MM_SHMEMPAGES`: <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/mm_types_task.h#L26-L29>
const FILE_PAGES: u32 = 0;
const ANON_PAGES: u32 = 1;
const SHMEM_PAGES: u32 = 3;

/// Ids and name; `None` as soon as something cannot be read.
#[inline(always)]
pub fn identity(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: all offsets in this function come from `table`.
    unsafe {
        record.pid = task.at(offset!(task_pid)).read()?;
        record.tgid = task.at(offset!(task_tgid)).read()?;
        record.comm = task.at(offset!(task_comm)).read()?;
        let signal = task.at(offset!(task_signal)).follow()?;
        record.oom_score_adj = signal.at(offset!(signal_oom_score_adj)).read()?;
        let cred = task.at(offset!(task_real_cred)).follow()?;
        record.uid = cred.at(offset!(cred_uid)).read()?;
    }
    Some(())
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
/// too reads as zero: <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/mm.h#L2645-L2648>
#[inline(always)]
fn resident(mm: Address, index: u32) -> Option<u64> {
    // SAFETY: both offsets come from `table`.
    let (base, stride) = unsafe { (offset!(mm_rss), offset!(mm_rss_stride)) };
    let pages = mm
        .at(base.wrapping_add(stride.wrapping_mul(index)))
        .read::<i64>()?;
    Some(if pages < 0 { 0 } else { pages as u64 })
}

/// Whether a thread of this process was marked before. <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L771-L773>
#[inline(always)]
pub fn is_marked(task: Address) -> Option<bool> {
    // SAFETY: both offsets come from `table`.
    let (signal, oom_mm) = unsafe { (offset!(task_signal), offset!(signal_oom_mm)) };
    let oom_mm = task.at(signal).follow()?.at(oom_mm).read::<u64>()?;
    Some(oom_mm != 0)
}
