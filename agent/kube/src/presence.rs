//! Availability of the API server, according to this client's requests.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Shorter times without an answer can be faults of one kind of request, while others are answered.
/// In node mode, a lease is renewed every 10 s.
const OUTAGE: Duration = Duration::from_secs(10);

/// The number of refusals after an outage that are not taken for a missing permission: a server
/// answers before it has read its roles and before all of its parts are ready.
pub(super) const REFUSED_AT_START: u32 = 5;

/// Every request updates it. Tasks that wait for the server read it instead of sending requests in
/// vain.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Since when; `None`: it is available. Wakes the waiting tasks, only on a change.
    unavailable: watch::Sender<Option<Instant>>,
    unanswered: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Answer,
    /// No request was sent for a while, so the state is unknown.
    Silence,
}

impl Presence {
    /// Records a request that was answered, with any status.
    pub(super) fn answered(&self) {
        self.unavailable
            .send_if_modified(|since| since.take().is_some());
    }

    pub(super) fn unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.unavailable.send_if_modified(|since| {
            let is_new = since.is_none();
            since.get_or_insert_with(Instant::now);
            is_new
        });
    }

    /// Returns true if no request was answered for as long as an outage lasts at least.
    pub(super) fn is_outage(&self) -> bool {
        let since = *self.unavailable.borrow();
        since.is_some_and(|since| OUTAGE <= since.elapsed())
    }

    /// Waits until a request is answered, or until no request was sent for `patience`.
    pub(super) async fn returned(&self, patience: Duration) -> Sign {
        let mut state = self.unavailable.subscribe();
        loop {
            let before = self.unanswered.load(Ordering::Relaxed);
            let answer = state.wait_for(Option::is_none);
            if timeout(patience, answer).await.is_ok() {
                return Sign::Answer;
            }
            if self.unanswered.load(Ordering::Relaxed) == before {
                return Sign::Silence;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_waiting_task_is_woken_by_an_answer_and_sends_only_if_no_other_task_does() {
        let presence = Presence::default();
        assert_eq!(presence.returned(PATIENCE).await, Sign::Answer, "available");
        let start = Instant::now();
        presence.unanswered();
        let other_requests = async {
            for _ in 0..7 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                presence.unanswered();
            }
        };
        let (sign, ()) = tokio::join!(presence.returned(PATIENCE), other_requests);
        assert_eq!(sign, Sign::Silence);
        // The last request was after 70 s; requests within 30 s count.
        assert_eq!(start.elapsed(), Duration::from_mins(2));
        let back = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            presence.answered();
        };
        let (sign, ()) = tokio::join!(presence.returned(PATIENCE), back);
        assert_eq!((sign, presence.is_outage()), (Sign::Answer, false));
        assert_eq!(start.elapsed(), Duration::from_secs(123));
    }
}
