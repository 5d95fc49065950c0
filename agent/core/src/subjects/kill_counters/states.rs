//! The states of the counters of kills: of their reading, of saving, and of what is missing.

use serde::{Deserialize, Serialize};

use super::ledger::ByOwner;
use crate::clock::BootNanos;
use crate::kube_event::{KillOwner, Period};

/// Whether the counters are to be read.
///
/// ```text
///        wanted            a sample, once the wait is over
///  Idle ────────► Wanted ──────────────────────────────────► Asked ── wanted ──► AskedAndWanted
///   ▲                ▲                                         │                       │
///   └── answer ──────│─────────────────────────────────────────┘                       │
///                    └── answer ───────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CounterReading {
    Idle,
    Wanted,
    Asked,
    AskedAndWanted,
}

impl CounterReading {
    pub(super) const fn want(&mut self) {
        *self = match self {
            Self::Idle | Self::Wanted => Self::Wanted,
            Self::Asked | Self::AskedAndWanted => Self::AskedAndWanted,
        };
    }

    pub(super) const fn answered(&mut self) {
        *self = match self {
            Self::Idle | Self::Asked => Self::Idle,
            Self::Wanted | Self::AskedAndWanted => Self::Wanted,
        };
    }

    pub(super) const fn is_asked(self) -> bool {
        matches!(self, Self::Asked | Self::AskedAndWanted)
    }
}

/// What is saved, compared with what is acknowledged.
///
/// ```text
///         acknowledged       AGAIN after the last write, or many
///  Saved ──────────────► Behind ────────────────────────────► Writing ── acknowledged ──► WritingBehind
///   ▲                       ▲                                   │                             │
///   └── saved ──────────────│───────────────────────────────────┘                             │
///                           └── saved ────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Saving {
    /// This boot cannot be distinguished from others, so nothing is saved.
    Impossible,
    Saved,
    Behind,
    Writing,
    WritingBehind,
}

impl Saving {
    pub(super) const fn acknowledged(&mut self) {
        *self = match self {
            Self::Impossible => Self::Impossible,
            Self::Saved | Self::Behind => Self::Behind,
            Self::Writing | Self::WritingBehind => Self::WritingBehind,
        };
    }

    pub(super) const fn saved(&mut self) {
        *self = match self {
            Self::Impossible => Self::Impossible,
            Self::Saved | Self::Writing => Self::Saved,
            Self::Behind | Self::WritingBehind => Self::Behind,
        };
    }

    pub(super) const fn is_writing(self) -> bool {
        matches!(self, Self::Writing | Self::WritingBehind)
    }
}

/// What the counters are compared with.
///
/// ```text
/// Unknown ── the counters at start ──► Known ── the cgroup of all pods is another ──► Known
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Baseline {
    /// The counters were not read yet.
    Unknown,
    /// As they were last read.
    Known {
        /// Path of the cgroup of all pods.
        under: String,
        /// Whether there were any pods.
        any: bool,
        /// What that cgroup counted, if it counts what is below it.
        all: Option<u64>,
    },
}

/// The result of the last reading of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LastReading {
    Read,
    Failed,
}

/// When kills without a record are reported by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Patience {
    /// If they are still missing at a second reading: their records may be on the way.
    SecondReading,
    /// At once: no record can come, or there is no later.
    None,
}

/// Kills that were counted and of which no record came.
///
/// ```text
/// suspected ── missing at a reading AGAIN later ──► reported by number: a late record is ignored
///     └── a record came: one less
/// ```
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Missed {
    /// The counters include every kill before this.
    pub(super) until: BootNanos,
    #[serde(with = "crate::pairs")]
    pub(super) by_owner: ByOwner,
    pub(super) period: Period,
}

impl Missed {
    /// Removes kills that were only counted twice.
    pub(super) fn explain(&mut self, counted_twice: &ByOwner) {
        for (owner, kills) in &mut self.by_owner {
            let twice = counted_twice.get(owner).copied().unwrap_or(0);
            *kills = kills.saturating_sub(twice);
        }
    }

    /// Removes one kill, of which a record came.
    pub(super) fn take(&mut self, owner: &KillOwner, at: BootNanos) -> bool {
        if self.until < at {
            return false;
        }
        // On version 2 the counter of all pods includes the kills of a removed pod, and on version
        // 1 that of the node includes all.
        let all = match owner {
            KillOwner::Pods | KillOwner::Pod(_) => &KillOwner::Pods,
            KillOwner::NoPod | KillOwner::Node => owner,
        };
        for owner in [owner, all, &KillOwner::Node] {
            if let Some(kills) = self.by_owner.get_mut(owner).filter(|kills| **kills > 0) {
                *kills -= 1;
                return true;
            }
        }
        false
    }
}
