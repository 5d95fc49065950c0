//! Blocks and inodes of a file system.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{HostError, signed};
use crate::reading::{Reading, Signal};
use crate::units::Bytes;

/// Usage of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Available to users other than root: `f_frsize` × `f_bavail`.
    pub available: Bytes,
    /// `f_frsize` × `f_blocks`.
    pub capacity: Bytes,
    /// `None`: no fixed number of inodes, as in btrfs.
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

impl Usage {
    /// Readings of nodefs: space and, if limited, inodes.
    pub fn nodefs_readings(self) -> impl Iterator<Item = Reading> {
        let of_inodes = self.inodes.map(|i| Reading {
            signal: Signal::NodefsInodesFree,
            available: signed(i.free),
            capacity: i.capacity,
        });
        let of_space = Reading {
            signal: Signal::NodefsAvailable,
            available: signed(self.available.get()),
            capacity: self.capacity.get(),
        };
        [Some(of_space), of_inodes].into_iter().flatten()
    }
}

/// Reads the usage of the file system of `dir`. Hot: does not allocate.
///
/// Keeps no descriptor, so that the file system can be unmounted. Blocks on a network file system
/// whose server does not answer.
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

/// From available (or free) and total numbers.
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
    fn a_file_system_with_unlimited_inodes_has_no_reading_of_them() {
        use Signal::{NodefsAvailable, NodefsInodesFree};

        let with = usage(4096, [10, 100], [7, 70]);
        let without = usage(4096, [10, 100], [0, 0]);
        let huge = usage(4096, [u64::MAX, u64::MAX], [0, 0]);
        let full = usage(1024, [0, 100], [0, 70]);
        let rows = [
            (
                with,
                vec![(NodefsAvailable, 40960, 409_600), (NodefsInodesFree, 7, 70)],
            ),
            (without, vec![(NodefsAvailable, 40960, 409_600)]),
            (huge, vec![(NodefsAvailable, i64::MAX, u64::MAX)]),
            (
                full,
                vec![(NodefsAvailable, 0, 102_400), (NodefsInodesFree, 0, 70)],
            ),
        ];
        for (usage, expected) in rows {
            let got: Vec<_> = usage
                .nodefs_readings()
                .map(|r| (r.signal, r.available, r.capacity))
                .collect();
            assert_eq!(got, expected, "{usage:?}");
        }
    }

    #[test]
    fn usage_of_an_existing_and_a_missing_directory() {
        let dir = Scratch::new();
        let usage = read(dir.path()).unwrap();
        assert!(Bytes::default() < usage.capacity && usage.available <= usage.capacity);
        let err = read(&dir.path().join("none")).unwrap_err();
        assert!(err.is_absent() && err.to_string().contains("none"), "{err}");
    }
}
