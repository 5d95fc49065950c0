//! Direct I/O on the disk under a directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};
use nix::time::{ClockId, clock_gettime};

/// Size of one request, and its alignment: a multiple of every disk's block size.
const BLOCK: usize = 4096;
/// Size of a request that keeps a disk busy for a while.
const LARGE: usize = 1 << 20;
/// How many of them at once.
const THREADS: u64 = 8;

/// A file of ours that is written past the page cache, and removed on drop.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    path: PathBuf,
}

impl DirectFile {
    /// Makes a file in `dir`.
    ///
    /// # Errors
    ///
    /// When the file system has no direct I/O (tmpfs has none), or as it says.
    pub fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("nodepulse-direct-io-{}", std::process::id()));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(&path)?;
        Ok(Self { file, path })
    }

    /// Writes `count` small blocks one after the other.
    ///
    /// # Errors
    ///
    /// As the disk says.
    pub fn write(&self, count: u64) -> io::Result<()> {
        (0..count).try_for_each(|n| self.write_at(n * BLOCK as u64, BLOCK).map(drop))
    }

    /// Writes large blocks from several threads at once, so that each waits for the others, and
    /// gives how long each took.
    ///
    /// # Errors
    ///
    /// As the disk says.
    pub fn write_together(&self) -> io::Result<Vec<Duration>> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|n| scope.spawn(move || self.write_at(n * LARGE as u64, LARGE)))
                .collect();
            let took = |thread: std::thread::ScopedJoinHandle<'_, io::Result<Duration>>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
            };
            threads.into_iter().map(took).collect()
        })
    }

    fn write_at(&self, offset: u64, size: usize) -> io::Result<Duration> {
        let buffer = vec![0x5a_u8; size + BLOCK];
        let start = buffer.as_ptr().align_offset(BLOCK);
        let block = buffer
            .get(start..start + size)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let before = monotonic()?;
        self.file.write_all_at(block, offset)?;
        Ok(monotonic()? - before)
    }
}

fn monotonic() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if let Err(err) = fs::remove_file(&self.path) {
            eprintln!("removing {}: {err}", self.path.display());
        }
    }
}

/// The whole disk that holds `path`: its name under `/sys/block`, major and minor number. `None`
/// where the file system is not on a disk of its own, such as overlay, tmpfs or a mapped device.
pub fn disk_of(path: &Path) -> Option<(String, u32, u32)> {
    let dev = fs::metadata(path).ok()?.dev();
    let node = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(dev), minor(dev))).ok()?;
    let whole = if node.join("partition").exists() {
        node.parent()?.to_owned()
    } else {
        node
    };
    let numbers = fs::read_to_string(whole.join("dev")).ok()?;
    let (major, minor) = numbers.trim().split_once(':')?;
    let name = whole.file_name()?.to_str()?.to_owned();
    Some((name, major.parse().ok()?, minor.parse().ok()?))
}
