//! Decides if tasks wait for memory because the node has too little of it.
//!
//! Tasks also wait if their own cgroup is at its limit: they reclaim its memory, or the kernel
//! slows them down at `memory.high`. PSI of the node includes both, but only a shortage of the node
//! may set a condition: otherwise a tenant could set it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pods::{Owner, Pod, PodId};
use crate::pressure::io_wait::{StallShare, leaves};
use crate::pressure::oom::RemainingMemory;
use crate::reading::reclaim::ReclaimCounts;
use crate::units::CgroupId;

/// The maximum number of units that are named.
const NAMED: usize = 3;

/// The node's reclaim of memory while it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaim {
    /// `allocstall_*` or `pgscan_kswapd` rose from the first reading to the last.
    pub rose: bool,
    /// The number of intervals between the readings: seconds, unless the node was too busy.
    pub intervals: usize,
    /// The number of intervals in which `allocstall_*` rose.
    pub direct: usize,
}

impl Reclaim {
    /// Compares readings that are a second or more apart. A counter that decreased did not rise.
    /// `None` with fewer than two readings.
    pub fn between(readings: &[ReclaimCounts]) -> Option<Self> {
        let [first, .., last] = readings else {
            return None;
        };
        let intervals = readings.windows(2);
        let direct = intervals.clone().filter(|pair| match pair {
            [before, after] => after.direct > before.direct,
            _ => false,
        });
        Some(Self {
            rose: last.direct > first.direct || last.kswapd > first.kswapd,
            intervals: intervals.len(),
            direct: direct.count(),
        })
    }

    /// Returns true if tasks had to reclaim the node's memory themselves most of the time.
    const fn is_mostly_direct(self) -> bool {
        self.direct > self.intervals / 2
    }
}

/// A pod, or a cgroup outside of pods, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUnit {
    pub owner: Owner,
    pub path: String,
    /// The time for which its tasks have waited for memory: `total` of `some`.
    pub stalled: Duration,
    /// The limit hits of the cgroup and of the class of its pod. `None`: not read.
    pub limit_hits: Option<u64>,
}

pub type UnitSnapshot = BTreeMap<CgroupId, MemoryUnit>;

/// A unit whose tasks wait for memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalledUnit {
    pub owner: Owner,
    pub share: StallShare,
    /// The unit is at its own limit, or its limit hits could not be read.
    pub at_its_limit: bool,
}

/// The units whose tasks wait for memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum UnitStalls {
    /// They could not be read, or the verdict does not depend on them.
    #[default]
    NotRead,
    /// Cgroup v1 does not attribute stalls to cgroups.
    CgroupV1,
    Read {
        /// At most three units, the longest wait first.
        units: Vec<StalledUnit>,
        /// The longest wait of a unit that is not at its own limit.
        unlimited: StallShare,
    },
}

impl UnitStalls {
    /// Compares three snapshots. The share of time is from `before` to `after`, which are `elapsed`
    /// apart. A unit is at its own limit if it was between `earlier` and `after`: a task at
    /// `memory.high` sleeps for up to two seconds between two hits. A unit that is not in all of
    /// them was created or removed in between, and does not count.
    pub fn between(
        earlier: &UnitSnapshot,
        before: &UnitSnapshot,
        after: &UnitSnapshot,
        elapsed: Duration,
    ) -> Self {
        let stalled = leaves(after, |unit| Some(&unit.path)).filter_map(|(id, unit)| {
            let [earlier, before] = [earlier.get(id)?, before.get(id)?];
            let stalled = unit.stalled.saturating_sub(before.stalled);
            let hits = unit.limit_hits.zip(earlier.limit_hits);
            Some(StalledUnit {
                owner: unit.owner.clone(),
                share: StallShare::new(stalled, elapsed),
                at_its_limit: hits.is_none_or(|(now, then)| now > then),
            })
        });
        let mut units: Vec<StalledUnit> = stalled.collect();
        units.retain(|unit| unit.share > StallShare::default());
        units.sort_by(|a, b| {
            let by_share = b.share.cmp(&a.share);
            by_share.then_with(|| a.owner.cmp(&b.owner))
        });
        let unlimited = units.iter().find(|unit| !unit.at_its_limit);
        let unlimited = unlimited.map(|unit| unit.share).unwrap_or_default();
        units.truncate(NAMED);
        Self::Read { units, unlimited }
    }

