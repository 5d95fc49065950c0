//! Finds the pods that use a disk by a volume.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path};

use nix::sys::stat::{major, minor};
use nodepulse_core::units::DeviceNumber;

use super::mounts::Mounts;
use super::{HostError, HostRoot, node_disks, resolve};

/// The directory below the kubelet's root directory that contains one for each pod.
const PODS: &str = "pods";
/// Name of a directory of a pod. Contains `<plugin>/<volume>`, or `<plugin>/<volume>/mount`.
const FILE_SYSTEMS: &str = "volumes";
/// Name of a directory of a pod. Contains `<plugin>/<volume>`, a link to a block device.
const BLOCK_DEVICES: &str = "volumeDevices";

/// Maximum number of directories of one kind that are listed.
const MAX_ENTRIES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodVolume {
    /// Name of the pod's directory: its UID, or for a static pod the hash of its manifest.
    pub pod: String,
    /// Name of the volume's directory: that of the volume in the pod, or of its persistent volume.
    pub volume: String,
}

/// Returns the volumes on `disk`, sorted. `kubelet` is the kubelet's root directory, as a path on
/// the node.
///
/// Reads the directories of the kubelet, but nothing in a volume: that could wait for the disk.
pub fn on_disk(
    root: &HostRoot,
    kubelet: &Path,
    disk: DeviceNumber,
) -> Result<BTreeSet<PodVolume>, HostError> {
    let mounts = Mounts::of_host(root)?;
    let kubelet = node_disks::on_host(root, kubelet);
    let pods = kubelet.join(PODS);
    let mut found = BTreeSet::new();
    for (point, mount) in mounts.by_point() {
        let volume = point.strip_prefix(&pods).ok().and_then(volume);
        if let Some(volume) = volume
            && node_disks::of_mount(root, &mounts, mount).contains(&disk)
        {
            found.insert(volume);
        }
    }
    for (volume, device) in block_devices(root, &pods) {
        if node_disks::of_device(root, &mounts, device).contains(&disk) {
            found.insert(volume);
        }
    }
    Ok(found)
}

/// Returns the volume that is mounted at `<uid>/volumes/<plugin>/<volume>`, or at `mount` in that.
fn volume(below: &Path) -> Option<PodVolume> {
    let names = below.components().map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Vec<&str> = names.collect::<Option<_>>()?;
    match names.as_slice() {
        [pod, FILE_SYSTEMS, _, volume] | [pod, FILE_SYSTEMS, _, volume, "mount"] => {
            Some(PodVolume {
                pod: (*pod).to_owned(),
                volume: (*volume).to_owned(),
            })
        }
        _ => None,
    }
}

/// Returns the block devices of pods. Skips links that cannot be followed: the volume is removed.
fn block_devices(root: &HostRoot, pods: &Path) -> Vec<(PodVolume, DeviceNumber)> {
    let mut found = Vec::new();
    for pod in root.names(pods).take(MAX_ENTRIES) {
        let of_pod = pods.join(&pod).join(BLOCK_DEVICES);
        for plugin in root.names(&of_pod).take(MAX_ENTRIES) {
            let of_plugin = of_pod.join(plugin);
            for volume in root.names(&of_plugin).take(MAX_ENTRIES) {
                let device = block_device(root, &of_plugin.join(&volume));
                let pod = pod.clone();
                found.extend(device.map(|device| (PodVolume { pod, volume }, device)));
            }
        }
    }
    found
}

