//! Whole disks in `/sys/block`.

pub mod stack;

use std::fs;

use nodepulse_core::reading::{Disk, DiskRole};
use nodepulse_core::units::DeviceNumber;

use super::{HostError, HostRoot, parse_u64, present};

/// Bytes of a sector in the `stat` file, independent of the disk's sector size.
const SECTOR: u64 = 512;

/// The counters of the `stat` file since the disk was added. They do not change while `iostats` is
/// off. Failed requests count as completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounters {
    pub reads: u64,
    pub read_ms: u64,
    /// Bytes read and written.
    pub bytes: u64,
    pub writes: u64,
    pub write_ms: u64,
    /// Number of requests of every kind in flight.
    pub in_flight: u64,
    /// Discards and flushes completed.
    pub others: u64,
}

/// Lists the whole disks that process requests, sorted by name, each as one of the node.
///
/// Excluded are drivers that forward `bio`s to other disks or to memory (ram, zram, dm, md, drbd,
/// pmem, and `NVMe` multipath heads), loop, slow removable media (optical, floppy), and disks that
/// are removed meanwhile.
pub fn disks(root: &HostRoot) -> Result<Vec<Disk>, HostError> {
    let dir = root.path("sys/block");
    let failed = HostError::of_read(&dir);
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).map_err(failed)? {
        // Names of kernel drivers are UTF-8.
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
            && !Disk::is_excluded(&name)
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.truncate(Disk::MAX);
    let mut disks = Vec::new();
    for name in names {
        disks.extend(disk(root, name)?);
    }
    Ok(disks)
}

/// Returns `true` if `iostats` of this disk is on; `None` if the disk was removed.
pub fn iostats(root: &HostRoot, name: &str) -> Result<Option<bool>, HostError> {
    flag(root, name, "queue/iostats")
}

/// Reads the counters. Returns `None` if the disk was removed. Takes about 10 µs per disk.
pub fn counters(root: &HostRoot, name: &str) -> Result<Option<IoCounters>, HostError> {
    let Some(text) = present(root.read_string(file(name, "stat")))? else {
        return Ok(None);
    };
    // Documentation/block/stat.rst; the last two since 4.18 and 5.5.
    let column = |n| {
        let column = text.split_ascii_whitespace().nth(n);
        let number = column.and_then(|column| parse_u64(column.as_bytes()));
        number.ok_or_else(|| malformed(root, name, "stat", "row of counters"))
    };
    let sectors = column(2)?.saturating_add(column(6)?);
    Ok(Some(IoCounters {
        reads: column(0)?,
        read_ms: column(3)?,
        bytes: sectors.saturating_mul(SECTOR),
        writes: column(4)?,
        write_ms: column(7)?,
        in_flight: column(8)?,
        others: column(11)?.saturating_add(column(15)?),
    }))
}

/// Reads one disk. Returns `None` if it was removed, or if [`disks`] excludes it.
pub fn disk(root: &HostRoot, name: String) -> Result<Option<Disk>, HostError> {
    if Disk::is_excluded(&name) {
        return Ok(None);
    }
    // Only request-based drivers have hardware queues.
    if !root.path(file(&name, "mq")).is_dir() {
        return Ok(None);
    }
    // A path below an NVMe multipath head is hidden, without a device number.
    let Some(dev) = present(root.read_string(file(&name, "dev")))? else {
        return Ok(None);
    };
    let Some(device) = DeviceNumber::parse(&dev) else {
        return Err(malformed(root, &name, "dev", "`major:minor`"));
    };
    Ok(Some(Disk {
        device,
        rotational: flag(root, &name, "queue/rotational")?.unwrap_or(false),
        // Without this file, I/O statistics cannot be switched off.
        iostats: iostats(root, &name)?.unwrap_or(true),
        virtio: is_virtio(root, &name),
        role: DiskRole::Node,
        name,
    }))
}

fn is_virtio(root: &HostRoot, name: &str) -> bool {
    let link = |rel| fs::read_link(root.path(file(name, rel))).unwrap_or_default();
    let is_virtio_device = |part: &str| {
        part.strip_prefix("virtio")
            .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    };
    name.starts_with("vd")
        || link("device/subsystem").ends_with("virtio")
        // A disk of a virtio-scsi controller: …/virtio0/host2/target2:0:0/….
        || link("")
            .iter()
            .any(|part| part.to_str().is_some_and(is_virtio_device))
}

fn flag(root: &HostRoot, name: &str, rel: &'static str) -> Result<Option<bool>, HostError> {
    match present(root.read_string(file(name, rel)))?.as_deref() {
        None => Ok(None),
        Some("0") => Ok(Some(false)),
        Some("1") => Ok(Some(true)),
        Some(_) => Err(malformed(root, name, rel, "0 or 1")),
    }
}

fn file(name: &str, rel: &str) -> String {
    let sep = if rel.is_empty() { "" } else { "/" };
    format!("sys/block/{name}{sep}{rel}")
}

