//! The kernel's counters of OOM kills.

use nodepulse_core::pods::{CgroupKind, classify};
use nodepulse_core::subjects::kill_counters::{CgroupKills, CountedKills, undisturbed};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::host::cgroup::{self, Version, oom};
use tracing::debug;

/// Reads the counters of the node, all pods and each pod; `None` if that of all pods is unknown.
pub(super) fn read(root: &HostRoot, pods: &PodsPath) -> Option<CountedKills> {
    let all = pods.path();
    let memory = &pods.layout()?.memory;
    let of = |path: &str| {
        let is = |path: &str| classify(path, all);
        let counts = |path: &&str| matches!(is(path), CgroupKind::Pods | CgroupKind::Pod { .. });
        let mut above = cgroup::ancestors(path).take_while(|path| is(path) != CgroupKind::Other);
        above.find(counts).map(str::to_owned)
    };
    // A kill in a pod between two readings must not be counted as one elsewhere.
    let total = || match memory.version {
        // The cgroup of all pods does not count what is below it.
        Version::V1 => oom::node_kills(root),
        Version::V2 => oom::kills_in_tree(memory, all).ok(),
    };
    let (found, node) = undisturbed(total, || {
        // Before the walk, which takes longer than the kernel needs from this counter to the pods'.
        let node = oom::node_kills(root);
        (oom::kills_below(memory, all, of), node)
    });
    let counted = |cgroups| CountedKills {
        pods: all.to_owned(),
        cgroups,
        node,
    };
    match found {
        Ok(found) => {
            let found = found.into_iter();
            let found = found.map(|(id, cgroup, kills)| CgroupKills { id, cgroup, kills });
            let cgroups: Vec<CgroupKills> = found.collect();
            // Without the counter of the pods cgroup the total is unknown.
            let of_all = |one: &CgroupKills| one.cgroup == all;
            cgroups.iter().any(of_all).then_some(counted(cgroups))
        }
        // No pods yet.
        Err(err) if err.is_absent() => Some(counted(Vec::new())),
        Err(err) => {
            debug!(err = &err as &dyn std::error::Error, "kills not counted");
            None
        }
    }
}
