//! Errors of requests to the API server, and how to handle each of them.

#![forbid(unsafe_code)]
// Sums and products of durations panic on overflow, and these numbers are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use nodepulse_core::escape::{self, one_line};
use serde_json::Value;
use tower::BoxError;

use super::body::{self, Limit};

/// Maximum length in characters of a server's message, which is logged.
pub(super) const MESSAGE_LIMIT: usize = 512;

/// Maximum wait in seconds that a server can request. Every caller waits less: at most a deadline.
const LONGEST_WAIT: u64 = 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub verb: String,
    /// Kind and name, such as `node worker-1`.
    pub object: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

/// The minimum content of a kubeconfig, as a hint in an error.
const KUBECONFIG_EXAMPLE: &str = "{apiVersion: v1, kind: Config, current-context: node, \
    contexts: [{name: node, context: {cluster: c, user: u}}], \
    clusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\", \
    certificate-authority: /etc/kubernetes/pki/ca.crt}}], \
    users: [{name: u, user: {client-certificate: /path/to.crt, client-key: /path/to.key}}]}";

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error(
        "kubeconfig {path}: {why}; it must contain at least: {}",
        KUBECONFIG_EXAMPLE
    )]
    Kubeconfig { path: String, why: String },
    #[error(
        "in-cluster service account: {why}; run in a pod with automountServiceAccountToken, or set --kubeconfig"
    )]
    InCluster { why: String },
    /// There are no credentials yet: a file cannot be read, or a program fails. This can pass.
    #[error("{what}: {why}")]
    Unreadable {
        /// Name of the affected file or program.
        what: String,
        why: String,
    },
    /// A program issues the credentials, but the sandbox was entered before that was known.
    #[error(
        "the kubeconfig has a program (users[].user.exec), which only an agent that is started with it \
         may run"
    )]
    NeedsRestart,
    /// Credentials were read, but cannot be put to use.
    #[error("cannot use {what}")]
    Setup {
        what: &'static str,
        #[source]
        source: BoxError,
    },
    #[error("{call}: not sent, no credentials")]
    Credentials {
        call: Call,
        #[source]
        source: BoxError,
    },
    /// The Node exists and is not to be adopted.
    #[error("node {node} exists and is another one, so it is not changed; choose another name")]
    OtherNode { node: String },
    /// The server did not answer. The connection has been replaced.
    #[error("{call}: no answer within {}s", .limit.as_secs_f64())]
    Deadline { call: Call, limit: Duration },
    /// The connection could not be opened, or broke. It has been replaced.
    #[error("{call}: no answer, connection failed")]
    Unreachable {
        call: Call,
        #[source]
        source: BoxError,
    },
    /// The body was not read completely.
    #[error("{call}: an answer of more than {limit} bytes")]
    TooLarge { call: Call, limit: usize },
    /// The status is a success, but the body is not JSON.
    #[error("{call}: {code} with a body that is not a JSON object")]
    Garbled {
        call: Call,
        code: u16,
        #[source]
        source: serde_json::Error,
    },
    #[error("{call}: {code} {refusal:?}: {message}")]
    Refused {
        call: Call,
        code: u16,
        refusal: Refusal,
        /// The server's message, cut after 512 characters.
        message: String,
        /// The wait that the server requested: at least a second, at most an hour.
        retry_after: Option<Duration>,
    },
    /// Every attempt of one round failed; the next round follows.
    #[error("{what} exceeds retry count of {tries}")]
    RetriesExceeded {
        what: &'static str,
        tries: u32,
        #[source]
        source: Box<ApiError>,
    },
}

/// Error statuses, by how they can be handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 401: the token or certificate is not accepted.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409 for a create.
    AlreadyExists,
    /// 409 for a write to an object that has changed.
    Conflict,
    /// 410: the resourceVersion is too old.
    Expired,
    /// 422: the object violates a rule of the API.
    Invalid,
    /// 429.
    Throttled,
    /// 503: the service is unavailable.
    Unavailable,
    /// Any other 5xx.
    Server,
    /// Any other status: the request is wrong, or the sender is not an API server.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Retry after the caller's backoff.
    Retry,
    /// Retry after this time at the earliest.
    RetryAfter(Duration),
    /// Read the object, which is outdated, then compute again.
    Reread,
    /// An unchanged retry cannot help. Report the error and continue.
    GiveUp,
}

impl ApiError {
    /// Returns whether the server knows the user; `None` if there is no answer, or one that does
    /// not depend on the user and may be that of a proxy.
    pub fn is_authenticated(&self) -> Option<bool> {
        let Self::Refused {
            refusal, message, ..
        } = self
        else {
            return None;
        };
        match refusal {
            Refusal::Unauthorized => Some(false),
            // A server that does not read client certificates ignores them.
            Refusal::Forbidden => Some(!message.contains("system:anonymous")),
            Refusal::NotFound
            | Refusal::AlreadyExists
            | Refusal::Conflict
            | Refusal::Expired
            | Refusal::Invalid => Some(true),
            Refusal::Throttled | Refusal::Unavailable | Refusal::Server | Refusal::Other => None,
        }
    }

