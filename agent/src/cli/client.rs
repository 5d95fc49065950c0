//! Asks a running daemon over its control socket.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, socket};
use serde_json::Value;
use tokio::time::Instant;

use crate::serve;

/// Longest that a daemon may take to answer: it gives its loop five seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any answer of a daemon that is one.
const MOST: usize = 16 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// No daemon runs with this state directory.
    NotRunning,
    /// One line that says what went wrong.
    Failed(String),
}

/// The socket of the daemon of this state directory, if one listens or if we may not ask.
pub(super) fn daemon(state_directory: &Path) -> Option<PathBuf> {
    let at = state_directory.join(serve::socket::NAME);
    match connect(&at).map_err(|err| err.kind()) {
        Ok(_) | Err(io::ErrorKind::PermissionDenied | io::ErrorKind::WouldBlock) => Some(at),
        Err(_) => None,
    }
}

/// What the daemon of this state directory answers at `path`.
pub(super) fn get(state_directory: &Path, path: &str) -> Result<Value, NoAnswer> {
    let at = state_directory.join(serve::socket::NAME);
    let shown = at.display();
    let failed = |err: &dyn std::fmt::Display, cure: &str| {
        NoAnswer::Failed(format!("cannot ask the daemon at {shown}: {err}; {cure}"))
    };
    let answer = match exchange(&at, path) {
        Ok(answer) => answer,
        Err(err) => {
            return Err(match err.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoAnswer::NotRunning,
                io::ErrorKind::PermissionDenied => {
                    failed(&err, "run this as the user that the daemon runs as")
                }
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    failed(&err, "it is busy: try again, or read its log")
                }
                _ => failed(&err, "look into its log"),
            });
        }
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).unwrap_or_default();
    if code != "200" {
        let said: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(failed(
            &format!("{code} {said}"),
            "try again, or look into its log",
        ));
    }
    serde_json::from_str(body).map_err(|err| failed(&err, "is it of this version?"))
}

fn exchange(at: &Path, path: &str) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut stream = connect(at)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: nodepulse\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        // For the whole answer: one that comes byte by byte would never be late.
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
        if MOST < answer.len() {
            let why = format!("it answers more than {MOST} bytes");
            return Err(io::Error::other(why));
        }
    }
}

/// Without waiting for one who listens and takes no connection.
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

    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn an_answer_without_an_end_is_refused_and_a_full_queue_is_not_waited_for() {
        let dir = Scratch::new();
        let at = dir.path().join(serve::socket::NAME);
        let listener = UnixListener::bind(&at).unwrap();
        let endless = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&vec![b'x'; 1 << 16]).is_ok() {}
            listener
        });
        let Err(NoAnswer::Failed(why)) = get(dir.path(), "/v1/status") else {
            panic!("an answer");
        };
        assert!(why.contains("more than 16777216 bytes"), "{why}");
        // Nobody takes a connection any more, until the kernel's queue is full.
        let _listener = endless.join().unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&at) {
                Ok(stream) if waiting.len() < 10_000 => waiting.push(stream),
                Ok(_) => panic!("it takes everybody"),
                Err(err) => break err,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
