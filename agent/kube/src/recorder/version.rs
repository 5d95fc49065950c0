//! Later versions of an Event, which report what the Event did not contain yet: see
//! [`Draft::version_of`](nodepulse_core::kube_event::Draft::version_of).

#![forbid(unsafe_code)]

use super::Recorder;
use super::amendment::Amendable;
use super::correlate::{EventWrite, PendingEvent};
use super::sink::add;

pub(super) enum Update {
    /// The observation is a version of a written Event, which is patched.
    Write(Box<EventWrite>),
    /// The waiting Event has received the observation, or the observation adds nothing.
    Done,
    Separate(Box<PendingEvent>),
}

impl Recorder {
    /// Decides the handling of an observation that may be a later version of an Event.
    pub(super) fn update(&mut self, pending: PendingEvent) -> Update {
        let Some(id) = pending.newest.version_of else {
            return Update::Separate(Box::new(pending));
        };
        if let Some(Amendable { key, prefix, .. }) = self.amendable.get(&id)
            && let Some(write) = self.correlator.update(key, prefix, &pending)
        {
            return Update::Write(Box::new(write));
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
