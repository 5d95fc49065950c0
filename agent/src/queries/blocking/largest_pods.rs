//! The pods that use most pids or memory.

use tracing::debug;

use crate::host::cgroup::pods::{POD_LEVELS, PodsPath};
use crate::host::cgroup::{pids, pod_memory, walk};
use crate::host::{HostError, HostRoot};
use crate::pods::{Owner, pod_of, qos_class};
use crate::reading::Resource;
use crate::subjects::largest_pods::NAMED;
use crate::subjects::{LargestPodsInput, PodOverRequest};

/// Reads the pods. Those that are removed meanwhile are skipped.
pub(super) fn read(root: &HostRoot, pods: &PodsPath, of: Resource) -> LargestPodsInput {
    let read = match of {
        Resource::Memory => memory(root, pods).map(LargestPodsInput::MemoryRead),
        _ => tasks(pods).map(LargestPodsInput::TasksCounted),
    };
    read.unwrap_or_else(|err| {
        debug!(
            err = &err as &dyn std::error::Error,
            "largest pods not read"
        );
        none(of)
    })
}

/// The answer without any pod.
pub(super) const fn none(of: Resource) -> LargestPodsInput {
    match of {
        Resource::Memory => LargestPodsInput::MemoryRead(Vec::new()),
        _ => LargestPodsInput::TasksCounted(Vec::new()),
    }
}

fn tasks(pods: &PodsPath) -> Result<Vec<(Owner, u64)>, HostError> {
    let (mut tasks, mut buf) = (Vec::new(), Vec::new());
    let Some(hierarchy) = pods.layout().and_then(|layout| layout.pids.as_ref()) else {
        return Ok(tasks);
    };
    let top = pods.path();
    walk::each_below(hierarchy, top, POD_LEVELS, |_, _, path| {
        if let Some(pod) = pod_of(path, top)
            && let Ok(Some(pids)) = pids::read(hierarchy, path, &mut buf)
        {
            tasks.push((Owner::from(pod), pids.current));
        }
        true
    })?;
    Ok(tasks)
}

fn memory(root: &HostRoot, pods: &PodsPath) -> Result<Vec<PodOverRequest>, HostError> {
    let Some(layout) = pods.layout() else {
        return Ok(Vec::new());
    };
    let top = pods.path();
    let class = |path: &str| qos_class(path, top);
    let found = pod_memory::over_request(root, &layout.memory, top, class, NAMED)?;
    let found = found.into_iter().filter_map(|of| {
        Some(PodOverRequest {
            pod: Owner::from(pod_of(&of.cgroup, top)?),
            used: of.used,
            request: of.request,
        })
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::fixture::{CGROUPS, node};
    use super::super::super::signals::pods_path;
    use super::*;
    use crate::pods::PodId;
    use crate::units::Bytes;

    const UID: &str = "4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";
    const OTHER: &str = "5e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";

    fn owner(uid: &str) -> Owner {
        Owner::from(PodId::Uid(uid.to_owned()))
    }

    #[test]
    fn tasks_are_counted_for_each_pod_and_for_nothing_else() {
        let (dir, config) = node(&[]);
        let write = |cgroup: &str, tasks: u64| {
            let at = format!("{CGROUPS}/kubepods{cgroup}");
            dir.write(&format!("{at}/pids.current"), format!("{tasks}\n"));
            dir.write(&format!("{at}/pids.max"), "max\n");
        };
        write("", 900);
        write("/burstable", 800);
        write(&format!("/burstable/pod{UID}"), 64);
        write(&format!("/burstable/pod{UID}/container"), 60);
        write(&format!("/pod{OTHER}"), 3);
        write("/burstable/pod not one", 700);
        write("/burstable/other", 700);
        // A pod that is removed while it is read: its files do not exist any more.
        dir.mkdir(&format!(
            "{CGROUPS}/kubepods/pod66666666-6d1f-4c55-9a3e-0a1b2c3d4e5f"
        ));
        let read = || read(&dir.root(), &pods_path(&config), Resource::Pids);
        let expected = vec![(owner(OTHER), 3), (owner(UID), 64)];
        assert_eq!(read(), LargestPodsInput::TasksCounted(expected));

        fs::remove_dir_all(dir.path().join(CGROUPS).join("kubepods")).unwrap();
        assert_eq!(read(), LargestPodsInput::TasksCounted(Vec::new()));
    }

    #[test]
    fn pods_over_their_request_are_found_by_class() {
        const GIB: u64 = 1 << 30;
        let (dir, config) = node(&[
            ("proc/meminfo", "MemTotal: 1048576000 kB\n"),
            ("proc/7/oom_score_adj", "990\n"),
        ]);
        let write = |cgroup: &str, gib: u64, processes: &str| {
            let at = format!("{CGROUPS}/kubepods/{cgroup}");
            let usage = format!("{}\n", gib * GIB);
            dir.write(&format!("{at}/memory.current"), usage);
            dir.write(&format!("{at}/memory.stat"), "inactive_file 0\n");
            dir.write(&format!("{at}/cgroup.procs"), "");
            dir.write(&format!("{at}/container/cgroup.procs"), processes);
        };
        write(&format!("burstable/pod{UID}"), 30, "7\n");
        write(&format!("besteffort/pod{OTHER}"), 25, "");
        write("pod66666666-6d1f-4c55-9a3e-0a1b2c3d4e5f", 500, "7\n");
        let found = read(&dir.root(), &pods_path(&config), Resource::Memory);
        let over = |uid, used, request| PodOverRequest {
            pod: owner(uid),
            used: Bytes::from_bytes(used * GIB),
            request: Bytes::from_bytes(request * GIB),
        };
        let expected = vec![over(OTHER, 25, 0), over(UID, 30, 10)];
        assert_eq!(found, LargestPodsInput::MemoryRead(expected));
    }
}
