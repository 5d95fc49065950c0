//! Changes of a resource's state, and their reasons.

use serde::{Deserialize, Serialize};

use crate::pressure::oom::Grounds;
use crate::pressure::threshold::ThresholdValue;
use crate::pressure::{Cause, Pressure};
use crate::reading::{Resource, Signal};

/// A change of a resource's state. An extension of its transition period is not a change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PressureChange {
    pub resource: Resource,
    pub from: Pressure,
    pub to: Pressure,
    pub reason: PressureReason,
}

/// The reason for a change of a resource's state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum PressureReason {
    /// Less than the threshold was available.
    Threshold {
        signal: Signal,
        /// In the signal's unit; negative if a cgroup exceeds its limit.
        available: i64,
        /// In the signal's unit.
        threshold: u64,
        value: ThresholdValue,
    },
    /// The threshold was met, and its minimum reclaim is not available yet.
    Unresolved {
        signal: Signal,
        /// In the signal's unit; negative if a cgroup exceeds its limit.
        available: i64,
        value: ThresholdValue,
    },
    SlowDisk,
    StalledDisk,
    DiskErrors,
    /// A file system returned errors.
    FilesystemShutdown,
    ReadOnlyFilesystem,
    OomKill(Grounds),
    /// The API server had the condition as True when the agent started.
    Stored,
    /// A threshold was exceeded before a restart.
    Restored,
    /// No threshold was exceeded for the whole transition period.
    Below,
    /// The disk that caused the pressure is no longer monitored.
    Unwatched,
    /// A source of the resource can no longer be read.
    SourceLost,
}

impl PressureReason {
    /// Returns the name in log fields.
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

    /// Returns `None` if there is no pressure.
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
