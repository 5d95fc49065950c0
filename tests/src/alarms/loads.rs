//! Implements the loads, which children run: `provoke load CGROUP NAME ARGUMENTS…`.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use nodepulse_io::clock::Clock;

use crate::provoke::disk::DirectFile;

const MIB: usize = 1 << 20;
/// Size of a page of a database.
const PAGE: usize = 8 << 10;
/// Size of each unpacked file.
const SMALL_FILE: usize = 4 << 10;
const FILES_IN_DIRECTORY: u32 = 500;

pub fn run(name: &str, arguments: &[&str]) -> io::Result<()> {
    match (name, arguments) {
        ("write", [path, mib, how]) => write(Path::new(path), number(mib)?, *how == "fsync"),
        ("read", [path]) => read(Path::new(path)),
        ("flush", [path, threads, seconds]) => {
            flush(Path::new(path), number(threads)?, time(seconds)?)
        }
        ("mixed", [path, depth, seconds]) => mixed(Path::new(path), number(depth)?, time(seconds)?),
        ("database", [path, seconds]) => database(Path::new(path), time(seconds)?),
        ("saturate", [path, writers, seconds]) => {
            saturate(Path::new(path), number(writers)?, time(seconds)?)
        }
        ("thrash", [path, threads, seconds]) => {
            thrash(&File::open(path)?, number(threads)?, time(seconds)?)
        }
        ("thrash-unprivileged", [path, threads, seconds]) => {
            let file = File::open(path)?;
            drop_privileges()?;
            thrash(&file, number(threads)?, time(seconds)?)
        }
        ("allocate", [mib]) => allocate(number(mib)?),
        ("unpack", [dir, files]) => unpack(Path::new(dir), number(files)?),
        ("build", [rate, seconds]) => build(number(rate)?, time(seconds)?),
        _ => Err(io::Error::other(format!("no load {name:?} {arguments:?}"))),
    }
}

/// Writes like `dd bs=1M`, with `conv=fsync` if `sync`.
fn write(path: &Path, mib: usize, sync: bool) -> io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0x5a; MIB];
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    if sync { file.sync_all() } else { Ok(()) }
}

/// Reads through the page cache.
fn read(path: &Path) -> io::Result<()> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; MIB]);
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Calls fsync on an unchanged file in several threads, and prints the number of calls.
fn flush(path: &Path, threads: u64, time: Duration) -> io::Result<()> {
    let (file, flushes) = (File::open(path)?, AtomicU64::new(0));
    together(threads, |_| {
        until(time, || {
            flushes.fetch_add(1, Ordering::Relaxed);
            file.sync_all()
        })
    })?;
    println!("{} flushes", flushes.into_inner());
    Ok(())
}

/// Reads and writes random blocks of 4 KiB with direct I/O, seven reads to three writes.
fn mixed(path: &Path, depth: u64, time: Duration) -> io::Result<()> {
    let file = &DirectFile::open(path)?;
    let blocks = file.blocks()?;
    together(depth, |thread| {
        let mut random = Random(thread + 1);
        until(time, || {
            let block = random.below(blocks);
            if random.below(10) < 7 {
                file.read(block)
            } else {
                file.write_block(block)
            }
        })
    })
}

/// Commits: appends a page to a log and syncs it, and at every eighth commit reads a page of the
/// table with direct I/O.
fn database(table: &Path, time: Duration) -> io::Result<()> {
    let log = File::create(table.with_extension("log"))?;
    let table = DirectFile::open(table)?;
    let blocks = table.blocks()?;
    let (mut random, mut commits) = (Random(1), 0);
    until(time, || {
        log.write_all_at(&[0x5a; PAGE], commits % 4096 * PAGE as u64)?;
        log.sync_data()?;
        commits += 1;
        if commits % 8 == 0 {
            table.read(random.below(blocks))?;
        }
        Ok(())
    })
}

