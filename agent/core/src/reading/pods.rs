//! How much memory a pod uses, compared with its request.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The quality of service of a pod, by the place of its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QosClass {
    /// Every container's request is its limit.
    Guaranteed,
    /// Some containers have a request.
    Burstable,
    /// No container has a request.
    BestEffort,
}

/// The memory of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodMemory {
    /// Path of its cgroup.
    pub cgroup: String,
    /// Its class.
    pub class: QosClass,
    /// Its working set.
    pub used: Bytes,
    /// The sum of its containers' requests, within 0.1 % of the node's memory: derived from `oom_score_adj`.
    pub request: Bytes,
}

impl PodMemory {
    /// How much it uses over its request.
    pub fn over(&self) -> Bytes {
        Bytes::from_bytes(self.used.get().saturating_sub(self.request.get()))
    }
}
