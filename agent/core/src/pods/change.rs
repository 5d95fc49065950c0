//! What the watch on pods reports.

use serde::{Deserialize, Serialize};

use super::Pod;

/// A change of the pods of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodChange {
    /// From here on every pod is reported again.
    Relisting,
    /// A pod exists.
    Present(Pod),
    /// The pod with this uid is removed.
    Removed(String),
    /// Every pod was reported, once or twice. Any other is removed.
    Listed,
    /// The agent is not permitted to watch pods. It is tried again after minutes.
    Refused,
}
