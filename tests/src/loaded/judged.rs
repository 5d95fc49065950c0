//! Checks which requests are judged, and when a window is slow.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_common::DiskEntry;
use agent_common::settings::{CLASS_JUDGED, CLASS_WRITE, REQUEST_CLASSES, WINDOW_EXTENSION};
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use nodepulse_core::units::DeviceNumber;
use nodepulse_io::clock::Clock;
use nodepulse_linux::host::{HostRoot, block};

use super::Loaded;
use super::disks::{Disk, completed, window_of};
use crate::eventually;
use crate::provoke::disk::DirectFile;
use crate::provoke::ioctl::nvme_read;

const HOUR_NS: u64 = 3_600_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// An operation of a program on a disk.
struct Operation {
    name: &'static str,
    run: fn(Disk<'_>) -> io::Result<()>,
    /// The class of the requests that it sends.
    class: usize,
    /// True if the kernel splits its requests: the last part of each can be small, and of another
    /// class.
    is_large: bool,
}

const READ: usize = 0;
const WRITE: usize = CLASS_WRITE;

const OPERATIONS: [Operation; 9] = [
    Operation {
        name: "direct reads",
        run: |disk| {
            let file = DirectFile::device(disk.node)?;
            (0..4).try_for_each(|n| file.read(n))
        },
        class: READ | CLASS_JUDGED,
        is_large: false,
    },
    Operation {
        name: "a random read of 4 KiB through the page cache",
        run: |disk| {
            let file = cold(disk)?;
            file.read_exact_at(&mut [0; 4096], 1 << 20)
        },
        class: READ | CLASS_JUDGED,
        is_large: false,
    },
    Operation {
        name: "reading ahead",
        run: |disk| {
            let file = cold(disk)?;
            advise(&file, PosixFadviseAdvice::POSIX_FADV_WILLNEED)?;
            // Returns when the requests have completed.
            file.read_exact_at(&mut [0; LARGE], 0)
        },
        class: READ,
        is_large: true,
    },
    Operation {
        name: "direct writes of 4 KiB",
        run: |disk| DirectFile::device(disk.node)?.write(4),
        class: WRITE | CLASS_JUDGED,
        is_large: false,
    },
    Operation {
        name: "a direct write of 1 MiB",
        run: |disk| DirectFile::device(disk.node)?.write_large(),
        class: WRITE,
        is_large: true,
    },
    Operation {
        name: "a write of 4 KiB with O_DSYNC",
        run: |disk| open(disk, OFlag::O_DSYNC)?.write_all_at(&[3; 4096], 0),
        class: WRITE | CLASS_JUDGED,
        is_large: false,
    },
    Operation {
        name: "fsync after a write of 16 KiB",
        run: |disk| {
            let file = open(disk, OFlag::empty())?;
            file.write_all_at(&[4; 4 * 4096], 0)?;
            file.sync_data()
        },
        class: WRITE | CLASS_JUDGED,
        is_large: false,
    },
    Operation {
        name: "fsync after a write of 1 MiB",
        run: |disk| {
            let file = open(disk, OFlag::empty())?;
            file.write_all_at(&[5; LARGE], 0)?;
            file.sync_data()
        },
        class: WRITE,
        is_large: true,
    },
    Operation {
        name: "writing back in the background",
        run: |disk| {
            let file = open(disk, OFlag::empty())?;
            file.write_all_at(&[6; 4096], 0)?;
            advise(&file, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            // Waits for the write.
            file.sync_data()
        },
        class: WRITE,
        is_large: false,
    },
];

const LARGE: usize = 1 << 20;

/// Checks that each operation sends requests of one class only.
pub fn classes(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    let watch = DiskEntry::new(HOUR_NS, HOUR_NS);
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for operation in OPERATIONS {
        loaded.kernel.watch_disk(disk.device, watch)?;
        (operation.run)(disk)?;
        let entry = loaded.kernel.disk(disk.device);
        let completed = entry.map_or([0; REQUEST_CLASSES], |entry| entry.completed);
        let of_class = completed.get(operation.class).copied().unwrap_or(0);
        let others = completed.iter().sum::<u64>() - of_class;
        let what = format!("{}: {completed:?}", operation.name);
        let most = if operation.is_large { of_class } else { 0 };
        if of_class == 0 || others > most {
            wrong.push(what.clone());
        }
        found.push(what);
    }
    assert_eq!(wrong, [""; 0]);
    Ok(found.join("; "))
}

fn open(disk: Disk<'_>, flags: OFlag) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits());
    options.open(disk.node)
}

/// Opens the disk through the page cache, and evicts its pages.
fn cold(disk: Disk<'_>) -> io::Result<File> {
    let file = File::open(disk.node)?;
    advise(&file, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file)
}

fn advise(file: &File, advice: PosixFadviseAdvice) -> io::Result<()> {
    Ok(posix_fadvise(file, 0, LARGE as i64 * 2, advice)?)
}

/// Checks that a disk that completes less than one request in a window is slow as well, and that
/// each window has one record.
pub async fn few(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    const WRITES: usize = 20;
    let file = DirectFile::device(disk.node)?;
    // Each request takes longer than a window and its extension.
    loaded
        .kernel
        .watch_disk(disk.device, DiskEntry::new(1, 1))?;
    file.write(WRITES as u64)?;
    let seen = loaded.all_within(Duration::from_millis(200)).await;
    let windows = seen
        .iter()
        .filter_map(|event| window_of(event, disk.device));
    let windows: Vec<_> = windows.collect();
    // The last window is still open.
    assert_eq!(windows.len(), WRITES - 1, "{windows:?}");
    for (_, window) in &windows {
        assert_eq!((window.judged, window.slow), (1, 1), "{window:?}");
        let limit = Duration::from_nanos(WINDOW_EXTENSION);
        assert!(window.length <= limit, "{window:?}");
    }
    Ok(format!("{} windows of one request", windows.len()))
}

/// Checks that a window that is followed by silence is dated by its last request, not by the one
/// after it.
pub async fn silence(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    let file = DirectFile::device(disk.node)?;
    let watch = DiskEntry::new(1, 20 * MILLISECOND_NS);
    loaded.kernel.watch_disk(disk.device, watch)?;
    file.write(10)?;
    let written = Clock::kernel().now().boot;
    let silence = Duration::from_millis(300);
    loaded.all_within(silence).await;
    file.write(1)?;
    let window = loaded.next("slow window", |event| window_of(event, disk.device));
    let (end, window) = window.await;
    assert!(
        end <= written,
        "{end:?}: {window:?}, written at {written:?}"
    );
    let ago = Clock::kernel().now().boot.since(end);
    assert!(ago >= silence, "{ago:?}");
    Ok(format!("reported after {} ms", ago.as_millis()))
}

/// Checks that commands that a program sends directly to a disk, in the queue of its reads and
/// writes, are neither, though they transfer data.
pub async fn passthrough(
    loaded: &mut Loaded,
    file: &DirectFile,
    (name, device): (&str, DeviceNumber),
    commands: Passthrough,
) -> io::Result<String> {
    const SENT: u64 = 500;
    let counted = |loaded: &Loaded| {
        let entry = loaded.kernel.disk(device);
        entry.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let reads = || {
        let found = block::counters(&HostRoot::new("/"), name).map_err(io::Error::other)?;
        let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        found.map(|found| found.reads)
    };
    let before = reads()?;
    let watch = DiskEntry::new(HOUR_NS, HOUR_NS);
    loaded.kernel.watch_disk(device, watch)?;
    // The kernel may still count the last use before the disk was watched.
    eventually("first request", || {
        file.write(1).expect("the disk takes it");
        match counted(loaded) {
            Ok(entry) if completed(&entry) > 0 => Ok(()),
            none_yet => Err(none_yet.map(|entry| completed(&entry))),
        }
    })
    .await;
    (0..SENT).try_for_each(|_| commands.send(name))?;
    let entry = counted(loaded)?;
    let seen = entry.completed[READ] + entry.completed[READ | CLASS_JUDGED];
    // Other programs may read from the disk; the kernel does not count commands.
    let others = reads()? - before;
    assert!(seen <= others, "{seen} reads, {others} by the kernel");
    assert_eq!(entry.errors, 0);
    Ok(format!(
        "{SENT} commands sent, {seen} reads counted, {others} by the kernel"
    ))
}

/// A command that is passed through to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passthrough {
    /// Reads the file `serial` of a virtio disk, for which the kernel sends a command each time.
    VirtioSerial,
    /// A read by `NVME_IOCTL_IO_CMD`.
    NvmeRead,
}

impl Passthrough {
    /// Returns the command that the disk supports.
    pub fn of(name: &str) -> Option<Self> {
        if name.starts_with("nvme") {
            return Some(Self::NvmeRead);
        }
        Self::serial(name).is_file().then_some(Self::VirtioSerial)
    }

    fn serial(name: &str) -> PathBuf {
        Path::new("/sys/block").join(name).join("serial")
    }

    fn send(self, name: &str) -> io::Result<()> {
        match self {
            Self::VirtioSerial => fs::read(Self::serial(name)).map(drop),
            Self::NvmeRead => {
                let disk = File::open(Path::new("/dev").join(name))?;
                match nvme_read(&disk, 0)? {
                    0 => Ok(()),
                    status => Err(io::Error::other(format!("status {status:#x}"))),
                }
            }
        }
    }
}
