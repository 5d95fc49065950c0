//! Pressure of resources: turns readings and thresholds into one state for each resource.
//!
//! A reading is the same, whether it comes from a file or an event.

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
pub mod frequent_kills;
pub mod io_wait;
pub mod kept;
pub mod oom;
pub mod pids;
pub mod refusals;
pub mod sample;
pub mod shortage;
pub mod source;
pub mod stall;
pub mod threshold;

/// The state of one resource. Transitions are in [`kept`].
///
/// A grace period (soft thresholds) delays eviction in a kubelet, never the condition, so it has no
/// state here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Pressure {
    /// No source has been read yet, or there is none.
    #[default]
    Unknown,
    /// No threshold has been exceeded for the transition period.
    Normal,
    /// The condition is True until no threshold has been exceeded for the transition period.
    UnderPressure {
        /// Time at which a threshold was last exceeded.
        last_exceeded: BootNanos,
    },
}

/// The rules by which readings are evaluated. Replaced as a whole when the configuration changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// In the order of evaluation. A signal can have both a hard and a soft threshold.
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`: the time without an exceeded threshold after which the
    /// condition becomes False.
    pub transition_period: Duration,
    /// `diskIO.raisesDiskPressure`.
    pub slow_disks: SlowDisks,
}

impl Policy {
    /// Returns the first threshold on a signal in the order of evaluation: the hard one, if there
    /// is one.
    pub fn threshold(&self, signal: Signal) -> Option<ThresholdValue> {
        self.thresholds
            .iter()
            .find(|t| t.signal == signal)
            .map(|t| t.value)
    }
}

/// The effect of slow and failing disks in addition to `DiskIOPressure` and `DiskFailing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlowDisks {
    /// No effect: `DiskPressure` is about space and inodes only.
    NodepulseConditionOnly,
    /// `DiskPressure` becomes True too, for users who want the control plane's taint.
    RaiseDiskPressure,
}

/// The reason for the pressure on a resource, for a condition's message. It has no figures, because
/// a message must not change with every sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Cause {
    /// Less than the threshold was available.
    Below {
        signal: Signal,
        threshold: ThresholdValue,
    },
    /// The kernel killed a process because memory ran out.
    OomKill(Grounds),
    /// A disk is unhealthy, or a file system became read-only.
    Disks,
    /// The API server had the condition as True when the agent started.
    Stored,
}

/// The time at which a threshold was last exceeded, if that still keeps a condition True.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Exceeded {
    /// No threshold was exceeded within the transition period.
    #[default]
    Never,
    At(BootNanos),
    /// A threshold is exceeded according to the last sample.
    Now,
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "Unknown",
            Self::Normal => "False",
            Self::UnderPressure { .. } => "True",
        })
    }
}
