//! Detects a disk that completes no requests.
//!
//! A hung disk completes no request, so no program observes it. Two samples show it: requests in
//! flight, and none completed in between. The begin of the hang is the last completion, if the disk
//! was busy until then. Otherwise it is the time when tasks began to wait: a disk that was idle for
//! hours completed its last request hours ago, but hangs only since the next request was sent to
//! it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DiskRules;
use crate::clock::BootNanos;

/// Waiting tasks are reported within this time: the window of the trigger, and the time until the
/// kernel evaluates it. A disk whose last completion is not older was busy until then.
const REPORTED_WITHIN: Duration = Duration::from_millis(2_500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Requests {
    /// Counted since the disk appeared.
    pub(super) completed: u64,
    pub(super) in_flight: u64,
    /// Time of the last completion; `None` if unknown.
    pub(super) last_completion: Option<BootNanos>,
}

/// The state of the requests of a disk.
///
/// ```text
///            requests in flight                  none completed for stalledAfter
/// Completing ──────────────────► Pending{since} ────────────────────────────────► Stalled
///   ▲ ▲                            │ │      ▲ one completed, others in flight        │
///   │ └──── none in flight ────────┘ └──────┘ (moves since)                          │
///   └────────────────────── one completed, or none in flight ────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Progress {
    /// The last sample showed neither of the other states.
    #[default]
    Completing,
    Pending {
        /// No request has completed since.
        since: BootNanos,
        /// Counted since the disk appeared.
        completed: u64,
    },
    /// The disk does not complete the requests in flight.
    Stalled {
        /// No request has completed since.
        since: BootNanos,
        /// Counted since the disk appeared.
        completed: u64,
    },
}

impl Progress {
    pub(super) const fn is_stalled(self) -> bool {
        matches!(self, Self::Stalled { .. })
    }

    /// Returns the time since which no request has completed; `None` if none is in flight.
    pub(super) const fn since(self) -> Option<BootNanos> {
        match self {
            Self::Completing => None,
            Self::Pending { since, .. } | Self::Stalled { since, .. } => Some(since),
        }
    }

    /// Returns the time at which the next sample decides if the disk is stalled.
    pub(super) fn decided_at(self, rules: &DiskRules) -> Option<BootNanos> {
        match self {
            Self::Pending { since, .. } => Some(since.plus(rules.stalled_after)),
            Self::Completing | Self::Stalled { .. } => None,
        }
    }

    /// Returns the state after a sample. Tasks wait for I/O since `waiting`, if that was reported.
    #[must_use]
    pub(super) fn after(
        self,
        requests: Requests,
        waiting: Option<BootNanos>,
        rules: &DiskRules,
        now: BootNanos,
    ) -> Self {
        let Requests {
            completed,
            in_flight,
            last_completion,
        } = requests;
        if in_flight == 0 {
            return Self::Completing;
        }
        match self {
            Self::Stalled {
                completed: before, ..
            } if before == completed => self,
            Self::Pending {
                since,
                completed: before,
            } if before == completed => {
                if now < since.plus(rules.stalled_after) {
                    self
                } else {
                    Self::Stalled { since, completed }
                }
            }
            Self::Completing | Self::Pending { .. } | Self::Stalled { .. } => {
                let since = began(waiting.unwrap_or(now), last_completion, rules);
                Self::Pending {
                    since: since.min(now),
                    completed,
                }
            }
        }
    }
}

/// Returns the earliest time since which the requests in flight may not complete.
fn began(waiting: BootNanos, last_completion: Option<BootNanos>, rules: &DiskRules) -> BootNanos {
    // Even if the disk was idle in between, a request has been in flight for half of the time.
    let busy = REPORTED_WITHIN.min(rules.stalled_after / 2);
    match last_completion {
        Some(last) if waiting <= last.plus(busy) => last,
        Some(_) | None => waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::RULES;
    use super::*;

    fn at(millis: u64) -> BootNanos {
        BootNanos(millis * 1_000_000)
    }

    fn requests(completed: u64, in_flight: u64, last_completion: Option<u64>) -> Requests {
        Requests {
            completed,
            in_flight,
            last_completion: last_completion.map(at),
        }
    }

    #[test]
    fn a_hang_begins_at_the_last_completion_of_a_busy_disk_or_when_tasks_wait() {
        // Last completion, start of the wait, sample, begin of the hang.
        let hours = 10_000_000;
        #[rustfmt::skip]
        let rows = [
            (Some(hours), Some(hours + 300), hours + 500, hours, "busy until then"),
            (Some(hours + 100), Some(hours), hours + 500, hours + 100, "completed since"),
            (Some(hours), Some(hours + 2500), hours + 2900, hours, "another disk before"),
            (Some(5), Some(hours), hours + 500, hours, "idle for hours"),
            (None, Some(hours), hours + 500, hours, "no program"),
            (None, None, hours, hours, "neither program nor trigger"),
            (Some(hours - 100), None, hours, hours - 100, "no trigger, busy"),
            (Some(5), None, hours, hours, "no trigger, idle"),
            (Some(hours + 9), None, hours, hours, "completed after the sample"),
        ];
        for (last, waiting, now, since, why) in rows {
            let sample = requests(7, 1, last);
            let state = Progress::default().after(sample, waiting.map(at), &RULES, at(now));
            let expected = Progress::Pending {
                since: at(since),
                completed: 7,
            };
            assert_eq!(state, expected, "{why}");
            assert_eq!(state.decided_at(&RULES), Some(at(since + 10_000)), "{why}");
        }
        let short = DiskRules {
            stalled_after: Duration::from_secs(2),
            ..RULES
        };
        let state = Progress::default();
        let state = state.after(requests(7, 1, Some(0)), Some(at(1500)), &short, at(1800));
        assert_eq!(state.since(), Some(at(1500)), "maybe idle until then");
    }

    #[test]
    fn it_is_stalled_once_none_completed_for_long_enough() {
        // At ms, completed, in flight, last completion; then, stalled, start of the pending
        // requests.
        #[rustfmt::skip]
        let script = [
            (500, 7, 2, Some(0), false, Some(0), "requests in flight"),
            (9_999, 7, 2, Some(0), false, Some(0), "a moment early"),
            (10_000, 7, 3, Some(0), true, Some(0), "none completed"),
            (12_000, 7, 3, Some(0), true, Some(0), "still"),
            (14_000, 8, 3, Some(13_000), false, Some(13_000), "one completed"),
            (23_500, 9, 3, Some(23_000), false, Some(23_000), "slow, not stalled"),
            (33_000, 9, 0, Some(23_000), false, None, "none is in flight"),
            (50_000, 9, 1, Some(23_000), false, Some(50_000), "a new request"),
        ];
        let mut state = Progress::default();
        for (now, completed, in_flight, last, stalled, since, why) in script {
            state = state.after(requests(completed, in_flight, last), None, &RULES, at(now));
            assert_eq!(state.is_stalled(), stalled, "{why}");
            assert_eq!(state.since(), since.map(at), "{why}");
            let is_open = since.is_some() && !stalled;
            assert_eq!(state.decided_at(&RULES).is_some(), is_open, "{why}");
        }
    }
}
