//! A removed cgroup, according to the names that the kernel still had: those of the cgroup, its
//! parent and its grandparent. Empty names are above the root.

use super::names::{self, CgroupNames};

/// A name of this many bytes may have been longer: the kernel truncates its copy.
const CUT_AT: usize = 95;

/// Returns true if the names are those of a pod, unless the process was three or more levels below
/// its container's cgroup. A tenant that can create cgroups there chooses all three names, and can
/// choose those of another pod: usable for a message to people, never for an Event on a pod.
pub fn claims_pod(last: &[Vec<u8>; 3], pods: &str) -> bool {
    text(last).is_some_and(|[leaf, parent, grandparent]| {
        is_pod_below(parent, leaf, pods)
            || is_pod_below(grandparent, parent, pods)
            || is_pod_anywhere(grandparent, pods)
    })
}

/// Returns the path of a cgroup, if the names reach the top of the hierarchy.
pub fn whole_path(last: &[Vec<u8>; 3]) -> Option<String> {
    let [leaf, parent, grandparent] = text(last)?;
    let names = [parent, leaf].into_iter().filter(|name| !name.is_empty());
    (grandparent.is_empty() && !leaf.is_empty())
        .then(|| names.flat_map(|name| ["/", name]).collect())
}

/// Returns `None` if a name may be truncated.
fn text(last: &[Vec<u8>; 3]) -> Option<[&str; 3]> {
    let names = last.iter().filter(|name| name.len() < CUT_AT);
    let text: Option<Vec<_>> = names.map(|name| str::from_utf8(name).ok()).collect();
    text?.try_into().ok()
}

/// Returns true if the name above is that of the pods cgroup or of a class.
fn is_pod_below(above: &str, name: &str, pods: &str) -> bool {
    let known = CgroupNames::of(pods);
    let class = known.class(above);
    let is_top = pods.rsplit('/').next() == Some(above);
    (class.is_some() || is_top) && known.pod(name, class).is_some()
}

/// The class is unknown.
fn is_pod_anywhere(name: &str, pods: &str) -> bool {
    let known = CgroupNames::of(pods);
    let mut classes = names::CLASSES.into_iter().map(Some).chain([None]);
    classes.any(|class| known.pod(name, class).is_some())
}
