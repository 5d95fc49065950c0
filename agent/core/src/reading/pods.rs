//! The memory that pods use, compared with their requests.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The quality of service of a pod, derived from the place of its cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QosClass {
    /// Every container's request is its limit.
    Guaranteed,
    /// Some containers have a request.
    Burstable,
    /// No container has a request.
    BestEffort,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodMemory {
    pub cgroup: String,
    pub class: QosClass,
    /// The pod's working set.
    pub used: Bytes,
    /// The sum of the containers' requests, within 0.1 % of the node's memory: derived from
    /// `oom_score_adj`.
    pub request: Bytes,
}

impl PodMemory {
    /// Returns the excess over the request, or zero.
    pub fn over(&self) -> Bytes {
        Bytes::from_bytes(self.used.get().saturating_sub(self.request.get()))
    }
}
