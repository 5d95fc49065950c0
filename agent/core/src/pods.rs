//! PURE: the pod to which a cgroup path belongs.
//!
//! A tenant can choose the path below its own cgroup: only a cgroup directly below the pods cgroup,
//! or below one of its `QoS` classes, counts as a pod.

use serde::{Deserialize, Serialize};

mod change;
mod containers;
mod index;
mod largest;
mod last_names;
mod links;
mod names;
mod owner;
mod recent_pods;

pub use change::PodChange;
pub use containers::{Container, ContainerList, Containers, MemoryLimits};
pub use index::{MAX_PODS, MAX_REMOVED_PODS, Pod, PodIndex};
pub use largest::{LargestMemory, LargestTasks, OwnerMemory};
pub use last_names::{claims_pod, whole_path};
pub use links::{LinkSearch, LinkedContainer};
pub use owner::Owner;
pub(crate) use owner::is_within;
pub use recent_pods::RecentPods;

use crate::reading::pods::QosClass;
use names::CgroupNames;

/// The content of a cgroup, according to its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupKind {
    Pods,
    Pod {
        pod: PodId,
    },
    /// A cgroup in a pod: of a container, or at any depth below one.
    Container {
        pod: PodId,
        /// The container id, if the name of the cgroup has a known form.
        container: Option<String>,
    },
    Other,
}

/// The identity of a pod in the name of its cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PodId {
    /// `metadata.uid`.
    Uid(String),
    /// The hash of a static pod's manifest, 32 hexadecimal digits. The API server has it as the
    /// annotation `kubernetes.io/config.hash` of the mirror pod, whose `metadata.uid` is different.
    ConfigHash(String),
}

impl PodId {
    /// Parses the name of the kubelet's directory of a pod.
    pub fn parse(name: &str) -> Option<Self> {
        names::pod_id(name.to_owned())
    }

    /// Returns the id as in the name of the cgroup, with `-` instead of systemd's `_`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Uid(id) | Self::ConfigHash(id) => id,
        }
    }
}

/// The pod that a cgroup belongs to, and the container in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    pub pod: PodId,
    /// The container's id, if the cgroup is a container's.
    pub container: Option<String>,
}

impl PodRef {
    /// Returns `None` if the cgroup is no pod's.
    pub fn of(place: CgroupKind) -> Option<Self> {
        match place {
            CgroupKind::Pod { pod } => Some(Self {
                pod,
                container: None,
            }),
            CgroupKind::Container { pod, container } => Some(Self { pod, container }),
            CgroupKind::Pods | CgroupKind::Other => None,
        }
    }
}

/// Returns the pod whose cgroup is at `path`; see [`classify`]. `None` for any other cgroup, also
/// one in a pod.
pub fn pod_of(path: &str, pods: &str) -> Option<PodId> {
    match classify(path, pods) {
        CgroupKind::Pod { pod } => Some(pod),
        CgroupKind::Pods | CgroupKind::Container { .. } | CgroupKind::Other => None,
    }
}

/// Classifies the cgroup at `path`. `pods` is the path of the pods cgroup: `/kubepods` with the
/// cgroupfs driver, `/kubepods.slice` with systemd's, either possibly below other cgroups. Both
/// begin with `/`.
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
    let known = CgroupNames::of(pods);
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

/// Returns the part of `path` that is the path of a container; `None` if it is not in a container.
pub fn container_path<'a>(path: &'a str, pods: &str) -> Option<&'a str> {
    let ends = path.match_indices('/').map(|(end, _)| end);
    let mut above = ends.chain([path.len()]).filter_map(|end| path.get(..end));
    above.find(|path| matches!(classify(path, pods), CgroupKind::Container { .. }))
}

/// Returns the class of the pod whose cgroup is at `path`; `None` if it is not the cgroup of a pod.
/// The cgroup of a system pod does not show the class; as for a Burstable one, its processes show
/// what it requests.
pub fn qos_class(path: &str, pods: &str) -> Option<QosClass> {
    pod_of(path, pods)?;
    let (above, _) = path.rsplit_once('/')?;
    let class = CgroupNames::of(pods).class(above.rsplit('/').next()?);
    Some(match class.filter(|_| above != pods) {
        None => QosClass::Guaranteed,
        Some(names::BESTEFFORT) => QosClass::BestEffort,
        Some(_) => QosClass::Burstable,
    })
}

/// Returns true if `text` contains only characters of Kubernetes names, and is not too long.
/// Nothing else is used in a path, a message or a label.
fn is_valid(text: &str, longest: usize) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    !text.is_empty() && text.len() <= longest && text.bytes().all(plain)
}

#[cfg(test)]
mod tests;
