//! Defines workloads of a healthy node: no condition becomes True.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use super::containerd::{self, Containerd};
use super::unwell::meminfo;
use super::{Expected, Form, Prepared, Site, Workload, cannot_run, workload};
use crate::provoke::disk::DirectFile;
use crate::provoke::ioctl;

const MIB: u64 = 1 << 20;
/// Sizes of bulk writes, each with and without fsync.
const BULK_MIB: [(u64, Form); 5] = [
    (32, Form::Short),
    (256, Form::Short),
    (1024, Form::Full),
    (2048, Form::Full),
    (4096, Form::Full),
];
const QUEUE_DEPTHS: [u64; 3] = [1, 8, 64];
const FILES: &str = "20000";
/// Rate that exceeds a build of C on a large machine.
const FORKS_PER_SECOND: &str = "5000";
/// Memory limit of the container that crashes: enough for some processes, and soon full.
const CONTAINER_LIMIT: u64 = 24 * MIB;
const PROCESSES: usize = 8;
/// Number of restarts.
const CRASHES: usize = 6;

pub(super) fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for (mib, form) in BULK_MIB {
        all.push(bulk(mib, true, form));
        all.push(bulk(mib, false, form));
    }
    all.extend(QUEUE_DEPTHS.map(mixed));
    all.extend([
        database(),
        unpack(),
        trim(),
        flush(),
        build(),
        page_cache_of_container(),
        page_cache(),
        import(),
        crash_loop(),
    ]);
    all
}

/// Writes a large file in one task; without fsync, the kernel writes it out later.
fn bulk(mib: u64, sync: bool, form: Form) -> Workload {
    let how = if sync { "fsync" } else { "writeback" };
    let name = format!("write-{mib}-mib-{how}");
    workload(name, form, Expected::NoAlarm, move |_| {
        Ok(Prepared::new(move |control| {
            let (site, mib) = (control.site(), mib.to_string());
            let path = site.path("bulk");
            site.load("writer", &["write", &path, &mib, how])?.ends()?;
            // Without fsync, this replaces the later writes of the kernel's threads.
            File::open(&path)?.sync_all()?;
            fs::remove_file(&path)?;
            Ok(String::new())
        }))
    })
}

/// Reads and writes random blocks in `depth` threads.
fn mixed(depth: u64) -> Workload {
    let name = format!("mixed-random-depth-{depth}");
    workload(name, Form::Short, Expected::NoAlarm, move |site| {
        DirectFile::filled(Path::new(&site.path("data")), 256)?;
        Ok(Prepared::new(move |control| {
            let (site, depth) = (control.site(), depth.to_string());
            let seconds = site.pace.seconds();
            let load = ["mixed", &site.path("data"), &depth, &seconds];
            site.load("writer", &load)?.ends()
        }))
    })
}

/// Performs small commits, one after the other.
fn database() -> Workload {
    workload("fsync-loop", Form::Short, Expected::NoAlarm, |site| {
        DirectFile::filled(Path::new(&site.path("table")), 64)?;
        Ok(Prepared::new(|control| {
            let site = control.site();
            let load = ["database", &site.path("table"), &site.pace.seconds()];
            site.load("database", &load)?.ends()
        }))
    })
}

/// Unpacks many small files, with `tar` if this machine has it.
fn unpack() -> Workload {
    workload(
        "tar-x-20000-files",
        Form::Short,
        Expected::NoAlarm,
        |site| {
            let tree = site.path("tree");
            site.load("other", &["unpack", &tree, FILES])?.ends()?;
            let archive = site.path("tree.tar");
            let mut tar = Command::new("tar");
            let packed = tar.args(["-cf", &archive, "-C", &tree, "."]).status();
            let with_program = packed.is_ok_and(|status| status.success());
            fs::remove_dir_all(&tree)?;
            Ok(Prepared::new(move |control| {
                let site = control.site();
                fs::create_dir(&tree)?;
                if with_program {
                    ran(Command::new("tar").args(["-xf", &archive, "-C", &tree]))?;
                } else {
                    site.load("writer", &["unpack", &tree, FILES])?.ends()?;
                }
                nix::unistd::sync();
                let by = if with_program { "tar" } else { "the suite" };
                Ok(format!("unpacked by {by}"))
            }))
        },
    )
}

