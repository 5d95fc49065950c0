//! What "under pressure" means: readings and thresholds in, one state per resource out.
//!
//! Knows neither files nor events: a reading looks the same wherever it was learnt.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::oom::Grounds;
use crate::pressure::threshold::{Threshold, ThresholdValue};
use crate::reading::Signal;

pub mod change;
pub mod deadline;
pub mod disks;
pub mod evaluate;
pub mod kills;
pub mod oom;
pub mod pids;
pub mod refusals;
pub mod sample;
pub mod source;
pub mod stall;
pub mod threshold;

/// Whether one resource is under pressure.
///
/// ```text
/// Unread ──below──► Relieved ◄──below for transition_period──┐
///    │                  │                                     │
///    └──────over────────┴──────────over──────────────► UnderPressure ──over──► (last_over moves)
/// ```
///
/// A grace period (soft thresholds) delays eviction in a kubelet, never the condition: it has no
/// state here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Pressure {
    /// No reading yet, or no source to read from.
    #[default]
    Unknown,
    /// Below, and for long enough.
    Normal,
    /// Reported as `True`. Held until nothing has been over for the transition period.
    UnderPressure {
        /// The last moment at which it was over.
        last_exceeded: BootNanos,
    },
}

/// By what the readings are judged. Replaced as a whole when the configuration changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// In the order in which they are judged. Hard and soft ones for one signal may coexist.
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`: how long a resource must not have been over before its
    /// condition ends.
    pub transition_period: Duration,
    /// `diskIO.raisesDiskPressure`.
    pub slow_disks: SlowDisks,
}

impl Policy {
    /// The first threshold on a signal, in the order in which they are judged: the hard one, where
    /// there is one.
    #[must_use]
    pub fn threshold(&self, signal: Signal) -> Option<ThresholdValue> {
        self.thresholds
            .iter()
            .find(|t| t.signal == signal)
            .map(|t| t.value)
    }
}

/// What slow and stalled disks do beside `DiskIOPressure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowDisks {
    /// Nothing: `DiskPressure` stays about space and inodes.
    NodepulseConditionOnly,
    /// They raise `DiskPressure` too, for those who want the control plane's taint.
    RaiseDiskPressure,
}

/// Why a resource is under pressure, without the numbers that move: for the words of a condition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// Less than a threshold was available.
    Below {
        /// On what.
        signal: Signal,
        /// As it was configured.
        threshold: ThresholdValue,
    },
    /// The kernel killed for want of memory.
    OomKill(Grounds),
    /// Disks are not well.
    Disks,
    /// The API server had it as True when we started.
    Stored,
}

/// When something was last exceeded, as far as that still holds a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Exceeded {
    /// Not within the transition period.
    #[default]
    Never,
    /// At this moment.
    At(BootNanos),
    /// By the last look it still is.
    Now,
}

/// One look at one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// At least one threshold is met.
    Exceeded,
    /// None is.
    NotExceeded,
}

impl Pressure {
    /// The state after one look.
    #[must_use]
    pub fn step(self, observed: Observed, transition_period: Duration, now: BootNanos) -> Self {
        match (self, observed) {
            (Self::Unknown | Self::Normal | Self::UnderPressure { .. }, Observed::Exceeded) => {
                Self::UnderPressure { last_exceeded: now }
            }
            (Self::UnderPressure { last_exceeded }, Observed::NotExceeded)
                if now.since(last_exceeded) < transition_period =>
            {
                self
            }
            (Self::Unknown | Self::Normal | Self::UnderPressure { .. }, Observed::NotExceeded) => {
                Self::Normal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_at_once_and_falls_after_the_transition_period() {
        use Observed::{Exceeded, NotExceeded};
        use Pressure::{Normal, UnderPressure, Unknown};

        let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
        let over = |seconds| UnderPressure {
            last_exceeded: at(seconds),
        };
        //  at s  look   then             why
        let script = [
            (0, NotExceeded, Normal, "calm"),
            (5, Exceeded, over(5), "over: no grace for a condition"),
            (
                6,
                NotExceeded,
                over(5),
                "below, but it has only just been over",
            ),
            (9, Exceeded, over(9), "over again: the period starts anew"),
            (308, NotExceeded, over(9), "one second short of the period"),
            (309, NotExceeded, Normal, "below for the whole period"),
        ];

        let mut pressure = Unknown;
        for (seconds, observed, expected, why) in script {
            pressure = pressure.step(observed, Duration::from_mins(5), at(seconds));
            assert_eq!(pressure, expected, "at {seconds} s: {why}");
        }
    }
}
