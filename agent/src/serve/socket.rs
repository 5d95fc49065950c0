//! The control socket. File permissions control access.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use tokio::net::UnixListener;

pub use nodepulse_io::control_socket::NAME;

/// A bound socket. Its file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    _file: SocketFile,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Otherwise the next start removes it.
        let _removed: io::Result<()> = fs::remove_file(&self.0);
    }
}

impl Socket {
    /// Listens in `directory`, which must be claimed, so that an existing socket is stale and can
    /// be removed. The mode is 0600.
    ///
    /// Must be called in a runtime, while the process has one thread, because it changes the umask
    /// temporarily. Fails if the path is too long for a socket.
    pub fn bind(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        match fs::remove_file(&path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            Ok(()) | Err(_) => {}
        }
        // Changing the mode later would allow access until then.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = StdListener::bind(&path);
        umask(before);
        let bound = bound?;
        bound.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(bound)?,
            _file: SocketFile(path),
        })
    }
}
