//! The control socket: who may open it is whoever may open its file.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener as Bound;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use tokio::net::UnixListener;

/// Its name in the state directory.
pub const NAME: &str = "nodepulse.sock";

/// Bound, and not yet part of a runtime. Its file goes with this value.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    _file: File,
}

#[derive(Debug)]
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        // Whoever starts next removes it otherwise.
        let _gone: io::Result<()> = fs::remove_file(&self.0);
    }
}

impl Socket {
    /// Listens in `directory`, which must be claimed: what stands there is then left over from a
    /// process that is gone, and is removed. Nobody but our own user may open it (mode 0600).
    ///
    /// Must be called in a runtime, while there is one thread: the mask for new files is changed for
    /// a moment.
    ///
    /// # Errors
    ///
    /// Where the directory cannot be written, or its path is longer than a socket's may be.
    pub fn bind(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        match fs::remove_file(&path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            Ok(()) | Err(_) => {}
        }
        // Not by a change of mode afterwards: in between others could open it.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = Bound::bind(&path);
        umask(before);
        let bound = bound?;
        bound.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(bound)?,
            _file: File(path),
        })
    }
}