    /// Decides the reaction of the caller. No other place decides it.
    pub fn disposition(&self) -> Disposition {
        match self {
            // The input is wrong; an operator has to correct it.
            Self::Kubeconfig { .. }
            | Self::InCluster { .. }
            | Self::NeedsRestart
            | Self::OtherNode { .. }
            | Self::Setup { .. } => Disposition::GiveUp,
            // A token file can be between two rotations, and a broken connection can recover.
            Self::Unreadable { .. }
            | Self::Credentials { .. }
            | Self::Deadline { .. }
            | Self::Unreachable { .. }
            | Self::TooLarge { .. }
            | Self::Garbled { .. } => Disposition::Retry,
            Self::Refused {
                refusal,
                retry_after,
                ..
            } => refusal.disposition(*retry_after),
            Self::RetriesExceeded { source, .. } => source.disposition(),
        }
    }

    /// Returns the kind of error status; `None` if the server did not answer with one.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(*refusal),
            Self::RetriesExceeded { source, .. } => source.refusal(),
            _ => None,
        }
    }

    /// Returns true if the error is independent of the request: any other request would have failed
    /// too, so attempts need not be counted.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Refused { refusal, .. } => matches!(
                refusal,
                Refusal::Unauthorized | Refusal::Throttled | Refusal::Unavailable
            ),
            Self::RetriesExceeded { source, .. } => source.is_outage(),
            // Without an answer, a retry can help unless the input is wrong.
            _ => self.disposition() == Disposition::Retry,
        }
    }

    pub fn chain(&self) -> String {
        one_line(&escape::chain(self))
    }

    pub(super) fn as_dyn(&self) -> &(dyn std::error::Error + 'static) {
        self
    }

    pub(super) fn refused(call: Call, code: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let status = body::parse(body, Limit::REFUSAL).unwrap_or(Value::Null);
        let reason = status.pointer("/reason").and_then(Value::as_str);
        let seconds = headers
            .get(RETRY_AFTER)
            .and_then(|value| header_seconds(value.to_str().ok()?))
            .or_else(|| body_seconds(status.pointer("/details/retryAfterSeconds")?))
            .filter(|seconds| *seconds > 0)
            .map(|seconds| seconds.min(LONGEST_WAIT));
        Self::Refused {
            call,
            code,
            refusal: Refusal::new(code, reason),
            message: message_of(&status, body),
            retry_after: seconds.map(Duration::from_secs),
        }
    }
}

impl Refusal {
    pub(super) fn new(code: u16, reason: Option<&str>) -> Self {
        match (code, reason) {
            (401, _) => Self::Unauthorized,
            (403, _) => Self::Forbidden,
            (404, _) => Self::NotFound,
            (409, Some("AlreadyExists")) => Self::AlreadyExists,
            (409, _) => Self::Conflict,
            (410, _) => Self::Expired,
            (422, _) => Self::Invalid,
            (429, _) => Self::Throttled,
            (503, _) => Self::Unavailable,
            (500..=599, _) => Self::Server,
            (_, _) => Self::Other,
        }
    }

    fn disposition(self, retry_after: Option<Duration>) -> Disposition {
        match (self, retry_after) {
            (Self::Throttled | Self::Unavailable | Self::Server, Some(wait)) => {
                Disposition::RetryAfter(wait)
            }
            // After a 5xx the next request may succeed. A missing object may only be late: the
            // control plane may be restored from a backup. After a 401 the credentials were read
            // again already, and may be renewed at any time.
            (
                Self::Throttled
                | Self::Unavailable
                | Self::Server
                | Self::NotFound
                | Self::Unauthorized,
                Some(_) | None,
            ) => Disposition::Retry,
            // Another client wrote between the read and the write.
            (Self::Conflict | Self::Expired | Self::AlreadyExists, _) => Disposition::Reread,
            // Neither a missing permission nor an object that violates the API's rules changes
            // within a backoff.
            (Self::Forbidden | Self::Invalid | Self::Other, _) => Disposition::GiveUp,
        }
    }
}

/// Returns the message in one line.
pub(super) fn message(body: &[u8]) -> String {
    let status = body::parse(body, Limit::REFUSAL).unwrap_or(Value::Null);
    message_of(&status, body)
}

fn message_of(status: &Value, body: &[u8]) -> String {
    match status.pointer("/message").and_then(Value::as_str) {
        Some(message) => printable(message),
        None => printable(&String::from_utf8_lossy(body)),
    }
}

