//! The stacking of block devices: a partition on a disk, and device-mapper and md devices on disks,
//! partitions or each other.

use std::collections::BTreeSet;

use nodepulse_core::units::DeviceNumber;

use crate::host::{HostError, HostRoot, present};

/// Maximum number of devices on each other. A usual stack has three: LVM, encrypted, on a RAID.
const MAX_LEVELS: usize = 8;

/// Maximum number of devices of a stack.
const MAX_DEVICES: usize = 256;

/// Returns the disks in `disks`, then level by level the device-mapper and md devices on them.
pub fn above(root: &HostRoot, disks: &[DeviceNumber]) -> Vec<Vec<DeviceNumber>> {
    levels(disks.to_vec(), |device| {
        let mut holders = listed(root, device, "holders");
        for partition in children(root, device) {
            let name = format!("{partition}/holders");
            holders.extend(listed(root, device, &name));
        }
        holders
    })
}

fn levels(
    first: Vec<DeviceNumber>,
    next: impl Fn(DeviceNumber) -> Vec<DeviceNumber>,
) -> Vec<Vec<DeviceNumber>> {
    let mut known: BTreeSet<DeviceNumber> = first.iter().copied().collect();
    let mut levels = Vec::new();
    let mut level = first;
    while !level.is_empty() && levels.len() < MAX_LEVELS {
        let mut found: Vec<DeviceNumber> = level.iter().flat_map(|device| next(*device)).collect();
        found.retain(|device| known.len() < MAX_DEVICES && known.insert(*device));
        levels.push(std::mem::replace(&mut level, found));
    }
    levels
}

/// Returns the names of the partitions of a disk.
fn children(root: &HostRoot, device: DeviceNumber) -> Vec<String> {
    let at = directory(device);
    let is_partition = |name: &String| root.path(format!("{at}/{name}/partition")).exists();
    let names = root.names(&at).take(MAX_DEVICES);
    names.filter(is_partition).collect()
}

/// Returns the devices that a directory of `device` links to.
fn listed(root: &HostRoot, device: DeviceNumber, name: &str) -> Vec<DeviceNumber> {
    let at = format!("{}/{name}", directory(device));
    let number = |name| number(root, &format!("{at}/{name}"));
    let names = root.names(&at).take(MAX_DEVICES);
    names.filter_map(number).collect()
}

fn number(root: &HostRoot, directory: &str) -> Option<DeviceNumber> {
    let read: Result<_, HostError> = present(root.read_string(format!("{directory}/dev")));
    DeviceNumber::parse(&read.ok()??)
}

fn directory(device: DeviceNumber) -> String {
    format!("sys/dev/block/{device}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    const fn device(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    /// Creates a host with devices by path below `sys/devices`, and links from holders to slaves.
    fn host(devices: &[(&str, &str)], stacked: &[(&str, &str)]) -> Scratch {
        let dir = Scratch::new();
        dir.mkdir("sys/dev/block");
        dir.mkdir("sys/class/block");
        for (path, number) in devices {
            let at = format!("sys/devices/{path}");
            dir.write(&format!("{at}/dev"), format!("{number}\n"));
            dir.mkdir(&format!("{at}/holders"));
            let name = path.rsplit('/').next().unwrap();
            match path.split_once('/') {
                Some(_) => dir.write(&format!("{at}/partition"), "1\n"),
                None => dir.mkdir(&format!("{at}/slaves")),
            }
            let target = format!("../../devices/{path}");
            for link in [format!("dev/block/{number}"), format!("class/block/{name}")] {
                symlink(&target, dir.path().join("sys").join(link)).unwrap();
            }
        }
        let link = |from: &str, kind: &str, to: &str| {
            let name = to.rsplit('/').next().unwrap();
            let target = dir.path().join("sys/devices").join(to);
            let at = dir.path().join("sys/devices").join(from);
            symlink(target, at.join(kind).join(name)).unwrap();
        };
        for (upper, lower) in stacked {
            link(upper, "slaves", lower);
            link(lower, "holders", upper);
        }
        dir
    }

    const DEVICES: [(&str, &str); 8] = [
        ("sda", "8:0"),
        ("sda/sda1", "8:1"),
        ("sda/sda2", "8:2"),
        ("sdb", "8:16"),
        ("sdb/sdb1", "8:17"),
        ("md0", "9:0"),
        ("dm-0", "253:0"),
        ("dm-1", "253:1"),
    ];
    /// An encrypted volume on a RAID of a partition of each disk; another volume on the first.
    const STACKED: [(&str, &str); 4] = [
        ("md0", "sda/sda2"),
        ("md0", "sdb/sdb1"),
        ("dm-0", "md0"),
        ("dm-1", "sda/sda1"),
    ];

    #[test]
    fn the_devices_on_a_disk_are_listed_by_level() {
        let dir = host(&DEVICES, &STACKED);
        let levels = |disks: &[DeviceNumber]| {
            let mut levels = above(&dir.root(), disks);
            for level in &mut levels {
                level.sort_unstable();
            }
            levels
        };
        let (md, first, second) = (device(9, 0), device(253, 0), device(253, 1));
        let (sda, sdb) = (device(8, 0), device(8, 16));
        assert_eq!(levels(&[sda]), [vec![sda], vec![md, second], vec![first]]);
        assert_eq!(levels(&[sdb]), [vec![sdb], vec![md], vec![first]]);
        assert_eq!(levels(&[device(7, 0)]), [vec![device(7, 0)]]);
        assert!(levels(&[]).is_empty());
    }
}
