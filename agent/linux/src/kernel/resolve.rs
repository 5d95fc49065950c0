//! Resolves the kernel's BTF to [`KernelOffsets`], and which probes these are sufficient for.

use std::path::Path;

use agent_common::KernelOffsets;
use nodepulse_io::file::{self, Links};

use super::btf::Btf;
use super::probe::Probe;
use super::support::Missing;

/// BTF type names that [`offsets`] needs.
const NAMES: &[&str] = &[
    "task_struct",
    "signal_struct",
    "cred",
    "user_namespace",
    "mm_struct",
    "percpu_counter",
    "css_set",
    "cgroup",
    "cgroup_subsys_id",
    "cgroup_subsys_state",
    "kernfs_node",
    "mem_cgroup",
    "oom_control",
    "pid",
    "pid_namespace",
    "pid_type",
    "request",
    "request_queue",
    "gendisk",
    "req_flag_bits",
    "btf_trace_mark_victim",
];

/// Maximum size of the BTF file. Those of distributions have 5 to 15 MiB.
const MOST: u64 = 64 << 20;

/// Size of a pointer and of one slot of `css_set.subsys`, in bytes.
const POINTER: u32 = 8;
/// Size of one counter of `mm_rss_stat` before 6.2, in bytes.
const RSS_COUNTER: u32 = 8;

/// Reads the BTF file at `path`, normally `/sys/kernel/btf/vmlinux`.
///
/// # Cost
///
/// About 25 ms and, temporarily, the file's size in memory.
pub fn resolve(path: &Path) -> Result<KernelOffsets, Missing> {
    let unusable = |why: String| Missing::Btf {
        path: path.to_owned(),
        why,
    };
    let mut data = Vec::new();
    let read = file::read_into(path, MOST, Links::Followed, &mut data);
    read.map_err(|err| unusable(err.to_string()))?;
    let btf = Btf::parse(data, NAMES).map_err(|err| unusable(err.to_string()))?;
    Ok(offsets(&btf))
}

fn offsets(btf: &Btf) -> KernelOffsets {
    let at = |path: &str| btf.offset(path).unwrap_or(KernelOffsets::MISSING);
    let less_css = |path: &str| {
        let (field, css) = (btf.offset(path), btf.offset("mem_cgroup.css"));
        field
            .zip(css)
            .and_then(|(f, c)| f.checked_sub(c))
            .unwrap_or(KernelOffsets::MISSING)
    };
    let (mm_rss, mm_rss_stride) = resident(btf).unzip();
    KernelOffsets {
        task_pid: at("task_struct.pid"),
        task_tgid: at("task_struct.tgid"),
        task_comm: at("task_struct.comm"),
        task_mm: at("task_struct.mm"),
        task_signal: at("task_struct.signal"),
        task_real_cred: at("task_struct.real_cred"),
        task_cgroups: at("task_struct.cgroups"),
        task_thread_pid: at("task_struct.thread_pid"),
        signal_oom_score_adj: at("signal_struct.oom_score_adj"),
        signal_oom_mm: at("signal_struct.oom_mm"),
        cred_uid: at("cred.uid"),
        cred_user_ns: at("cred.user_ns"),
        user_ns_extents: at("user_namespace.uid_map.extent"),
        user_ns_extent_count: at("user_namespace.uid_map.nr_extents"),
        mm_rss: mm_rss.unwrap_or(KernelOffsets::MISSING),
        mm_rss_stride: mm_rss_stride.unwrap_or(KernelOffsets::MISSING),
        mm_total_vm: at("mm_struct.total_vm"),
        mm_pgtables_bytes: at("mm_struct.pgtables_bytes"),
        css_set_dfl_cgrp: at("css_set.dfl_cgrp"),
        css_set_memory: memory_state(btf).unwrap_or(KernelOffsets::MISSING),
        cgroup_kn: at("cgroup.kn"),
        kernfs_id: at("kernfs_node.id"),
        kernfs_name: at("kernfs_node.name"),
        kernfs_parent: btf
            .offset("kernfs_node.__parent")
            .unwrap_or_else(|| at("kernfs_node.parent")),
        css_cgroup: at("cgroup_subsys_state.cgroup"),
        css_parent: at("cgroup_subsys_state.parent"),
        memcg_usage: less_css("mem_cgroup.memory.usage"),
        memcg_max: less_css("mem_cgroup.memory.max"),
        pid_ns: at("pid.numbers[0].ns"),
        pid_ns_allocated: at("pid_namespace.pid_allocated"),
        rq_start_time_ns: at("request.start_time_ns"),
        rq_cmd_flags: at("request.cmd_flags"),
        rq_data_len: at("request.__data_len"),
        rq_disk: at("request.rq_disk"),
        rq_q: at("request.q"),
        queue_id: at("request_queue.id"),
        queue_disk: at("request_queue.disk"),
        disk_major: at("gendisk.major"),
        disk_first_minor: at("gendisk.first_minor"),
        memcg_css: at("mem_cgroup.css"),
        oc_memcg: at("oom_control.memcg"),
        oc_constraint: at("oom_control.constraint"),
        oc_order: at("oom_control.order"),
        oc_totalpages: at("oom_control.totalpages"),
        task_real_parent: at("task_struct.real_parent"),
        signal_tgid: signal_tgid(btf).unwrap_or(KernelOffsets::MISSING),
        pid_level: at("pid.level"),
        pid_nr: at("pid.numbers[0].nr"),
        pid_ns_child_reaper: at("pid_namespace.child_reaper"),
        memcg_oom_group: less_css("mem_cgroup.oom_group"),
        mark_victim_has_task: u32::from(mark_victim_has_task(btf)),
        req_readahead: flags(btf, &["__REQ_RAHEAD"]),
        req_urgent: flags(btf, &["__REQ_META", "__REQ_PRIO", "__REQ_FUA"]),
        req_sync: flags(btf, &["__REQ_SYNC"]),
    }
}

