//! Workloads on the disk of a volume, on a node that does not itself depend on that disk: its pod
//! has an Event, and no condition of the Node becomes True.
//!
//! The node boots from memory: its root directory has the kernel's files of this machine, and
//! another mount table. Everything else is real: disk, loop device, file system, requests and their
//! latency.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use super::site::{POD_WITH_VOLUME, pod_directory};
use super::{Expected, Form, Pace, Prepared, Site, Workload, workload};
use crate::provoke::disk::{DirectFile, Mounted};

/// The kubelet's directory of the node.
const KUBELET: &str = "/kubelet";
/// Size of the file system on the loop device; its files are smaller.
const BYTES: u64 = 1 << 30;
const DATA_MIB: u64 = 512;
const TABLE_MIB: u64 = 64;

pub(super) fn workloads(pace: Pace) -> Vec<Workload> {
    let slow_volume = Expected::PodEvent {
        reason: "SlowVolume",
        pod: POD_WITH_VOLUME,
        within: pace.slow_within(),
    };
    let slow_disk = Expected::Alarm {
        condition: "DiskIOPressure",
        reason: "SlowDisk",
        within: pace.slow_within(),
        culprit: None,
    };
    vec![
        workload("saturated-volume", Form::Short, slow_volume, |site| {
            let pod = format!("{KUBELET}/{}", pod_directory());
            let volume = format!("{pod}/volumes/kubernetes.io~local-volume/data");
            saturated(site, &volume)
        }),
        workload("saturated-nodefs-on-loop", Form::Short, slow_disk, |site| {
            saturated(site, KUBELET)
        }),
    ]
}

/// Writes as much as the disk below `mounted` can complete in one pod, while the commits of another
/// wait for it.
fn saturated(site: &Site, mounted: &str) -> io::Result<Prepared> {
    let node = MemoryRoot::new(&site.directory().join("root"), site.directory())?;
    let at = node.directory(mounted)?;
    let mount = Mounted::ext4(&at, site.directory(), BYTES)?;
    mount.bypass_cache()?;
    node.list(mounted, &at)?;
    let file = |name: &str| at.join(name).display().to_string();
    let (data, table) = (file("data"), file("table"));
    DirectFile::filled(Path::new(&data), DATA_MIB)?;
    DirectFile::filled(Path::new(&table), TABLE_MIB)?;
    let settings = format!("hostRoot: {}\n", node.root.display());
    let load = Prepared::new(move |control| {
        let site = control.site();
        let writers = site.load("writer", &["saturate", &data, "128", "60"])?;
        let database = site.load(POD_WITH_VOLUME, &["database", &table, "60"])?;
        control.begins();
        control.until_noticed();
        drop((writers, database));
        drop(mount);
        Ok(String::new())
    });
    Ok(load.settings(&settings).slow("5ms").nodefs(KUBELET))
}

/// The root directory of a node that boots from memory.
struct MemoryRoot {
    root: PathBuf,
}

impl MemoryRoot {
    /// Creates the root in `root`. The disk below `data` is mounted where it is on this machine.
    fn new(root: &Path, data: &Path) -> io::Result<Self> {
        let (proc, init) = (root.join("proc"), root.join("proc/1"));
        fs::create_dir_all(&init)?;
        symlink("/sys", root.join("sys"))?;
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
                symlink(Path::new("/proc").join(&name), proc.join(&name))?;
            }
        }
        let this = Self {
            root: root.to_owned(),
        };
        fs::write(this.mounts(), "1 0 0:1 / / rw - tmpfs tmpfs rw\n")?;
        this.directory(KUBELET)?;
        let parent = data.parent().unwrap_or(data).display().to_string();
        this.list(&parent, data)?;
        Ok(this)
    }

    /// Returns the path of the mount table of its first process.
    fn mounts(&self) -> PathBuf {
        self.root.join("proc/1/mountinfo")
    }

    /// Creates a directory of the node, and returns its path on this machine.
    fn directory(&self, on_node: &str) -> io::Result<PathBuf> {
        let at = self.root.join(on_node.trim_start_matches('/'));
        fs::create_dir_all(&at)?;
        Ok(at)
    }

    /// Adds the file system that contains `path` to the mount table, at `on_node`.
    fn list(&self, on_node: &str, path: &Path) -> io::Result<()> {
        let device = fs::metadata(path)?.dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let mut mounts = fs::read_to_string(self.mounts())?;
        mounts += &format!("2 1 {major}:{minor} / {on_node} rw - ext4 /dev/disk rw\n");
        fs::write(self.mounts(), mounts)
    }
}
