//! Consumes resources of this machine until they cross a threshold close to their present value.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::fcntl::{FallocateFlags, fallocate};
use nodepulse_core::clock::BootNanos;
use nodepulse_core::units::Bytes;
use nodepulse_io::clock::Clock;
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::Layout;
use nodepulse_linux::host::cgroup::memory::RootMemory;

use crate::alarms::unwell::{meminfo, most_tasks};
use crate::provoke::disk::Mounted;
use crate::provoke::tasks;

const MIB: i64 = 1 << 20;

/// Number of tasks that other programs may start without crossing the threshold.
const SPARE_TASKS: u32 = 300;
/// Number of tasks beyond the threshold, so that others that end do not cross it back.
const MORE_TASKS: u32 = 150;
/// Number of tasks that are started between two samples.
const STEP_TASKS: u32 = 10;

/// Bytes that other programs may use without crossing the threshold.
const SPARE_MEMORY: i64 = 6144 * MIB;
/// Bytes that are used beyond the threshold.
const MORE_MEMORY: i64 = 256 * MIB;
/// Bytes that are written between two samples.
const STEP_MEMORY: usize = 4 << 20;
/// Bytes of one allocation: large enough that the allocator returns it to the kernel at once.
const BLOCK: usize = 64 << 20;
/// Maximum number of blocks, since memory that other programs free meanwhile is used, too.
const MOST_BLOCKS: usize = 256;

/// Size of the file system.
const SPACE: u64 = 256 << 20;
/// Threshold of available space.
const LOW_SPACE: i64 = 100 * MIB;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Number of tasks; consumed by threads that wait.
    Tasks,
    /// Memory; consumed by pages that are written.
    Memory,
    /// Space in the file system of the kubelet's directory; consumed by a file that is allocated.
    Space,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Tasks, Self::Memory, Self::Space];

    /// Returns the type of its condition.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::Tasks => "PIDsLow",
            Self::Memory => "MemoryLow",
            Self::Space => "DiskSpaceLow",
        }
    }

    /// Returns the signal's name in `evictionHard`.
    pub const fn signal(self) -> &'static str {
        match self {
            Self::Tasks => "pid.available",
            Self::Memory => "memory.available",
            Self::Space => "nodefs.available",
        }
    }
}

/// A resource, and its threshold.
pub enum Resource {
    Tasks {
        /// Threshold: more tasks exceed it.
        most: u32,
        /// Number of tasks that the kernel allows.
        capacity: u32,
    },
    Memory {
        /// Threshold in bytes.
        least: i64,
        available: RootMemory,
    },
    Space {
        _file_system: Mounted,
        at: PathBuf,
    },
}

/// Releases what is consumed on drop.
pub enum Used {
    /// Threads, which end when these are dropped.
    Tasks(Vec<Sender<()>>),
    Memory(Pages),
    Space(PathBuf),
}

/// Memory that is written step by step.
#[derive(Default)]
pub struct Pages {
    blocks: Vec<Vec<u8>>,
    /// Number of written bytes of the last block.
    written: usize,
}

impl Pages {
    fn write(&mut self) -> io::Result<()> {
        if self.blocks.len() > MOST_BLOCKS {
            return Err(io::Error::other("the memory does not become low"));
        }
        if self.blocks.is_empty() || self.written == BLOCK {
            // The kernel allocates its pages when they are written.
            self.blocks.push(vec![0; BLOCK]);
            self.written = 0;
        }
        if let Some(block) = self.blocks.last_mut() {
            let next = block.iter_mut().skip(self.written).take(STEP_MEMORY);
            next.step_by(4096).for_each(|byte| *byte = 1);
        }
        self.written += STEP_MEMORY;
        Ok(())
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Self::Space(file) = self
            && let Err(err) = fs::remove_file(&file)
        {
            eprintln!("{}: {err}", file.display());
        }
    }
}

