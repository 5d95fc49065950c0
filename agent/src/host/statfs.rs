//! Blocks and inodes of a file system.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{HostError, signed};
use crate::reading::{Reading, Signal};
use crate::units::Bytes;

/// How full a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// What a user other than root may still write: `f_frsize` × `f_bavail`.
    pub available: Bytes,
    /// `f_frsize` × `f_blocks`.
    pub capacity: Bytes,
    /// `None`: the file system has no fixed number of inodes, as btrfs.
    pub inodes: Option<Inodes>,
}

/// The inodes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// `f_ffree`.
    pub free: u64,
    /// `f_files`.
    pub capacity: u64,
}

/// What a file system holds, which decides the signals' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesystemRole {
    /// The root directory of the node's agent: `nodefs`.
    Nodefs,
    /// Container images: `imagefs`.
    Imagefs,
}

impl Usage {
    /// Space, then inodes where there are any.
    pub fn readings(self, holds: FilesystemRole) -> impl Iterator<Item = Reading> {
        let (space, inodes) = match holds {
            FilesystemRole::Nodefs => (Signal::NodefsAvailable, Signal::NodefsInodesFree),
            FilesystemRole::Imagefs => (Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
        };
        let of_inodes = self.inodes.map(|i| Reading {
            signal: inodes,
            available: signed(i.free),
            capacity: i.capacity,
        });
        let of_space = Reading {
            signal: space,
            available: signed(self.available.get()),
            capacity: self.capacity.get(),
        };
        [Some(of_space), of_inodes].into_iter().flatten()
    }
}

/// Looks at the file system that `dir` is on. Hot: nothing is allocated.
///
/// No descriptor is kept, so nobody's unmount is held up. Blocks on a network file system whose
/// server is silent.
pub fn read(dir: &Path) -> Result<Usage, HostError> {
    let stat = statvfs(dir).map_err(|errno| HostError::Read {
        path: dir.to_owned(),
        source: errno.into(),
    })?;
    Ok(usage(
        stat.fragment_size(),
        [stat.blocks_available(), stat.blocks()],
        [stat.files_free(), stat.files()],
    ))
}

/// From available or free, and all.
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
    fn space_and_inodes_become_readings_of_what_the_file_system_holds() {
        use Signal::{ImagefsAvailable, NodefsAvailable, NodefsInodesFree};

        let with = usage(4096, [10, 100], [7, 70]);
        let without = usage(4096, [10, 100], [0, 0]);
        let huge = usage(4096, [u64::MAX, u64::MAX], [0, 0]);
        let full = usage(1024, [0, 100], [0, 70]);
        let rows = [
            (
                with,
                FilesystemRole::Nodefs,
                vec![(NodefsAvailable, 40960, 409_600), (NodefsInodesFree, 7, 70)],
            ),
            (
                without,
                FilesystemRole::Imagefs,
                vec![(ImagefsAvailable, 40960, 409_600)],
            ),
            (
                huge,
                FilesystemRole::Imagefs,
                vec![(ImagefsAvailable, i64::MAX, u64::MAX)],
            ),
            (
                full,
                FilesystemRole::Nodefs,
                vec![(NodefsAvailable, 0, 102_400), (NodefsInodesFree, 0, 70)],
            ),
        ];
        for (usage, holds, expected) in rows {
            let got: Vec<_> = usage
                .readings(holds)
                .map(|r| (r.signal, r.available, r.capacity))
                .collect();
            assert_eq!(got, expected, "{usage:?}");
        }
    }

    #[test]
    fn a_real_directory_has_space_and_a_missing_one_is_named() {
        let dir = Scratch::new();
        let usage = read(dir.path()).unwrap();
        assert!(Bytes::default() < usage.capacity && usage.available <= usage.capacity);
        let err = read(&dir.path().join("none")).unwrap_err();
        assert!(err.is_absent() && err.to_string().contains("none"), "{err}");
    }
}
