//! The users of the memory of a cgroup that has just reached its limit.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Pid};

/// The memory that is charged to a cgroup and those below it, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySplit {
    pub anon: Bytes,
    /// Files, without shared memory.
    pub file: Bytes,
    /// Shared memory, of which the files of a tmpfs consist.
    pub shmem: Bytes,
    /// Memory of the kernel; `None` if unknown.
    pub kernel: Option<Bytes>,
    /// Buffers of sockets; `None` if unknown.
    pub sockets: Option<Bytes>,
}

impl MemorySplit {
    pub fn total(&self) -> Bytes {
        let kinds = [self.anon, self.file, self.shmem].into_iter();
        kinds.chain(self.kernel).chain(self.sockets).sum()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSize {
    pub pid: Pid,
    /// Name of the process, escaped.
    pub comm: String,
    /// Resident memory, shared memory included.
    pub resident: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LargestProcesses {
    /// In descending order of size.
    pub largest: Vec<ProcessSize>,
    pub compared: usize,
    /// Not all processes of the cgroup were compared.
    pub is_partial: bool,
}
