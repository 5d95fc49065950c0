//! PURE: what the kernel reported, in our own types.
//!
//! After [`decode`] nobody handles bytes, raw kinds or lengths. Names are bytes that a tenant chose:
//! whoever shows them escapes them.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::reading::Stall;
use crate::units::{CgroupId, DeviceNumber, Pid};

pub mod decode;
pub mod kmsg;
pub mod uevent;

pub use crate::reading::oom::{OomConstraint, OomScope, ScopeSource};
pub use decode::DecodeError;
pub use kmsg::LoggedKill;
pub use uevent::{DiskAction, DiskChange};

/// What came out of a ring, and when it was read.
#[derive(Debug)]
pub struct Received {
    /// When the record was taken from the ring.
    pub read: BootNanos,
    /// What it says, or why it could not be read.
    pub record: Result<Record, DecodeError>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The kernel has chosen a process to kill. Boxed: it is ten times larger than the others.
    OomKill(Box<OomKill>),
    /// The kernel's log tells of one, where no program does.
    LoggedKill(Box<LoggedKill>),
    /// The kernel's log tells of no more kills.
    LogEnded,
    /// The number of pids crossed the level that was set.
    PidCrossing {
        /// When.
        at: BootNanos,
        /// Pids in the initial namespace.
        value: u32,
        /// Over the high level, or under the low one.
        side: Side,
    },
    /// The number of pids moved by a step.
    PidTrend {
        /// When.
        at: BootNanos,
        /// Pids in the initial namespace.
        value: u32,
    },
    /// A disk became slow, or is quick again.
    DiskState {
        /// When.
        at: BootNanos,
        /// Which.
        device: DeviceNumber,
        /// Over: slow.
        side: Side,
        /// Reads and writes in the window that decided.
        total: u32,
        /// Those that were slow.
        slow: u32,
        /// Longest of them.
        max: Duration,
    },
    /// Cgroups that are watched came, went, or met a limit on their tasks.
    CgroupsChanged {
        /// When it was read.
        at: BootNanos,
    },
    /// A disk that was well returned an error.
    DiskErrors {
        /// When.
        at: BootNanos,
        /// Which.
        device: DeviceNumber,
    },
    /// A disk came, went, or is not what it was.
    Disk(DiskChange),
    /// Some of those were missed: the list of disks is to be read again.
    DisksMissed,
    /// Tasks waited longer than the trigger of this group and resource allows.
    Stall {
        /// When we were woken.
        at: BootNanos,
        /// Whose tasks, and for what.
        stall: Stall,
    },
    /// A kind from a newer object. Counted, then ignored.
    Unknown {
        /// [`agent_common::Header::kind`].
        kind: u16,
    },
}

/// Which side of its level something is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// At or over it.
    Over,
    /// Under it.
    Under,
}

/// The memory cgroup that was at its limit, as a program recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemcgLimit {
    /// Its id.
    pub limiting: CgroupId,
    /// Its usage, in pages.
    pub usage_pages: u64,
    /// Its limit, in pages.
    pub max_pages: u64,
    /// An ancestor with exactly as little room left: it may have been that one instead.
    pub tied: Option<CgroupId>,
}

/// By which way a kill was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Via {
    /// The tracepoint handed out the task.
    Task,
    /// `mark_oom_victim` was entered with the task.
    Fentry,
    /// The task was seen when it exited: its memory may be missing.
    Exit,
}

/// One process that the kernel killed for want of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKill {
    /// When it was chosen.
    pub at: BootNanos,
    /// Process id of the victim.
    pub victim: Pid,
    /// Its name, as it calls itself: any bytes but NUL.
    pub comm: Vec<u8>,
    /// User id, in the initial user namespace.
    pub uid: u32,
    /// -1000 to 1000.
    pub oom_score_adj: i16,
    /// Process that asked for the memory; often not the victim.
    pub trigger: Pid,
    /// Its name.
    pub trigger_comm: Vec<u8>,
    /// The victim's memory cgroup.
    pub cgroup: CgroupId,
    /// Names of that cgroup, its parent and its grandparent; empty from the root on. For when it
    /// is gone before anyone looks.
    pub names: [Vec<u8>; 3],
    /// What was short of memory.
    pub scope: OomScope<MemcgLimit>,
    /// How that is known.
    pub source: ScopeSource,
    /// What bounded the allocation; `None` where the kernel did not tell.
    pub constraint: Option<OomConstraint>,
    /// Order of the allocation; -1 for a kill that was asked for by sysrq. `None`: not told.
    pub order: Option<i32>,
    /// By which way it was learnt.
    pub via: Via,
    /// Resident anonymous memory, in pages.
    pub anon_pages: u64,
    /// Resident file pages.
    pub file_pages: u64,
    /// Resident shared memory, in pages.
    pub shmem_pages: u64,
}
