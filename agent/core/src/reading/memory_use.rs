//! Who uses the memory of a cgroup that has just reached its limit.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Pid};

/// What is charged to a cgroup and those below it, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySplit {
    /// Anonymous memory.
    pub anon: Bytes,
    /// Files, without shared memory.
    pub file: Bytes,
    /// Shared memory, of which the files of a tmpfs consist.
    pub shmem: Bytes,
    /// Memory of the kernel. `None`: unknown.
    pub kernel: Option<Bytes>,
    /// Buffers of sockets. `None`: unknown.
    pub sockets: Option<Bytes>,
}

impl MemorySplit {
    /// All of it.
    pub fn total(&self) -> Bytes {
        let kinds = [self.anon, self.file, self.shmem].into_iter();
        kinds.chain(self.kernel).chain(self.sockets).sum()
    }
}

/// A process and its resident memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSize {
    /// Its id.
    pub pid: Pid,
    /// Its name, escaped.
    pub comm: String,
    /// Its resident memory, shared memory included.
    pub resident: Bytes,
}

/// The largest processes of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LargestProcesses {
    /// The largest first.
    pub largest: Vec<ProcessSize>,
    /// How many were compared.
    pub compared: usize,
    /// Whether there are more than these.
    pub is_partial: bool,
}
