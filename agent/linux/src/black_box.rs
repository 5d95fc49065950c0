//! EDGE: the black box on the disk: a ring of records in a file of fixed size, and the traces that
//! the end of a boot leaves elsewhere. Calls here can wait for a disk.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::sys::statfs::{FsType, statfs};
use nodepulse_core::black_box::{Batch, Evidence, RING, Record, WrittenFile};
use nodepulse_io::file::is_trusted_owner;

use crate::host::HostRoot;

/// The file in the directory of the history.
pub const FILE: &str = "black-box";

/// Where the kernel keeps its log, and where systemd moves it at each boot, which is read later: a
/// log that is moved meanwhile is found there.
const PSTORE: [&str; 2] = ["sys/fs/pstore", "var/lib/systemd/pstore"];
/// The name of the storage, or `(null)`.
const PSTORE_BACKEND: &str = "sys/module/pstore/parameters/backend";
/// Where kdump writes.
const CRASHES: &str = "var/crash";
const WATCHDOGS: &str = "sys/class/watchdog";
/// `WDIOF_CARDRESET`: the last reboot was by the watchdog.
const CARD_RESET: u32 = 0x20;

/// Entries of a directory that are examined, and directories below each other.
const ENTRIES: usize = 256;
const DEPTH: usize = 3;
/// Logs that are read. They are the newest.
const LOGS: usize = 64;
/// Bytes of a log that are read, at its end: a panic is there.
const LOG: u64 = 64 << 10;

/// The file, which no other process writes, since the directory is claimed.
#[derive(Debug)]
pub struct Ring(File);

impl Ring {
    /// Opens or creates the ring in `directory`, which exists, and returns its records,
    /// the oldest first.
    ///
    /// # Errors
    ///
    /// Fails if it is a file of another user, or if there is no room for it.
    pub fn open(directory: &Path) -> io::Result<(Self, Vec<Record>)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // A link may redirect, and opening a pipe waits for its other end.
        options.mode(0o600).custom_flags(O_NOFOLLOW | O_NONBLOCK);
        let path = directory.join(FILE);
        let mut file = options.open(&path)?;
        let found = file.metadata()?;
        if !found.is_file() || !is_trusted_owner(found.uid()) {
            let why = "it is not a regular file of root or of this user; remove it";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut bytes = vec![0; RING];
        let mut length = 0;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match file.read(rest)? {
                0 => break,
                read => length += read,
            }
        }
        if length < RING || found.len() != u64::try_from(RING).unwrap_or_default() {
            // Written now, so that a full disk does not matter later.
            allocate(&file, &bytes).inspect_err(|_| {
                // The room is left to others. The first error is the one to report.
                let _removed = fs::remove_file(&path);
            })?;
            File::open(directory)?.sync_all()?;
        }
        Ok((Self(file), Record::decode_ring(&bytes)))
    }

    /// Writes records. `durable`: waits until they survive a power cut.
    ///
    /// # Errors
    ///
    /// Fails if the disk does.
    pub fn write(&self, batch: &Batch, durable: bool) -> io::Result<()> {
        for (offset, record) in batch {
            self.0.write_all_at(record, *offset)?;
        }
        if durable {
            self.0.sync_data()?;
        }
        Ok(())
    }
}

fn allocate(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(u64::try_from(bytes.len()).unwrap_or_default())?;
    file.sync_all()
}

/// Returns the id of the machine, or of its board if there is none; empty without both.
pub fn machine_id(root: &HostRoot) -> String {
    let files = [
        "etc/machine-id",
        "var/lib/dbus/machine-id",
        "sys/class/dmi/id/product_uuid",
    ];
    let mut ids = files.iter().filter_map(|file| root.read_string(file).ok());
    ids.find(|id| !id.is_empty()).unwrap_or_default()
}

/// Reads the traces of the end of the last boot. What is missing or unreadable is left out.
pub fn evidence(root: &HostRoot) -> Evidence {
    let log = |(at, path): (_, PathBuf)| {
        let text = end_of(&path).ok()?;
        let path = path.display().to_string();
        Some(WrittenFile { path, at, text })
    };
    let mut logs = Vec::new();
    for directory in PSTORE {
        let mut found = Vec::new();
        files_below(&root.path(directory), DEPTH, &mut found);
        let is_log = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.starts_with("dmesg"))
        };
        let written =
            |path: PathBuf| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path));
        let mut found: Vec<_> = found
            .into_iter()
            .filter(is_log)
            .filter_map(written)
            .collect();
        found.sort_by(|one, other| other.cmp(one));
        logs.extend(found.into_iter().take(LOGS).filter_map(log));
    }
    let backend = root.read_string(PSTORE_BACKEND).unwrap_or_default();
    Evidence {
        has_pstore: !backend.is_empty() && backend != "(null)" && is_visible(root),
        logs,
        crashes: crashes(&root.path(CRASHES)),
        watchdogs: watchdogs(root),
    }
}

/// Returns true if what the kernel kept can be seen: in a container, systemd's directory is mounted
/// whether systemd uses it or not.
fn is_visible(root: &HostRoot) -> bool {
    let mounted = statfs(&root.path(PSTORE[0])).is_ok_and(|found| found.filesystem_type() == MAGIC);
    mounted || (root.path("") == Path::new("/") && Path::new("/").join(PSTORE[1]).is_dir())
}

/// `PSTOREFS_MAGIC`.
const MAGIC: FsType = FsType(0x6165_676c);

