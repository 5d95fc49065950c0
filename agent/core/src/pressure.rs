//! Pressure of resources: readings and thresholds in, one state per resource out.
//!
//! Knows neither files nor events: a reading is the same whatever its source.

use std::fmt;
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
pub mod io_wait;
pub mod kept;
pub mod kills;
pub mod oom;
pub mod pids;
pub mod refusals;
pub mod sample;
pub mod shortage;
pub mod source;
pub mod stall;
pub mod threshold;

/// Whether one resource is under pressure; how it becomes so and ceases to be is in [`kept`].
///
/// A grace period (soft thresholds) delays eviction in a kubelet, never the condition, so it has no
/// state here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Pressure {
    /// No reading yet, or no source to read from.
    #[default]
    Unknown,
    /// No threshold was exceeded for the transition period.
    Normal,
    /// Reported as `True`, until no threshold was exceeded for the transition period.
    UnderPressure {
        /// The last moment at which a threshold was exceeded.
        last_exceeded: BootNanos,
    },
}

/// How readings are evaluated. Replaced as a whole when the configuration changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// In the order of evaluation. A signal can have both a hard and a soft threshold.
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`: how long no threshold may be exceeded before the
    /// condition becomes False.
    pub transition_period: Duration,
    /// `diskIO.raisesDiskPressure`.
    pub slow_disks: SlowDisks,
}

impl Policy {
    /// The first threshold on a signal, in the order of evaluation: the hard one, if there is one.
    pub fn threshold(&self, signal: Signal) -> Option<ThresholdValue> {
        self.thresholds
            .iter()
            .find(|t| t.signal == signal)
            .map(|t| t.value)
    }
}

/// What slow and failing disks cause in addition to `DiskIOPressure` and `DiskFailing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlowDisks {
    /// Nothing: `DiskPressure` is about space and inodes only.
    NodepulseConditionOnly,
    /// `DiskPressure` becomes True too, for users who want the control plane's taint.
    RaiseDiskPressure,
}

/// Why a resource is under pressure, without figures that change: for a condition's message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Cause {
    /// Less than a threshold was available.
    Below {
        /// The signal of the threshold.
        signal: Signal,
        /// The threshold as configured.
        threshold: ThresholdValue,
    },
    /// The kernel killed a process because memory ran out.
    OomKill(Grounds),
    /// A disk is unhealthy, or a file system became read-only.
    Disks,
    /// The API server had the condition as True when the agent started.
    Stored,
}

/// When a threshold was last exceeded, if that still keeps a condition True.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Exceeded {
    /// Not within the transition period.
    #[default]
    Never,
    /// At this moment.
    At(BootNanos),
    /// It still is, according to the last sample.
    Now,
}

impl fmt::Display for Pressure {
    /// As the status of a condition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "Unknown",
            Self::Normal => "False",
            Self::UnderPressure { .. } => "True",
        })
    }
}
