//! Offsets of the fields that the probes read in this kernel's structs.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::layout;

/// Offsets in bytes, resolved from the running kernel's BTF and written into a read-only global
/// before the programs are loaded, so that they are constants for the verifier.
///
/// [`KernelOffsets::MISSING`] means that this kernel has no such field. User space does not attach
/// a probe that needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable))]
#[repr(C)]
pub struct KernelOffsets {
    /// `task_struct.pid`.
    pub task_pid: u32,
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `task_struct.real_cred`.
    pub task_real_cred: u32,
    /// `task_struct.cgroups`.
    pub task_cgroups: u32,
    /// `task_struct.thread_pid`.
    pub task_thread_pid: u32,
    /// `signal_struct.oom_score_adj`.
    pub signal_oom_score_adj: u32,
    /// `signal_struct.oom_mm`: set when a thread of the process is marked, and then as long as the
    /// struct exists.
    /// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/sched/signal.h#L235>
    pub signal_oom_mm: u32,
    /// `cred.uid`.
    pub cred_uid: u32,
    /// `cred.user_ns`.
    pub cred_user_ns: u32,
    /// `user_namespace.uid_map.extent`.
    pub user_ns_extents: u32,
    /// `user_namespace.uid_map.nr_extents`: before or behind the extents, depending on the kernel.
    pub user_ns_extent_count: u32,
    /// `mm_struct.rss_stat[0].count` from 6.2 on
    /// (<https://github.com/gregkh/linux/blob/v6.12.107/include/linux/mm_types.h#L966>), else
    /// `mm_struct.rss_stat.count[0]`
    /// (<https://github.com/gregkh/linux/blob/v5.10.223/include/linux/mm_types_task.h#L60-L62>).
    pub mm_rss: u32,
    /// Bytes from one resident-set counter to the next.
    pub mm_rss_stride: u32,
    /// `mm_struct.total_vm`.
    pub mm_total_vm: u32,
    /// `mm_struct.pgtables_bytes`.
    pub mm_pgtables_bytes: u32,
    /// `css_set.dfl_cgrp`.
    pub css_set_dfl_cgrp: u32,
    /// `css_set.subsys[memory_cgrp_id]`.
    pub css_set_memory: u32,
    /// `cgroup.kn`.
    pub cgroup_kn: u32,
    /// `kernfs_node.id`.
    pub kernfs_id: u32,
    /// `kernfs_node.name`.
    pub kernfs_name: u32,
    /// `kernfs_node.__parent`
    /// (<https://github.com/gregkh/linux/blob/v7.1.8/include/linux/kernfs.h#L211>), or `.parent`
    /// before 6.15 (<https://github.com/gregkh/linux/blob/v5.10.223/include/linux/kernfs.h#L135>).
    pub kernfs_parent: u32,
    /// `cgroup_subsys_state.cgroup`.
    pub css_cgroup: u32,
    /// `cgroup_subsys_state.parent`.
    pub css_parent: u32,
    /// `mem_cgroup.memory.usage`, less `mem_cgroup.css`, because `css_set` points to the latter.
    pub memcg_usage: u32,
    /// `mem_cgroup.memory.max`, likewise.
    pub memcg_max: u32,
    /// `pid.numbers[0].ns`.
    pub pid_ns: u32,
    /// `pid_namespace.pid_allocated`.
    pub pid_ns_allocated: u32,
    /// `request.start_time_ns`.
    pub rq_start_time_ns: u32,
    /// `request.cmd_flags`.
    pub rq_cmd_flags: u32,
    /// `request.__data_len`.
    pub rq_data_len: u32,
    /// `request.rq_disk`, up to 5.16; missing in kernels with `queue_disk`.
    /// <https://github.com/gregkh/linux/blob/v5.10.223/include/linux/blkdev.h#L198>
    pub rq_disk: u32,
    /// `request.q`.
    pub rq_q: u32,
    /// `request_queue.id`.
    pub queue_id: u32,
    /// `request_queue.disk`.
    pub queue_disk: u32,
    /// `gendisk.major`.
    pub disk_major: u32,
    /// `gendisk.first_minor`.
    pub disk_first_minor: u32,
    /// `mem_cgroup.css`.
    pub memcg_css: u32,
    /// `oom_control.memcg`.
    pub oc_memcg: u32,
    /// `oom_control.constraint`.
    pub oc_constraint: u32,
    /// `oom_control.order`.
    pub oc_order: u32,
    /// `oom_control.totalpages`.
    pub oc_totalpages: u32,
    /// `task_struct.real_parent`.
    pub task_real_parent: u32,
    /// `signal_struct.pids[PIDTYPE_TGID]`.
    pub signal_tgid: u32,
    /// `pid.level`.
    pub pid_level: u32,
    /// `pid.numbers[0].nr`.
    pub pid_nr: u32,
    /// `pid_namespace.child_reaper`.
    pub pid_ns_child_reaper: u32,
    /// `mem_cgroup.oom_group`, less `mem_cgroup.css`.
    pub memcg_oom_group: u32,
    /// No offset: 1 if argument 0 of `mark_victim` is the task, 0 if it is a pid.
    /// <https://github.com/gregkh/linux/blob/v6.12.107/include/trace/events/oom.h#L76-L77>, <https://github.com/gregkh/linux/blob/v5.10.223/include/trace/events/oom.h#L74-L75>
    pub mark_victim_has_task: u32,
    /// No offset: the bit `REQ_RAHEAD` of `request.cmd_flags`. The numbers of these bits are those
    /// of `enum req_flag_bits`:
    /// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blk_types.h#L359-L372>
    pub req_readahead: u32,
    /// No offset: the bits `REQ_META`, `REQ_PRIO` and `REQ_FUA`.
    pub req_urgent: u32,
    /// No offset: the bit `REQ_SYNC`.
    pub req_sync: u32,
}
layout!(KernelOffsets, 216);

impl KernelOffsets {
    /// This kernel has no such field.
    pub const MISSING: u32 = u32::MAX;

    /// Nothing is known.
    pub const fn unresolved() -> Self {
        const M: u32 = KernelOffsets::MISSING;
        Self {
            task_pid: M,
            task_tgid: M,
            task_comm: M,
            task_mm: M,
            task_signal: M,
            task_real_cred: M,
            task_cgroups: M,
            task_thread_pid: M,
            signal_oom_score_adj: M,
            signal_oom_mm: M,
            cred_uid: M,
            cred_user_ns: M,
            user_ns_extents: M,
            user_ns_extent_count: M,
            mm_rss: M,
            mm_rss_stride: M,
            mm_total_vm: M,
            mm_pgtables_bytes: M,
            css_set_dfl_cgrp: M,
            css_set_memory: M,
            cgroup_kn: M,
            kernfs_id: M,
            kernfs_name: M,
            kernfs_parent: M,
            css_cgroup: M,
            css_parent: M,
            memcg_usage: M,
            memcg_max: M,
            pid_ns: M,
            pid_ns_allocated: M,
            rq_start_time_ns: M,
            rq_cmd_flags: M,
            rq_data_len: M,
            rq_disk: M,
            rq_q: M,
            queue_id: M,
            queue_disk: M,
            disk_major: M,
            disk_first_minor: M,
            memcg_css: M,
            oc_memcg: M,
            oc_constraint: M,
            oc_order: M,
            oc_totalpages: M,
            task_real_parent: M,
            signal_tgid: M,
            pid_level: M,
            pid_nr: M,
            pid_ns_child_reaper: M,
            memcg_oom_group: M,
            mark_victim_has_task: 0,
            req_readahead: M,
            req_urgent: M,
            req_sync: M,
        }
    }
}
