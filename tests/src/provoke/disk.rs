//! Performs direct I/O on the disk under a directory.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::mount::{MntFlags, MsFlags, mount, umount, umount2};
use nix::sys::stat::{major, minor};
use nix::time::{ClockId, clock_gettime};

/// Size of one request, and its alignment: a multiple of every disk's block size.
const BLOCK: usize = 4096;
/// Size of a request that keeps a disk busy for a while.
const LARGE: usize = 1 << 20;
/// Number of concurrent large requests.
const THREADS: u64 = 8;

/// A file or a disk that is written and read with direct I/O.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    /// Removed on drop.
    made: Option<PathBuf>,
}

impl DirectFile {
    /// Creates a file in `dir`. Fails if the file system has no direct I/O, such as tmpfs.
    pub fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("nodepulse-direct-io-{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(&path)?;
        Ok(Self {
            file,
            made: Some(path),
        })
    }

    /// Opens the disk behind `node`. Its contents are overwritten.
    pub fn device(node: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(node)?;
        Ok(Self { file, made: None })
    }

    /// Opens an existing file or disk, which is not removed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::device(path)
    }

    /// Creates a file of `mib` MiB at `path`, with data in all of its blocks, which is not removed.
    pub fn filled(path: &Path, mib: u64) -> io::Result<Self> {
        File::create(path)?;
        let file = Self::open(path)?;
        (0..mib).try_for_each(|n| file.write_large_at(n))?;
        file.flush()?;
        Ok(file)
    }

    /// Returns its number of small blocks.
    pub fn blocks(&self) -> io::Result<u64> {
        use std::io::Seek as _;
        let end = (&self.file).seek(io::SeekFrom::End(0))?;
        Ok(end / BLOCK as u64)
    }

    pub fn write_block(&self, n: u64) -> io::Result<()> {
        self.write_at(n * BLOCK as u64, BLOCK).map(drop)
    }

    pub fn write_large_at(&self, n: u64) -> io::Result<()> {
        self.write_at(n * LARGE as u64, LARGE).map(drop)
    }

    /// Makes the disk write out its cache.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Makes the disk zero `count` blocks one after the other, without sending it any data.
    pub fn punch(&self, count: u64) -> io::Result<()> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let length = i64::try_from(BLOCK).map_err(io::Error::other)?;
        for n in 0..count {
            let at = i64::try_from(n).map_err(io::Error::other)? * length;
            fallocate(&self.file, flags, at, length)?;
        }
        Ok(())
    }

    /// Writes `count` small blocks one after the other.
    pub fn write(&self, count: u64) -> io::Result<()> {
        (0..count).try_for_each(|n| self.write_at(n * BLOCK as u64, BLOCK).map(drop))
    }

    pub fn write_large(&self) -> io::Result<()> {
        self.write_at(0, LARGE).map(drop)
    }

    pub fn read(&self, n: u64) -> io::Result<()> {
        let mut buffer = vec![0_u8; 2 * BLOCK];
        let start = buffer.as_ptr().align_offset(BLOCK);
        let block = buffer
            .get_mut(start..start + BLOCK)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        self.file.read_exact_at(block, n * BLOCK as u64)
    }

    /// Writes large blocks from several threads at once, so that each waits for the others, and
    /// returns how long each took.
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
        let Some(path) = &self.made else { return };
        if let Err(err) = fs::remove_file(path) {
            eprintln!("removing {}: {err}", path.display());
        }
    }
}

/// A loop device over a file; both are removed on drop.
#[derive(Debug)]
pub struct Loop {
    /// Path below `/dev`.
    pub node: PathBuf,
    backing: tempfile::NamedTempFile,
}

impl Loop {
    /// Creates a loop device over a file of `bytes` bytes in `dir`.
    pub fn new(dir: &Path, bytes: u64) -> io::Result<Self> {
        let backing = tempfile::NamedTempFile::new_in(dir)?;
        backing.as_file().set_len(bytes)?;
        let file = backing.path().as_os_str();
        let node = tool("losetup", &["--find".as_ref(), "--show".as_ref(), file])?;
        Ok(Self {
            node: node.trim().into(),
            backing,
        })
    }

    /// Truncates the file, but not the device: the rest can no longer be read.
    pub fn cut_to(&self, bytes: u64) -> io::Result<()> {
        self.backing.as_file().set_len(bytes)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        print_error(tool("losetup", &["--detach".as_ref(), self.node.as_ref()]));
    }
}

