//! Reports of the watch on pods.

use serde::{Deserialize, Serialize};

use super::Pod;

/// A change of the pods of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodChange {
    /// Every pod is reported again from here on.
    Relisting,
    Present(Pod),
    /// Contains the uid of the pod.
    Removed(String),
    /// Every pod was reported, once or twice. All others are removed.
    Listed,
    /// The agent is not permitted to watch pods, and tries again after minutes.
    Refused,
}
