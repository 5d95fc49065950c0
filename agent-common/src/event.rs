//! One record per kind of event, as the probes write them into the rings.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::layout;

/// `TASK_COMM_LEN`, the kernel's limit for a task's name, NUL included:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/sched.h#L306>
pub const COMM_LEN: usize = 16;
/// How much of a cgroup directory's name a record contains. A container id with its prefix and
/// suffix has at most 82 bytes (`cri-containerd-<64 hex>.scope`).
pub const NAME_LEN: usize = 96;

/// [`Header::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum EventKind {
    /// [`OomKill`], in CRIT.
    OomKill = 1,
    /// [`PidCrossing`], in BULK.
    PidCrossing = 10,
    /// [`PidTrend`], in BULK.
    PidTrend = 11,
    /// [`SlowWindow`], in BULK.
    SlowWindow = 20,
    /// [`DiskError`], in BULK.
    DiskError = 21,
}

impl EventKind {
    /// The kind as a header contains it.
    pub const fn raw(self) -> u16 {
        match self {
            Self::OomKill => 1,
            Self::PidCrossing => 10,
            Self::PidTrend => 11,
            Self::SlowWindow => 20,
            Self::DiskError => 21,
        }
    }

    /// The kind with the number `raw`; `None` for one of a newer object.
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::OomKill),
            10 => Some(Self::PidCrossing),
            11 => Some(Self::PidTrend),
            20 => Some(Self::SlowWindow),
            21 => Some(Self::DiskError),
            _ => None,
        }
    }
}

/// Starts every record in both rings.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Header {
    /// [`crate::ABI_VERSION`] of the object that wrote the record.
    pub version: u16,
    /// An [`EventKind`] as a number. Records of unknown kinds are skipped and counted.
    pub kind: u16,
    /// Bytes in the whole record, header included.
    pub size: u32,
    /// `CLOCK_BOOTTIME` when the probe ran, in nanoseconds (`bpf_ktime_get_boot_ns`).
    pub time: u64,
    /// Number of the attempt to write to this ring on this CPU: a gap is a loss.
    pub seq: u64,
    /// CPU that wrote the record.
    pub cpu: u32,
    /// Always zero. Named so that no byte of kernel memory leaves uninitialised.
    pub pad: u32,
}
layout!(Header, 32, version @ 0, kind @ 2, size @ 4, time @ 8, seq @ 16, cpu @ 24, pad @ 28);

/// [`OomKill::scope`]: the limit is not known.
pub const SCOPE_UNKNOWN: u8 = 0;
/// [`OomKill::scope`]: no memory cgroup above the victim was at its limit.
pub const SCOPE_GLOBAL: u8 = 1;
/// [`OomKill::scope`]: [`OomKill::cg_limiting`] was at its limit.
pub const SCOPE_MEMCG: u8 = 2;
/// [`OomKill::scope_source`]: no source, as with [`SCOPE_UNKNOWN`].
pub const SOURCE_NONE: u8 = 0;
/// [`OomKill::scope_source`]: from the usage and the limits of the victim's ancestors.
pub const SOURCE_INFERRED: u8 = 1;
/// [`OomKill::scope_source`]: from the kernel's `oom_control`.
pub const SOURCE_EXACT: u8 = 2;
/// [`OomKill::constraint`] if it is not known. Otherwise it is an `enum oom_constraint`: 0 none, 1
/// cpuset, 2 memory policy, 3 memory cgroup.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/oom.h#L18-L23>
pub const CONSTRAINT_UNKNOWN: u8 = 255;
/// [`OomKill::via`]: the tracepoint passed the task.
pub const VIA_TASK: u8 = 0;
/// [`OomKill::via`]: `mark_oom_victim` was entered with the task.
pub const VIA_FENTRY: u8 = 1;
/// [`OomKill::via`]: the tracepoint passed a pid, and the task was read when it exited: its memory
/// may be missing in the record, and the time is that of the choice, not of the exit.
pub const VIA_EXIT: u8 = 2;
/// [`OomKill::order`] if the allocation's order is not known. In the kernel -1 means sysrq:
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/oom.h#L43-L46>
pub const ORDER_UNKNOWN: i32 = i32::MIN;
/// [`OomKill::uid_in_namespace`] if it is not known: the number that is no user's.
pub const UID_UNKNOWN: u32 = u32::MAX;