/// Returns the bits of a request's flags, by the names of their numbers; missing if one of them is.
fn flags(btf: &Btf, names: &[&str]) -> u32 {
    let bit = |name: &&str| 1_u32.checked_shl(btf.enum_value("req_flag_bits", name)?);
    let bits: Option<Vec<u32>> = names.iter().map(bit).collect();
    bits.map_or(KernelOffsets::MISSING, |bits| {
        bits.iter().fold(0, |all, bit| all | bit)
    })
}

/// Returns `true` if argument 0 of `mark_victim` is the task, as since 6.10 and in stable branches.
fn mark_victim_has_task(btf: &Btf) -> bool {
    btf.tracepoint_argument("mark_victim", 0).as_deref() == Some("task_struct")
}

/// Returns the offset of the first resident-set counter, and the stride.
fn resident(btf: &Btf) -> Option<(u32, u32)> {
    if btf.is_array("mm_struct.rss_stat") {
        let first = btf.offset("mm_struct.rss_stat")?;
        let count = btf.offset("percpu_counter.count")?;
        return Some((first.checked_add(count)?, btf.size("percpu_counter")?));
    }
    Some((btf.offset("mm_struct.rss_stat.count")?, RSS_COUNTER))
}

/// Returns the offset of `css_set.subsys[memory_cgrp_id]`.
fn memory_state(btf: &Btf) -> Option<u32> {
    let memory = btf.enum_value("cgroup_subsys_id", "memory_cgrp_id")?;
    btf.offset("css_set.subsys")?
        .checked_add(memory.checked_mul(POINTER)?)
}

/// Returns the offset of `signal_struct.pids[PIDTYPE_TGID]`.
fn signal_tgid(btf: &Btf) -> Option<u32> {
    let tgid = btf.enum_value("pid_type", "PIDTYPE_TGID")?;
    btf.offset("signal_struct.pids")?
        .checked_add(tgid.checked_mul(POINTER)?)
}

/// Returns the reason why `probe` cannot run on this kernel; `None` if it can.
pub fn missing(o: &KernelOffsets, probe: Probe) -> Option<Missing> {
    if probe == Probe::OomVictim && o.mark_victim_has_task == 0 {
        return Some(Missing::Prototype);
    }
    let needed = match probe {
        Probe::OomVictim => victim(o).to_vec(),
        Probe::OomFentry | Probe::OomPid | Probe::OomExit => {
            let mut needed = victim(o).to_vec();
            needed.push(("signal_struct.oom_mm", o.signal_oom_mm));
            needed
        }
        Probe::ScopeEnter | Probe::ScopeLeave => scope(o).to_vec(),
        Probe::PidFork => pids(o).to_vec(),
        Probe::DiskComplete => disks(o).to_vec(),
    };
    let absent = needed.iter().find(|(_, at)| *at == KernelOffsets::MISSING);
    absent.map(|(path, _)| Missing::Member { path })
}

