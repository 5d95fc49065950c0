//! Delivery of one Event to the API server.

#![forbid(unsafe_code)]

use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::kube_event::{ContainerLabel, EventId};
use nodepulse_core::pods::Container;
use nodepulse_io::clock::Clock;
use serde_json::Value;
use tokio::sync::watch;

use super::body;
use super::correlate::{COMBINED, CreatedEvent};
use crate::pod_containers;
use crate::presence::REFUSED_AT_START;
use crate::{ApiError, Client, Disposition, Endpoint, Refusal, Sign};
use nodepulse_core::backoff::Jitter;

/// Maximum number of attempts that the server answers with an error, as in a kubelet.
const TRIES: u32 = 12;
/// Maximum number of unanswered attempts while the server answers other requests, which takes at
/// least ten minutes: the storage of Events may be unavailable, but the next Event waits behind
/// this one. While the server answers no request there is no limit, because an outage is not caused
/// by the Event.
const TRIES_UNANSWERED: u32 = 60;
/// Pause between attempts; before the second one it is a random part of this.
pub const RETRY_WAIT: Duration = Duration::from_secs(10);
/// Maximum delay after a broken connection, which can usually be opened again. A random part of it
/// is taken.
const RECONNECT: Duration = Duration::from_secs(1);
/// Interval of attempts while no other request is sent, plus a random part of it, so that the nodes
/// of a cluster do not return at once.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct Delivery {
    pub client: Client,
    pub clock: Clock,
    pub namespace: String,
    /// The name of the existing Event, its state after the patch, and the patch.
    pub known: Option<(String, CreatedEvent, Vec<u8>)>,
    /// The end of the name of a new Event.
    pub number: u64,
    /// Name and object of a new Event, if none exists or it has expired.
    pub fresh: (String, Value),
    /// Set if it is about an incident: if an Event of that name exists, an earlier start or attempt
    /// has created it. Otherwise another object may have the name.
    pub id: Option<EventId>,
    /// An Event that has expired is not created again only to have its details.
    pub is_details: bool,
    /// It has failed before. Others are not to wait for it.
    pub is_retry: bool,
    /// The container that the Event is about, if `fieldPath` is missing in the object.
    pub container: Option<ContainerLabel>,
    /// The Event has waited for the API server, so that its missing `fieldPath` is read first.
    pub waited: bool,
    pub jitter: Jitter,
    /// Becomes true at shutdown, after which there is no further wait.
    pub leaving: watch::Receiver<bool>,
}

pub struct Written {
    pub known: CreatedEvent,
    /// Time before the accepted request was written.
    pub sent: BootNanos,
    /// Time after its answer was read.
    pub acked: BootNanos,
    /// Time from the first attempt to the accepted one, if they differ.
    pub delayed_by: Option<Duration>,
}

impl Delivery {
    /// Retries until the server has decided: without limit during an outage, but not if the server
    /// answers other requests.
    pub async fn deliver(mut self, times: u32) -> Result<Written, ApiError> {
        // Counts of all failures; of unanswered attempts; and of those that the Event may cause.
        let (mut failed, mut unanswered) = (0, 0);
        let (mut answered, mut ignored) = (0, 0);
        let mut refused_at_start = 0;
        let mut failing_since = None;
        loop {
            let sent = self.clock.now().boot;
            let err = match self.write(times, unanswered > 0).await {
                Ok(known) => {
                    return Ok(Written {
                        known,
                        sent,
                        acked: self.clock.now().boot,
                        delayed_by: failing_since.map(|since| sent.since(since)),
                    });
                }
                Err(err) => err,
            };
            failing_since.get_or_insert(sent);
            self.waited = true;
            failed += 1;
            let starts =
                unanswered > 0 && refused_at_start < REFUSED_AT_START && may_be_starting(&err);
            if !(starts || is_worth_a_retry(&err)) || *self.leaving.borrow() {
                return Err(err);
            }
            refused_at_start += u32::from(starts);
            let mut sign = None;
            if starts {
                // Neither rejected nor without an answer.
            } else if err.refusal().is_some() {
                // A throttled attempt is not a rejected one.
                answered += u32::from(!err.is_outage());
            } else {
                unanswered += 1;
                if unanswered > 1 {
                    sign = self.wait_for_server().await;
                }
                // Other requests are answered, so this Event may be the cause.
                ignored += u32::from(sign == Some(Sign::Answer));
            }
            let has_failed = answered > 0 || ignored > 0;
            if answered >= TRIES || ignored >= TRIES_UNANSWERED || (self.is_retry && has_failed) {
                return Err(ApiError::RetriesExceeded {
                    what: "write of an event",
                    tries: failed,
                    source: Box::new(err),
                });
            }
            let wait = match err.refusal() {
                None if sign == Some(Sign::Silence) => Duration::ZERO,
                None if ignored <= 1 => self.jitter.part(RECONNECT),
                // Each such attempt costs a connection, and others use it too.
                None => RETRY_WAIT + self.jitter.part(RETRY_WAIT),
                Some(_) => self.wait(&err, failed == 1, starts),
            };
            self.sleep(wait).await;
        }
    }

