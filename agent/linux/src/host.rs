//! EDGE: files under `/proc`, `/sys` and the cgroup file systems. Contains no thresholds or policy.
//!
//! Modules that are read per sample (`meminfo`, `pids`, `cgroup::memory`, `statfs`) store their
//! paths and fill a buffer of the caller, without allocation once the buffer has grown. The others
//! prefer clarity.
//!
//! File sizes are limited, and untrusted text is escaped with [`nodepulse_core::escape`] before
//! display.

#![forbid(unsafe_code)]

pub mod addresses;
pub mod block;
pub mod cgroup;
pub mod container_logs;
pub mod ext4;
pub mod listeners;
pub mod machine;
pub mod meminfo;
pub mod mounts;
pub mod node_disks;
pub mod pids;
pub mod pod_volumes;
pub mod psi;
mod resolve;
pub mod self_process;
pub mod statfs;
pub mod vmstat;
pub mod volumes;

#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::missing_panics_doc,
    clippy::new_without_default,
    clippy::unwrap_used,
    reason = "only for tests"
)]
pub mod scratch;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use nodepulse_io::file::{self, FileError, Links};

/// Size limit of a small file. The largest, `memory.stat`, has about 2 KiB.
pub const SMALL_FILE: u64 = 64 * 1024;

/// Size limit of a list that grows with the node, such as `mountinfo`: about 20 000 mounts.
const LIST_FILE: u64 = 4 * 1024 * 1024;

/// An error of a file or a network interface of the node.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(
        "cannot read {}; check that the node's / is mounted there and that this user may read it",
        path.display()
    )]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error(
        "{} has more than {limit} bytes, more than any kernel writes; check what is mounted there",
        path.display()
    )]
    TooLarge { path: PathBuf, limit: u64 },

    #[error("{} has more than {limit} entries; check what creates them", path.display())]
    TooManyEntries { path: PathBuf, limit: usize },

    #[error(
        "found no {want} in {}; check what is mounted there, or report the kernel release",
        path.display()
    )]
    Malformed { path: PathBuf, want: &'static str },

    #[error("no cgroup hierarchy with the memory controller: {why}")]
    NoMemoryController { why: &'static str },

    #[error("cannot list network interfaces; allow netlink sockets (AF_NETLINK) to this process")]
    Interfaces {
        #[source]
        source: io::Error,
    },
}

impl HostError {
    /// Converts the errors of reading `path`.
    pub fn of_read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns `true` if the file does not exist, or was removed during the read: a removed cgroup,
    /// or a feature that the kernel does not have.
    pub fn is_absent(&self) -> bool {
        match self {
            // The file of a removed cgroup returns ENODEV.
            Self::Read { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || [Errno::ENODEV, Errno::ENOTDIR]
                        .iter()
                        .any(|&errno| is_errno(source, errno))
            }
            Self::TooLarge { .. }
            | Self::TooManyEntries { .. }
            | Self::Malformed { .. }
            | Self::NoMemoryController { .. }
            | Self::Interfaces { .. } => false,
        }
    }

    /// Returns `true` if the feature is compiled into the kernel, but disabled.
    pub(crate) fn is_disabled(&self) -> bool {
        matches!(self, Self::Read { source, .. } if is_errno(source, Errno::EOPNOTSUPP))
    }
}

fn is_errno(err: &io::Error, errno: Errno) -> bool {
    err.raw_os_error() == Some(io::Error::from(errno).raw_os_error().unwrap_or_default())
}

/// The directory at which the node's `/` is mounted: `/`, a mount in a container, or a test's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot(PathBuf);

impl HostRoot {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// Returns the path of `rel`, such as `proc/meminfo`. A leading `/` is ignored.
    pub fn path(&self, rel: impl AsRef<Path>) -> PathBuf {
        let rel = rel.as_ref();
        self.0.join(rel.strip_prefix("/").unwrap_or(rel))
    }

    /// Returns a file that is read repeatedly.
    pub fn file(&self, rel: impl AsRef<Path>) -> HostFile {
        HostFile::at(self.path(rel))
    }

    pub fn read(&self, rel: impl AsRef<Path>, buf: &mut Vec<u8>) -> Result<(), HostError> {
        read_at(&self.path(rel), SMALL_FILE, buf)
    }

    /// Reads a small file as trimmed text. Invalid UTF-8 becomes U+FFFD.
    pub fn read_string(&self, rel: impl AsRef<Path>) -> Result<String, HostError> {
        let mut buf = Vec::new();
        self.read(rel, &mut buf)?;
        Ok(String::from_utf8_lossy(&buf).trim().to_owned())
    }

    /// Reads a list that grows with the node. Invalid UTF-8 becomes U+FFFD.
    pub(crate) fn read_list(&self, rel: impl AsRef<Path>) -> Result<String, HostError> {
        let mut buf = Vec::new();
        read_at(&self.path(rel), LIST_FILE, &mut buf)?;
        Ok(String::from_utf8_lossy(&buf).into_owned())
    }

    /// Returns the names in a directory that are UTF-8; none if it cannot be read.
    pub(crate) fn names<P: AsRef<Path>>(
        &self,
        directory: P,
    ) -> impl Iterator<Item = String> + use<P> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok())
    }

    /// Returns `true` if the root is this process's `/`: system calls refer to the same machine.
    fn is_this_machine(&self) -> bool {
        self.0 == Path::new("/")
    }
}