fn entries(directory: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.take(ENTRIES).map(|entry| entry.path());
    let known = |path: PathBuf| fs::symlink_metadata(&path).ok().map(|found| (path, found));
    paths.filter_map(known).collect()
}

/// Adds the regular files, of links none.
fn files_below(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for (path, found) in entries(directory) {
        if found.is_file() && files.len() < ENTRIES {
            files.push(path);
        } else if found.is_dir() && 0 < depth {
            files_below(&path, depth - 1, files);
        }
    }
}

fn end_of(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let file = options.open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(length.min(LOG)).unwrap_or_default()];
    file.read_exact_at(&mut bytes, length.saturating_sub(LOG))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the directories that a crash kernel has filled. Files are reports about programs.
fn crashes(directory: &Path) -> Vec<WrittenFile> {
    let is_dump = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str);
        let prefixes = ["vmcore", "dump.", "dmesg."];
        name.is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    let mut crashes = Vec::new();
    let below = entries(directory).into_iter();
    // In some distributions every user can create files there.
    let is_trusted = |found: &fs::Metadata| is_trusted_owner(found.uid());
    for (path, _) in below.filter(|(_, found)| found.is_dir() && is_trusted(found)) {
        let mut inside = entries(&path).into_iter();
        if let Some((_, found)) = inside.find(|(path, found)| is_dump(path) && is_trusted(found))
            && let Ok(at) = found.modified()
        {
            let (path, text) = (path.display().to_string(), String::new());
            crashes.push(WrittenFile { path, at, text });
        }
    }
    crashes
}

fn watchdogs(root: &HostRoot) -> Vec<String> {
    let has_reset = |name: &String| {
        let status = root.read_string(Path::new(WATCHDOGS).join(name).join("bootstatus"));
        let status = status.ok().and_then(|status| status.parse::<u32>().ok());
        status.is_some_and(|status| status & CARD_RESET != 0)
    };
    let names = root.names(WATCHDOGS).take(ENTRIES);
    names.filter(has_reset).collect()
}

#[cfg(test)]
mod tests {
    use nodepulse_core::black_box::{Marks, Origin, Recorder, next_number};
    use nodepulse_core::clock::{BootNanos, Now};
    use nodepulse_core::incident::BootId;

    use super::*;
    use crate::host::scratch::Scratch;
    use crate::store::{Bounds, Store};

    fn stopped(number: u64) -> Batch {
        let origin = Origin {
            machine: 1,
            boot: BootId(1),
            tag: 1,
        };
        let now = Now {
            boot: BootNanos(9),
            wall: std::time::SystemTime::UNIX_EPOCH,
        };
        Recorder::new(origin, number).stop(Marks::default(), now)
    }

    #[test]
    fn records_are_read_again_from_a_file_that_the_history_knows() {
        let dir = Scratch::new();
        for number in 1..=300 {
            let (ring, records) = Ring::open(dir.path()).unwrap();
            assert_eq!(next_number(&records), number);
            ring.write(&stopped(number), number % 100 == 0).unwrap();
        }
        let path = dir.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 10);
        assert_eq!(Ring::open(dir.path()).unwrap().1.len(), 256);
        // Other users can open this directory, so it has to be nodepulse's.
        fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        assert!(
            Store::open(dir.path(), Bounds::default(), 1, |_| false)
                .unwrap()
                .is_some()
        );

        // What a full disk has left of it.
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(900)
            .unwrap();
        assert_eq!(Ring::open(dir.path()).unwrap().1.len(), 3);
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 10);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(Ring::open(dir.path()).is_err(), "a link");
    }

    #[test]
    fn traces_are_read_from_where_systemd_and_the_kernel_leave_them() {
        let dir = Scratch::new();
        assert_eq!(evidence(&dir.root()), Evidence::default());
        dir.write("sys/module/pstore/parameters/backend", "efi_pstore\n");
        dir.write("var/lib/systemd/pstore/1764/001/dmesg.txt", "Kernel panic");
        dir.write("sys/fs/pstore/dmesg-ramoops-0", vec![b'x'; 300 << 10]);
        dir.write("sys/fs/pstore/console-ramoops-0", "no panic");
        dir.write("var/crash/202611280000/dump.202611280000", "");
        dir.write("var/crash/_usr_bin_a.crash", "of a program");
        dir.write("var/crash/empty/lock", "");
        dir.write("sys/class/watchdog/watchdog0/bootstatus", "32\n");
        dir.write("sys/class/watchdog/watchdog1/bootstatus", "0\n");
        let found = evidence(&dir.root());
        assert!(!found.has_pstore, "it is not mounted");
        let name = |file: &WrittenFile| {
            let inside = Path::new(&file.path).strip_prefix(dir.path()).unwrap();
            (inside.display().to_string(), file.text.len())
        };
        let logs: Vec<_> = found.logs.iter().map(name).collect();
        let systemd = ("var/lib/systemd/pstore/1764/001/dmesg.txt".to_owned(), 12);
        let kernel = ("sys/fs/pstore/dmesg-ramoops-0".to_owned(), 64 << 10);
        assert_eq!(logs, [kernel, systemd]);
        let crashes: Vec<_> = found.crashes.iter().map(name).collect();
        assert_eq!(crashes, [("var/crash/202611280000".to_owned(), 0)]);
        assert_eq!(found.watchdogs, ["watchdog0"]);
        // Nothing is erased.
        assert!(dir.path().join("sys/fs/pstore/dmesg-ramoops-0").exists());
    }
}
