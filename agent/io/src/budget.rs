//! A limit of the rate of events.

#![forbid(unsafe_code)]

use std::time::Duration;

use tokio::time::Instant;

/// Allows a number of events at once, and after that one for each interval.
#[derive(Debug)]
pub struct Budget {
    burst: u32,
    interval: Duration,
    left: u32,
    /// Time at which `left` was last raised, or full.
    raised: Instant,
}

impl Budget {
    pub const fn new(burst: u32, interval: Duration, now: Instant) -> Self {
        Self {
            burst,
            interval,
            left: burst,
            raised: now,
        }
    }

    /// Counts one event and returns true if it is allowed at `now`.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.raised).as_nanos();
        let earned = passed.checked_div(self.interval.as_nanos()).unwrap_or(0);
        let earned = u32::try_from(earned).unwrap_or(u32::MAX).min(self.burst);
        self.give(earned);
        if self.left == self.burst {
            self.raised = now;
        } else {
            self.raised += self.interval * earned;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Allows `more` events, up to the number at once.
    pub fn give(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_allows_its_burst_and_then_one_for_each_interval() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut budget = Budget::new(3, Duration::from_millis(100), start);
        // milliseconds, requests, allowed ones
        let table = [
            (0, 5, 3),
            (99, 1, 0),
            (100, 2, 1),
            (299, 1, 1),
            (300, 2, 1),
            (9_000, 9, 3),
        ];
        for (millis, requests, allowed) in table {
            let got = (0..requests).filter(|_| budget.take(at(millis))).count();
            assert_eq!(got, allowed, "at {millis} ms");
        }
        budget.give(2);
        assert_eq!((0..9).filter(|_| budget.take(at(9_000))).count(), 2);
    }
}
