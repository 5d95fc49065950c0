//! Records the requests that the server received.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// One request, and how it was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// The body as sent, still encoded; empty if there was none.
    pub query: String,
    /// Header names are in lower case. The last of several with one name counts.
    pub headers: BTreeMap<String, String>,
    /// `None` if there was no body, or it is not JSON.
    pub body: Option<Value>,
    /// Number of the connection from 1, in the order of acceptance.
    pub connection: u64,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: String,
    pub identity: String,
    /// `CLOCK_BOOTTIME` when the body was read; time since the start on a simulated server.
    pub at: Duration,
    /// Time at which the answer's headers were sent. `None` without an answer.
    pub answered_at: Option<Duration>,
    pub status: Option<u16>,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            method,
            path,
            query,
            connection,
            identity,
            at,
            ..
        } = self;
        let mark = if query.is_empty() { "" } else { "?" };
        let status = self
            .status
            .map_or("-".to_owned(), |status| status.to_string());
        write!(
            f,
            "{:.3} {method} {path}{mark}{query} -> {status} (connection {connection}, {identity})",
            at.as_secs_f64()
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// Accepted since the start, including those whose TLS handshake failed.
    pub opened: u64,
    pub open: u64,
}
