//! Client of a running daemon's control socket.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, socket};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::serve;

/// Timeout of a request. The daemon's loop gets five seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer in bytes.
const MAX_ANSWER: usize = 16 << 20;

#[derive(Debug)]
pub(super) enum DaemonError {
    NotRunning,
    /// An error in one line.
    Failed(String),
}

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
    let shown = at.display();
    let failed = |err: &dyn std::fmt::Display, cure: &str| {
        DaemonError::Failed(format!(
            "no answer from the daemon on {shown}: {err}; {cure}"
        ))
    };
    let answer = match connect(&at).and_then(|stream| exchange(stream, path)) {
        Ok(answer) => answer,
        Err(err) => {
            return Err(match err.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    DaemonError::NotRunning
                }
                io::ErrorKind::PermissionDenied => {
                    failed(&err, "run this command as the daemon's user")
                }
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    failed(&err, "the daemon is busy: try again, or read its log")
                }
                _ => failed(&err, "read its log"),
            });
        }
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).unwrap_or_default();
    if code != "200" {
        let message: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(failed(
            &format!("{code} {message}"),
            "try again, or read its log",
        ));
    }
    serde_json::from_str(body).map_err(|err| failed(&err, "check that it has the same version"))
}

fn exchange(mut stream: UnixStream, path: &str) -> io::Result<String> {
    let end = Instant::now() + TIMEOUT;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: nodepulse\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        // The timeout applies to the whole answer, also if it arrives byte by byte.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut part)?;
        answer.extend(part.iter().take(read));
        if read == 0 {
            return String::from_utf8(answer).map_err(io::Error::other);
        }
        if MAX_ANSWER < answer.len() {
            let why = format!("its answer exceeds {MAX_ANSWER} bytes");
            return Err(io::Error::other(why));
        }
    }
}

/// Connects without waiting for a listener that does not accept.
fn connect(at: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(at)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
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
