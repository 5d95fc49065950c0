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

/// Maximum size of the head of an answer in bytes.
const MAX_HEAD: usize = 4096;

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
    let answer = connect(&at).and_then(|stream| exchange(stream, path));
    let answer = answer.map_err(|err| DaemonError::new(&at, &err))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = code(head);
    if code != "200" {
        let message: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
        let answer = format!("{code} {message}");
        return Err(failed(&at, &answer, "try again, or read its log"));
    }
    let invalid = |err| failed(&at, &err, "check that it has the same version");
    serde_json::from_str(body).map_err(invalid)
}

/// Requests a page that ends with the connection. The stream begins with the page.
pub(super) fn open(state_directory: &Path, path: &str) -> Result<UnixStream, DaemonError> {
    let at = state_directory.join(serve::socket::NAME);
    let opened = connect(&at).and_then(|stream| begin(stream, path));
    let (head, stream) = opened.map_err(|err| DaemonError::new(&at, &err))?;
    match code(&head) {
        "200" => Ok(stream),
        "404" => Err(failed(&at, &"404", "check that it has the same version")),
        code => Err(failed(&at, &code, "try again, or read its log")),
    }
}

impl DaemonError {
    fn new(at: &Path, err: &io::Error) -> Self {
        match err.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NotRunning,
            io::ErrorKind::PermissionDenied => {
                failed(at, err, "run this command as the daemon's user")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                failed(at, err, "the daemon is busy: try again, or read its log")
            }
            _ => failed(at, err, "read its log"),
        }
    }

    /// Returns the reason for which `command`, which needs a daemon, fails.
    pub(super) fn reason(self, state_directory: &Path, command: &str) -> String {
        match self {
            Self::NotRunning => format!(
                "no daemon is listening on {}; `{command}` needs a running daemon; start it, or set \
                 --state-directory",
                state_directory.join(serve::socket::NAME).display()
            ),
            Self::Failed(reason) => reason,
        }
    }
}

fn failed(at: &Path, err: &dyn std::fmt::Display, cure: &str) -> DaemonError {
    let at = at.display();
    DaemonError::Failed(format!("no answer from the daemon on {at}: {err}; {cure}"))
}

/// Returns the status code.
fn code(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
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
