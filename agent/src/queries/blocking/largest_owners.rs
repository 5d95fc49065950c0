//! The pods, and the units outside of pods, that use most pids or memory.

use nodepulse_core::pods::{LargestMemory, LargestTasks, Owner, OwnerMemory, pod_of, qos_class};
use nodepulse_core::reading::Resource;
use nodepulse_core::subjects::LargestOwnersInput;
use nodepulse_core::subjects::largest_owners::NAMED;
use nodepulse_core::units::Bytes;
use nodepulse_linux::host::cgroup::memory::CgroupMemory;
use nodepulse_linux::host::cgroup::pods::{POD_LEVELS, PodsPath};
use nodepulse_linux::host::cgroup::{Hierarchy, outside_pods, pids, pod_memory, walk};
use nodepulse_linux::host::meminfo::MeminfoFile;
use nodepulse_linux::host::{HostError, HostRoot, pids as node_pids};
use tracing::debug;

/// Number of units whose working set is read. Of the others, only the charged memory is read.
const COMPARED: usize = 16;

/// Reads pods and units. Those that are removed meanwhile are skipped.
pub(super) fn read(root: &HostRoot, pods: &PodsPath, of: Resource) -> LargestOwnersInput {
    match of {
        Resource::Memory => LargestOwnersInput::MemoryRead(memory(root, pods, NAMED)),
        _ => LargestOwnersInput::TasksCounted(tasks(root, pods)),
    }
}

pub(super) fn none(of: Resource) -> LargestOwnersInput {
    match of {
        Resource::Memory => LargestOwnersInput::MemoryRead(LargestMemory::default()),
        _ => LargestOwnersInput::TasksCounted(LargestTasks::default()),
    }
}

fn tasks(root: &HostRoot, pods: &PodsPath) -> LargestTasks {
    let (mut largest, mut buf) = (LargestTasks::default(), Vec::new());
    let Some(hierarchy) = pods.layout().and_then(|layout| layout.pids.as_ref()) else {
        return largest;
    };
    let top = pods.path();
    let mut in_pods = 0;
    let walked = walk::each_below(hierarchy, top, POD_LEVELS, |_, _, path| {
        if let Some(pod) = pod_of(path, top)
            && let Ok(Some(pids)) = pids::read(hierarchy, path, &mut buf)
        {
            in_pods += pids.current;
            largest.owners.push((Owner::from(pod), pids.current));
        }
        true
    });
    let units = outside_pods::units(hierarchy, top, |dir| {
        outside_pods::number(dir, "pids.current", &mut buf)
    });
    // A node without pods has no cgroup of pods.
    ok_or_log!(debug, walked, "tasks of pods not read");
    let units = ok_or_log!(debug, units, "tasks of units not read");
    let units = units.into_iter().flatten();
    largest
        .owners
        .extend(units.map(|(path, tasks)| (Owner::from_path(&path, top), tasks)));
    let all = root.read("proc/loadavg", &mut buf).ok();
    let all = all.and_then(|()| node_pids::tasks(&buf));
    largest.outside_pods = all.map(|all| all.saturating_sub(in_pods));
    largest
}

/// The `most` pods and units that use most memory, without those that cannot be read.
pub(super) fn memory(root: &HostRoot, pods: &PodsPath, most: usize) -> LargestMemory {
    let Some(layout) = pods.layout() else {
        return LargestMemory::default();
    };
    let (memory, top) = (&layout.memory, pods.path());
    let mut largest = LargestMemory::default();
    for read in [over_request(root, memory, top, most), units(memory, top)] {
        let read = ok_or_log!(debug, read, "memory of pods or units not read");
        largest.owners.extend(read.unwrap_or_default());
    }
    largest.outside_pods = outside(root, memory, top);
    largest.truncate(most);
    largest
}

/// Returns the memory that is not available, without that of pods.
fn outside(root: &HostRoot, memory: &Hierarchy, pods: &str) -> Option<Bytes> {
    let mut buf = Vec::new();
    let node = MeminfoFile::new(root).read(&mut buf).ok()?;
    let in_pods = CgroupMemory::new(memory, pods).working_set(&mut buf);
    let in_pods = in_pods.unwrap_or_default();
    let used = node.total.get().saturating_sub(node.available?.get());
    Some(Bytes::from_bytes(used.saturating_sub(in_pods.get())))
}

/// Returns at most `most` pods, those that use most over their request.
pub(super) fn over_request(
    root: &HostRoot,
    memory: &Hierarchy,
    pods: &str,
    most: usize,
) -> Result<Vec<OwnerMemory>, HostError> {
    let class = |path: &str| qos_class(path, pods);
    let found = pod_memory::over_request(root, memory, pods, class, most)?;
    let found = found.into_iter().filter_map(|of| {
        Some(OwnerMemory {
            owner: Owner::from(pod_of(&of.cgroup, pods)?),
            used: of.used,
            request: Some(of.request),
        })
    });
    Ok(found.collect())
}