impl Resource {
    /// Chooses a threshold close to the present use. The file system is mounted below `dir`.
    pub fn new(kind: Kind, dir: &Path) -> io::Result<Self> {
        Ok(match kind {
            Kind::Tasks => Self::Tasks {
                most: tasks()? + SPARE_TASKS,
                capacity: most_tasks()?,
            },
            Kind::Memory => {
                let available = memory()?;
                let now = read(&available)?;
                Self::Memory {
                    least: (now - SPARE_MEMORY) / MIB * MIB,
                    available,
                }
            }
            Kind::Space => {
                let at = nodefs(dir);
                fs::create_dir(&at)?;
                Self::Space {
                    _file_system: Mounted::ext4(&at, dir, SPACE)?,
                    at,
                }
            }
        })
    }

    /// Formats its threshold for the configuration.
    pub fn threshold(&self) -> String {
        match self {
            Self::Tasks { most, capacity } => (capacity - most).to_string(),
            Self::Memory { least, .. } => format!("{}Mi", least / MIB),
            Self::Space { .. } => format!("{}Mi", LOW_SPACE / MIB),
        }
    }

    /// Consumes the resource beyond the threshold. Returns what is consumed, and the time just
    /// before the crossing.
    pub fn cross(&self) -> io::Result<(Used, BootNanos)> {
        match self {
            Self::Tasks { most, .. } => threads(*most),
            Self::Memory { least, available } => pages(*least, available),
            Self::Space { at, .. } => {
                let path = at.join("full");
                let file = File::create(&path)?;
                let free = nix::sys::statvfs::statvfs(at.as_path())?;
                let free = free.blocks_available() * free.fragment_size();
                let length = i64::try_from(free).map_err(io::Error::other)? - LOW_SPACE / 2;
                let before = now();
                fallocate(&file, FallocateFlags::empty(), 0, length)?;
                Ok((Used::Space(path), before))
            }
        }
    }
}

/// Returns the directory on which the file system is mounted.
pub fn nodefs(dir: &Path) -> PathBuf {
    dir.join("nodefs")
}

fn threads(most: u32) -> io::Result<(Used, BootNanos)> {
    let mut ends = Vec::new();
    let mut before = now();
    while tasks()? <= most {
        before = now();
        start(&mut ends, STEP_TASKS)?;
    }
    start(&mut ends, MORE_TASKS)?;
    Ok((Used::Tasks(ends), before))
}

/// Starts threads that wait until the other end of their channel is dropped.
fn start(ends: &mut Vec<Sender<()>>, count: u32) -> io::Result<()> {
    for _ in 0..count {
        let (end, ended): (_, Receiver<()>) = channel();
        // An error means that the channel has ended.
        let wait = move || {
            let _ended = ended.recv();
        };
        thread::Builder::new().stack_size(32 << 10).spawn(wait)?;
        ends.push(end);
    }
    Ok(())
}

fn pages(least: i64, available: &RootMemory) -> io::Result<(Used, BootNanos)> {
    let mut pages = Pages::default();
    let mut before = now();
    while read(available)? >= least {
        before = now();
        pages.write()?;
    }
    while read(available)? >= least - MORE_MEMORY {
        pages.write()?;
    }
    Ok((Used::Memory(pages), before))
}

/// Returns the memory that the node has available by the kubelet's formula, in bytes:
/// `MemAvailable` counts cached pages that are in use, and the formula does not.
pub(crate) fn available_memory() -> io::Result<u64> {
    read(&memory()?)?.try_into().map_err(io::Error::other)
}

fn memory() -> io::Result<RootMemory> {
    let layout = Layout::detect(&HostRoot::new("/")).map_err(io::Error::other)?;
    let total = meminfo("MemTotal:")?;
    Ok(RootMemory::new(&layout.memory, Bytes::from_bytes(total)))
}

fn read(available: &RootMemory) -> io::Result<i64> {
    let reading = available.read(&mut Vec::new());
    reading
        .map(|reading| reading.available)
        .map_err(io::Error::other)
}

pub(super) fn now() -> BootNanos {
    Clock::kernel().now().boot
}
