//! The memory of a cgroup that has a limit.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, CgroupId};

/// The memory of a cgroup with a limit, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitedMemory {
    /// How often it has reached its own limit: `max` of `memory.events.local`.
    pub hits: u64,
    /// Its limit.
    pub limit: Bytes,
    /// What the kernel cannot reclaim: usage without file pages and reclaimable slab.
    pub working_set: Bytes,
    /// Anonymous memory.
    pub anon: Bytes,
    /// Shared memory, of which the files of a tmpfs consist.
    pub shmem: Bytes,
    /// Anonymous and shared memory that was swapped out.
    pub swapped: Bytes,
    /// What can be swapped out in addition.
    pub swap_left: Bytes,
}

impl LimitedMemory {
    /// Memory that the kernel cannot drop: anonymous and shared memory, in memory or swapped out.
    pub const fn anonymous(&self) -> Bytes {
        let in_memory = self.anon.get().saturating_add(self.shmem.get());
        Bytes::from_bytes(in_memory.saturating_add(self.swapped.get()))
    }

    /// By how much that can grow until the kernel kills.
    pub const fn room(&self) -> Bytes {
        let unused = self.limit.get().saturating_sub(self.working_set.get());
        Bytes::from_bytes(unused.saturating_add(self.swap_left.get()))
    }
}

/// A cgroup with a limit, and its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedCgroup {
    /// Its id. A container that restarts has a new one.
    pub id: CgroupId,
    /// Its path.
    pub path: String,
    /// Its memory.
    pub memory: LimitedMemory,
}
