//! The pods and the cgroups outside of pods, up to a limit, on cgroup v2, which attributes stalls.

use std::path::Path;

use nodepulse_core::pods::{CgroupKind, Owner, classify, pod_of};
use nodepulse_core::units::CgroupId;
use nodepulse_io::lane::{Lane, NoAnswer};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::pods::{POD_LEVELS, PodsPath};
use nodepulse_linux::host::cgroup::{Hierarchy, ancestors, walk};
use tracing::debug;

use super::LIMIT;

/// Limit on the cgroups of one read. Each takes about 20 µs.
pub(super) const MAX_CGROUPS: usize = 1000;

/// Part of the limit that pods leave to other cgroups.
pub(super) const OTHER_CGROUPS: usize = 200;

/// Levels of cgroups outside of pods: a slice, and the services in it.
const SYSTEM_LEVELS: usize = 2;

/// Reads cgroups on the thread of a lane, which is free for other calls between two reads.
#[derive(Debug, Clone)]
pub(super) struct CgroupReader {
    pub(super) root: HostRoot,
    pub(super) pods: PodsPath,
    pub(super) lane: Lane,
}

impl CgroupReader {
    pub(super) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let reader = self.clone();
        self.lane.run(LIMIT, move || call(&reader)).await
    }
}

/// Calls `visit` for each, which returns whether it counts for the limit. Cgroups that are removed
/// meanwhile are skipped. Returns `None` if none can be read.
pub(super) fn each(
    pods: &PodsPath,
    unified: &Hierarchy,
    mut visit: impl FnMut(CgroupId, &Path, &str, Owner) -> bool,
) -> Option<()> {
    let pods = pods.path();
    let mut found = 0;
    let mut below = |top: &str, depth, limit, owner: &dyn Fn(&str) -> Option<Owner>| {
        let read = walk::each_below(unified, top, depth, |id, dir, path| {
            if let Some(owner) = owner(path) {
                found += usize::from(visit(id, dir, path, owner));
            }
            found < limit
        });
        ok_or_log!(debug, read, "cgroups not read")
    };
    let pods_read = below(pods, POD_LEVELS, MAX_CGROUPS - OTHER_CGROUPS, &|path| {
        pod_of(path, pods).map(Owner::from)
    });
    let others_read = below("/", SYSTEM_LEVELS, MAX_CGROUPS, &|path| {
        let contains_pods = ancestors(pods).any(|above| above == path);
        let is_system = !contains_pods && classify(path, pods) == CgroupKind::Other;
        let is_below_pods = path
            .strip_prefix(pods)
            .is_some_and(|below| below.starts_with('/'));
        (is_system && !is_below_pods).then(|| Owner::from_path(path, pods))
    });
    pods_read.or(others_read)
}