/// Writes large blocks with direct I/O, as many as the disk can complete.
fn saturate(path: &Path, writers: u64, time: Duration) -> io::Result<()> {
    let file = &DirectFile::open(path)?;
    let large = file.blocks()? / (MIB as u64 / 4096);
    together(writers, |thread| {
        let mut random = Random(thread + 1);
        until(time, || file.write_large_at(random.below(large)))
    })
}

/// Reads random pages through the page cache. If the cache may be a little smaller than the file,
/// pages that are in use are evicted, and read again.
fn thrash(file: &File, threads: u64, time: Duration) -> io::Result<()> {
    const PAGE: u64 = 4 << 10;
    let pages = file.metadata()?.len() / PAGE;
    // Pages that are already cached are charged to another cgroup.
    for advice in [
        PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        PosixFadviseAdvice::POSIX_FADV_RANDOM,
    ] {
        posix_fadvise(file, 0, 0, advice)?;
    }
    together(threads, |thread| {
        let (mut random, mut page) = (Random(thread + 1), [0; PAGE as usize]);
        until(time, || {
            file.read_exact_at(&mut page, random.below(pages) * PAGE)
        })
    })
}

/// Switches to an unprivileged user.
fn drop_privileges() -> io::Result<()> {
    const UNPRIVILEGED: u32 = 65_534;
    setgroups(&[])?;
    setgid(Gid::from_raw(UNPRIVILEGED))?;
    setuid(Uid::from_raw(UNPRIVILEGED))?;
    Ok(())
}

/// Fills memory step by step, and keeps it until the process is killed.
fn allocate(mib: usize) -> io::Result<()> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for step in 0..mib {
        // Different contents, so that no pages are merged.
        all.push(vec![u8::try_from(step % 251).unwrap_or(1) | 1; MIB]);
    }
    loop {
        thread::park();
    }
}

/// Creates files with their modes, like `tar x`.
fn unpack(dir: &Path, files: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let contents = [0x5a; SMALL_FILE];
    for n in 0..files {
        let at = dir.join(format!("d{}", n / FILES_IN_DIRECTORY));
        if n % FILES_IN_DIRECTORY == 0 {
            fs::create_dir_all(&at)?;
        }
        let mut file = File::create(at.join(format!("file-{n}")))?;
        file.write_all(&contents)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000))?;
    }
    Ok(())
}

/// Starts processes and threads at `rate` per second, or as fast as possible. Prints the rate.
fn build(rate: u64, time: Duration) -> io::Result<()> {
    let me = std::env::current_exe()?;
    let clock = Clock::kernel();
    let start = clock.now().boot;
    let forks = AtomicU64::new(0);
    together(2, |thread| {
        until(time, || {
            let due = u64::try_from(clock.now().boot.since(start).as_millis())
                .unwrap_or(u64::MAX)
                .saturating_mul(rate)
                / 1000;
            if forks.load(Ordering::Relaxed) > due {
                thread::yield_now();
                return Ok(());
            }
            if thread == 0 {
                let mut process = Command::new(&me);
                process.arg("nothing").stdin(Stdio::null()).status()?;
                forks.fetch_add(1, Ordering::Relaxed);
            } else {
                const THREADS: u64 = 16;
                thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| ());
                    }
                });
                forks.fetch_add(THREADS, Ordering::Relaxed);
            }
            Ok(())
        })
    })?;
    let seconds = time.as_secs().max(1);
    println!("{} forks/s", forks.into_inner() / seconds);
    Ok(())
}

fn together(threads: u64, work: impl Fn(u64) -> io::Result<()> + Sync) -> io::Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        };
        all.into_iter().try_for_each(ended)
    })
}

fn until(time: Duration, mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let clock = Clock::kernel();
    let start = clock.now().boot;
    while clock.now().boot.since(start) < time {
        work()?;
    }
    Ok(())
}

/// Marsaglia's xorshift, which gives the same sequence in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("{text:?} is no number")))
}

fn time(seconds: &str) -> io::Result<Duration> {
    number(seconds).map(Duration::from_secs)
}
