//! What becomes of an Event that was not accepted.

#![forbid(unsafe_code)]

use std::time::Duration;

use tracing::{debug, warn};

use super::Recorder;
use super::correlate::{EventWrite, PendingEvent};
use super::delivery::RETRY_WAIT;
use super::sink::add;
use crate::{ApiError, Refusal};

/// An Event that the server could not process is tried again for this time: as long as a server
/// keeps Events.
pub(super) const RETRIED: Duration = Duration::from_hours(1);
/// Interval of warnings about rejected Events.
const WARNING_INTERVAL: Duration = Duration::from_hours(1);

impl Recorder {
    pub(super) fn failed(&mut self, write: EventWrite, err: &ApiError, is_last: bool) {
        let rejected = matches!(err.refusal(), Some(Refusal::Forbidden | Refusal::NotFound));
        // The namespace of a deleted pod may be deleted too. The Event on the Node does not depend
        // on it.
        if let Some(instead) = rejected.then(|| write.pending.clone().of_node()).flatten() {
            if write.is_update() {
                add(&self.tally.recorded, instead.times);
            }
            let instead = self.with_later(instead);
            return self.push(instead);
        }
        if !is_final(err) && !self.is_expired(&write.pending) {
            // At the end it stays undelivered, and the next start delivers it.
            if !is_last {
                debug!(err = err.as_dyn(), "an event is tried again later");
                let now = self.clock.now().boot;
                let mut pending = self.with_later(write.pending);
                pending.failing_since.get_or_insert(now);
                self.retry_at = now.plus(RETRY_WAIT);
                self.backlog.push_failed(pending);
            }
            return;
        }
        self.report(&write.pending, write.pending.is_details());
        if write.pending.is_details() {
            debug!(err = err.as_dyn(), "an event was not updated");
            return;
        }
        match err.refusal() {
            Some(_) => add(&self.tally.lost_refused, write.pending.times),
            None => add(&self.tally.lost_unreachable, write.pending.times),
        }
        self.log_lost(&write, err);
    }

    /// Adds the later version that waits.
    fn with_later(&mut self, mut pending: PendingEvent) -> PendingEvent {
        let id = pending.newest.id;
        if let Some(later) = id.and_then(|id| self.backlog.take_version(id)) {
            pending.update(later);
        }
        pending
    }

    fn is_expired(&self, pending: &PendingEvent) -> bool {
        let failing = pending
            .failing_since
            .map(|since| self.clock.now().boot.since(since));
        failing.is_some_and(|failing| RETRIED < failing)
    }

    fn log_lost(&mut self, write: &EventWrite, err: &ApiError) {
        let (reason, times) = (write.pending.newest.reason.as_str(), write.pending.times);
        let (err, now) = (err.as_dyn(), self.clock.now().boot);
        if self
            .refusal_logged
            .is_none_or(|logged| WARNING_INTERVAL <= now.since(logged))
        {
            self.refusal_logged = Some(now);
            warn!(
                reason,
                times, err, "event dropped; further drops are not logged for an hour"
            );
        } else {
            debug!(reason, times, err, "event dropped");
        }
    }
}

/// Returns true if the server has rejected an Event permanently. If the server fails, is overloaded
/// or does not answer, the Event is written later.
fn is_final(err: &ApiError) -> bool {
    let answered = err.refusal().map(|refusal| refusal != Refusal::Server);
    let is_exceeded = matches!(err, ApiError::RetriesExceeded { .. });
    answered.unwrap_or(!is_exceeded) && !err.is_outage()
}
