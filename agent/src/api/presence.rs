//! Whether the API server answers, as far as our own requests have shown.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Told by every request what came of it; asked by whoever would rather wait than ask in vain.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// From all tasks that send to those that wait. Only a change wakes them.
    away: watch::Sender<bool>,
    /// Requests so far that got no answer.
    unanswered: AtomicU64,
}

/// Why a wait for the server is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Somebody got an answer.
    Answer,
    /// Nobody has asked for a while, so nobody can tell.
    Silence,
}

impl Presence {
    /// A request was answered, with whatever status.
    pub(super) fn answered(&self) {
        self.away.send_if_modified(std::mem::take);
    }

    /// A request got no answer.
    pub(super) fn unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.away
            .send_if_modified(|away| !std::mem::replace(away, true));
    }

    /// Whether the last request that ended got no answer.
    pub(super) fn is_away(&self) -> bool {
        *self.away.borrow()
    }

    /// Waits until somebody gets an answer; at most until nobody has even asked for `patience`.
    pub(super) async fn returned(&self, patience: Duration) -> Sign {
        let mut seen = self.away.subscribe();
        loop {
            let before = self.unanswered.load(Ordering::Relaxed);
            let answer = seen.wait_for(|away| !away);
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
    async fn whoever_waits_is_told_of_an_answer_and_asks_only_where_nobody_else_does() {
        let presence = Presence::default();
        assert_eq!(presence.returned(PATIENCE).await, Sign::Answer, "not away");
        let start = Instant::now();
        presence.unanswered();
        let others = async {
            for _ in 0..7 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                presence.unanswered();
            }
        };
        let (sign, ()) = tokio::join!(presence.returned(PATIENCE), others);
        assert_eq!(sign, Sign::Silence);
        // Asked last after 70 s; what happened in the 30 s around that counts.
        assert_eq!(start.elapsed(), Duration::from_mins(2));
        let back = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            presence.answered();
        };
        let (sign, ()) = tokio::join!(presence.returned(PATIENCE), back);
        assert_eq!((sign, presence.is_away()), (Sign::Answer, false));
        assert_eq!(start.elapsed(), Duration::from_secs(123));
    }
}
