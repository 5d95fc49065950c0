//! Finds the disks of the node itself: those below nodefs, imagefs, the root directory and swap.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nodepulse_core::units::DeviceNumber;

use super::mounts::{Mount, Mounts};
use super::{HostError, HostFile, HostRoot, resolve};

/// Maximum number of layers of device mapper, md and loop devices. Usual nodes have at most four.
const MAX_LAYERS: usize = 16;

/// File systems without a disk of this node. Other file systems without a device number, such as
/// overlayfs and ZFS, may be on any disk.
const DISKLESS: [&str; 10] = [
    "9p", "ceph", "cifs", "devtmpfs", "nfs", "nfs4", "ramfs", "rootfs", "tmpfs", "virtiofs",
];

/// Returns the numbers of the node's disks; `None` if a file system of the node cannot be traced to
/// disks, or if the mounts cannot be read.
///
/// `directories` contains nodefs and imagefs, as paths on the node.
pub fn find(root: &HostRoot, directories: &[PathBuf]) -> Option<BTreeSet<DeviceNumber>> {
    let mounts = Mounts::of_host(root).ok()?;
    let mut search = Search::new(root, &mounts);
    search.file_system(Path::new("/"), MAX_LAYERS)?;
    for directory in directories {
        search.file_system(&on_host(root, directory), MAX_LAYERS)?;
    }
    search.swap()?;
    Some(search.disks)
}

/// File systems with the device number 0 whose source is one of their disks. That of others, such
/// as FUSE, is what the user who mounted them chose.
const ON_DISKS: [&str; 2] = ["btrfs", "bcachefs"];
/// File systems that are read-only by nature, such as images of programs and optical disks.
const IMAGES: [&str; 4] = ["squashfs", "erofs", "iso9660", "udf"];

/// Returns the mounts of file systems on block devices, each once, at its oldest mount.
fn on_devices(mounts: &Mounts) -> Vec<&Mount> {
    let is_on_device = |mount: &&Mount| {
        let kind = mount.kind.as_str();
        (mount.device.major != 0 || ON_DISKS.contains(&kind)) && !IMAGES.contains(&kind)
    };
    let mut all: Vec<_> = mounts.by_point().into_values().collect();
    all.retain(is_on_device);
    all.sort_by_key(|mount| (mount.device, mount.id));
    all.dedup_by_key(|mount| mount.device);
    all
}

/// Returns the mounted file systems with the disks below them, as far as they can be determined,
/// without USB disks and other removable ones. Those without any other are left out.
pub fn mounted<'a>(
    root: &HostRoot,
    mounts: &'a Mounts,
) -> Vec<(&'a Mount, BTreeSet<DeviceNumber>)> {
    let all = on_devices(mounts).into_iter();
    let with_disks = all.map(|mount| {
        let mut disks = of_mount(root, mounts, mount);
        disks.retain(|disk| !is_removable(root, *disk));
        (mount, disks)
    });
    with_disks.filter(|(_, disks)| !disks.is_empty()).collect()
}

fn is_removable(root: &HostRoot, disk: DeviceNumber) -> bool {
    let directory = root.path(format!("sys/dev/block/{disk}"));
    // USB disks with a fixed medium are not marked as removable.
    let is_usb = directory.canonicalize().is_ok_and(|path| {
        path.iter()
            .any(|part| part.as_encoded_bytes().starts_with(b"usb"))
    });
    let flag = root.read_string(format!("sys/dev/block/{disk}/removable"));
    is_usb || flag.is_ok_and(|flag| flag.trim_end() == "1")
}

/// Returns the disks below a mounted file system, as far as they can be determined.
pub fn of_mount(root: &HostRoot, mounts: &Mounts, mount: &Mount) -> BTreeSet<DeviceNumber> {
    let mut search = Search::new(root, mounts);
    let found = search.mounted(mount, MAX_LAYERS);
    found.map_or_else(BTreeSet::new, |()| search.disks)
}

/// Returns the disks below a block device, as far as they can be determined.
pub fn of_device(root: &HostRoot, mounts: &Mounts, device: DeviceNumber) -> BTreeSet<DeviceNumber> {
    let mut search = Search::new(root, mounts);
    let found = search.device(device, MAX_LAYERS);
    found.map_or_else(BTreeSet::new, |()| search.disks)
}

