//! Asks a running daemon over its control socket.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::serve::socket;

/// Longest that a daemon may take to answer: it gives its loop five seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any answer of a daemon that is one.
const MOST: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// No daemon runs with this state directory.
    NotRunning,
    /// One line that says what went wrong.
    Failed(String),
}

/// What the daemon of this state directory answers at `path`.
pub(super) fn get(state_directory: &Path, path: &str) -> Result<Value, NoAnswer> {
    let at = state_directory.join(socket::NAME);
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
    let mut stream = UnixStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: nodepulse\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST).read_to_string(&mut answer)?;
    Ok(answer)
}