type Needed = (&'static str, u32);

fn victim(o: &KernelOffsets) -> [Needed; 22] {
    [
        ("task_struct.pid", o.task_pid),
        ("task_struct.tgid", o.task_tgid),
        ("task_struct.comm", o.task_comm),
        ("task_struct.mm", o.task_mm),
        ("task_struct.signal", o.task_signal),
        ("task_struct.real_cred", o.task_real_cred),
        ("task_struct.cgroups", o.task_cgroups),
        ("signal_struct.oom_score_adj", o.signal_oom_score_adj),
        ("cred.uid", o.cred_uid),
        ("mm_struct.rss_stat", o.mm_rss),
        ("mm_struct.total_vm", o.mm_total_vm),
        ("mm_struct.pgtables_bytes", o.mm_pgtables_bytes),
        ("css_set.dfl_cgrp", o.css_set_dfl_cgrp),
        ("css_set.subsys[memory_cgrp_id]", o.css_set_memory),
        ("cgroup.kn", o.cgroup_kn),
        ("kernfs_node.id", o.kernfs_id),
        ("kernfs_node.name", o.kernfs_name),
        ("kernfs_node.parent", o.kernfs_parent),
        ("cgroup_subsys_state.cgroup", o.css_cgroup),
        ("cgroup_subsys_state.parent", o.css_parent),
        ("mem_cgroup.memory.usage", o.memcg_usage),
        ("mem_cgroup.memory.max", o.memcg_max),
    ]
}

fn scope(o: &KernelOffsets) -> [Needed; 5] {
    [
        ("oom_control.memcg", o.oc_memcg),
        ("oom_control.constraint", o.oc_constraint),
        ("oom_control.order", o.oc_order),
        ("oom_control.totalpages", o.oc_totalpages),
        ("mem_cgroup.css", o.memcg_css),
    ]
}

fn pids(o: &KernelOffsets) -> [Needed; 3] {
    [
        ("task_struct.thread_pid", o.task_thread_pid),
        ("pid.numbers[0].ns", o.pid_ns),
        ("pid_namespace.pid_allocated", o.pid_ns_allocated),
    ]
}

fn disks(o: &KernelOffsets) -> [Needed; 11] {
    [
        ("req_flag_bits.__REQ_RAHEAD", o.req_readahead),
        ("req_flag_bits.__REQ_META", o.req_urgent),
        ("req_flag_bits.__REQ_SYNC", o.req_sync),
        ("request.start_time_ns", o.rq_start_time_ns),
        ("request.cmd_flags", o.rq_cmd_flags),
        ("request.__data_len", o.rq_data_len),
        ("request.q", o.rq_q),
        ("request_queue.id", o.queue_id),
        (
            "request.rq_disk or request_queue.disk",
            o.rq_disk.min(o.queue_disk),
        ),
        ("gendisk.major", o.disk_major),
        ("gendisk.first_minor", o.disk_first_minor),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_member_disables_only_the_probes_that_need_it() {
        const M: u32 = KernelOffsets::MISSING;
        use Probe::{OomExit, OomFentry, OomPid, OomVictim, PidFork, ScopeEnter, ScopeLeave};
        let kernel = KernelOffsets {
            rq_disk: 8,
            mark_victim_has_task: 1,
            ..zeroed()
        };
        //  members of this kernel, disabled probes
        #[rustfmt::skip]
        let rows: [(KernelOffsets, &[Probe]); 7] = [
            (kernel, &[]),
            (KernelOffsets { cred_user_ns: M, user_ns_extents: M, user_ns_extent_count: M, ..kernel }, &[]),
            (KernelOffsets { pid_ns: M, ..kernel }, &[PidFork]),
            (KernelOffsets { cred_uid: M, ..kernel }, &[OomVictim, OomFentry, OomPid, OomExit]),
            (KernelOffsets { signal_oom_mm: M, ..kernel }, &[OomFentry, OomPid, OomExit]),
            (KernelOffsets { oc_totalpages: M, ..kernel }, &[ScopeEnter, ScopeLeave]),
            (KernelOffsets { memcg_css: M, ..kernel }, &[ScopeEnter, ScopeLeave]),
        ];
        for (n, (offsets, expected)) in rows.into_iter().enumerate() {
            let off = Probe::ALL.into_iter();
            let off: Vec<_> = off.filter(|p| missing(&offsets, *p).is_some()).collect();
            assert_eq!(off, expected, "row {n}");
        }
    }

    #[test]
    fn either_path_to_the_disk_of_a_request_is_sufficient() {
        const M: u32 = KernelOffsets::MISSING;
        let rows = [
            (8, M, true, "rq_disk, up to 5.16"),
            (M, 8, true, "the disk of the queue, since"),
            (M, M, false, "neither"),
        ];
        for (rq_disk, queue_disk, works, why) in rows {
            let offsets = KernelOffsets {
                rq_disk,
                queue_disk,
                ..zeroed()
            };
            assert_eq!(
                missing(&offsets, Probe::DiskComplete).is_none(),
                works,
                "{why}"
            );
        }
    }

    #[test]
    fn the_old_prototype_of_mark_victim_leaves_the_other_hooks() {
        let offsets = zeroed();
        assert_eq!(
            missing(&offsets, Probe::OomVictim),
            Some(Missing::Prototype)
        );
        assert_eq!(missing(&offsets, Probe::OomFentry), None);
        assert_eq!(missing(&offsets, Probe::OomPid), None);
    }

    fn zeroed() -> KernelOffsets {
        zerocopy::transmute!([0_u8; size_of::<KernelOffsets>()])
    }
}
