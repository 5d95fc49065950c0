//! Whether a source of readings can be read. One failed read decides nothing; a source that fails for
//! two sampling periods, or that never gave anything, is lost.

use std::time::Duration;

use crate::clock::BootNanos;
use crate::pressure::deadline::LONGEST;

/// A source whose reads have failed for so long is lost: two sampling periods.
pub const LOST_AFTER: Duration = LONGEST.saturating_mul(2);

/// What the reads of one source gave so far.
///
/// ```text
/// Unread ──read──► Read ──failed──► Failing ──failed, LOST_AFTER after the first failure──► Lost
///    │              ▲                  │                                                     │
///    │              └──────read────────┴───────────────────────read──────────────────────────┤
///    └──failed───────────────────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// Nobody has tried to read it.
    #[default]
    NeverRead,
    /// The last read succeeded, also where it showed that there is nothing to observe.
    Read,
    /// It was readable, and is not at present. What was read last still counts.
    Failing {
        /// When the first of these reads failed.
        since: BootNanos,
    },
    /// It cannot be read. Nothing that was read before counts any more.
    Lost,
}

impl Source {
    /// After a read that failed.
    #[must_use]
    pub fn failed(self, now: BootNanos) -> Self {
        match self {
            Self::Read => Self::Failing { since: now },
            Self::Failing { since } if now.since(since) < LOST_AFTER => self,
            Self::NeverRead | Self::Failing { .. } | Self::Lost => Self::Lost,
        }
    }

    /// When it is lost, if no read succeeds until then; `None` unless it fails at present.
    #[must_use]
    pub fn lost_at(self) -> Option<BootNanos> {
        match self {
            Self::Failing { since } => Some(since.plus(LOST_AFTER)),
            Self::NeverRead | Self::Read | Self::Lost => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_lost_two_periods_after_the_first_failure_or_at_once_if_never_read() {
        use Source::{Failing, Lost, NeverRead, Read};
        let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
        let failing = |seconds| Failing { since: at(seconds) };
        let rows = [
            (NeverRead, 5, Lost, "never read"),
            (Read, 5, failing(5), "the first failure decides nothing"),
            (failing(5), 24, failing(5), "a second short"),
            (failing(5), 25, Lost, "two periods"),
            (Lost, 26, Lost, "until it can be read"),
        ];
        for (before, seconds, expected, why) in rows {
            assert_eq!(before.failed(at(seconds)), expected, "{why}");
        }
        assert_eq!(failing(5).lost_at(), Some(at(25)));
        assert_eq!(Read.lost_at(), None);
    }
}
