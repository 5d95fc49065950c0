//! Decides for how long a condition is True: until nothing exceeded it for the transition period,
//! also across a restart. Resources, stalls and kills share this rule.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Pressure;
use crate::clock::BootNanos;

/// The state of a condition.
///
/// ```text
///                ┌────────────────── exceed ──────────────────┐
///                │                                            ▼
/// Unknown ── readable ──► Normal ──── exceed, seed ────────► Kept ─ exceed ► moves last_exceeded
///    ▲                      ▲ │                               │ │
///    │                      │ └─ lose ─► Unknown              │ │
///    │                      └── advance, period expired ──────┘ │
///    └──────────────── lose: last_exceeded is remembered ───────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeptTrue {
    /// The source has not been read yet, or is lost.
    Unknown {
        /// Time of the last excess, if the source becomes readable within the transition period.
        last_exceeded: Option<BootNanos>,
    },
    /// Nothing exceeded it for the transition period.
    Normal {
        /// Time since which nothing exceeded it, the transition period included.
        since: BootNanos,
    },
    Kept {
        /// Time of the last excess. In the future if that is known already.
        last_exceeded: BootNanos,
    },
}

impl KeptTrue {
    pub const UNREAD: Self = Self::Unknown {
        last_exceeded: None,
    };

    pub const fn pressure(self) -> Pressure {
        match self {
            Self::Unknown { .. } => Pressure::Unknown,
            Self::Normal { .. } => Pressure::Normal,
            Self::Kept { last_exceeded } => Pressure::UnderPressure { last_exceeded },
        }
    }

    /// Returns the time of the last excess, if that keeps the condition, or would keep it once the
    /// source is readable.
    pub const fn last_exceeded(self) -> Option<BootNanos> {
        match self {
            Self::Unknown { last_exceeded } => last_exceeded,
            Self::Normal { .. } => None,
            Self::Kept { last_exceeded } => Some(last_exceeded),
        }
    }

    /// Returns the time at which the condition ends if it is not exceeded again.
    pub fn ends_at(self, transition_period: Duration) -> Option<BootNanos> {
        let last_exceeded = self.last_exceeded()?;
        Some(last_exceeded.plus(transition_period))
    }

    /// Takes an excess at `at`. Records can be out of order; the period never becomes shorter.
    pub fn exceed(&mut self, at: BootNanos) {
        let last_exceeded = self.last_exceeded().map_or(at, |last| last.max(at));
        *self = Self::Kept { last_exceeded };
    }

    /// Takes an excess at `at`, before a restart. An unknown state stays unknown until the source
    /// can be read.
    pub fn restore(&mut self, at: BootNanos) {
        match self {
            Self::Unknown { last_exceeded } => *last_exceeded = (*last_exceeded).max(Some(at)),
            Self::Normal { .. } | Self::Kept { .. } => self.exceed(at),
        }
    }

    /// Applies a condition that the API server had as True when the agent started. The time of the
    /// last excess is unknown, so it is kept for a transition period from when it was first found
    /// normal. Returns true if it is kept by this call.
    pub fn seed(&mut self, transition_period: Duration, now: BootNanos) -> bool {
        match *self {
            Self::Normal { since } if now.since(since) < transition_period => {
                self.exceed(since);
                true
            }
            Self::Unknown { .. } | Self::Normal { .. } | Self::Kept { .. } => false,
        }
    }

    pub fn advance(&mut self, transition_period: Duration, now: BootNanos) {
        let Some(last_exceeded) = self.last_exceeded() else {
            return;
        };
        if now.since(last_exceeded) < transition_period {
            return;
        }
        *self = match self {
            Self::Kept { .. } => Self::Normal {
                since: last_exceeded,
            },
            Self::Unknown { .. } | Self::Normal { .. } => Self::UNREAD,
        };
    }

    /// Takes the information that the source can be read.
    pub const fn readable(&mut self, now: BootNanos) {
        match *self {
            Self::Unknown {
                last_exceeded: Some(last_exceeded),
            } => *self = Self::Kept { last_exceeded },
            Self::Unknown {
                last_exceeded: None,
            } => *self = Self::Normal { since: now },
            Self::Normal { .. } | Self::Kept { .. } => {}
        }
    }

    /// Takes the information that the source is lost.
    pub const fn lose(&mut self) {
        *self = Self::Unknown {
            last_exceeded: self.last_exceeded(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::boot as at;

    const PERIOD: Duration = Duration::from_mins(5);

    fn kept(seconds: u64) -> KeptTrue {
        KeptTrue::Kept {
            last_exceeded: at(seconds),
        }
    }

    fn normal(seconds: u64) -> KeptTrue {
        KeptTrue::Normal { since: at(seconds) }
    }

    fn unknown(seconds: u64) -> KeptTrue {
        KeptTrue::Unknown {
            last_exceeded: Some(at(seconds)),
        }
    }

    #[test]
    fn every_input_leads_to_one_state() {
        type Step = fn(&mut KeptTrue, BootNanos);
        let exceed: Step = KeptTrue::exceed;
        let restore: Step = KeptTrue::restore;
        let readable: Step = KeptTrue::readable;
        let lose: Step = |state, _| state.lose();
        let advance: Step = |state, now| state.advance(PERIOD, now);
        let seed: Step = |state, now| {
            state.seed(PERIOD, now);
        };
        let never = KeptTrue::UNREAD;
        // Before, input, at s, after, why.
        let rows = [
            (never, exceed, 5, kept(5), "at once"),
            (normal(1), exceed, 5, kept(5), "at once"),
            (kept(9), exceed, 5, kept(9), "out of order"),
            (kept(5), exceed, 9, kept(9), "the period starts again"),
            (never, readable, 5, normal(5), "first read"),
            (unknown(5), readable, 9, kept(5), "readable in time"),
            (kept(5), readable, 9, kept(5), "read before"),
            (kept(5), lose, 9, unknown(5), "remembered"),
            (normal(5), lose, 9, never, "nothing to remember"),
            (kept(5), advance, 304, kept(5), "a second short"),
            (kept(5), advance, 305, normal(5), "the whole period"),
            (kept(900), advance, 305, kept(900), "exceeded until then"),
            (unknown(5), advance, 305, never, "expired unread"),
            (normal(5), advance, 999, normal(5), "normal stays so"),
            (never, restore, 5, unknown(5), "not readable yet"),
            (normal(9), restore, 5, kept(5), "readable"),
            (kept(9), restore, 5, kept(9), "exceeded since"),
            (normal(5), seed, 304, kept(5), "normal for less"),
            (normal(5), seed, 305, normal(5), "normal for as long"),
            (never, seed, 5, never, "the source is lost"),
            (kept(5), seed, 9, kept(5), "known by itself"),
        ];
        for (before, input, seconds, expected, why) in rows {
            let mut state = before;
            input(&mut state, at(seconds));
            assert_eq!(state, expected, "{before:?} at {seconds} s: {why}");
        }
    }
}
