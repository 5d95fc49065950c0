//! The client's part of HTTP on the control socket of an agent.

use std::fmt::Display;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, socket};
use tokio::time::Instant;

/// Name in the state directory.
pub const NAME: &str = "nodepulse.sock";

/// Timeout of a request. The daemon's loop gets five seconds.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer in bytes.
const MAX_ANSWER: usize = 16 << 20;

#[derive(Debug)]
pub enum DaemonError {
    NotRunning,
    /// An error in one line.
    Failed(String),
}

impl DaemonError {
    pub fn new(at: &Path, err: &io::Error) -> Self {
        match err.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NotRunning,
            io::ErrorKind::PermissionDenied => {
                Self::failed(at, err, "run this command as the daemon's user")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::failed(at, err, "the daemon is busy: try again, or read its log")
            }
            _ => Self::failed(at, err, "read its log"),
        }
    }

    pub fn failed(at: &Path, err: &dyn Display, cure: &str) -> Self {
        let at = at.display();
        Self::Failed(format!("no answer from the daemon on {at}: {err}; {cure}"))
    }
}

/// Returns the page at `path` of the daemon that listens on the socket `at`.
///
/// # Errors
///
/// Fails without an answer of the status 200.
pub fn get(at: &Path, path: &str) -> Result<String, DaemonError> {
    let answer = connect(at).and_then(|stream| exchange(stream, path));
    let answer = answer.map_err(|err| DaemonError::new(at, &err))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = code(head);
    if code != "200" {
        let message: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
        let answer = format!("{code} {message}");
        return Err(DaemonError::failed(
            at,
            &answer,
            "try again, or read its log",
        ));
    }
    Ok(body.to_owned())
}

/// Connects without waiting for a listener that does not accept.
///
/// # Errors
///
/// `WouldBlock` if the queue of the listener is full.
pub fn connect(at: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(at)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
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

/// Returns the status code in the head of an answer.
pub fn code(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}
