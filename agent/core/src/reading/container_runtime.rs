//! Reports of the node's container runtime.

use serde::{Deserialize, Serialize};

/// The answer to the CRI call `Version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeVersion {
    /// The name of the runtime, such as `containerd`.
    pub name: String,
    /// The version without a leading `v`; `None` if the runtime does not answer.
    pub version: Option<String>,
}

/// The answer to the CRI call `Status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuntimeStatus {
    /// `RuntimeReady`; `None` if the runtime does not report it.
    pub runtime: Option<RuntimeCondition>,
    /// `NetworkReady`; `None` if the runtime does not report it.
    pub network: Option<RuntimeCondition>,
    /// The handlers in the runtime's order; empty if it reports none.
    pub handlers: Vec<RuntimeHandler>,
    /// Support of `supplementalGroupsPolicy`; `None` if the runtime does not report its features.
    pub supplemental_groups_policy: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuntimeCondition {
    /// Containers can run, as far as this condition is concerned.
    pub is_true: bool,
    /// Escaped text of the runtime.
    pub reason: String,
    /// Escaped text of the runtime.
    pub message: String,
}

/// A way in which the runtime runs containers, which a `RuntimeClass` can name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeHandler {
    /// Empty for the default handler.
    pub name: String,
    /// Mounts can be read-only with all mounts below them.
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeImage {
    /// Names with a digest, then names with a tag.
    pub names: Vec<String>,
    /// In bytes.
    pub size: u64,
}