/// Returns the seconds of a `Retry-After` header, which may have more digits than any number type.
/// A date is ignored: API servers send none.
fn header_seconds(text: &str) -> Option<u64> {
    let digits = text.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Returns the seconds in a `Status`. A number that exceeds its type is parsed as a float.
fn body_seconds(value: &Value) -> Option<u64> {
    let is_large = value.as_f64().is_some_and(|seconds| seconds > 1e18);
    value.as_u64().or(is_large.then_some(u64::MAX))
}

/// Returns one line of at most [`MESSAGE_LIMIT`] characters, without control characters and without
/// those that start a line or change the direction of text.
fn printable(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .take(MESSAGE_LIMIT)
        .map(|c| if is_plain(c) { c } else { ' ' })
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: &str, object: &str) -> Call {
        Call {
            verb: verb.to_owned(),
            object: object.to_owned(),
        }
    }

    fn refused(code: u16, reason: &str, headers: &HeaderMap) -> ApiError {
        let call = call("PATCH", "status of node worker-1");
        let body = format!(r#"{{"kind":"Status","reason":"{reason}","message":"no\n{code}"}}"#);
        ApiError::refused(call, code, headers, body.as_bytes())
    }

    #[test]
    fn each_status_has_a_disposition() {
        use Disposition::{GiveUp, Reread, Retry};
        let rows = [
            (400, "BadRequest", Refusal::Other, GiveUp),
            (401, "Unauthorized", Refusal::Unauthorized, Retry),
            (403, "Forbidden", Refusal::Forbidden, GiveUp),
            (404, "NotFound", Refusal::NotFound, Retry),
            (409, "AlreadyExists", Refusal::AlreadyExists, Reread),
            (409, "Conflict", Refusal::Conflict, Reread),
            (410, "Expired", Refusal::Expired, Reread),
            (415, "UnsupportedMediaType", Refusal::Other, GiveUp),
            (422, "Invalid", Refusal::Invalid, GiveUp),
            (429, "TooManyRequests", Refusal::Throttled, Retry),
            (500, "InternalError", Refusal::Server, Retry),
            (503, "ServiceUnavailable", Refusal::Unavailable, Retry),
            (302, "", Refusal::Other, GiveUp),
        ];
        for (code, reason, refusal, disposition) in rows {
            let err = refused(code, reason, &HeaderMap::new());
            assert_eq!(err.refusal(), Some(refusal), "{code} {reason}");
            assert_eq!(err.disposition(), disposition, "{code} {reason}");
            let outage = [401, 429, 503].contains(&code);
            assert_eq!(err.is_outage(), outage, "{code} {reason}");
        }
    }

    #[test]
    fn retry_after_is_read_from_header_or_body() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        let wait = Disposition::RetryAfter(Duration::from_secs(7));
        assert_eq!(refused(429, "", &headers).disposition(), wait);
        assert_eq!(refused(503, "", &headers).disposition(), wait);
        assert_eq!(
            refused(403, "", &headers).disposition(),
            Disposition::GiveUp
        );

        let body = br#"{"message":"too new","details":{"retryAfterSeconds":1}}"#;
        let call = call("GET", "node worker-1");
        let err = ApiError::refused(call, 504, &HeaderMap::new(), body);
        let wait = Disposition::RetryAfter(Duration::from_secs(1));
        assert_eq!(err.disposition(), wait);
    }

    #[test]
    fn a_requested_wait_is_at_most_an_hour_and_zero_is_ignored() {
        //  header, body, seconds
        let rows = [
            ("0", "null", None),
            ("18446744073709551615", "null", Some(3600)),
            ("99999999999999999999999999", "null", Some(3600)),
            ("3601", "null", Some(3600)),
            ("3600", "null", Some(3600)),
            ("3599", "null", Some(3599)),
            ("-1", "null", None),
            ("+1", "null", None),
            ("1.5", "null", None),
            ("Fri, 31 Dec 9999 23:59:59 GMT", "null", None),
            ("", "18446744073709551615", Some(3600)),
            ("", "1e300", Some(3600)),
            ("", "-1", None),
            ("", "0.5", None),
            ("", "\"9\"", None),
            ("7", "9", Some(7)),
        ];
        for (header, body, seconds) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, header.parse().unwrap());
            let call = call("PUT", "lease worker-1");
            let body = format!(r#"{{"details":{{"retryAfterSeconds":{body}}}}}"#);
            let err = ApiError::refused(call, 429, &headers, body.as_bytes());
            let expected = seconds.map_or(Disposition::Retry, |seconds| {
                Disposition::RetryAfter(Duration::from_secs(seconds))
            });
            assert_eq!(err.disposition(), expected, "{header:?} {body}");
        }
    }

    #[test]
    fn the_message_names_verb_object_and_code() {
        let err = refused(409, "Conflict", &HeaderMap::new());
        assert_eq!(
            err.to_string(),
            "PATCH status of node worker-1: 409 Conflict: no 409"
        );
    }
}