    /// Returns the wait after a temporary error status.
    fn wait(&mut self, err: &ApiError, first: bool, starts: bool) -> Duration {
        match err.disposition() {
            Disposition::RetryAfter(wait) => self.client.spread(wait),
            _ if starts => self.jitter.stretch(PATIENCE, 1.0),
            _ if first => self.jitter.part(RETRY_WAIT),
            _ => RETRY_WAIT,
        }
    }

    async fn wait_for_server(&mut self) -> Option<Sign> {
        let patience = self.jitter.stretch(PATIENCE, 1.0);
        tokio::select! {
            sign = self.client.returned(patience) => Some(sign),
            _ = self.leaving.wait_for(|leaving| *leaving) => Some(Sign::Silence),
        }
    }

    async fn sleep(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = self.leaving.wait_for(|leaving| *leaving) => {}
        }
    }

    /// Reads the container's `fieldPath`. An Event does not depend on it, because a server may
    /// accept Events and not answer this request.
    async fn complete(&mut self) {
        let Some(label) = &self.container else {
            return;
        };
        let name = self.fresh.1.pointer("/involvedObject/name");
        let name = name.and_then(Value::as_str).unwrap_or_default();
        let path = match pod_containers::read(&self.client, &self.namespace, name).await {
            Ok(containers) => label.find(&containers).and_then(Container::field_path),
            Err(err) if err.is_outage() => return,
            Err(_) => None,
        };
        let object = self.fresh.1.get_mut("involvedObject");
        if let (Some(path), Some(Value::Object(object))) = (path, object) {
            object.insert("fieldPath".to_owned(), path.into());
        }
        self.container = None;
    }

    /// Makes the Event of an earlier start or attempt like this one, unless later ones were
    /// combined with it. Returns its count.
    async fn complete_existing(&self) -> Result<u32, ApiError> {
        let (name, event) = &self.fresh;
        let place = Endpoint::event(&self.namespace, name);
        // The answer has the Event, which the agent is not permitted to read.
        let mut stored = self.client.patch(&place, b"{}").await?;
        let message = stored.get("message").and_then(Value::as_str);
        if !message.is_some_and(|message| message.starts_with(COMBINED)) {
            stored = self.client.patch(&place, &body::completion(event)).await?;
        }
        let count = stored.get("count").and_then(Value::as_u64).unwrap_or(0);
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn write(&mut self, times: u32, unanswered: bool) -> Result<CreatedEvent, ApiError> {
        if let Some((name, known, patch)) = &self.known {
            let place = Endpoint::event(&self.namespace, name);
            match self.client.patch(&place, patch).await {
                Ok(_) => return Ok(*known),
                // The server keeps Events for an hour.
                Err(err) if err.refusal() == Some(Refusal::NotFound) && !self.is_details => {
                    self.known = None;
                }
                Err(err) => return Err(err),
            }
        }
        if self.waited {
            self.complete().await;
        }
        let (name, event) = &self.fresh;
        let known = CreatedEvent {
            number: self.number,
            count: times.max(1),
        };
        let place = Endpoint::new_event(&self.namespace, name);
        match self.client.create(&place, event).await {
            Err(err) if err.refusal() == Some(Refusal::AlreadyExists) => {
                if self.id.is_some() {
                    let stored = self.complete_existing().await?;
                    return Ok(CreatedEvent {
                        count: known.count.max(stored),
                        ..known
                    });
                }
                // Created by an attempt whose answer was lost.
                if unanswered { Ok(known) } else { Err(err) }
            }
            created => created.map(|_| known),
        }
    }
}

/// Returns true if a server that has just started may refuse any request like this.
fn may_be_starting(err: &ApiError) -> bool {
    err.refusal() == Some(Refusal::Forbidden) || (err.refusal().is_some() && err.is_outage())
}

/// Returns true if the same Event may still be accepted. A decision of the server about an Event is
/// final.
fn is_worth_a_retry(err: &ApiError) -> bool {
    err.is_outage() || matches!(err.refusal(), Some(Refusal::Conflict | Refusal::Server))
}
