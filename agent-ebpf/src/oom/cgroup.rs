//! The cgroups of a task: their ids, and the names that outlive them.

use core::ffi::c_void;

use agent_common::KernelOffsets;
use agent_common::event::OomKill;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;

use super::MAX_DEPTH;
use crate::offsets::{Address, offset};

/// Both cgroup ids, and the names of the memory cgroup's last three levels.
#[inline(always)]
pub fn fill(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: all offsets in this function come from `table`.
    unsafe {
        let set = task.at(offset!(task_cgroups)).follow()?;
        let unified = set.at(offset!(css_set_dfl_cgrp)).follow()?;
        let node = unified.at(offset!(cgroup_kn)).follow()?;
        record.cg_default = node.at(offset!(kernfs_id)).read()?;
    }
    let css = memory(task)?;
    record.cg_memory = id(css)?;
    // A cgroup near the root has no three names.
    let _ = names(record, css);
    Some(())
}

/// The highest memory cgroup up to the limit that is killed as a whole:
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/memcontrol.c#L1646-L1691>
#[inline(always)]
pub fn group(record: &mut OomKill, task: Address) -> Option<()> {
    // SAFETY: both offsets come from `table`.
    let (oom_group, parent) = unsafe { (offset!(memcg_oom_group), offset!(css_parent)) };
    if oom_group == KernelOffsets::MISSING {
        return None;
    }
    let mut css = memory(task)?;
    for _ in 0..MAX_DEPTH {
        let at = id(css)?;
        if css.at(oom_group).read::<u8>()? != 0 {
            record.cg_group = at;
        }
        if at == record.cg_limiting {
            break;
        }
        css = css.at(parent).follow()?;
    }
    Some(())
}

/// State of the memory cgroup that `task` is in.
#[inline(always)]
pub fn memory(task: Address) -> Option<Address> {
    // SAFETY: both offsets come from `table`.
    let (set, memory) = unsafe { (offset!(task_cgroups), offset!(css_set_memory)) };
    task.at(set).follow()?.at(memory).follow()
}

/// Id of the cgroup that a controller's state belongs to.
#[inline(always)]
pub fn id(css: Address) -> Option<u64> {
    // SAFETY: all offsets come from `table`.
    let (cgroup, kn, id) = unsafe { (offset!(css_cgroup), offset!(cgroup_kn), offset!(kernfs_id)) };
    css.at(cgroup).follow()?.at(kn).follow()?.at(id).read()
}

/// The last three names of the path, for a cgroup that is removed before user space resolves its
/// id.
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
