//! Checks files of `/proc`, `/sys` and the cgroup file systems, and the paths of cgroups.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

use nodepulse_core::pods::{CgroupKind, classify};
use nodepulse_core::reading::StallKind;
use nodepulse_core::units::Bytes;
use nodepulse_linux::host::cgroup::{self, Hierarchy, Layout, Version, memory, oom};
use nodepulse_linux::host::{HostRoot, addresses, block, machine, meminfo, pids, psi, volumes};
use tempfile::TempDir;

/// Files below the simulated root that readers open, each a link to one file.
const FILES: &[&str] = &[
    "proc/loadavg",
    "proc/meminfo",
    "proc/net/ipv6_route",
    "proc/net/route",
    "proc/pressure/memory",
    "proc/self/mountinfo",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/pid_max",
    "proc/sys/kernel/threads-max",
    "etc/machine-id",
    "etc/os-release",
    "sys/block/vda/dev",
    "sys/block/vda/inflight",
    "sys/block/vda/queue/iostats",
    "sys/block/vda/queue/rotational",
    "sys/block/vda/stat",
    "sys/devices/system/cpu/online",
    "sys/fs/cgroup/cgroup.controllers",
    "sys/fs/cgroup/a/memory.current",
    "sys/fs/cgroup/a/memory.events",
    "sys/fs/cgroup/a/memory.events.local",
    "sys/fs/cgroup/a/memory.failcnt",
    "sys/fs/cgroup/a/memory.limit_in_bytes",
    "sys/fs/cgroup/a/memory.max",
    "sys/fs/cgroup/a/memory.oom_control",
    "sys/fs/cgroup/a/memory.stat",
    "sys/fs/cgroup/a/memory.usage_in_bytes",
    "sys/fs/cgroup/a/pids.current",
    "sys/fs/cgroup/a/pids.events",
    "sys/fs/cgroup/a/pids.max",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
];

thread_local! {
    static NODE: MadeUp = MadeUp::new();
}

/// A node whose files all have the same contents.
struct MadeUp {
    dir: TempDir,
}

impl MadeUp {
    fn new() -> Self {
        // In memory if possible, since the file is written for each input.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        let dir = dir.expect("a temporary directory");
        let all = dir.path().join("all");
        for file in FILES {
            let path = dir.path().join("root").join(file);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a temporary directory");
            symlink(&all, path).expect("a link in it");
        }
        fs::create_dir_all(dir.path().join("root/sys/block/vda/mq"))
            .expect("a temporary directory");
        Self { dir }
    }
}

/// One text in the place of each file that the agent reads.
///
/// # Panics
///
/// If a reader panics, or its error is more than one line.
pub fn host_files(input: &[u8]) {
    parsers(input);
    NODE.with(|node| {
        fs::write(node.dir.path().join("all"), input).expect("a temporary file");
        let root = HostRoot::new(node.dir.path().join("root"));
        readers(&root);
        for version in [Version::V1, Version::V2] {
            let mount = root.path("sys/fs/cgroup");
            cgroup_files(&Hierarchy { mount, version });
        }
    });
}

fn parsers(input: &[u8]) {
    let _ = meminfo::parse(input);
    let _ = pids::tasks(input);
    if let Some(name) = volumes::parse(input) {
        assert!(name.starts_with("kubernetes.io/csi/"), "{name:?}");
        assert!(!name.contains(char::is_control), "{name:?}");
        assert!(name.len() < 4096, "{} bytes", name.len());
    }
    if let Some(psi) = psi::parse(input) {
        for share in [psi.avg10, psi.avg60] {
            assert!(share.is_finite() && share >= 0.0, "{psi:?}");
        }
    }
}

fn readers(root: &HostRoot) {
    let mut buf = Vec::new();
    check_error(addresses::network(root));
    check_error(block::disks(root));
    check_error(block::iostats(root, "vda"));
    check_error(block::counters(root, "vda"));
    check_error(machine::read(root));
    check_error(meminfo::MeminfoFile::new(root).read(&mut buf));
    check_error(
        pids::PidFiles::new(root)
            .read(&mut buf)
            .map(pids::Pids::reading),
    );
    check_error(psi::read(
        &psi::node_file(root, StallKind::Memory),
        &mut buf,
    ));
    if let Some(layout) = check_error(Layout::detect(root)) {
        let inside = layout.memory.mount.starts_with(root.dir());
        assert!(inside, "{} is outside", layout.memory.mount.display());
    }
}

fn cgroup_files(hierarchy: &Hierarchy) {
    let mut buf = Vec::new();
    let total = Bytes::from_bytes(1 << 34);
    check_error(memory::RootMemory::new(hierarchy, total).read(&mut buf));
    check_error(memory::CgroupMemory::new(hierarchy, "a").read(&mut buf));
    check_error(oom::counters(hierarchy, "a", &mut buf));
    check_error(cgroup::pids::read(hierarchy, "a", &mut buf));
    check_error(cgroup::pids::refused(&hierarchy.dir("a"), &mut buf));
}

/// Checks that an error names the file and what was expected, and repeats nothing of its contents.
fn check_error<T>(result: Result<T, nodepulse_linux::host::HostError>) -> Option<T> {
    result
        .map_err(|err| super::text::safe(&err.to_string()))
        .ok()
}

/// The path of a cgroup.
///
/// # Panics
///
/// If it names a pod that its place does not, or leads out of the hierarchy.
pub fn cgroup_path(input: &[u8]) {
    let path = String::from_utf8_lossy(input);
    for pods in ["/kubepods", "/kubepods.slice", "/top/kubepods"] {
        let below = path.strip_prefix(pods);
        match classify(&path, pods) {
            CgroupKind::Pods => assert_eq!(below, Some("")),
            CgroupKind::Pod { pod } => is_pod(pod.as_str(), below),
            CgroupKind::Container { pod, container } => {
                is_pod(pod.as_str(), below);
                if let Some(id) = container {
                    let hex = id.bytes().all(|b| b.is_ascii_hexdigit());
                    assert!(
                        hex && id.len() == 64 && path.contains(&id),
                        "{id:?} in {path:?}"
                    );
                }
            }
            CgroupKind::Other => {}
        }
    }
    let mount = Path::new("/sys/fs/cgroup");
    let hierarchy = Hierarchy {
        mount: mount.to_owned(),
        version: Version::V2,
    };
    let dir = hierarchy.dir(&path);
    let inside = dir
        .strip_prefix(mount)
        .expect("a directory below the mount");
    let plain = |part| matches!(part, Component::Normal(_));
    assert!(inside.components().all(plain), "{}", dir.display());
    let above: Vec<_> = cgroup::ancestors(&path).collect();
    assert_eq!(above.last(), Some(&"/"));
    assert!(
        above
            .iter()
            .rev()
            .skip(1)
            .all(|part| path.starts_with(part))
    );
}

/// Checks that the UID is valid, and in one of the first two names below the pods cgroup.
fn is_pod(uid: &str, below: Option<&str>) {
    let plain = uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    assert!(plain && (1..=36).contains(&uid.len()), "{uid:?}");
    let below = below.expect("a pod is below the pods cgroup");
    let names = below.strip_prefix('/').expect("and not next to it");
    let mut first_two = names.split('/').take(2);
    let dashed = |name: &str| name.replace('_', "-");
    assert!(
        first_two.any(|name| name.contains("pod") && dashed(name).contains(uid)),
        "{uid:?} in {below:?}"
    );
}
