//! What the server received, for tests to check.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// One request, and how it was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// `GET`, `PATCH`, ….
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The body as sent, still encoded; empty if there was none.
    pub query: String,
    /// Names in lower case. The last of several with one name counts.
    pub headers: BTreeMap<String, String>,
    /// `None` if there was no body, or none that is JSON.
    pub body: Option<Value>,
    /// Counts from 1 in the order in which connections were accepted.
    pub connection: u64,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: String,
    /// The user's name.
    pub identity: String,
    /// `CLOCK_BOOTTIME` when the body was read; time since the start on a simulated server.
    pub at: Duration,
    /// When the answer's headers were handed over. `None` while, or because, there is none.
    pub answered_at: Option<Duration>,
    /// The answer's status code.
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

/// How many connections there were and are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// Accepted since the start, those whose TLS handshake failed included.
    pub opened: u64,
    /// Still there.
    pub open: u64,
}
