//! PURE: what a cgroup path says about pods.
//!
//! A path is text that a tenant can choose below its own cgroup: only what stands directly below
//! the pods cgroup or one of its `QoS` classes counts as a pod.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

mod change;
mod containers;
mod index;
mod last_names;
mod names;
mod recent_pods;

pub use change::PodChange;
pub use containers::{Container, Containers, List};
pub use index::{MAX_PODS, MAX_REMOVED_PODS, Pod, PodIndex};
pub use last_names::{ByNames, classify_by_names};
pub use recent_pods::RecentPods;

use names::Names;

/// What a cgroup is for, by its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupKind {
    /// The cgroup that holds all pods.
    Pods,
    /// A pod's own cgroup.
    Pod {
        /// Whose.
        pod: PodId,
    },
    /// A cgroup in a pod: of a container, or at any depth below one.
    Container {
        /// Of the pod.
        pod: PodId,
        /// The container id, where the name of the cgroup is of a form that we know.
        container: Option<String>,
    },
    /// Anywhere else.
    Other,
}

/// What the name of a pod's cgroup says of the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PodId {
    /// `metadata.uid`.
    Uid(String),
    /// Of a static pod: the hash of its manifest, 32 hexadecimal digits. The API server knows it as
    /// the annotation `kubernetes.io/config.hash` of the mirror pod, whose `metadata.uid` is another.
    ConfigHash(String),
}

impl PodId {
    /// As it stands in the cgroup's name, with `-` where systemd has `_`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Uid(id) | Self::ConfigHash(id) => id,
        }
    }
}

/// What the cgroup at `path` is for, where `pods` is the path of the pods cgroup: `/kubepods` with
/// the cgroupfs driver, `/kubepods.slice` with systemd's, either below other cgroups. Both begin
/// with `/`.
#[must_use]
pub fn classify(path: &str, pods: &str) -> CgroupKind {
    let Some(below) = path.strip_prefix(pods) else {
        return CgroupKind::Other;
    };
    let Some(below) = below.strip_prefix('/') else {
        return if below.is_empty() {
            CgroupKind::Pods
        } else {
            CgroupKind::Other
        };
    };
    let known = Names::of(pods);
    let mut names = below.split('/').peekable();
    let class = names.peek().and_then(|name| known.class(name));
    if class.is_some() {
        names.next();
    }
    let Some(pod) = names.next().and_then(|name| known.pod(name, class)) else {
        return CgroupKind::Other;
    };
    match names.next() {
        None => CgroupKind::Pod { pod },
        Some(name) => CgroupKind::Container {
            pod,
            container: names::container_id(name).map(str::to_owned),
        },
    }
}

/// Whether `text` is made of what names in Kubernetes are made of, and no longer than that. Nothing
/// else gets into a path, a message or a label.
fn fits(text: &str, longest: usize) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    !text.is_empty() && text.len() <= longest && text.bytes().all(plain)
}

#[cfg(test)]
mod tests;