    /// Returns at most three units, the longest wait first.
    pub fn units(&self) -> &[StalledUnit] {
        match self {
            Self::NotRead | Self::CgroupV1 => &[],
            Self::Read { units, .. } => units,
        }
    }

    /// Replaces the ids of pods that `find` knows by their names.
    pub fn name_pods<'a>(&mut self, find: impl Fn(&PodId) -> Option<&'a Pod>) {
        if let Self::Read { units, .. } = self {
            for unit in units {
                unit.owner.name_pod(&find);
            }
        }
    }
}

/// The observations while tasks waited for memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShortageEvidence {
    /// `None` if `/proc/vmstat` could not be read.
    pub reclaim: Option<Reclaim>,
    /// Read only if the node reclaimed memory.
    pub units: UnitStalls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShortageVerdict {
    Short,
    Withheld(Withheld),
}

/// The reason for which a stall does not set the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withheld {
    /// `/proc/vmstat` could not be read.
    NotRead,
    NoReclaim,
    /// No unit is known to wait for the node's memory, and the node has enough of it.
    AtLimits,
}

impl Withheld {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotRead => "/proc/vmstat could not be read",
            Self::NoReclaim => {
                "the node did not reclaim memory: tasks wait at the limits of their cgroups"
            }
            Self::AtLimits => {
                "no pod or service waits that long without being at its own limit, and the node has \
                 enough memory"
            }
        }
    }
}

impl ShortageEvidence {
    /// Judges the evidence; `memory` is what is left now. A unit waits if its share reaches
    /// `threshold`, in percent of the time.
    ///
    /// If no unit waits that is not at its own limit, or if no unit could be read, the node is
    /// short only if its tasks had to reclaim memory most of the time and `memory.available` is
    /// below twice its threshold.
    pub fn judge(&self, memory: Option<RemainingMemory>, threshold: f32) -> ShortageVerdict {
        let Some(reclaim) = self.reclaim else {
            return ShortageVerdict::Withheld(Withheld::NotRead);
        };
        if !reclaim.rose {
            return ShortageVerdict::Withheld(Withheld::NoReclaim);
        }
        let is_of_node = match &self.units {
            UnitStalls::CgroupV1 => true,
            UnitStalls::Read { unlimited, .. } => unlimited.percent() >= threshold,
            UnitStalls::NotRead => false,
        };
        if is_of_node || (reclaim.is_mostly_direct() && is_low(memory)) {
            ShortageVerdict::Short
        } else {
            ShortageVerdict::Withheld(Withheld::AtLimits)
        }
    }
}

/// Returns true if less than twice the threshold on `memory.available` is left. Without a
/// threshold, memory is never low.
fn is_low(memory: Option<RemainingMemory>) -> bool {
    let left = memory.and_then(|of| of.memory.zip(of.threshold));
    left.is_some_and(|(memory, threshold)| {
        let twice = threshold.amount(memory.capacity).saturating_mul(2);
        u64::try_from(memory.available).is_ok_and(|available| available < twice)
            || memory.available < 0
    })
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShortageReading {
    pub evidence: ShortageEvidence,
    pub verdict: ShortageVerdict,
    pub at: BootNanos,
}

impl fmt::Display for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rose,
            intervals,
            direct,
        } = self;
        if *rose {
            write!(
                f,
                "the node reclaimed memory within {intervals} s, in {direct} of them its tasks did so \
                 themselves"
            )
        } else {
            write!(f, "the node did not reclaim memory within {intervals} s")
        }
    }
}

impl fmt::Display for StalledUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = if self.at_its_limit {
            ", at its own limit"
        } else {
            ""
        };
        write!(f, "{} ({} of the time{limit})", self.owner, self.share)
    }
}

#[cfg(test)]
mod tests;