/// `oom:mark_victim`: the kernel has chosen a process to kill. One record per killed process, so
/// several for one event with `memory.oom.group`.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct OomKill {
    /// Kind [`EventKind::OomKill`].
    pub header: Header,
    /// Thread group (process) of the victim.
    pub tgid: u32,
    /// Thread that was marked.
    pub pid: u32,
    /// Process whose allocation hit the limit. Often not the victim.
    pub trigger_tgid: u32,
    /// Real user id of the victim, in the initial user namespace.
    pub uid: u32,
    /// Id of the victim's cgroup in the unified hierarchy.
    pub cg_default: u64,
    /// Id of the victim's cgroup in the memory controller's hierarchy: the one to use.
    pub cg_memory: u64,
    /// Id of the memory cgroup that was at its limit; 0 unless scope is [`SCOPE_MEMCG`].
    pub cg_limiting: u64,
    /// What `cg_limiting` used, in pages.
    pub limit_usage_pages: u64,
    /// Its limit, in pages.
    pub limit_max_pages: u64,
    /// Address space of the victim, in pages.
    pub total_vm_pages: u64,
    /// Resident anonymous memory, in pages. From 6.2 on the shared part of a per-CPU counter, which
    /// can lag by some pages per CPU:
    /// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/mm_types.h#L966>
    pub anon_pages: u64,
    /// Resident file pages.
    pub file_pages: u64,
    /// Resident shared memory, in pages.
    pub shmem_pages: u64,
    /// Page tables, in bytes.
    pub pgtable_bytes: u64,
    /// Pages that the kernel could have used, from `oom_control`; 0 unless the source is exact.
    /// <https://github.com/gregkh/linux/blob/v6.12.107/mm/oom_kill.c#L261-L267>
    pub total_pages: u64,
    /// `oom_score_adj` of the victim, -1000 to 1000.
    pub oom_score_adj: i16,
    /// One of the `SCOPE_` constants.
    pub scope: u8,
    /// One of the `SOURCE_` constants.
    pub scope_source: u8,
    /// Order of the allocation that failed, or [`ORDER_UNKNOWN`].
    pub order: i32,
    /// Name of the victim, NUL-terminated. Any bytes: a process names itself.
    pub comm: [u8; COMM_LEN],
    /// Name of the trigger.
    pub trigger_comm: [u8; COMM_LEN],
    /// Name of the victim's memory cgroup, NUL-terminated and cut.
    pub leaf: [u8; NAME_LEN],
    /// Name of its parent; empty at the root.
    pub parent: [u8; NAME_LEN],
    /// Name of its grandparent; empty at the root.
    pub grandparent: [u8; NAME_LEN],
    /// What limited the allocation, or [`CONSTRAINT_UNKNOWN`].
    pub constraint: u8,
    /// One of the `VIA_` constants.
    pub via: u8,
    /// Always zero.
    pub pad: [u8; 2],
    /// Process id of the victim in its innermost pid namespace; 0 if it is not known.
    pub ns_tgid: u32,
    /// Id of an ancestor of `cg_limiting` that had exactly as little room left, so that either can
    /// have been hit; 0 for none, and if the source is exact.
    pub cg_tied: u64,
    /// Id of the memory cgroup of the process that the victim depends on: its parent if `ns_tgid`
    /// is 1 or of the initial namespace, else the first process of its namespace; 0 if `ns_tgid`
    /// is.
    pub cg_reference: u64,
    /// Id of the highest memory cgroup below the limit that the kernel kills as a whole
    /// (`memory.oom.group`) and that contains the victim; 0 for none, and if it is not known.
    pub cg_group: u64,
    /// Real user id of the victim in its user namespace, or [`UID_UNKNOWN`].
    pub uid_in_namespace: u32,
    /// Always zero.
    pub pad_uid: u32,
    /// Id of the memory cgroup of the trigger; 0 if it is not known.
    pub cg_trigger: u64,
}
layout!(OomKill, 512, tgid @ 32, cg_default @ 48, anon_pages @ 96, oom_score_adj @ 136,
    scope @ 138, order @ 140, comm @ 144, leaf @ 176, parent @ 272, grandparent @ 368, constraint @ 464, via @ 465,
    ns_tgid @ 468, cg_tied @ 472, cg_reference @ 480, cg_group @ 488,
    uid_in_namespace @ 496, pad_uid @ 500, cg_trigger @ 504);

/// The number of pids crossed the level that user space wrote into
/// [`crate::settings::PidSettings`].
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct PidCrossing {
    /// Kind [`EventKind::PidCrossing`].
    pub header: Header,
    /// `pid_allocated` of the initial pid namespace when the probe ran.
    pub value: u32,
    /// 1 when it went over, 0 when it came back under the low level.
    pub state: u32,
    /// The level that was crossed.
    pub threshold: u32,
    /// Always zero.
    pub pad: u32,
}
layout!(PidCrossing, 48, value @ 32, state @ 36, threshold @ 40);

/// The number of pids moved by a step since the last record.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct PidTrend {
    /// Kind [`EventKind::PidTrend`].
    pub header: Header,
    /// `pid_allocated` of the initial pid namespace when the probe ran.
    pub value: u32,
    /// Always zero.
    pub pad: u32,
}
layout!(PidTrend, 40, value @ 32);

/// A window in which a disk was slow. No record is written for other windows.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct SlowWindow {
    /// Kind [`EventKind::SlowWindow`].
    pub header: Header,
    /// The disk: [`crate::settings::device_key`].
    pub dev: u32,
    /// Judged requests that completed in the window.
    pub judged: u32,
    /// Those of them that were slow: at least [`crate::settings::SLOW_PERCENT`].
    pub slow: u32,
    /// Always zero.
    pub pad: u32,
    /// Length of the window, in nanoseconds: at most [`crate::settings::WINDOW_EXTENSION`] times
    /// that of [`crate::settings::DiskEntry::window_ns`].
    pub window_ns: u64,
    /// Time from the end of the window to this record, in nanoseconds: a window is evaluated by the
    /// first request that completes after it.
    pub ago_ns: u64,
    /// Longest latency of a judged request in it.
    pub max_ns: u64,
}
layout!(SlowWindow, 72, dev @ 32, judged @ 36, slow @ 40, window_ns @ 48, ago_ns @ 56, max_ns @ 64);

/// A read or write failed with an error of the medium or the transport.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "user", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct DiskError {
    /// Kind [`EventKind::DiskError`].
    pub header: Header,
    /// The disk: [`crate::settings::device_key`].
    pub dev: u32,
    /// 0 read, 1 write.
    pub op: u32,
    /// The error number, positive.
    pub errno: u32,
    /// Always zero.
    pub pad: u32,
}
layout!(DiskError, 48, dev @ 32, op @ 36, errno @ 40);
