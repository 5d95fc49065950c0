//! PURE: decoded kernel records.
//!
//! After [`decode`], no code handles bytes, raw kinds or lengths. Names are untrusted bytes; escape
//! them before display.

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::reading::{DiskReport, Stall};
use crate::units::{CgroupId, DeviceNumber, Pid};

pub mod decode;
pub mod kmsg;
pub mod uevent;

pub use crate::reading::oom::{OomConstraint, OomScope, ScopeSource};
pub use decode::DecodeError;
pub use kmsg::LoggedKill;
pub use uevent::{DiskAction, DiskChange};

#[derive(Debug)]
pub struct Received {
    pub read: BootNanos,
    pub record: Result<Record, DecodeError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The kernel chose a process to kill. Boxed because it is ten times larger than the others.
    OomKill(Box<RecordedKill>),
    /// An OOM kill from the kernel log, if no program reports kills.
    LoggedKill(Box<LoggedKill>),
    LogEnded,
    PidCrossing {
        at: BootNanos,
        /// Pids in the initial namespace.
        value: u32,
        /// Above the high level, or below the low one.
        side: Side,
    },
    PidTrend {
        at: BootNanos,
        /// Pids in the initial namespace.
        value: u32,
    },
    DiskReported {
        /// End of the window, or time of the error.
        at: BootNanos,
        device: DeviceNumber,
        report: DiskReport,
    },
    /// A watched cgroup was created, was removed, or reached its pids limit.
    CgroupsChanged {
        at: BootNanos,
    },
    Disk(DiskChange),
    /// Disk changes were lost; the list of disks must be read again.
    DisksMissed,
    Stall {
        at: BootNanos,
        stall: Stall,
    },
    /// A kind from a newer eBPF object: counted, then ignored.
    Unknown {
        /// [`agent_common::Header::kind`].
        kind: u16,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// At or above the level.
    Over,
    /// Below the level.
    Under,
}

/// The memory cgroup that was at its limit, as a program recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemcgLimit {
    pub limiting: CgroupId,
    pub usage_pages: u64,
    pub max_pages: u64,
    /// An ancestor with exactly the same memory left, which may be the limiting cgroup instead.
    pub tied: Option<CgroupId>,
}

/// A process in its innermost pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespacePid {
    /// Its process id there; the first process of a namespace has 1.
    pub pid: Pid,
    /// The memory cgroup of its parent if it is the first process or the namespace is the initial
    /// one, else of the first process.
    pub reference: CgroupId,
}

/// How an OOM kill was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Via {
    Task,
    /// Entry of `mark_oom_victim`.
    Fentry,
    /// Exit of the task; memory sizes may be missing.
    Exit,
}

/// A process that the kernel OOM-killed, as a program recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedKill {
    pub at: BootNanos,
    pub victim: Pid,
    /// Process name: any bytes except NUL.
    pub comm: Vec<u8>,
    /// User id, in the initial user namespace.
    pub uid: u32,
    /// The same in the process's user namespace. `None`: unknown, or the user has no id there.
    pub uid_in_namespace: Option<u32>,
    /// -1000 to 1000.
    pub oom_score_adj: i16,
    /// Process whose allocation failed; often not the victim.
    pub trigger: Pid,
    pub trigger_comm: Vec<u8>,
    /// The trigger's memory cgroup. `None`: unknown.
    pub trigger_cgroup: Option<CgroupId>,
    pub cgroup: CgroupId,
    /// Names of that cgroup, its parent and its grandparent; empty at and above the root. Used if
    /// the cgroup is removed before its path is resolved.
    pub names: [Vec<u8>; 3],
    pub scope: OomScope<MemcgLimit>,
    pub source: ScopeSource,
    /// Constraint on the allocation; `None` if unknown.
    pub constraint: Option<OomConstraint>,
    /// Order of the allocation; -1 for sysrq. `None` if unknown.
    pub order: Option<i32>,
    /// How the kill was observed.
    pub via: Via,
    /// The victim in its innermost pid namespace. `None`: that is the initial one, or it is
    /// unknown.
    pub namespace: Option<NamespacePid>,
    /// The highest cgroup below the limit that the kernel kills as a whole (`memory.oom.group`) and
    /// that contains the victim. `None`: there is none, or it is unknown.
    pub group: Option<CgroupId>,
    /// Resident anonymous memory, in pages.
    pub anon_pages: u64,
    pub file_pages: u64,
    /// Resident shared memory, in pages.
    pub shmem_pages: u64,
}