/// A loop device that hangs on demand: its file is on a file system that can be frozen.
#[derive(Debug)]
pub struct FreezableFileSystem {
    /// The device that hangs. The first field, because it must be dropped first.
    pub disk: Loop,
    mount: Mount,
}

/// A file system on a separate loop device.
#[derive(Debug)]
struct Mount {
    at: tempfile::TempDir,
    _under: Loop,
}

impl FreezableFileSystem {
    /// Creates the files in `dir`.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let under = Loop::new(dir, 32 << 20)?;
        let node = under.node.as_os_str();
        let args = ["-q", "-F", "-t", "ext4"].map(OsStr::new);
        tool("mke2fs", &[&args[..], &[node]].concat())?;
        let at = tempfile::tempdir_in(dir)?;
        let options: Option<&str> = None;
        mount(
            Some(node),
            at.path(),
            Some("ext4"),
            MsFlags::empty(),
            options,
        )?;
        let mount = Mount { at, _under: under };
        let disk = Loop::new(mount.at.path(), 8 << 20)?;
        Ok(Self { disk, mount })
    }

    /// Freezes or releases requests.
    pub fn hang(&self, on: bool) -> io::Result<()> {
        let how = if on { "--freeze" } else { "--unfreeze" };
        tool(
            "fsfreeze",
            &[how.as_ref(), self.mount.at.path().as_os_str()],
        )
        .map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        print_error(umount(self.at.path()));
    }
}

/// A file system at an existing directory; unmounted on drop.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    /// Removed after the file system.
    under: Option<Loop>,
}

impl Mounted {
    /// Mounts an ext4 of `bytes` bytes, on a loop device over a file in `dir`.
    pub fn ext4(at: &Path, dir: &Path, bytes: u64) -> io::Result<Self> {
        let under = Loop::new(dir, bytes)?;
        let node = under.node.as_os_str();
        let args = ["-q", "-F", "-t", "ext4"].map(OsStr::new);
        tool("mke2fs", &[&args[..], &[node]].concat())?;
        let flags = MsFlags::empty();
        mount(Some(node), at, Some("ext4"), flags, None::<&str>)?;
        Ok(Self {
            at: at.to_owned(),
            under: Some(under),
        })
    }

    /// Mounts a tmpfs with these options, such as `size=16m,nr_inodes=200`.
    pub fn tmpfs(at: &Path, options: &str) -> io::Result<Self> {
        let flags = MsFlags::empty();
        mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options))?;
        Ok(Self {
            at: at.to_owned(),
            under: None,
        })
    }
}

impl Mounted {
    /// Sends its requests to the disk at once, instead of to the page cache below the loop device.
    pub fn bypass_cache(&self) -> io::Result<()> {
        self.under.iter().try_for_each(|under| {
            let args = ["--direct-io=on".as_ref(), under.node.as_os_str()];
            tool("losetup", &args).map(drop)
        })
    }

    /// Releases zeros below the loop device, such as a new journal: writing there needs space
    /// again.
    pub fn dig_holes(&self) -> io::Result<()> {
        self.under.iter().try_for_each(|under| {
            let args = ["--dig-holes".as_ref(), under.backing.path().as_os_str()];
            tool("fallocate", &args).map(drop)
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A sample may be reading it.
        print_error(umount2(&self.at, MntFlags::MNT_DETACH));
    }
}

/// Runs a program and returns its output.
fn tool(program: &str, args: &[&OsStr]) -> io::Result<String> {
    let done = Command::new(program).args(args).output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(io::Error::other(format!("{program} {args:?}: {why}")))
}

/// Prints an error, which a drop cannot return.
fn print_error<T, E: Display>(undone: Result<T, E>) {
    if let Err(err) = undone {
        eprintln!("not undone: {err}");
    }
}

/// Returns the whole disk that contains `path`: its name under `/sys/block`, major and minor
/// number. `None` if the file system is not on a disk, such as overlay, tmpfs or a mapped device.
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

/// Returns major and minor number of the disk behind `node`.
pub fn disk_of_node(node: &Path) -> io::Result<(u32, u32)> {
    let rdev = fs::metadata(node)?.rdev();
    let number = |number: u64| u32::try_from(number).map_err(io::Error::other);
    Ok((number(major(rdev))?, number(minor(rdev))?))
}