/// Returns the path on the node after symbolic links, as far as they can be followed from here.
pub fn on_host(root: &HostRoot, path: &Path) -> PathBuf {
    let Ok(resolved) = resolve::resolve(root, path) else {
        return path.to_owned();
    };
    let below = resolved.strip_prefix(root.dir()).unwrap_or(&resolved);
    Path::new("/").join(below)
}

struct Search<'a> {
    root: &'a HostRoot,
    mounts: &'a Mounts,
    seen: BTreeSet<PathBuf>,
    disks: BTreeSet<DeviceNumber>,
}

impl<'a> Search<'a> {
    const fn new(root: &'a HostRoot, mounts: &'a Mounts) -> Self {
        Self {
            root,
            mounts,
            seen: BTreeSet::new(),
            disks: BTreeSet::new(),
        }
    }

    /// Adds the disks of the file system that contains `path`; `None` if they are unknown.
    fn file_system(&mut self, path: &Path, layers: usize) -> Option<()> {
        self.mounted(self.mounts.of(path)?, layers)
    }

    fn mounted(&mut self, mount: &Mount, layers: usize) -> Option<()> {
        if mount.device.major != 0 {
            return self.device(mount.device, layers);
        }
        if DISKLESS.contains(&mount.kind.as_str()) {
            return Some(());
        }
        self.by_source(mount, layers)
    }

    /// Adds the disks of a Btrfs. It has no device number; its source is one of its devices.
    fn by_source(&mut self, mount: &Mount, layers: usize) -> Option<()> {
        let name = self.block_name(&mount.source)?;
        if mount.kind != "btrfs" {
            return self.name(&name, layers);
        }
        let mut found = None;
        for entry in fs::read_dir(self.root.path("sys/fs/btrfs")).ok()?.flatten() {
            let devices = entry.path().join("devices");
            if devices.join(&name).exists() {
                found = Some(devices);
            }
        }
        let Some(devices) = found else {
            return self.name(&name, layers);
        };
        for device in fs::read_dir(devices).ok()?.flatten() {
            self.name(device.file_name().to_str()?, layers)?;
        }
        Some(())
    }

    fn swap(&mut self) -> Option<()> {
        // If the file does not exist, there is no swap.
        let Ok(swaps) = self.root.read_string("proc/swaps") else {
            return Some(());
        };
        for line in swaps.lines().skip(1) {
            let path = line.split_whitespace().next()?;
            match self.block_name(path) {
                Some(name) => self.name(&name, MAX_LAYERS)?,
                None => self.file_system(Path::new(path), MAX_LAYERS)?,
            }
        }
        Some(())
    }

    /// Returns the name below `/sys/class/block` of a file in `/dev`.
    fn block_name(&self, source: &str) -> Option<String> {
        let name = source.strip_prefix("/dev/")?;
        if let Some(mapped) = name.strip_prefix("mapper/") {
            return self.root.names("sys/class/block").find(|name| {
                let file = format!("sys/class/block/{name}/dm/name");
                let found = self.root.read_string(file);
                found.is_ok_and(|found| found.trim_end() == mapped)
            });
        }
        let name = name.replace('/', "!");
        let exists = self.root.path(format!("sys/class/block/{name}")).exists();
        exists.then_some(name)
    }

    fn name(&mut self, name: &str, layers: usize) -> Option<()> {
        self.directory(&self.root.path(format!("sys/class/block/{name}")), layers)
    }

    fn device(&mut self, device: DeviceNumber, layers: usize) -> Option<()> {
        self.directory(&self.root.path(format!("sys/dev/block/{device}")), layers)
    }

    /// Adds the disks below a block device, by its directory in sysfs.
    fn directory(&mut self, directory: &Path, layers: usize) -> Option<()> {
        let layers = layers.checked_sub(1)?;
        let mut directory = directory.canonicalize().ok()?;
        if directory.join("partition").exists() {
            directory.pop();
        }
        if !self.seen.insert(directory.clone()) {
            return Some(());
        }
        if let Ok(file) = text(directory.join("loop/backing_file")) {
            return self.file_system(Path::new(file.trim_end()), layers);
        }
        let slaves = fs::read_dir(directory.join("slaves"));
        let slaves: Vec<_> = slaves.into_iter().flatten().flatten().collect();
        for slave in &slaves {
            self.directory(&slave.path(), layers)?;
        }
        if slaves.is_empty() {
            let number = text(directory.join("dev")).ok()?;
            self.disks.insert(DeviceNumber::parse(number.trim_end())?);
        }
        Some(())
    }
}

