//! How many syncs the transitions of conditions may cause in addition to the regular ones.
//!
//! Each status write goes to every watcher of Nodes, so a flapping condition must not cause a
//! stream of writes: the first transition is sent at once, then at most one a second, from a bucket
//! of five that is refilled by one every ten seconds. Transitions that wait are sent together.

use std::time::Duration;

use crate::clock::BootNanos;

/// Capacity of the bucket.
const TOKENS: u32 = 5;
/// Time after which one token is refilled.
const REFILL: Duration = Duration::from_secs(10);
/// Minimum interval between two syncs.
const SPACING: Duration = Duration::from_secs(1);

/// What to do with a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Sync now; the token is taken.
    Now,
    /// Ask again then.
    At(BootNanos),
}

/// The bucket.
#[derive(Debug, Clone, Copy)]
pub struct EdgeBudget {
    tokens: u32,
    /// Start of the current refill.
    refilled: BootNanos,
    last: Option<BootNanos>,
}

impl EdgeBudget {
    /// A full bucket.
    pub const fn new(now: BootNanos) -> Self {
        Self {
            tokens: TOKENS,
            refilled: now,
            last: None,
        }
    }

    /// Whether a transition may cause a sync at `now`.
    pub fn admit(&mut self, now: BootNanos) -> Admission {
        while self.tokens < TOKENS && self.refilled.plus(REFILL) <= now {
            self.tokens += 1;
            self.refilled = self.refilled.plus(REFILL);
        }
        let spaced = self.last.map_or(now, |last| last.plus(SPACING));
        if now < spaced {
            return Admission::At(spaced);
        }
        if self.tokens == 0 {
            return Admission::At(self.refilled.plus(REFILL));
        }
        if self.tokens == TOKENS {
            self.refilled = now;
        }
        self.tokens -= 1;
        self.last = Some(now);
        Admission::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootNanos {
        BootNanos(millis * 1_000_000)
    }

    #[test]
    fn the_first_transition_is_sent_at_once_and_the_others_within_the_budget() {
        use Admission::{At, Now};

        let mut budget = EdgeBudget::new(at(0));
        let script = [
            (100, Now, "the first"),
            (101, At(at(1_100)), "a millisecond later"),
            (1_100, Now, "a second later"),
            (2_100, Now, "third"),
            (3_100, Now, "fourth"),
            (4_100, Now, "fifth: the bucket is empty"),
            (
                5_100,
                At(at(10_100)),
                "until ten seconds after the first was taken",
            ),
            (10_099, At(at(10_100)), "one millisecond short"),
            (10_100, Now, "the refilled one"),
            (11_100, At(at(20_100)), "empty again"),
            (90_000, Now, "after a long pause"),
            (91_000, Now, "from a full bucket"),
        ];
        for (millis, expected, why) in script {
            assert_eq!(budget.admit(at(millis)), expected, "at {millis} ms: {why}");
        }
    }
}