/// Discards every free block of the file system, up to a bound.
fn trim() -> Workload {
    workload("fstrim", Form::Short, Expected::NoAlarm, |site| {
        let directory = File::open(site.directory())?;
        if let Err(err) = ioctl::trim(&directory, MIB) {
            return Err(cannot_run(format!("the disk does not discard: {err}")));
        }
        // Frees blocks that were in use before.
        DirectFile::filled(Path::new(&site.path("freed")), 256)?;
        Ok(Prepared::new(move |control| {
            fs::remove_file(control.site().path("freed"))?;
            nix::unistd::sync();
            let bytes = ioctl::trim(&directory, 32 << 30)?;
            Ok(format!("{} MiB discarded", bytes / MIB))
        }))
    })
}

/// Makes the disk write out its cache repeatedly, without data to write.
fn flush() -> Workload {
    workload("flush-loop", Form::Short, Expected::NoAlarm, |site| {
        DirectFile::filled(Path::new(&site.path("clean")), 1)?;
        Ok(Prepared::new(|control| {
            let site = control.site();
            let load = ["flush", &site.path("clean"), "4", &site.pace.seconds()];
            site.load("database", &load)?.ends()
        }))
    })
}

/// Imports a layer of many files with a separate containerd.
fn import() -> Workload {
    workload("containerd-import", Form::Full, Expected::NoAlarm, |site| {
        let containerd = Containerd::start(site.directory())?;
        let tree = site.path("tree");
        site.load("other", &["unpack", &tree, FILES])?.ends()?;
        DirectFile::filled(&Path::new(&tree).join("large"), 512)?;
        let image = containerd::image(site.directory(), Path::new(&tree))?;
        fs::remove_dir_all(&tree)?;
        Ok(Prepared::new(move |_| containerd.import(&image)))
    })
}

/// Starts short-lived processes and threads.
fn build() -> Workload {
    workload("build-5000-forks", Form::Short, Expected::NoAlarm, |_| {
        Ok(Prepared::new(|control| {
            let site = control.site();
            let load = ["build", FORKS_PER_SECOND, &site.pace.seconds()];
            site.load("other", &load)?.ends()
        }))
    })
}

/// Reads a file of holes, four times the limit of the container that reads it.
fn page_cache_of_container() -> Workload {
    workload(
        "page-cache-container",
        Form::Short,
        Expected::NoAlarm,
        |site| {
            const LIMIT: u64 = 128 * MIB;
            site.limit("other", LIMIT)?;
            cached(site, 4 * LIMIT, 2)
        },
    )
}

/// Reads a file as large as all memory twice: clean pages that are in use.
fn page_cache() -> Workload {
    workload("page-cache-node", Form::Full, Expected::NoAlarm, |site| {
        cached(site, meminfo("MemTotal:")?, 2)
    })
}

fn cached(site: &Site, bytes: u64, times: u32) -> io::Result<Prepared> {
    let path = site.path("holes");
    File::create(&path)?.set_len(bytes)?;
    Ok(Prepared::new(move |control| {
        for _ in 0..times {
            control.site().load("other", &["read", &path])?.ends()?;
        }
        Ok(format!("{} MiB read, {times} times", bytes / MIB))
    }))
}

/// Kills all processes of a container at its limit, repeatedly.
fn crash_loop() -> Workload {
    workload("crash-loop", Form::Short, Expected::NoAlarm, |site| {
        site.limit("other", CONTAINER_LIMIT)?;
        Ok(Prepared::new(|control| {
            let site = control.site();
            let container = site.container("other");
            let mut killed = 0;
            for _ in 0..CRASHES {
                let eaters = std::thread::scope(|scope| {
                    let eat = || site.provoke.eat_in(&container, 4 * CONTAINER_LIMIT);
                    let all: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(eat)).collect();
                    all.into_iter()
                        .map(|thread| thread.join().map_err(|_| io::ErrorKind::Other)?)
                        .collect::<io::Result<Vec<_>>>()
                })?;
                killed += eaters
                    .iter()
                    .filter(|(_, status)| !status.success())
                    .count();
            }
            if killed == 0 {
                return Err(io::Error::other("the kernel killed no process"));
            }
            Ok(format!("{killed} processes were killed"))
        }))
    })
}

/// Runs a program to its end, and returns its output.
pub(super) fn ran(command: &mut Command) -> io::Result<String> {
    let done = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        let program = command.get_program().display();
        Err(io::Error::other(format!(
            "{program}: {}",
            text(&done.stderr)
        )))
    }
}
