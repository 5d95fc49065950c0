//! One Event on its way to the API server, for as long as that is worth it.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;

use super::correlate::Known;
use crate::api::{ApiError, Client, Disposition, Place, Refusal};
use crate::clock::{BootNanos, Clock};

/// Tries to write one Event while nobody answers, as many as a kubelet's.
const TRIES: u32 = 12;
/// Between them; before the second one a random part of it.
pub const RETRY_WAIT: Duration = Duration::from_secs(10);

/// One Event on its way.
pub struct Delivery {
    /// How to reach the server.
    pub client: Client,
    /// When requests are sent and answered.
    pub clock: Clock,
    /// Where the Event lives.
    pub namespace: String,
    /// The Event that the server has as it will be, and the patch that makes it so.
    pub known: Option<(Known, Vec<u8>)>,
    /// Name and object, where it has none or has forgotten.
    pub fresh: (String, Value),
    /// Before the second try.
    pub first_wait: Duration,
}

/// An Event that was accepted.
pub struct Written {
    /// As the server has it now.
    pub known: Known,
    /// Before the accepted request was written.
    pub sent: BootNanos,
    /// After its answer was read.
    pub acked: BootNanos,
}

impl Delivery {
    /// Tries until the server has answered, but not for ever.
    pub async fn deliver(mut self, times: u32) -> Result<Written, ApiError> {
        let mut wait = self.first_wait;
        let mut tries = 1;
        let mut unanswered = false;
        loop {
            let sent = self.clock.now().boot;
            let err = match self.write(times, unanswered).await {
                Ok(known) => {
                    let acked = self.clock.now().boot;
                    return Ok(Written { known, sent, acked });
                }
                Err(err) => err,
            };
            unanswered |= err.refusal().is_none();
            if tries == TRIES {
                let what = "write of an event";
                let source = Box::new(err);
                return Err(ApiError::RetriesExceeded {
                    what,
                    tries,
                    source,
                });
            }
            tokio::time::sleep(retry_wait(&err, wait).ok_or(err)?).await;
            wait = RETRY_WAIT;
            tries += 1;
        }
    }

    async fn write(&mut self, times: u32, unanswered: bool) -> Result<Known, ApiError> {
        if let Some((known, patch)) = &self.known {
            let place = Place::event(&self.namespace, &known.name);
            match self.client.patch(&place, patch).await {
                Ok(_) => return Ok(known.clone()),
                // The server keeps Events for an hour.
                Err(err) if err.refusal() == Some(Refusal::NotFound) => self.known = None,
                Err(err) => return Err(err),
            }
        }
        let (name, event) = &self.fresh;
        let known = Known {
            name: name.clone(),
            count: times,
        };
        let place = Place::new_event(&self.namespace, name);
        match self.client.create(&place, event).await {
            // A try whose answer we never saw has made it.
            Err(err) if unanswered && err.refusal() == Some(Refusal::AlreadyExists) => Ok(known),
            created => created.map(|_| known),
        }
    }
}

/// How long to wait after `err`; `None` where the server has decided. One Event is not worth
/// arguing about: whatever is no outage is dropped.
fn retry_wait(err: &ApiError, usual: Duration) -> Option<Duration> {
    if !matches!(
        err.refusal(),
        None | Some(Refusal::Throttled | Refusal::Server)
    ) {
        return None;
    }
    match err.disposition() {
        Disposition::RetryAfter(wait) => Some(wait.clamp(usual, RETRY_WAIT)),
        Disposition::Retry => Some(usual),
        Disposition::Reread | Disposition::GiveUp => None,
    }
}
