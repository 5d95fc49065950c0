//! Details that are added to an Event after it was written.
//!
//! Only the message is patched, and annotations are added. The patch cannot conflict with one that
//! raises the count of an unchanged message, because that one has no message, and they may arrive
//! in any order. Nothing waits for the patch, and it is dropped if the Event does not exist any
//! more.

#![forbid(unsafe_code)]

use std::time::Duration;

use nodepulse_core::kube_event::Annotations;
use serde_json::json;
use tracing::debug;

use crate::{ApiError, Client, Endpoint, Refusal};
use nodepulse_core::backoff::Jitter;

/// Maximum number of attempts. An answer that was lost counts: the patch can be repeated.
const TRIES: u32 = 3;
/// Maximum pause between attempts, of which a random part is taken.
const WAIT: Duration = Duration::from_secs(2);

/// Returns the patch that adds details.
pub(super) fn body(message: &str, annotations: &Annotations) -> Vec<u8> {
    let patch = if annotations.is_empty() {
        json!({ "message": message })
    } else {
        json!({ "message": message, "metadata": { "annotations": annotations } })
    };
    patch.to_string().into_bytes()
}

pub(super) async fn patch(client: Client, place: Endpoint, patch: Vec<u8>, mut jitter: Jitter) {
    for attempt in 1..=TRIES {
        let Err(err) = client.patch(&place, &patch).await else {
            return;
        };
        debug!(attempt, err = err.as_dyn(), "details not added to an event");
        if !is_worth_a_retry(&err) {
            return;
        }
        tokio::time::sleep(jitter.part(WAIT)).await;
    }
}

/// Returns false for an Event that has expired, and for one that must not be changed.
fn is_worth_a_retry(err: &ApiError) -> bool {
    err.is_outage() || matches!(err.refusal(), Some(Refusal::Conflict | Refusal::Server))
}