/// A small file whose path is built once, so that reading it does not allocate.
///
/// It is opened for each read, because an open descriptor would pin a removed cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFile(PathBuf);

impl HostFile {
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the file into `buf` and replaces its content, also on an error.
    pub fn read(&self, buf: &mut Vec<u8>) -> Result<(), HostError> {
        read_at(&self.0, SMALL_FILE, buf)
    }

    pub(crate) fn number(&self, buf: &mut Vec<u8>) -> Result<u64, HostError> {
        self.read(buf)?;
        parse_u64(buf.trim_ascii()).ok_or_else(|| self.malformed("number"))
    }

    pub(crate) fn malformed(&self, want: &'static str) -> HostError {
        HostError::Malformed {
            path: self.0.clone(),
            want,
        }
    }
}

fn read_at(path: &Path, limit: u64, buf: &mut Vec<u8>) -> Result<(), HostError> {
    file::read_into(path, limit, Links::Followed, buf).map_err(|err| match err {
        FileError::TooLarge(limit) => HostError::TooLarge {
            path: path.to_owned(),
            limit,
        },
        FileError::Io(_) | FileError::NotRegular(_) | FileError::NotText => {
            HostError::of_read(path)(err.into())
        }
    })
}

/// Returns the processes directly in the cgroup at `dir`, from a list of at most [`SMALL_FILE`]
/// bytes; `None` for one that is not visible in this PID namespace. A longer list is cut. Empty if
/// the cgroup was removed.
fn first_processes(dir: &Path, buf: &mut Vec<u8>) -> Vec<Option<u32>> {
    match read_at(&dir.join("cgroup.procs"), SMALL_FILE, buf) {
        Ok(()) => {}
        Err(HostError::TooLarge { .. }) => {
            let end = buf.iter().rposition(|&b| b == b'\n').unwrap_or_default();
            buf.truncate(end);
        }
        Err(_) => return Vec::new(),
    }
    let lines = buf.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let pid = |line| u32::try_from(parse_u64(line)?).ok().filter(|pid| *pid > 0);
    lines.map(pid).collect()
}

/// Returns `None` if the file does not exist. Other errors are returned.
fn present<T>(result: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(err) if err.is_absent() => Ok(None),
        Err(err) => Err(err),
    }
}

/// Parses a decimal number without sign or spaces.
fn parse_u64(digits: &[u8]) -> Option<u64> {
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the number after `key` in a file of `key value` lines, such as `memory.stat`.
fn field(text: &[u8], key: &[u8]) -> Option<u64> {
    text.split(|&b| b == b'\n').find_map(|line| {
        let rest = line.strip_prefix(key)?;
        // The space prevents `file` from matching `file_mapped`.
        parse_u64(rest.strip_prefix(b" ")?.trim_ascii())
    })
}

/// Converts `n` to a signed number, saturating.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::scratch::Scratch;
    use super::*;

    #[test]
    fn file_size_is_limited() {
        let dir = Scratch::new();
        let bound = usize::try_from(SMALL_FILE).unwrap();
        dir.write("fits", "x".repeat(bound));
        dir.write("long", "x".repeat(bound + 1));
        let mut buf = b"old".to_vec();

        dir.root().read("fits", &mut buf).unwrap();
        assert_eq!(buf.len(), bound);
        let err = dir.root().read("long", &mut buf).unwrap_err();
        assert!(matches!(
            err,
            HostError::TooLarge {
                limit: SMALL_FILE,
                ..
            }
        ));
        assert!(err.to_string().contains("long has more than 65536 bytes"));
    }

    #[test]
    fn errors_contain_the_path_and_distinguish_absence() {
        let dir = Scratch::new();
        dir.write("dir/file", "1");
        //          path        absent
        let rows = [("none", true), ("dir/file/below", true), ("dir", false)];
        for (rel, absent) in rows {
            let err = dir.root().read(rel, &mut Vec::new()).unwrap_err();
            assert_eq!(err.is_absent(), absent, "{rel}: {err}");
            assert!(err.to_string().contains(rel), "{err}");
        }
    }

    #[test]
    fn repeated_reads_reuse_the_buffer() {
        let dir = Scratch::new();
        dir.write("proc/meminfo", "MemTotal: 1 kB\n");
        let file = dir.root().file("/proc/meminfo");
        let mut buf = Vec::with_capacity(4096);
        let before = (buf.as_ptr(), buf.capacity());
        for _ in 0..3 {
            file.read(&mut buf).unwrap();
            assert_eq!(buf, b"MemTotal: 1 kB\n");
        }
        assert_eq!((buf.as_ptr(), buf.capacity()), before);
    }

    #[test]
    fn numbers_and_fields_are_parsed_completely() {
        let numbers: [(&[u8], Option<u64>); 7] = [
            (b"0", Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"+1", None),
            (b"-1", None),
            (b"1 2", None),
            (b"", None),
        ];
        for (text, expected) in numbers {
            assert_eq!(
                parse_u64(text),
                expected,
                "{}",
                String::from_utf8_lossy(text)
            );
        }
        let stat = b"file_mapped 7\nfile 5\nanon x\n\xff 3\nfile 9\nslab7";
        assert_eq!(
            field(stat, b"file"),
            Some(5),
            "not file_mapped, and the first"
        );
        assert_eq!(field(stat, b"anon"), None, "not a number");
        assert_eq!(field(stat, b"slab"), None, "another key");
    }
}
