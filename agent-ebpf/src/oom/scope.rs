//! Reads what is known only while the kernel chooses a victim: the trigger, and the limit that was
//! hit.

use core::ffi::c_void;

use agent_common::event::{
    COMM_LEN, CONSTRAINT_UNKNOWN, ORDER_UNKNOWN, SCOPE_GLOBAL, SCOPE_MEMCG, SCOPE_UNKNOWN,
    SOURCE_EXACT, SOURCE_INFERRED,
};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_current_task, bpf_ktime_get_boot_ns,
};

use super::choice::Choice;
use super::{MAX_DEPTH, cgroup};
use crate::maps::SCOPES;
use crate::offsets::{Address, offset};

/// How close to its limit a cgroup must be to be the one that was hit. The kernel charges in
/// batches of 64 pages per CPU and removes a charge that did not fit, so that the usage at the
/// moment of the kill can be some pages below the limit:
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/memcontrol.c#L2172-L2202>,
/// <https://github.com/gregkh/linux/blob/v6.12.107/mm/page_counter.c#L141-L151>
const LIMIT_SLACK_PAGES: u64 = 512;

impl Choice {
    /// Must be called while the kernel chooses: `current` is the trigger, not the victim. If the
    /// `oom_control` is not available, the scope is inferred from the memory cgroups of `task`.
    #[inline(always)]
    pub fn now(task: Address) -> Self {
        // SAFETY: takes nothing, gives the address of the running task.
        let trigger = Address::new(unsafe { bpf_get_current_task() });
        let mut choice = Self {
            // SAFETY: takes nothing and reads the clock.
            time: unsafe { bpf_ktime_get_boot_ns() },
            cg_limiting: 0,
            cg_tied: 0,
            cg_trigger: cgroup::memory(trigger).and_then(cgroup::id).unwrap_or(0),
            limit_usage_pages: 0,
            limit_max_pages: 0,
            total_pages: 0,
            trigger_tgid: (bpf_get_current_pid_tgid() >> 32) as u32,
            order: ORDER_UNKNOWN,
            trigger_comm: [0; COMM_LEN],
            scope: SCOPE_UNKNOWN,
            scope_source: SOURCE_INFERRED,
            constraint: CONSTRAINT_UNKNOWN,
            pad: [0; 5],
        };
        let comm = &mut choice.trigger_comm;
        // SAFETY: the helper writes at most the given number of bytes, NUL included.
        unsafe { bpf_get_current_comm(comm.as_mut_ptr().cast::<c_void>(), comm.len() as u32) };
        if choice.exact().is_none() {
            // If nothing is found, the scope stays unknown.
            let _ = choice.inferred(task);
        }
        choice
    }

    /// From the `oom_control` of the `out_of_memory` that `current` is in, if the pair is attached.
    /// Read now and not at the entry, because `out_of_memory` itself sets the constraint:
    /// <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L1150>
    #[inline(always)]
    fn exact(&mut self) -> Option<()> {
        // SAFETY: only `current` writes or removes the entry under its own id, and is here now.
        let oc = Address::new(unsafe { *SCOPES.get(bpf_get_current_pid_tgid())? });
        // SAFETY: all offsets come from `table`.
        let (memcg, constraint, order, total_pages, css) = unsafe {
            (
                oc.at(offset!(oc_memcg)).read::<u64>()?,
                oc.at(offset!(oc_constraint)).read::<u32>()?,
                oc.at(offset!(oc_order)).read::<i32>()?,
                oc.at(offset!(oc_totalpages)).read::<u64>()?,
                offset!(memcg_css),
            )
        };
        if memcg == 0 {
            self.scope = SCOPE_GLOBAL;
        } else {
            self.limited_by(Address::new(memcg).at(css))?;
        }
        self.scope_source = SOURCE_EXACT;
        self.order = order;
        self.total_pages = total_pages;
        // A trigger that is already exiting is marked before the constraint is set. The pages are
        // set with the constraint, and are then not 0:
        // <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L1132-L1150>, <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L261-L267>
        if total_pages != 0 {
            self.constraint = constraint as u8;
        }
        Some(())
    }

    /// From the ancestor with the least room left. A charge walks up from the cgroup of the task
    /// and fails at the first level that has no room for it
    /// (<https://github.com/gregkh/linux/blob/v6.12.107/mm/page_counter.c#L125-L152>), so that of
    /// the levels close to their limits the fullest was hit, and the lowest of several that are
    /// equally full. The latter is not certain: another CPU may be about to remove a charge that
    /// failed further up.
    ///
    /// If none is close to its limit, the kill is global, or has a reason that the counters do not
    /// show (cpuset, memory policy, sysrq, swap of version 1): user space confirms it.
    #[inline(always)]
    fn inferred(&mut self, task: Address) -> Option<()> {
        // SAFETY: all offsets come from `table`.
        let (usage_at, max_at, parent) = unsafe {
            (
                offset!(memcg_usage),
                offset!(memcg_max),
                offset!(css_parent),
            )
        };
        let mut css = cgroup::memory(task)?;
        let mut least = u64::MAX;
        let mut scope = SCOPE_UNKNOWN;
        for _ in 0..MAX_DEPTH {
            let usage = css.at(usage_at).read::<u64>()?;
            let max = css.at(max_at).read::<u64>()?;
            let room = max.saturating_sub(usage);
            if room <= LIMIT_SLACK_PAGES && room < least {
                least = room;
                self.limit_usage_pages = usage;
                self.limit_max_pages = max;
                self.cg_limiting = cgroup::id(css)?;
                self.cg_tied = 0;
            } else if room == least && self.cg_tied == 0 {
                self.cg_tied = cgroup::id(css)?;
            }
            let Some(next) = css.at(parent).follow() else {
                scope = SCOPE_GLOBAL;
                break;
            };
            css = next;
        }
        self.scope = if self.cg_limiting == 0 {
            scope
        } else {
            SCOPE_MEMCG
        };
        Some(())
    }

    /// The memory cgroup with this state was at its limit.
    #[inline(always)]
    fn limited_by(&mut self, css: Address) -> Option<()> {
        // SAFETY: both offsets come from `table`.
        let (usage_at, max_at) = unsafe { (offset!(memcg_usage), offset!(memcg_max)) };
        self.limit_usage_pages = css.at(usage_at).read()?;
        self.limit_max_pages = css.at(max_at).read()?;
        self.cg_limiting = cgroup::id(css)?;
        self.scope = SCOPE_MEMCG;
        Some(())
    }
}
