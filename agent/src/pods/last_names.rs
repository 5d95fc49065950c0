//! The place of a cgroup that is gone, from the names that the kernel still had of it.

use super::names::{self, Names};
use super::{CgroupKind, PodId, classify};

/// A name of this many bytes may have been longer: the kernel's copy ends here.
const CUT_AT: usize = 95;

/// How much is to be believed of a place that was read from names alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByNames {
    /// The names reach the top of the hierarchy, so they are the whole path.
    Certain(CgroupKind),
    /// So it was, unless the process sat three or more levels below its own container's cgroup. Who
    /// may make cgroups there chooses all three names, and can choose those of another pod: good for
    /// a person to read, never for naming a pod to the API server.
    Claimed(CgroupKind),
    /// The names are no pod's, or one of them was too long to be known.
    Nothing,
}

/// What the names of a cgroup, its parent and its grandparent say; empty ones lie above the top.
#[must_use]
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

/// The pod of `name`, where the name above it is that of the pods cgroup or of a class.
fn pod_below(above: &str, name: &str, pods: &str) -> Option<PodId> {
    let known = Names::of(pods);
    let class = known.class(above);
    let is_top = pods.rsplit('/').next() == Some(above);
    (class.is_some() || is_top)
        .then(|| known.pod(name, class))
        .flatten()
}

/// The pod of `name`, whose class is not there to see.
fn pod_anywhere(name: &str, pods: &str) -> Option<PodId> {
    let known = Names::of(pods);
    let classes = names::CLASSES.into_iter().map(Some);
    [None]
        .into_iter()
        .chain(classes)
        .find_map(|class| known.pod(name, class))
}