fn block_device(root: &HostRoot, link: &Path) -> Option<DeviceNumber> {
    let file = fs::metadata(resolve::resolve(root, link).ok()?).ok()?;
    if !file.file_type().is_block_device() {
        return None;
    }
    Some(DeviceNumber {
        major: u32::try_from(major(file.rdev())).ok()?,
        minor: u32::try_from(minor(file.rdev())).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    const UID: &str = "4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";
    const OTHER: &str = "5e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";
    const SDB: DeviceNumber = DeviceNumber {
        major: 8,
        minor: 16,
    };
    const SDC: DeviceNumber = DeviceNumber {
        major: 8,
        minor: 32,
    };

    /// Creates the disks sdb with a partition and sdc, and a volume of LVM on both.
    fn node(mounts: &[(&str, &str, &str)]) -> Scratch {
        let dir = Scratch::new();
        let devices = [
            ("sdb", "8:16"),
            ("sdb/sdb1", "8:17"),
            ("sdc", "8:32"),
            ("dm-0", "253:0"),
        ];
        dir.mkdir("sys/dev/block");
        dir.mkdir("sys/class/block");
        for (path, number) in devices {
            let at = format!("sys/devices/{path}");
            dir.write(&format!("{at}/dev"), format!("{number}\n"));
            let real = dir.path().join(&at);
            let name = path.rsplit('/').next().unwrap();
            symlink(&real, dir.path().join(format!("sys/dev/block/{number}"))).unwrap();
            symlink(&real, dir.path().join(format!("sys/class/block/{name}"))).unwrap();
        }
        dir.write("sys/devices/sdb/sdb1/partition", "1\n");
        dir.mkdir("sys/devices/dm-0/slaves");
        for name in ["sdb1", "sdc"] {
            let target = dir.path().join(format!("sys/class/block/{name}"));
            let link = dir.path().join(format!("sys/devices/dm-0/slaves/{name}"));
            symlink(target, link).unwrap();
        }
        let line = |(number, point, kind): &(&str, &str, &str)| {
            format!("90 27 {number} / {point} rw shared:1 - {kind} /dev/x rw\n")
        };
        let text: String = mounts.iter().map(line).collect();
        dir.write("proc/1/mountinfo", text);
        dir.mkdir("var/lib/kubelet/pods");
        dir
    }

    fn found(dir: &Scratch, disk: DeviceNumber) -> Vec<(String, String)> {
        let found = on_disk(&dir.root(), Path::new("/var/lib/kubelet"), disk).unwrap();
        found.into_iter().map(|of| (of.pod, of.volume)).collect()
    }

    #[test]
    fn volumes_are_found_through_partitions_and_device_mapper() {
        let at = |rest: &str| format!("/var/lib/kubelet/{rest}");
        let csi = at(&format!("pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount"));
        let local = at(&format!(
            "pods/{OTHER}/volumes/kubernetes.io~local-volume/pv\\0402"
        ));
        let memory = at(&format!(
            "pods/{OTHER}/volumes/kubernetes.io~empty-dir/cache"
        ));
        let subpath = at(&format!("pods/{UID}/volume-subpaths/pvc-1/web/0"));
        let staged = at("plugins/kubernetes.io/csi/d/1/globalmount");
        let outside = format!("/mnt/pods/{UID}/volumes/a/b");
        let deep = at(&format!(
            "pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount/deep"
        ));
        let dir = node(&[
            ("253:0", &csi, "ext4"),
            ("8:17", &local, "xfs"),
            ("0:55", &memory, "tmpfs"),
            ("8:17", &subpath, "xfs"),
            ("8:17", &staged, "xfs"),
            ("8:17", &outside, "xfs"),
            ("8:17", &deep, "xfs"),
        ]);
        let named = |pod: &str, volume: &str| (pod.to_owned(), volume.to_owned());
        let both = [named(UID, "pvc-1"), named(OTHER, "pv 2")];
        assert_eq!(found(&dir, SDB), both);
        assert_eq!(found(&dir, SDC), both[..1]);
        assert_eq!(found(&dir, DeviceNumber { major: 8, minor: 0 }), []);
    }

    #[test]
    fn only_the_last_mount_at_a_volume_counts_and_only_directories_of_volumes_are_one() {
        let at = |rest: &str| format!("/var/lib/kubelet/pods/{UID}/{rest}");
        let volume = at("volumes/kubernetes.io~csi/pvc-1/mount");
        let device = at("volumeDevices/kubernetes.io~csi/pvc-2");
        let deep = format!("{volume}/deep");
        let dir = node(&[
            ("8:17", &volume, "xfs"),
            ("8:32", &volume, "xfs"),
            ("8:17", &device, "devtmpfs"),
            ("8:17", &deep, "xfs"),
        ]);
        assert_eq!(found(&dir, SDB), []);
        assert_eq!(found(&dir, SDC), [(UID.to_owned(), "pvc-1".to_owned())]);
    }

    #[test]
    fn the_kubelets_directory_may_be_a_link() {
        let volume = format!("/data/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount");
        let dir = node(&[("8:17", &volume, "xfs")]);
        std::fs::remove_dir_all(dir.path().join("var/lib/kubelet")).unwrap();
        dir.mkdir("data/kubelet/pods");
        symlink("/data/kubelet", dir.path().join("var/lib/kubelet")).unwrap();
        assert_eq!(found(&dir, SDB), [(UID.to_owned(), "pvc-1".to_owned())]);
    }

    #[test]
    fn a_link_to_no_block_device_is_skipped() {
        let dir = node(&[]);
        let devices = format!("var/lib/kubelet/pods/{UID}/volumeDevices/kubernetes.io~csi");
        dir.mkdir(&devices);
        let link = |name: &str, target: &str| {
            symlink(target, dir.path().join(&devices).join(name)).unwrap();
        };
        link("removed", "/dev/nothing");
        dir.write("dev/file", "");
        link("file", "/dev/file");
        link("loop", "loop");
        assert_eq!(found(&dir, SDB), []);
    }
}
