//! Changes of a resource's state, and their reasons.

use serde::{Deserialize, Serialize};

use crate::pressure::oom::Grounds;
use crate::pressure::threshold::ThresholdValue;
use crate::pressure::{Cause, Pressure};
use crate::reading::{Resource, Signal};

/// The state of a resource changed. An extension of its transition period is not a change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PressureChange {
    /// The resource.
    pub resource: Resource,
    /// The previous state.
    pub from: Pressure,
    /// The new state.
    pub to: Pressure,
    /// The reason.
    pub reason: PressureReason,
}

/// Why the state of a resource changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum PressureReason {
    /// Less than a threshold was available.
    Threshold {
        /// The signal of the threshold.
        signal: Signal,
        /// The available amount.
        available: i64,
        /// The threshold in the signal's unit.
        threshold: u64,
        /// The threshold as configured.
        value: ThresholdValue,
    },
    /// A threshold was met, and its minimum reclaim is not available yet.
    Unresolved {
        /// The signal of the threshold.
        signal: Signal,
        /// The available amount.
        available: i64,
        /// The threshold as configured.
        value: ThresholdValue,
    },
    /// A disk responds late.
    SlowDisk,
    /// A disk does not respond.
    StalledDisk,
    /// A disk returns errors.
    DiskErrors,
    /// A file system returned errors.
    FilesystemShutdown,
    /// A file system became read-only.
    ReadOnlyFilesystem,
    /// The kernel killed a process because memory ran out.
    OomKill(Grounds),
    /// The API server had the condition as True when the agent started.
    Stored,
    /// A threshold was exceeded before a restart.
    Restored,
    /// No threshold was exceeded for the whole transition period.
    Below,
    /// The disk that caused it is no longer monitored.
    Unwatched,
    /// A source that it depends on can no longer be read.
    SourceLost,
}

impl PressureReason {
    /// For log fields.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Threshold { .. } => "ThresholdMet",
            Self::Unresolved { .. } => "MinimumReclaim",
            Self::SlowDisk => "SlowDisk",
            Self::StalledDisk => "StalledDisk",
            Self::DiskErrors => "DiskErrors",
            Self::FilesystemShutdown => "FilesystemShutdown",
            Self::ReadOnlyFilesystem => "ReadOnlyFilesystem",
            Self::OomKill(Grounds::ConfirmedGlobal) => "GlobalOOMKill",
            Self::OomKill(Grounds::PodsLimit) => "PodsOOMKill",
            Self::Stored => "StoredCondition",
            Self::Restored => "StateFile",
            Self::Below => "NotExceeded",
            Self::Unwatched => "DiskNotMonitored",
            Self::SourceLost => "SourceUnavailable",
        }
    }

    /// `None` if there is no pressure.
    pub(super) const fn cause(self) -> Option<Cause> {
        match self {
            Self::Threshold { signal, value, .. } | Self::Unresolved { signal, value, .. } => {
                Some(Cause::Below {
                    signal,
                    threshold: value,
                })
            }
            Self::OomKill(grounds) => Some(Cause::OomKill(grounds)),
            Self::SlowDisk
            | Self::StalledDisk
            | Self::DiskErrors
            | Self::FilesystemShutdown
            | Self::ReadOnlyFilesystem => Some(Cause::Disks),
            Self::Stored | Self::Restored => Some(Cause::Stored),
            Self::Below | Self::Unwatched | Self::SourceLost => None,
        }
    }
}
