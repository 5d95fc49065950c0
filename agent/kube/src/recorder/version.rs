//! Later versions of an Event, with what the Event did not contain yet: see
//! [`Draft::is_later`](nodepulse_core::kube_event::Draft::is_later).

#![forbid(unsafe_code)]

use std::pin::Pin;

use nodepulse_core::kube_event::EventId;

use super::correlate::{EventKey, EventWrite, PendingEvent};
use super::sink::add;
use super::{Recorder, amendment, body};
use crate::Endpoint;

/// An Event of which there may be a later version.
#[derive(Debug, Clone)]
pub(super) struct WrittenEvent {
    pub namespace: String,
    pub key: EventKey,
    /// The beginning of the message, which stays.
    pub prefix: String,
}

pub(super) enum Update {
    /// The observation only adds details to a written Event.
    Amend(EventId, Pin<Box<dyn Future<Output = ()> + Send>>),
    /// The observation is a version of a written Event, which is patched.
    Write(Box<EventWrite>),
    /// The waiting Event has received the observation, or the observation adds nothing.
    Done,
    Separate(Box<PendingEvent>),
}

impl Recorder {
    /// Decides the handling of an observation that may be a later version of an Event.
    pub(super) fn update(&mut self, pending: PendingEvent) -> Update {
        let Some(id) = pending.newest.id.filter(|_| pending.newest.is_later) else {
            return Update::Separate(Box::new(pending));
        };
        if let Some(WrittenEvent {
            namespace,
            key,
            prefix,
        }) = self.written.get(&id).cloned()
            && let Some(write) = self.correlator.update(&key, &prefix, &pending)
        {
            if !pending.is_details() {
                return Update::Write(Box::new(write));
            }
            let Some(known) = write.known else {
                return Update::Done;
            };
            let name = self.name(&write.key.object, known.number);
            let place = Endpoint::event(&namespace, &name);
            let patch = amendment::body(body::cut(&write.message), &pending.newest.annotations);
            let (client, jitter) = (self.client.clone(), self.jitter.fork());
            return Update::Amend(id, Box::pin(amendment::patch(client, place, patch, jitter)));
        }
        let Some(pending) = self.correlator.update_delayed(id, pending) else {
            return Update::Done;
        };
        // The Event was combined with others, or lost.
        match pending.separate() {
            Some(pending) => {
                add(&self.tally.recorded, pending.times);
                Update::Separate(Box::new(pending))
            }
            None => Update::Done,
        }
    }
}
