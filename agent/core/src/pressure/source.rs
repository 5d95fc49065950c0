//! The availability of a source of readings. One failed read changes nothing; a source that fails
//! for two sampling periods, or that was never readable, is lost.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::sample::LONGEST;

/// A source that fails for this long is lost: two sampling periods.
pub const LOST_AFTER: Duration = LONGEST.saturating_mul(2);

/// The state of one source.
///
/// ```text
/// NeverRead ─read─► Read ──failed──► Failing ──failed, LOST_AFTER after the first failure──► Lost
///    │               ▲                  │                                                     │
///    │               └──────read────────┴───────────────────────read──────────────────────────┤
///    └──failed────────────────────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SourceState {
    #[default]
    NeverRead,
    /// The last read succeeded, even if it showed that there is nothing to observe.
    Read,
    /// The source was readable before. The last value still applies.
    Failing {
        /// Time of the first failed read.
        since: BootNanos,
    },
    /// The source cannot be read. Earlier values no longer apply.
    Lost,
}

impl SourceState {
    #[must_use]
    pub fn failed(self, now: BootNanos) -> Self {
        match self {
            Self::Read => Self::Failing { since: now },
            Self::Failing { since } if now.since(since) < LOST_AFTER => self,
            Self::NeverRead | Self::Failing { .. } | Self::Lost => Self::Lost,
        }
    }

    /// Returns the time at which it will be lost if no read succeeds before; `None` unless it is
    /// failing.
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
        use SourceState::{Failing, Lost, NeverRead, Read};
        let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
        let failing = |seconds| Failing { since: at(seconds) };
        let rows = [
            (NeverRead, 5, Lost, "never read"),
            (Read, 5, failing(5), "the first failure changes nothing"),
            (failing(5), 24, failing(5), "one second short"),
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