fn text(path: PathBuf) -> Result<String, HostError> {
    let mut buf = Vec::new();
    HostFile::at(path).read(&mut buf)?;
    Ok(String::from_utf8_lossy(&buf).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    /// Creates a block device: its path below `/sys/devices/block`, its number and the devices
    /// below it.
    fn device(dir: &Scratch, path: &str, number: &str, slaves: &[&str]) {
        let at = format!("sys/devices/block/{path}");
        dir.write(&format!("{at}/dev"), format!("{number}\n"));
        dir.mkdir(&format!("{at}/slaves"));
        dir.mkdir("sys/dev/block");
        dir.mkdir("sys/class/block");
        let real = dir.path().join(&at);
        let name = path.rsplit('/').next().unwrap();
        symlink(&real, dir.path().join(format!("sys/dev/block/{number}"))).unwrap();
        symlink(&real, dir.path().join(format!("sys/class/block/{name}"))).unwrap();
        for slave in slaves {
            let target = dir.path().join(format!("sys/class/block/{slave}"));
            symlink(target, real.join(format!("slaves/{slave}"))).unwrap();
        }
    }

    fn partition(dir: &Scratch, path: &str, number: &str) {
        device(dir, path, number, &[]);
        dir.write(&format!("sys/devices/block/{path}/partition"), "1\n");
    }

    /// Creates two disks with a partition each, a mirror of both, a volume on it, and a third disk.
    fn node(mounts: &str, swaps: &str) -> Scratch {
        let dir = Scratch::new();
        device(&dir, "sda", "8:0", &[]);
        partition(&dir, "sda/sda1", "8:1");
        device(&dir, "sdb", "8:16", &[]);
        partition(&dir, "sdb/sdb1", "8:17");
        device(&dir, "sdc", "8:32", &[]);
        device(&dir, "md0", "9:0", &["sda1", "sdb1"]);
        device(&dir, "dm-0", "253:0", &["md0"]);
        dir.write("sys/devices/block/dm-0/dm/name", "vg-root\n");
        device(&dir, "cciss!c0d0", "104:0", &[]);
        device(&dir, "loop0", "7:0", &[]);
        dir.write(
            "sys/devices/block/loop0/loop/backing_file",
            "/data/disk.img\n",
        );
        dir.mkdir("sys/fs/btrfs/uuid/devices/sdb1");
        dir.mkdir("sys/fs/btrfs/uuid/devices/sdc");
        dir.write("proc/1/mountinfo", mounts);
        dir.write("proc/swaps", format!("Filename Type Size\n{swaps}"));
        dir
    }

    fn disks(dir: &Scratch) -> Option<Vec<String>> {
        let nodefs = [PathBuf::from("/var/lib/kubelet")];
        let found = find(&dir.root(), &nodefs)?;
        Some(found.iter().map(ToString::to_string).collect())
    }

    const ROOT: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";

    #[test]
    fn disks_are_found_below_partitions_mirrors_volumes_and_files() {
        let with = |line: &str| format!("{ROOT}{line}\n");
        let kubelet = "30 22 N / /var/lib/kubelet rw - F S rw";
        let line = |number: &str, kind: &str, source: &str| {
            let line = kubelet.replace('N', number).replace('F', kind);
            with(&line.replace('S', source))
        };
        let data = "40 22 8:32 / /data rw - ext4 /dev/sdc rw\n";
        //  mounts, swaps, disks
        #[rustfmt::skip]
        let rows: [(String, &str, &[&str]); 11] = [
            (ROOT.to_owned(), "", &["8:0"]),
            (line("8:32", "xfs", "/dev/sdc"), "", &["8:0", "8:32"]),
            (line("253:0", "xfs", "/dev/x"), "", &["8:0", "8:16"]),
            (line("0:40", "btrfs", "/dev/sdc"), "", &["8:0", "8:16", "8:32"]),
            (line("0:40", "x", "/dev/mapper/vg-root"), "", &["8:0", "8:16"]),
            (line("0:40", "nfs4", "server:/export"), "", &["8:0"]),
            (line("0:40", "x", "/dev/cciss/c0d0"), "", &["8:0", "104:0"]),
            (line("0:40", "btrfs", "/dev/sda"), "", &["8:0"]),
            (ROOT.to_owned(), "/dev/sdc partition 1 0 -2\n", &["8:0", "8:32"]),
            (with(data.trim_end()), "/data/swap file 1 0 -2\n", &["8:0", "8:32"]),
            (format!("{data}{}", line("7:0", "ext4", "/dev/loop0")), "", &["8:0", "8:32"]),
        ];
        for (mounts, swaps, expected) in rows {
            let found = disks(&node(&mounts, swaps));
            let found = found.unwrap_or_else(|| panic!("{mounts}"));
            assert_eq!(found, expected, "{mounts}{swaps}");
        }
    }

    #[test]
    fn a_file_system_that_cannot_be_traced_leaves_the_set_unknown() {
        for mounts in [
            "",
            "22 1 0:40 / / rw - overlay overlay rw\n",
            "22 1 0:40 / / rw - zfs rpool/root rw\n",
            "22 1 9:7 / / rw - ext4 /dev/md7 rw\n",
        ] {
            assert_eq!(disks(&node(mounts, "")), None, "{mounts}");
        }
        assert_eq!(disks(&Scratch::new()), None, "no mounts");
    }

    #[test]
    fn mounted_disks_are_those_of_each_file_system_that_are_not_removable() {
        let mounts = [
            ROOT,
            "30 22 8:32 / /srv rw - xfs /dev/sdc rw\n",
            "31 22 0:40 / /unknown rw - zfs pool/data rw\n",
            "32 22 104:0 / /media/stick rw - vfat /dev/cciss/c0d0 rw\n",
            "33 22 0:41 / /run rw - tmpfs tmpfs rw\n",
            "34 22 0:42 / /home/u/m rw - fuse.x /dev/sdb rw\n",
            "35 22 7:0 / /snap/x ro - squashfs /dev/loop0 ro\n",
            "36 22 9:1 / /mnt/usb rw - ext4 /dev/md1 rw\n",
        ];
        let dir = node(&mounts.concat(), "");
        dir.write("sys/devices/block/sdc/removable", "0\n");
        dir.write("sys/devices/block/cciss!c0d0/removable", "1\n");
        device(&dir, "usb2/2-1/md1", "9:1", &[]);
        let read = Mounts::of_host(&dir.root()).unwrap();
        let found = mounted(&dir.root(), &read).into_iter();
        let found: Vec<String> = found
            .flat_map(|(_, disks)| disks)
            .map(|disk| disk.to_string())
            .collect();
        assert_eq!(found, ["8:0", "8:32"]);
        let none = Mounts::parse("");
        assert!(mounted(&dir.root(), &none).is_empty(), "no mounts");
    }

    #[test]
    fn a_node_without_swap_has_no_file_of_it() {
        let dir = node(ROOT, "");
        fs::remove_file(dir.path().join("proc/swaps")).unwrap();
        assert_eq!(disks(&dir).unwrap(), ["8:0"]);
    }

    #[test]
    fn the_search_has_a_limit_of_layers() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/dm-0 rw\n";
        for (layers, is_known) in [(MAX_LAYERS, true), (MAX_LAYERS + 1, false)] {
            let dir = Scratch::new();
            for n in (0..layers).rev() {
                let below = format!("dm-{}", n + 1);
                let slaves: &[&str] = if n + 1 < layers { &[&below] } else { &[] };
                device(&dir, &format!("dm-{n}"), &format!("254:{n}"), slaves);
            }
            dir.write("proc/1/mountinfo", mounts);
            assert_eq!(disks(&dir).is_some(), is_known, "{layers}");
        }
    }

    #[test]
    fn devices_on_each_other_end_the_search() {
        let dir = node(ROOT, "");
        let md = dir.path().join("sys/devices/block/sda/slaves/md0");
        symlink(dir.path().join("sys/class/block/md0"), md).unwrap();
        assert!(disks(&dir).is_some());
    }

    #[test]
    fn a_path_is_that_on_the_node() {
        let dir = Scratch::new();
        dir.mkdir("data/kubelet");
        dir.mkdir("var/lib");
        symlink("/data/kubelet", dir.path().join("var/lib/kubelet")).unwrap();
        for (path, expected) in [
            ("/var/lib/kubelet", "/data/kubelet"),
            ("/var/lib/none", "/var/lib/none"),
        ] {
            assert_eq!(on_host(&dir.root(), Path::new(path)), Path::new(expected));
        }
    }
}