fn units(memory: &Hierarchy, pods: &str) -> Result<Vec<OwnerMemory>, HostError> {
    let (file, mut buf) = (memory.version.memory_usage(), Vec::new());
    let mut found = outside_pods::units(memory, pods, |dir| {
        outside_pods::number(dir, file, &mut buf)
    })?;
    found.sort_by_key(|(_, charged)| std::cmp::Reverse(*charged));
    found.truncate(COMPARED);
    let of_unit = |(path, _): (String, u64)| {
        // File cache that is not in use is not a reason to name a unit.
        let used = CgroupMemory::new(memory, &path)
            .working_set(&mut buf)
            .ok()?;
        Some(OwnerMemory {
            owner: Owner::from_path(&path, pods),
            used,
            request: None,
        })
    };
    Ok(found.into_iter().filter_map(of_unit).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nodepulse_core::pods::PodId;
    use nodepulse_core::units::Bytes;

    use super::super::super::fixture::{CGROUPS, node};
    use super::super::super::signals::pods_path;
    use super::*;

    const UID: &str = "4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";
    const OTHER: &str = "5e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";

    fn pod(uid: &str) -> Owner {
        Owner::from(PodId::Uid(uid.to_owned()))
    }

    #[test]
    fn tasks_are_counted_for_each_pod_and_each_unit_outside() {
        let (dir, config) = node(&[("proc/loadavg", "0.1 0.1 0.1 2/1234 99\n")]);
        let write = |cgroup: &str, tasks: u64| {
            let at = format!("{CGROUPS}/{cgroup}");
            dir.write(&format!("{at}/pids.current"), format!("{tasks}\n"));
            dir.write(&format!("{at}/pids.max"), "max\n");
        };
        write("kubepods", 900);
        write("kubepods/burstable", 800);
        write(&format!("kubepods/burstable/pod{UID}"), 64);
        write(&format!("kubepods/burstable/pod{UID}/container"), 60);
        write(&format!("kubepods/pod{OTHER}"), 3);
        write("kubepods/burstable/pod not one", 700);
        write("kubepods/burstable/other", 700);
        write("system.slice", 1100);
        write("system.slice/hog.service", 1000);
        // A pod that is removed while it is read: its files do not exist any more.
        dir.mkdir(&format!(
            "{CGROUPS}/kubepods/pod66666666-6d1f-4c55-9a3e-0a1b2c3d4e5f"
        ));
        let read = || read(&dir.root(), &pods_path(&config), Resource::Pids);
        let hog = (Owner::from_path("/system.slice/hog.service", ""), 1000);
        let expected = LargestTasks {
            owners: vec![(pod(OTHER), 3), (pod(UID), 64), hog.clone()],
            outside_pods: Some(1234 - 64 - 3),
        };
        assert_eq!(read(), LargestOwnersInput::TasksCounted(expected));

        fs::remove_dir_all(dir.path().join(CGROUPS).join("kubepods")).unwrap();
        let expected = LargestTasks {
            owners: vec![hog],
            outside_pods: Some(1234),
        };
        assert_eq!(read(), LargestOwnersInput::TasksCounted(expected));
    }

    #[test]
    fn pods_over_their_request_and_units_are_compared_by_their_working_sets() {
        const GIB: u64 = 1 << 30;
        let (dir, config) = node(&[
            (
                "proc/meminfo",
                "MemTotal: 1048576000 kB\nMemAvailable: 104857600 kB\n",
            ),
            ("proc/7/oom_score_adj", "990\n"),
        ]);
        let write = |cgroup: &str, gib: u64, inactive: u64| {
            let at = format!("{CGROUPS}/{cgroup}");
            let usage = format!("{}\n", gib * GIB);
            dir.write(&format!("{at}/memory.current"), usage);
            let stat = format!("inactive_file {}\n", inactive * GIB);
            dir.write(&format!("{at}/memory.stat"), stat);
            dir.write(&format!("{at}/cgroup.procs"), "");
        };
        let pod_with = |cgroup: &str, gib: u64, processes: &str| {
            write(&format!("kubepods/{cgroup}"), gib, 0);
            let procs = format!("{CGROUPS}/kubepods/{cgroup}/container/cgroup.procs");
            dir.write(&procs, processes);
        };
        write("kubepods", 600, 45);
        pod_with(&format!("burstable/pod{UID}"), 30, "7\n");
        pod_with(&format!("besteffort/pod{OTHER}"), 25, "");
        pod_with("pod66666666-6d1f-4c55-9a3e-0a1b2c3d4e5f", 500, "7\n");
        write("system.slice", 300, 250);
        write("system.slice/cache.service", 250, 247);
        write("system.slice/hog.service", 40, 3);
        let found = read(&dir.root(), &pods_path(&config), Resource::Memory);
        let over = |owner, used, request: Option<u64>| OwnerMemory {
            owner,
            used: Bytes::from_bytes(used * GIB),
            request: request.map(|gib| Bytes::from_bytes(gib * GIB)),
        };
        let hog = Owner::from_path("/system.slice/hog.service", "");
        let expected = LargestMemory {
            owners: vec![
                over(hog, 37, None),
                over(pod(OTHER), 25, Some(0)),
                over(pod(UID), 30, Some(10)),
            ],
            outside_pods: Some(Bytes::from_bytes((1000 - 100 - 555) * GIB)),
        };
        assert_eq!(found, LargestOwnersInput::MemoryRead(expected));
    }
}
