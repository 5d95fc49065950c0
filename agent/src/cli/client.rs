//! Client of a running daemon's control socket.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub(super) use nodepulse_io::control_socket::DaemonError;
use nodepulse_io::control_socket::{self, TIMEOUT, code, connect};
use serde::de::DeserializeOwned;

use crate::serve;

/// Maximum size of the head of an answer in bytes.
const MAX_HEAD: usize = 4096;

/// Returns the control socket in `state_directory` if a daemon listens or access is denied.
pub(super) fn daemon(state_directory: &Path) -> Option<PathBuf> {
    let at = state_directory.join(serve::socket::NAME);
    match connect(&at).map_err(|err| err.kind()) {
        Ok(_) | Err(io::ErrorKind::PermissionDenied | io::ErrorKind::WouldBlock) => Some(at),
        Err(_) => None,
    }
}

pub(super) fn get<T: DeserializeOwned>(
    state_directory: &Path,
    path: &str,
) -> Result<T, DaemonError> {
    let at = state_directory.join(serve::socket::NAME);
    let body = control_socket::get(&at, path)?;
    let invalid = |err| DaemonError::failed(&at, &err, "check that it has the same version");
    serde_json::from_str(&body).map_err(invalid)
}

/// Requests a page that ends with the connection. The stream begins with the page.
pub(super) fn open(state_directory: &Path, path: &str) -> Result<UnixStream, DaemonError> {
    let at = state_directory.join(serve::socket::NAME);
    let opened = connect(&at).and_then(|stream| begin(stream, path));
    let (head, stream) = opened.map_err(|err| DaemonError::new(&at, &err))?;
    match code(&head) {
        "200" => Ok(stream),
        "404" => Err(DaemonError::failed(
            &at,
            &"404",
            "check that it has the same version",
        )),
        code => Err(DaemonError::failed(
            &at,
            &code,
            "try again, or read its log",
        )),
    }
}

/// Returns the reason for which `command`, which needs a daemon, fails.
pub(super) fn reason(err: DaemonError, state_directory: &Path, command: &str) -> String {
    match err {
        DaemonError::NotRunning => format!(
            "no daemon is listening on {}; `{command}` needs a running daemon; start it, or set \
             --state-directory",
            state_directory.join(serve::socket::NAME).display()
        ),
        DaemonError::Failed(reason) => reason,
    }
}

/// Returns the head of the answer, and the stream after it.
fn begin(mut stream: UnixStream, path: &str) -> io::Result<(String, UnixStream)> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // By this version the end of the connection is the end of the answer.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: nodepulse\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(io::Error::other("the head of the answer is too long"));
        }
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok((String::from_utf8_lossy(&head).into_owned(), stream))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    #[test]
    fn endless_answers_and_full_queues_do_not_block() {
        let dir = Scratch::new();
        let at = dir.path().join(serve::socket::NAME);
        let listener = UnixListener::bind(&at).unwrap();
        let endless = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&vec![b'x'; 1 << 16]).is_ok() {}
            listener
        });
        let Err(DaemonError::Failed(why)) = get::<serde_json::Value>(dir.path(), "/v1/status")
        else {
            panic!("an answer");
        };
        assert!(why.contains("exceeds 16777216 bytes"), "{why}");
        // No connection is accepted any more, so the kernel's queue fills.
        let _listener = endless.join().unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&at) {
                Ok(stream) if waiting.len() < 10_000 => waiting.push(stream),
                Ok(_) => panic!("the queue does not fill"),
                Err(err) => break err,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
