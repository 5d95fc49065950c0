//! Blocks and inodes of a file system.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nodepulse_core::reading::{Reading, Signal};
use nodepulse_core::units::Bytes;

use super::{HostError, HostRoot, present, resolve, signed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Space available to users other than root: `f_frsize` × `f_bavail`.
    pub available: Bytes,
    /// `f_frsize` × `f_blocks`.
    pub capacity: Bytes,
    /// `None` if there is no fixed number of inodes, as in Btrfs.
    pub inodes: Option<Inodes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// `f_ffree`.
    pub free: u64,
    /// `f_files`.
    pub capacity: u64,
}

impl Usage {
    /// Returns readings of `space` and, if limited, of `inodes`.
    pub fn readings(self, [space, inodes]: [Signal; 2]) -> [Option<Reading>; 2] {
        let of_space = Reading {
            signal: space,
            available: signed(self.available.get()),
            capacity: self.capacity.get(),
        };
        let of_inodes = self.inodes.map(|count| Reading {
            signal: inodes,
            available: signed(count.free),
            capacity: count.capacity,
        });
        [Some(of_space), of_inodes]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filesystem {
    /// `st_dev`.
    device: u64,
    /// The first half of `f_fsid`.
    id: u64,
    pub usage: Usage,
    /// `true` if the file system, or only this mount of it, is read-only.
    pub read_only: bool,
}

impl Filesystem {
    /// Returns `true` if both have the same blocks. Subvolumes of one Btrfs differ only in `st_dev`
    /// and in the second half of `f_fsid`: `btrfs_statfs` in
    /// <https://github.com/torvalds/linux/blob/v6.12/fs/btrfs/super.c>.
    pub fn shares_space(&self, other: &Self) -> bool {
        let is_btrfs = self.usage.inodes.is_none() && other.usage.inodes.is_none() && self.id != 0;
        let is_same = self.id == other.id && self.usage.capacity == other.usage.capacity;
        self.device == other.device || is_btrfs && is_same
    }
}

/// Reads the file system of `dir`.
///
/// Keeps no descriptor, so that the file system can be unmounted. Blocks on a network file system
/// whose server does not answer.
pub fn read(dir: &Path) -> Result<Filesystem, HostError> {
    let failed = HostError::of_read(dir);
    let device = dir.metadata().map_err(failed)?.dev();
    let stat = statvfs(dir).map_err(|errno| failed(errno.into()))?;
    let usage = usage(
        stat.fragment_size(),
        [stat.blocks_available(), stat.blocks()],
        [stat.files_free(), stat.files()],
    );
    // The C libraries differ in the second half.
    let id = stat.filesystem_id() & u64::from(u32::MAX);
    Ok(Filesystem {
        device,
        id,
        usage,
        read_only: stat.flags().contains(FsFlags::ST_RDONLY),
    })
}

/// Returns the first of `directories` on the node whose file system does not share the space of
/// `other`, with that. Skips a missing directory; fails if one cannot be read.
pub fn separate(
    root: &HostRoot,
    directories: &[PathBuf],
    other: &Filesystem,
) -> Result<Option<(PathBuf, Filesystem)>, HostError> {
    for directory in directories {
        let found = resolve::resolve(root, directory).and_then(|path| read(&path));
        if let Some(found) = present(found)?
            && !found.shares_space(other)
        {
            return Ok(Some((directory.clone(), found)));
        }
    }
    Ok(None)
}

/// Computes usage from available (or free) and total numbers.
fn usage(fragment: u64, blocks: [u64; 2], files: [u64; 2]) -> Usage {
    let [available, capacity] = blocks.map(|n| Bytes::from_bytes(n.saturating_mul(fragment)));
    let [free, all] = files;
    Usage {
        available,
        capacity,
        inodes: (all != 0).then_some(Inodes {
            free,
            capacity: all,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn a_reading_of_inodes_is_left_out_if_they_are_not_limited() {
        use Signal::{ImagefsAvailable, NodefsAvailable, NodefsInodesFree};

        let with = usage(4096, [10, 100], [7, 70]);
        let without = usage(4096, [10, 100], [0, 0]);
        let huge = usage(4096, [u64::MAX, u64::MAX], [0, 0]);
        let full = usage(1024, [0, 100], [0, 70]);
        #[rustfmt::skip]
        let rows = [
            (with, Signal::NODEFS, vec![(NodefsAvailable, 40960, 409_600), (NodefsInodesFree, 7, 70)]),
            (without, Signal::IMAGEFS, vec![(ImagefsAvailable, 40960, 409_600)]),
            (huge, Signal::IMAGEFS, vec![(ImagefsAvailable, i64::MAX, u64::MAX)]),
            (full, Signal::NODEFS, vec![(NodefsAvailable, 0, 102_400), (NodefsInodesFree, 0, 70)]),
        ];
        for (usage, signals, expected) in rows {
            let got: Vec<_> = usage
                .readings(signals)
                .into_iter()
                .flatten()
                .map(|r| (r.signal, r.available, r.capacity))
                .collect();
            assert_eq!(got, expected, "{usage:?}");
        }
    }

    #[test]
    fn subvolumes_share_the_space_of_their_file_system() {
        let with_inodes = usage(4096, [10, 100], [7, 70]);
        let without = usage(4096, [10, 100], [0, 0]);
        let fuller = usage(4096, [9, 100], [0, 0]);
        let larger = usage(4096, [10, 101], [0, 0]);
        //  first and second device, id and usage; whether they share the space
        #[rustfmt::skip]
        let rows = [
            ((1, 5, with_inodes), (1, 5, with_inodes), true, "one"),
            ((1, 0, without), (1, 0, fuller), true, "one without an id"),
            ((1, 5, without), (2, 5, fuller), true, "two subvolumes"),
            ((1, 5, without), (2, 6, without), false, "another id"),
            ((1, 5, without), (2, 5, larger), false, "another size"),
            ((1, 0, without), (2, 0, without), false, "no id"),
            ((1, 5, with_inodes), (2, 5, with_inodes), false, "a copy of a disk"),
        ];
        for (a, b, expected, name) in rows {
            let filesystem = |(device, id, usage)| Filesystem {
                device,
                id,
                usage,
                read_only: false,
            };
            let (a, b) = (filesystem(a), filesystem(b));
            assert_eq!(a.shares_space(&b), expected, "{name}");
            assert_eq!(b.shares_space(&a), expected, "{name}, reversed");
        }
    }

    #[test]
    fn the_first_directory_on_another_file_system_is_separate() {
        let dir = Scratch::new();
        dir.mkdir("a");
        dir.mkdir("b");
        let one = read(dir.path()).unwrap();
        let other = Filesystem {
            device: one.device.wrapping_add(1),
            id: 0,
            ..one
        };
        let of = |names: &[&str], other| {
            let directories: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            let found = separate(&dir.root(), &directories, other).unwrap();
            found.map(|(directory, _)| directory)
        };
        assert_eq!(of(&["/a", "/b"], &one), None, "counted once");
        assert_eq!(of(&["/none", "/b", "/a"], &other), Some("/b".into()));
        assert_eq!(of(&["/none"], &other), None);
        let link = dir.path().join("loop");
        std::os::unix::fs::symlink("loop", &link).unwrap();
        let err = separate(&dir.root(), &["/loop".into()], &other).unwrap_err();
        assert!(
            !err.is_absent() && err.to_string().contains("loop"),
            "{err}"
        );
    }

    #[test]
    fn usage_of_an_existing_and_a_missing_directory() {
        let dir = Scratch::new();
        let usage = read(dir.path()).unwrap().usage;
        assert!(Bytes::default() < usage.capacity && usage.available <= usage.capacity);
        let err = read(&dir.path().join("none")).unwrap_err();
        assert!(err.is_absent() && err.to_string().contains("none"), "{err}");
    }
}
