//! Memory and CPU time of pods and of units outside of pods, for a view of the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nodepulse_core::pods::Owner;

use super::pods::{POD_LEVELS, PodsPath};
use super::{Hierarchy, Layout, Version, outside_pods, walk};
use crate::host::{HostError, HostRoot, field};

/// Maximum number of cgroups that are read, pods first. Further ones are left out.
pub const MAX_CGROUPS: usize = 512;

/// The pods cgroups of kubelets by default, and below the cgroup `kubelet`.
const PODS: [&str; 4] = [
    "/kubepods.slice",
    "/kubepods",
    "/kubelet.slice/kubelet-kubepods.slice",
    "/kubelet/kubepods",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupUsage {
    pub cgroup: String,
    /// A pod, or a unit.
    pub owner: Owner,
    /// In bytes, with the page cache.
    pub memory: u64,
    /// Since the cgroup was created; `None` if it is not counted.
    pub cpu_time: Option<Duration>,
}

/// Reads the usage of each pod, and of the units of [`outside_pods::units`].
pub fn pods_and_units(root: &HostRoot) -> Result<Vec<CgroupUsage>, HostError> {
    let layout = Layout::detect(root)?;
    let memory = layout.memory.clone();
    let pods = PodsPath::new(Some(layout), &PODS.map(PathBuf::from));
    let pods = pods.path();
    let (name, mut buf) = (memory.version.memory_usage(), Vec::new());
    let mut used = |dir: &Path| outside_pods::number(dir, name, &mut buf);
    let mut found: Vec<(String, u64)> = Vec::new();
    // A pods cgroup that does not exist has no pods.
    let _walked = walk::each_below(&memory, pods, POD_LEVELS, |_, dir, cgroup| {
        let owner = Owner::from_path(cgroup, pods);
        if matches!(
            owner,
            Owner::Pod {
                container: None,
                ..
            }
        ) {
            found.extend(used(dir).map(|used| (cgroup.to_owned(), used)));
        }
        found.len() < MAX_CGROUPS
    });
    found.extend(outside_pods::units(&memory, pods, used)?);
    found.truncate(MAX_CGROUPS);
    let usage = found.into_iter().map(|(cgroup, used)| CgroupUsage {
        owner: Owner::from_path(&cgroup, pods),
        memory: used,
        cpu_time: cpu_time(&memory, &cgroup, &mut buf),
        cgroup,
    });
    Ok(usage.collect())
}

fn cpu_time(memory: &Hierarchy, cgroup: &str, buf: &mut Vec<u8>) -> Option<Duration> {
    match memory.version {
        // In version 1, the controller has another hierarchy, to which systemd makes this link.
        Version::V1 => {
            let cpu = Hierarchy {
                mount: memory.mount.with_file_name("cpuacct"),
                version: Version::V1,
            };
            let nanos = cpu.file(cgroup, "cpuacct.usage").number(buf);
            nanos.ok().map(Duration::from_nanos)
        }
        Version::V2 => {
            memory.file(cgroup, "cpu.stat").read(buf).ok()?;
            field(buf, b"usage_usec").map(Duration::from_micros)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const UID: &str = "0f4fc5c2-7c38-4a8a-9d7b-2f7dbd2d21f9";

    #[test]
    fn pods_and_units_are_read_on_both_versions() {
        let pod = format!("kubepods/burstable/pod{UID}");
        let at = "sys/fs/cgroup";
        for is_v1 in [true, false] {
            let dir = Scratch::new();
            let (mounts, memory, cpu) = if is_v1 {
                let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
                (mounts, format!("{at}/memory"), format!("{at}/cpuacct"))
            } else {
                dir.write(&format!("{at}/cgroup.controllers"), "cpu memory\n");
                let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
                (mounts, at.to_owned(), at.to_owned())
            };
            dir.write("proc/self/mountinfo", mounts);
            let write = |cgroup: &str, bytes: u64, millis: u64| {
                let file = if is_v1 {
                    "memory.usage_in_bytes"
                } else {
                    "memory.current"
                };
                dir.write(&format!("{memory}/{cgroup}/{file}"), bytes.to_string());
                let (file, text) = if is_v1 {
                    ("cpuacct.usage", format!("{}\n", millis * 1_000_000))
                } else {
                    (
                        "cpu.stat",
                        format!("usage_usec {}\nuser_usec 1\n", millis * 1000),
                    )
                };
                dir.write(&format!("{cpu}/{cgroup}/{file}"), text);
            };
            write(&pod, 3, 1000);
            write(&format!("{pod}/{}", "0".repeat(64)), 2, 500);
            write("system.slice", 1, 7);
            write("system.slice/ssh.service", 1, 7);
            let usage = pods_and_units(&dir.root()).unwrap();
            let usage = usage.into_iter().map(|one| {
                let millis = one.cpu_time.unwrap().as_millis();
                (one.owner.short_name(), one.memory, millis)
            });
            let expected = [
                (format!("pod with id {UID}"), 3, 1000),
                ("ssh.service".to_owned(), 1, 7),
            ];
            assert_eq!(usage.collect::<Vec<_>>(), expected);
        }
    }
}
