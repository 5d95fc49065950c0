//! Counts of requests by result.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::{Method, StatusCode};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE`, or `WATCH` for a stream.
    pub verb: &'static str,
    /// The resource in the plural, with its subresource, such as `nodes/status`.
    pub resource: &'static str,
    pub end: RequestEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestEnd {
    /// The HTTP status; 0 if HTTP does not define it.
    Answered(u16),
    /// There was no answer within the deadline.
    Deadline,
    /// The connection could not be opened, or broke.
    Unreachable,
    Credentials,
    /// An answer, or a line of a watch, exceeds its limit.
    TooLarge,
}

impl RequestEnd {
    /// Counts a status that HTTP does not define as 0, so that a faulty server cannot create many
    /// kinds.
    pub(super) fn answered(code: u16) -> Self {
        let known = StatusCode::from_u16(code).is_ok_and(|code| code.canonical_reason().is_some());
        Self::Answered(if known { code } else { 0 })
    }
}

impl fmt::Display for RequestEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(code) => code.fmt(f),
            Self::Deadline => f.write_str("deadline"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Credentials => f.write_str("credentials"),
            Self::TooLarge => f.write_str("too_large"),
        }
    }
}

/// The counts are behind a mutex, because every task that sends requests counts here and the loop
/// reads: a message per request would wake the loop.
#[derive(Debug, Default)]
pub(super) struct RequestTally(Mutex<BTreeMap<Request, u64>>);

impl RequestTally {
    /// Counts one request and returns the previous count.
    pub(super) fn count(&self, verb: &'static str, resource: &'static str, end: RequestEnd) -> u64 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let request = Request {
            verb,
            resource,
            end,
        };
        let count = counts.entry(request).or_default();
        let before = *count;
        *count = before.saturating_add(1);
        before
    }

    pub(super) fn all(&self) -> Vec<(Request, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(kind, count)| (*kind, *count)).collect()
    }
}

pub(super) fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