fn malformed(root: &HostRoot, name: &str, rel: &str, want: &'static str) -> HostError {
    HostError::Malformed {
        path: root.path(file(name, rel)),
        want,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    fn write_disk(dir: &Scratch, name: &str, dev: &str) {
        let at = |rel: &str| format!("sys/block/{name}/{rel}");
        dir.mkdir(&at("mq/0"));
        dir.write(&at("dev"), dev);
        dir.write(&at("queue/rotational"), "1\n");
        dir.write(&at("queue/iostats"), "1\n");
    }

    #[test]
    fn only_request_based_disks_are_listed() {
        let dir = Scratch::new();
        for (n, name) in [
            "vda",
            "sda",
            "nvme0n1",
            "nbd0",
            "rbd0",
            "mmcblk0",
            "loop0",
            "ram0",
            "zram0",
            "dm-0",
            "md127",
            "md_d0",
            "drbd0",
            "pmem0",
            "sr0",
            "fd0",
            "nvme1n1",
            "nvme1c0n1",
        ]
        .iter()
        .enumerate()
        {
            write_disk(&dir, name, &format!("8:{n}\n"));
        }
        // A multipath head is bio-based; the path below it is hidden.
        fs::remove_dir_all(dir.path().join("sys/block/nvme1n1/mq")).unwrap();
        fs::remove_file(dir.path().join("sys/block/nvme1c0n1/dev")).unwrap();

        let names: Vec<_> = disks(&dir.root())
            .unwrap()
            .into_iter()
            .map(|d| d.name)
            .collect();
        assert_eq!(names, ["mmcblk0", "nbd0", "nvme0n1", "rbd0", "sda", "vda"]);
    }

    #[test]
    fn properties_of_a_disk() {
        let dir = Scratch::new();
        write_disk(&dir, "vda", "254:0\n");
        write_disk(&dir, "sda", "8:0\n");
        dir.write("sys/block/sda/queue/rotational", "0\n");
        dir.write("sys/block/sda/queue/iostats", "0\n");
        dir.mkdir("sys/block/sda/device");
        dir.mkdir("sys/devices/pci0000:00/virtio3/host2");
        let found = disks(&dir.root()).unwrap();
        let facts: Vec<_> = found
            .iter()
            .map(|d| {
                (
                    d.name.as_str(),
                    d.device.major,
                    d.rotational,
                    d.virtio,
                    d.iostats,
                )
            })
            .collect();
        assert_eq!(
            facts,
            [
                ("sda", 8, false, false, false),
                ("vda", 254, true, true, true)
            ]
        );

        symlink(
            "../../../bus/virtio",
            dir.path().join("sys/block/sda/device/subsystem"),
        )
        .unwrap();
        assert!(is_virtio(&dir.root(), "sda"), "by its bus");
        let target = "../devices/pci0000:00/virtio3/host2/block/sdb";
        symlink(target, dir.path().join("sys/block/sdb")).unwrap();
        assert!(is_virtio(&dir.root(), "sdb"), "behind a virtio controller");
    }

    #[test]
    fn an_error_names_the_malformed_file() {
        //          file          content, call
        let rows = [
            ("dev", "8"),
            ("dev", "8:99999999999"),
            ("dev", "8:-1"),
            ("queue/rotational", "maybe"),
            ("queue/iostats", ""),
        ];
        for (rel, text) in rows {
            let dir = Scratch::new();
            write_disk(&dir, "sda", "8:0");
            dir.write(&file("sda", rel), text);
            let err = disks(&dir.root()).unwrap_err().to_string();
            assert!(err.contains(rel), "{text:?}: {err}");
        }
    }

    #[test]
    fn counters_are_read_by_column() {
        let dir = Scratch::new();
        let root = dir.root();
        assert_eq!(counters(&root, "sda").unwrap(), None, "removed");

        let stat = " 10 1 80 44 20 2 160 55 3 5 6 7 0 9 9 8 9\n";
        dir.write("sys/block/sda/stat", stat);
        let expected = IoCounters {
            reads: 10,
            read_ms: 44,
            bytes: (80 + 160) * 512,
            writes: 20,
            write_ms: 55,
            in_flight: 3,
            others: 15,
        };
        assert_eq!(counters(&root, "sda").unwrap(), Some(expected));

        dir.write("sys/block/sda/stat", " 10 1 80 44 20 2 160 55 3 5 6\n");
        let err = counters(&root, "sda").unwrap_err().to_string();
        assert!(err.contains("sda/stat"), "{err}");
    }

    #[test]
    fn a_single_disk_equals_its_entry_in_the_list() {
        let dir = Scratch::new();
        write_disk(&dir, "sda", "8:0");
        write_disk(&dir, "loop0", "7:0");
        let listed = disks(&dir.root()).unwrap();
        assert_eq!(
            disk(&dir.root(), "sda".to_owned()).unwrap().as_ref(),
            listed.first()
        );
        for name in ["loop0", "sdb"] {
            assert_eq!(disk(&dir.root(), name.to_owned()).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn a_node_without_sys_block_is_an_error() {
        assert!(disks(&Scratch::new().root()).unwrap_err().is_absent());
    }
}
