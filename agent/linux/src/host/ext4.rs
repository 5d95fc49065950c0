//! Errors that ext4 has counted: in blocks, in metadata and of its journal.
//!
//! The superblock stores the count, so that it survives an unmount and a reboot until `e2fsck`
//! clears it. These files are in memory: reading them never waits for the disk.

use std::fs;
use std::path::PathBuf;

use nodepulse_core::reading::FilesystemErrors;
use nodepulse_core::units::DeviceNumber;

use super::{HostRoot, parse_u64};

/// The function in which ext4 notices that its journal was aborted, after which it cannot write.
const NOTICES_ABORT: &str = "ext4_journal_check_start";

/// Returns the name of the block device with this number, as below `/sys/class/block` and
/// `/sys/fs/ext4`; `None` for a file system without a device.
pub fn device_name(root: &HostRoot, device: DeviceNumber) -> Option<String> {
    let link = root.path(format!("sys/dev/block/{device}"));
    let name = fs::read_link(link).ok()?.file_name()?.to_owned();
    name.into_string().ok()
}

/// Returns the sum of the errors of all mounted ext4.
pub fn count_all(root: &HostRoot) -> u64 {
    let counts = root.names("sys/fs/ext4");
    let counts = counts.filter_map(|name| count(root, &name));
    counts.fold(0, u64::saturating_add)
}

fn count(root: &HostRoot, name: &str) -> Option<u64> {
    number(root, name, "errors_count")
}

/// Returns the errors on a block device, the time of the last one, and whether ext4 stopped writing
/// with it; `None` without a mounted ext4 or a readable file.
pub fn errors(root: &HostRoot, name: &str) -> Option<FilesystemErrors> {
    let count = count(root, name)?;
    let last = number(root, name, "last_error_time")?;
    let noticed = root.read_string(file(name, "last_error_func"));
    // Unlike those in mountinfo, these options contain the defaults of the superblock.
    let options = root.read_string(format!("proc/fs/ext4/{name}/options"));
    let stops = options.is_ok_and(|text| !text.lines().any(|line| line == "errors=continue"));
    Some(FilesystemErrors {
        count,
        last,
        stopped: stops || noticed.is_ok_and(|function| function == NOTICES_ABORT),
    })
}

fn number(root: &HostRoot, name: &str, attribute: &str) -> Option<u64> {
    let text = root.read_string(file(name, attribute)).ok()?;
    parse_u64(text.as_bytes())
}

fn file(name: &str, attribute: &str) -> PathBuf {
    PathBuf::from(format!("sys/fs/ext4/{name}/{attribute}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    const CONTINUES: &str = "rw\nbarrier\nerrors=continue\n";

    fn node(count: &str, last: &str, function: &str, options: &str) -> Scratch {
        let dir = Scratch::new();
        for (file, text) in [
            ("sys/fs/ext4/vda1/errors_count", count),
            ("sys/fs/ext4/vda1/last_error_time", last),
            ("sys/fs/ext4/vda1/last_error_func", function),
            ("proc/fs/ext4/vda1/options", options),
        ] {
            if text != "missing" {
                dir.write(file, text);
            }
        }
        dir
    }

    #[test]
    fn errors_stop_a_file_system_unless_it_continues_and_its_journal_is_not_aborted() {
        let remount = "rw\nerrors=remount-ro\n";
        let some = |count, last, stopped| {
            Some(FilesystemErrors {
                count,
                last,
                stopped,
            })
        };
        //  errors_count, last_error_time, last_error_func, options
        #[rustfmt::skip]
        let rows = [
            (["0\n", "0\n", "\n", CONTINUES], some(0, 0, false)),
            (["3\n", "1790000000\n", "ext4_lookup\n", CONTINUES], some(3, 1_790_000_000, false)),
            (["3\n", "9\n", "ext4_lookup\n", remount], some(3, 9, true)),
            (["3\n", "9\n", "ext4_journal_check_start\n", CONTINUES], some(3, 9, true)),
            // The files are missing in an older kernel, or hidden.
            (["3\n", "9\n", "missing", "missing"], some(3, 9, false)),
            (["missing", "9\n", "", CONTINUES], None),
            (["3\n", "missing", "", CONTINUES], None),
            (["many\n", "9\n", "", CONTINUES], None),
            (["-1\n", "9\n", "", CONTINUES], None),
            (["", "9\n", "", CONTINUES], None),
        ];
        for ([count, last, function, options], expected) in rows {
            let dir = node(count, last, function, options);
            let found = errors(&dir.root(), "vda1");
            assert_eq!(
                found, expected,
                "{count:?} {last:?} {function:?} {options:?}"
            );
        }
        assert_eq!(count_all(&Scratch::new().root()), 0, "no ext4");
        let dir = node("3\n", "9\n", "", CONTINUES);
        dir.write("sys/fs/ext4/features/lazy_itable_init", "supported\n");
        dir.write("sys/fs/ext4/dm-1/errors_count", "4\n");
        assert_eq!(count_all(&dir.root()), 7);
    }

    #[test]
    fn a_device_is_named_as_in_sysfs() {
        let dir = Scratch::new();
        dir.mkdir("sys/devices/virtual/block/dm-3");
        dir.mkdir("sys/dev/block");
        symlink(
            "../../devices/virtual/block/dm-3",
            dir.path().join("sys/dev/block/253:3"),
        )
        .unwrap();
        let name = |text| device_name(&dir.root(), DeviceNumber::parse(text).unwrap());
        assert_eq!(name("253:3").as_deref(), Some("dm-3"));
        assert_eq!(name("0:40"), None, "such as Btrfs or NFS");
    }
}
