//! Availability of the API server, according to this client's requests.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Every request updates it. Tasks that wait for the server read it instead of sending requests in
/// vain.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Wakes the waiting tasks, only on a change.
    unavailable: watch::Sender<bool>,
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
        self.unavailable.send_if_modified(std::mem::take);
    }

    pub(super) fn unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.unavailable
            .send_if_modified(|unavailable| !std::mem::replace(unavailable, true));
    }

    /// Returns true if the last finished request was not answered.
    pub(super) fn is_unavailable(&self) -> bool {
        *self.unavailable.borrow()
    }

    /// Waits until a request is answered, or until no request was sent for `patience`.
    pub(super) async fn returned(&self, patience: Duration) -> Sign {
        let mut state = self.unavailable.subscribe();
        loop {
            let before = self.unanswered.load(Ordering::Relaxed);
            let answer = state.wait_for(|unavailable| !unavailable);
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
        assert_eq!((sign, presence.is_unavailable()), (Sign::Answer, false));
        assert_eq!(start.elapsed(), Duration::from_secs(123));
    }
}
