//! EDGE: complete reads of external files: only regular files, only up to a limit, and without
//! waiting for a writer. Also creates files that others cannot read.
//!
//! A FIFO blocks its reader until another process writes, a device never ends, and a file of a
//! gigabyte needs a gigabyte of memory. None of them is a configuration, a token or a counter.

#![forbid(unsafe_code)]

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// Maximum size of a configuration, kubeconfig, certificate, key or token. The largest known one, a
/// bundle of all public certificate authorities, has 220 KiB.
pub const LIMIT: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not regular: reading it may never end, or never start.
    #[error("it is a {0}, and only regular files are read")]
    NotRegular(&'static str),
    /// The file exceeds the limit in bytes.
    #[error("it has more than {0} bytes, the limit for such a file")]
    TooLarge(u64),
    #[error("it is not UTF-8 text")]
    NotText,
}

impl From<FileError> for io::Error {
    fn from(err: FileError) -> Self {
        match err {
            FileError::Io(err) => err,
            FileError::NotRegular(_) | FileError::TooLarge(_) | FileError::NotText => {
                Self::new(io::ErrorKind::InvalidData, err)
            }
        }
    }
}

/// The handling of a symbolic link at the end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// The usual case: Kubernetes mounts every file of a `Secret` behind two links.
    Followed,
    /// Used for a file that only this program writes.
    Refused,
}

/// Reads the whole file, of at most [`LIMIT`] bytes.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    read_into(path, LIMIT, Links::Followed, &mut bytes)?;
    Ok(bytes)
}

/// Fails if the file is not UTF-8.
pub fn text(path: &Path) -> Result<String, FileError> {
    String::from_utf8(read(path)?).map_err(|_| FileError::NotText)
}

/// Replaces the content of `buf`, even on an error, by a whole file of at most `limit` bytes.
pub fn read_into(
    path: &Path,
    limit: u64,
    links: Links,
    buf: &mut Vec<u8>,
) -> Result<(), FileError> {
    read_with_metadata(path, limit, links, buf).map(drop)
}

/// Like [`read_into`]. Returns the metadata of the file that was read: the path may refer to
/// another one by now.
pub fn read_with_metadata(
    path: &Path,
    limit: u64,
    links: Links,
    buf: &mut Vec<u8>,
) -> Result<Metadata, FileError> {
    buf.clear();
    let (file, metadata) = open(path, limit, links)?;
    // Files of /proc have no length.
    let len = usize::try_from(metadata.len()).unwrap_or_default();
    buf.try_reserve_exact(len).map_err(io::Error::from)?;
    up_to(file, limit, buf)?;
    Ok(metadata)
}

/// Mode bits of the permissions of other users.
pub const OTHERS: u32 = 0o077;

/// Returns true for root and the user of this process.
pub fn is_trusted_owner(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// Fails if there are more than `limit` bytes.
pub fn up_to(from: impl io::Read, limit: u64, buf: &mut Vec<u8>) -> Result<(), FileError> {
    let len = from.take(limit.saturating_add(1)).read_to_end(buf)?;
    if u64::try_from(len).is_ok_and(|len| len <= limit) {
        Ok(())
    } else {
        Err(FileError::TooLarge(limit))
    }
}

/// Writes a file that others cannot read, to be renamed. Removes one of an earlier attempt.
pub fn write_private(new: &Path, bytes: &[u8]) -> io::Result<File> {
    remove(new)?;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// A missing file is not an error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn open(path: &Path, limit: u64, links: Links) -> Result<(File, Metadata), FileError> {
    // With O_NONBLOCK a FIFO opens at once, even without a writer.
    let flags = match links {
        Links::Followed => O_NONBLOCK,
        Links::Refused => O_NONBLOCK | O_NOFOLLOW,
    };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    // The metadata of the opened file: the path may refer to another one by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular(kind(metadata.file_type())));
    }
    if limit < metadata.len() {
        return Err(FileError::TooLarge(limit));
    }
    Ok((file, metadata))
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "FIFO"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "device"
    } else {
        "special file"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::tempdir;

    use super::*;

    fn rejected(path: &Path) -> String {
        let mut buf = b"old".to_vec();
        let err = read_into(path, 16, Links::Followed, &mut buf).unwrap_err();
        assert!(!buf.starts_with(b"old"), "{path:?}");
        err.to_string()
    }

    #[test]
    fn only_regular_files_are_read_and_only_up_to_the_limit() {
        let dir = tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("whole"), "0123456789abcdef").unwrap();
        fs::write(at("longer"), "0123456789abcdef!").unwrap();
        File::create(at("sparse"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        fs::create_dir(at("dir")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();

        let mut buf = Vec::new();
        read_into(&at("whole"), 16, Links::Followed, &mut buf).unwrap();
        assert_eq!(buf, b"0123456789abcdef");
        let rows = [
            ("longer", "more than 16 bytes"),
            ("sparse", "more than 16 bytes"),
            ("fifo", "it is a FIFO"),
            ("zero", "it is a device"),
            ("dir", "it is a directory"),
            ("none", "No such file"),
        ];
        for (name, expected) in rows {
            let err = rejected(&at(name));
            assert!(err.contains(expected), "{name}: {err}");
        }
        // The kernel refuses to open a socket.
        assert!(read(&at("socket")).is_err());
    }

    #[test]
    fn files_of_the_kernel_without_a_size_are_limited_too() {
        let path = Path::new("/proc/self/status");
        assert_eq!(fs::metadata(path).unwrap().len(), 0);
        assert!(rejected(path).contains("more than 16 bytes"));
        assert!(text(path).unwrap().contains("VmRSS:"));
    }

    #[test]
    fn a_link_is_followed_unless_it_is_refused() {
        let dir = tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(text(&link).unwrap(), "text");
        let mut buf = Vec::new();
        assert!(read_into(&link, 16, Links::Refused, &mut buf).is_err());
    }

    #[test]
    fn a_file_that_is_not_text_is_rejected() {
        let dir = tempdir().unwrap();
        let file = dir.path().join("file");
        // The byte order mark of UTF-16 and half a character.
        fs::write(&file, b"\xff\xfe\x41").unwrap();
        assert!(matches!(text(&file), Err(FileError::NotText)));
    }
}
