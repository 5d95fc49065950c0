//! Handling of the bytes of answers by requests, for the fuzz targets.

#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{HeaderValue, RETRY_AFTER};
use nodepulse_core::node_status::{NodeStatus, StoredNode};

use super::body::{self, Limit};
use super::convert::stored_node;
use super::object_watch::WatchEvent;
use super::patch::status_patch;
use super::{
    ApiError, Call, Disposition, companion, credentials, lease_holder, pod_containers, pod_watch,
};

pub fn exec_credential(printed: &[u8]) -> Result<(), String> {
    credentials::parse_printed(printed)
}

pub fn watch_line(line: &[u8]) -> bool {
    let event = body::parse(line, Limit::OBJECT).ok();
    event.is_some_and(|event| WatchEvent::of(event).is_ok())
}

/// Reads an object: a Node, a Lease or a pod. Returns `None` if it is not JSON.
pub fn object(bytes: &[u8]) -> Option<StoredNode> {
    let object = body::parse(bytes, Limit::OBJECT).ok()?;
    let status = NodeStatus::default();
    let reduced = companion::reduced(&object);
    drop(companion::status_patch(&reduced, &status));
    drop(status_patch(&reduced, &object));
    drop(lease_holder::holder(&object, SystemTime::UNIX_EPOCH));
    drop(pod_containers::containers(&object));
    drop(pod_watch::pod(&object));
    Some(stored_node(&object))
}

/// Returns the line that is logged for an answer with an error status, and the wait that it
/// requests.
pub fn refusal(code: u16, retry_after: &[u8], body: &[u8]) -> (String, Option<Duration>) {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(retry_after) {
        headers.insert(RETRY_AFTER, value);
    }
    let call = Call {
        verb: "GET".to_owned(),
        object: "node worker-1".to_owned(),
    };
    let err = ApiError::refused(call, code, &headers, body);
    let wait = match err.disposition() {
        Disposition::RetryAfter(wait) => Some(wait),
        Disposition::Retry | Disposition::Reread | Disposition::GiveUp => None,
    };
    (err.to_string(), wait)
}
