//! Detects a disk that returns errors.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;

/// A disk with this many errors within a minute is failing. A single error may be a bad sector that
/// the disk replaces.
pub const ERRORS: usize = 3;

const PERIOD: Duration = Duration::from_mins(1);

/// The last errors of a disk.
///
/// ```text
/// Sound ──ERRORS within PERIOD──► Failing ──fewer within it──► Sound
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Errors {
    /// At most [`ERRORS`], the oldest first.
    last: VecDeque<BootNanos>,
    failing: bool,
}

impl Errors {
    pub(super) const fn is_failing(&self) -> bool {
        self.failing
    }

    /// Adds a read or write that failed at `at`.
    pub(super) fn add(&mut self, at: BootNanos) {
        if self.last.len() == ERRORS {
            self.last.pop_front();
        }
        self.last.push_back(at);
    }

    /// Returns the number of errors in the last minute, at most [`ERRORS`].
    pub(super) fn recent(&self, now: BootNanos) -> usize {
        let recent = self.last.iter().filter(|at| now.since(**at) < PERIOD);
        recent.count()
    }

    /// Returns true if the state changed.
    pub(super) fn update(&mut self, now: BootNanos) -> bool {
        let is_recent = |first: &BootNanos| now.since(*first) < PERIOD;
        let failing = self.last.len() == ERRORS && self.last.front().is_some_and(is_recent);
        let changed = self.failing != failing;
        self.failing = failing;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_errors_within_a_minute_are_a_failing_disk() {
        // Seconds of the errors, second of the check, expected.
        let rows: [(&[u64], u64, bool); 6] = [
            (&[1, 2], 2, false),
            (&[1, 2, 3], 3, true),
            (&[1, 2, 60], 60, true),
            (&[1, 2, 61], 61, false),
            (&[1, 31, 60, 90], 90, true),
            (&[1, 2, 3], 61, false),
        ];
        for (seconds, now, expected) in rows {
            let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
            let mut errors = Errors::default();
            for second in seconds {
                errors.add(at(*second));
            }
            assert_eq!(errors.update(at(now)), expected, "{seconds:?}");
            assert_eq!(errors.is_failing(), expected, "{seconds:?} at {now}");
            assert!(!errors.update(at(now)), "no other change");
        }
    }

    #[test]
    fn a_failing_disk_is_sound_once_fewer_errors_are_recent() {
        let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
        let mut errors = Errors::default();
        for second in [1, 2, 3] {
            errors.add(at(second));
        }
        // Second, state changes, disk is failing, recent errors.
        let rows = [
            (3, true, true, 3),
            (60, false, true, 3),
            (61, true, false, 2),
            (63, false, false, 0),
        ];
        for (now, changes, failing, recent) in rows {
            assert_eq!(errors.update(at(now)), changes, "at {now}");
            assert_eq!(errors.is_failing(), failing, "at {now}");
            assert_eq!(errors.recent(at(now)), recent, "at {now}");
        }
    }
}
