//! One Event on its way to the API server, for as long as that is worth it.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::correlate::CreatedEvent;
use crate::api::backoff::Jitter;
use crate::api::{ApiError, Client, Disposition, Endpoint, Refusal, Sign};
use crate::clock::{BootNanos, Clock};

/// Tries to write one Event over which the server fails, as many as a kubelet's.
const TRIES: u32 = 12;
/// Tries that get no answer while the server answers others, which takes ten minutes at least: what
/// is away may be only where Events are stored, but the next Event waits behind this one. While the
/// server answers nobody there is no limit: an outage is no fault of the Event.
const TRIES_UNANSWERED: u32 = 60;
/// Between them; before the second one a random part of it.
const RETRY_WAIT: Duration = Duration::from_secs(10);
/// A connection that broke is most often one that can be opened again: a random part of this later.
const RECONNECT: Duration = Duration::from_secs(1);
/// While nobody else asks for the server, we do so about this often.
const PATIENCE: Duration = Duration::from_secs(20);
/// After an outage: what goes on before us, lease and status above all.
const AFTER_OTHERS: Duration = Duration::from_secs(1);
/// And a random part of this, so that a cluster's nodes do not all come back in one second.
const SPREAD: Duration = Duration::from_secs(10);

/// One Event on its way.
pub struct Delivery {
    /// How to reach the server.
    pub client: Client,
    /// When requests are sent and answered.
    pub clock: Clock,
    /// Where the Event lives.
    pub namespace: String,
    /// The Event that the server has as it will be, and the patch that makes it so.
    pub known: Option<(CreatedEvent, Vec<u8>)>,
    /// Name and object, where it has none or has forgotten.
    pub fresh: (String, Value),
    /// Spreads the waits.
    pub jitter: Jitter,
    /// Becomes true on the way out: then no wait is worth it.
    pub leaving: watch::Receiver<bool>,
}

/// An Event that was accepted.
pub struct Written {
    /// As the server has it now.
    pub known: CreatedEvent,
    /// Before the accepted request was written.
    pub sent: BootNanos,
    /// After its answer was read.
    pub acked: BootNanos,
    /// From the first try to the one that was accepted, where they are not one.
    pub held_up: Option<Duration>,
}

impl Delivery {
    /// Tries until the server has decided; through any outage, but not for ever against a server
    /// that answers others.
    pub async fn deliver(mut self, times: u32) -> Result<Written, ApiError> {
        // Failures of all kinds; of no answer; and those that the Event may be the reason of.
        let (mut failed, mut unanswered) = (0, 0);
        let (mut answered, mut ignored) = (0, 0);
        let mut failing_since = None;
        loop {
            let sent = self.clock.now().boot;
            let err = match self.write(times, unanswered > 0).await {
                Ok(known) => {
                    return Ok(Written {
                        known,
                        sent,
                        acked: self.clock.now().boot,
                        held_up: failing_since.map(|since| sent.since(since)),
                    });
                }
                Err(err) => err,
            };
            failing_since.get_or_insert(sent);
            failed += 1;
            if !is_worth_a_retry(&err) || *self.leaving.borrow() {
                return Err(err);
            }
            if err.refusal().is_some() {
                // Throttled is not refused.
                answered += u32::from(!err.is_outage());
            } else {
                unanswered += 1;
                // Others are answered, so it may be this Event.
                ignored +=
                    u32::from(unanswered > 1 && self.wait_for_server().await == Sign::Answer);
            }
            if answered >= TRIES || ignored >= TRIES_UNANSWERED {
                return Err(ApiError::RetriesExceeded {
                    what: "write of an event",
                    tries: failed,
                    source: Box::new(err),
                });
            }
            let wait = match err.refusal() {
                None if unanswered == 1 => self.jitter.part(RECONNECT),
                None if ignored <= 1 => AFTER_OTHERS + self.jitter.part(SPREAD),
                // Each such try costs a connection, and others use it too.
                None => RETRY_WAIT + self.jitter.part(SPREAD),
                Some(_) => self.wait(&err, failed == 1),
            };
            self.sleep(wait).await;
        }
    }

    /// How long to wait after an answer that is no for now.
    fn wait(&mut self, err: &ApiError, first: bool) -> Duration {
        match err.disposition() {
            Disposition::RetryAfter(wait) => self.client.spread(wait),
            _ if first => self.jitter.part(RETRY_WAIT),
            _ => RETRY_WAIT,
        }
    }

    async fn wait_for_server(&mut self) -> Sign {
        let patience = self.jitter.stretch(PATIENCE, 0.5);
        tokio::select! {
            sign = self.client.returned(patience) => sign,
            _ = self.leaving.wait_for(|leaving| *leaving) => Sign::Silence,
        }
    }

    async fn sleep(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = self.leaving.wait_for(|leaving| *leaving) => {}
        }
    }

    async fn write(&mut self, times: u32, unanswered: bool) -> Result<CreatedEvent, ApiError> {
        if let Some((known, patch)) = &self.known {
            let place = Endpoint::event(&self.namespace, &known.name);
            match self.client.patch(&place, patch).await {
                Ok(_) => return Ok(known.clone()),
                // The server keeps Events for an hour.
                Err(err) if err.refusal() == Some(Refusal::NotFound) => self.known = None,
                Err(err) => return Err(err),
            }
        }
        let (name, event) = &self.fresh;
        let known = CreatedEvent {
            name: name.clone(),
            count: times,
        };
        let place = Endpoint::new_event(&self.namespace, name);
        match self.client.create(&place, event).await {
            // A try whose answer we never saw has made it.
            Err(err) if unanswered && err.refusal() == Some(Refusal::AlreadyExists) => Ok(known),
            created => created.map(|_| known),
        }
    }
}

/// Whether the same Event may still be taken. One is not worth arguing about: what the server has
/// decided is decided.
fn is_worth_a_retry(err: &ApiError) -> bool {
    err.is_outage() || err.refusal() == Some(Refusal::Server)
}
