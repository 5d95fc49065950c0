//! What the container runtime of the node reports.

use serde::{Deserialize, Serialize};

/// The answer to the CRI call `Version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeVersion {
    /// The name of the runtime: `containerd`.
    pub name: String,
    /// Its version, without a leading `v`. `None`: the runtime does not answer.
    pub version: Option<String>,
}

/// The answer to the CRI call `Status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuntimeStatus {
    /// `RuntimeReady`; `None` if the runtime does not report it.
    pub runtime: Option<RuntimeCondition>,
    /// `NetworkReady`; `None` if the runtime does not report it.
    pub network: Option<RuntimeCondition>,
    /// In the order of the runtime. Empty if the runtime reports none.
    pub handlers: Vec<RuntimeHandler>,
    /// Whether it implements `supplementalGroupsPolicy`; `None` if it does not report its features.
    pub supplemental_groups_policy: Option<bool>,
}

/// A condition of the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuntimeCondition {
    /// Whether containers can run, as far as this condition is concerned.
    pub is_true: bool,
    /// As the runtime reports it, escaped.
    pub reason: String,
    /// As the runtime reports it, escaped.
    pub message: String,
}

/// A way in which the runtime runs containers, which a `RuntimeClass` can name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeHandler {
    /// Empty for the default handler.
    pub name: String,
    /// Whether mounts can be read-only with all mounts below them.
    pub recursive_read_only_mounts: bool,
    /// Whether pods can have user namespaces.
    pub user_namespaces: bool,
}

/// An image on this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeImage {
    /// Names with a digest, then names with a tag.
    pub names: Vec<String>,
    /// Its size in bytes.
    pub size: u64,
}
