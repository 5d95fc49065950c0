//! The kind of a removed cgroup, according to the names that the kernel still had.

use super::names::{self, CgroupNames};
use super::{CgroupKind, PodId, classify};

/// A name of this many bytes may have been longer: the kernel truncates its copy.
const CUT_AT: usize = 95;

/// The reliability of a kind that was derived from names only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByNames {
    /// The names reach the top of the hierarchy, so they are the whole path.
    Certain(CgroupKind),
    /// The kind, unless the process was three or more levels below its container's cgroup. A tenant
    /// that can create cgroups there chooses all three names, and can choose those of another pod:
    /// usable for a message to people, never for an Event on a pod.
    Claimed(CgroupKind),
    /// The names are not those of a pod, or one of them was truncated.
    Nothing,
}

/// Derives the kind from the names of a cgroup, its parent and its grandparent; empty names are
/// above the root.
pub fn classify_by_names(last: &[Vec<u8>; 3], pods: &str) -> ByNames {
    let text: Option<Vec<&str>> = last
        .iter()
        .map(|name| str::from_utf8(name).ok().filter(|_| name.len() < CUT_AT))
        .collect();
    let Some([leaf, parent, grandparent]) = text.as_deref().and_then(|t| t.first_chunk()) else {
        return ByNames::Nothing;
    };
    if grandparent.is_empty() {
        let path: String = [*parent, *leaf]
            .iter()
            .filter(|name| !name.is_empty())
            .flat_map(|name| ["/", name])
            .collect();
        return match classify(&path, pods) {
            CgroupKind::Other => ByNames::Nothing,
            known => ByNames::Certain(known),
        };
    }
    let container = |pod, name: &str| CgroupKind::Container {
        pod,
        container: names::container_id(name).map(str::to_owned),
    };
    let claimed = pod_below(parent, leaf, pods)
        .map(|pod| CgroupKind::Pod { pod })
        .or_else(|| Some(container(pod_below(grandparent, parent, pods)?, leaf)))
        .or_else(|| Some(container(pod_anywhere(grandparent, pods)?, parent)));
    claimed.map_or(ByNames::Nothing, ByNames::Claimed)
}

/// Returns the pod `name` if the name above it is that of the pods cgroup or of a class.
fn pod_below(above: &str, name: &str, pods: &str) -> Option<PodId> {
    let known = CgroupNames::of(pods);
    let class = known.class(above);
    let is_top = pods.rsplit('/').next() == Some(above);
    (class.is_some() || is_top)
        .then(|| known.pod(name, class))
        .flatten()
}

/// Returns the pod `name`, whose class is unknown.
fn pod_anywhere(name: &str, pods: &str) -> Option<PodId> {
    let known = CgroupNames::of(pods);
    let classes = names::CLASSES.into_iter().map(Some);
    [None]
        .into_iter()
        .chain(classes)
        .find_map(|class| known.pod(name, class))
}
