//! What "under pressure" means: readings and thresholds in, one state per resource out.
//!
//! Knows neither files nor events: a reading looks the same wherever it was learnt.

#![forbid(unsafe_code)]

use std::time::Duration;

use crate::clock::BootNanos;

pub mod deadline;
pub mod evaluate;
pub mod oom;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// No reading yet, or no source to read from.
    Unread,
    /// Below, and for long enough.
    Relieved,
    /// Reported as `True`. Held until nothing has been over for the transition period.
    UnderPressure {
        /// The last moment at which it was over.
        last_over: BootNanos,
    },
}

/// One look at one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// At least one threshold is met.
    Over,
    /// None is.
    Below,
}

impl Pressure {
    /// The state after one look.
    #[must_use]
    pub fn step(self, observed: Observed, transition_period: Duration, now: BootNanos) -> Self {
        match (self, observed) {
            (Self::Unread | Self::Relieved | Self::UnderPressure { .. }, Observed::Over) => {
                Self::UnderPressure { last_over: now }
            }
            (Self::UnderPressure { last_over }, Observed::Below)
                if now.since(last_over) < transition_period =>
            {
                self
            }
            (Self::Unread | Self::Relieved | Self::UnderPressure { .. }, Observed::Below) => {
                Self::Relieved
            }
        }
    }
}
