//! Later versions of an Event, with what the Event did not contain yet: see
//! [`Draft::is_later`](nodepulse_core::kube_event::Draft::is_later).

#![forbid(unsafe_code)]

use super::Recorder;
use super::correlate::{EventKey, EventWrite, PendingEvent};
use super::sink::add;

/// An Event of which there may be a later version.
#[derive(Debug, Clone)]
pub(super) struct WrittenEvent {
    pub key: EventKey,
    /// The beginning of the message, which stays.
    pub prefix: String,
}

pub(super) enum Update {
    /// The observation is a version of a written Event, which is patched.
    Write(Box<EventWrite>),
    /// The waiting Event has received the observation, or the observation adds nothing to any.
    Done,
    Separate(Box<PendingEvent>),
}

impl Recorder {
    /// Decides the handling of an observation that may be a later version of an Event.
    pub(super) fn update(&mut self, pending: PendingEvent) -> Update {
        let Some(id) = pending.newest.id.filter(|_| pending.newest.is_later) else {
            return Update::Separate(Box::new(pending));
        };
        if let Some(WrittenEvent { key, prefix }) = self.written.get(&id).cloned()
            && let Some(write) = self.correlator.update(&key, &prefix, &pending)
        {
            return Update::Write(Box::new(write));
        }
        let Some(pending) = self.correlator.update_delayed(id, pending) else {
            return Update::Done;
        };
        // The Event was combined with others, or lost.
        if pending.is_details() {
            self.report(&pending, true);
            return Update::Done;
        }
        let pending = pending.separate();
        add(&self.tally.recorded, pending.times);
        Update::Separate(Box::new(pending))
    }
}
