//! Which kills an Event reports, so that the component that counts kills learns what became of each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pods::PodId;

/// Whose counter of the kernel a kill is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KillOwner {
    /// The cgroup of all pods; which of them is not known.
    Pods,
    /// The cgroup of one pod.
    Pod(PodId),
}

/// Kills that are reported together, by owner. Empty for Events about anything else.
///
/// Holds one number for each pod, so Events that are combined take no more room than the pods do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(KillOwner, u64)>", into = "Vec<(KillOwner, u64)>")]
pub struct ReportedKills(BTreeMap<KillOwner, u64>);

impl ReportedKills {
    /// So many of one owner.
    #[must_use]
    pub fn of(owner: KillOwner, kills: u64) -> Self {
        let mut all = Self::default();
        all.add(owner, kills);
        all
    }

    /// Adds kills of one owner.
    pub fn add(&mut self, owner: KillOwner, kills: u64) {
        if kills > 0 {
            let sum = self.0.entry(owner).or_default();
            *sum = sum.saturating_add(kills);
        }
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: Self) {
        for (owner, kills) in other.0 {
            self.add(owner, kills);
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// A map with such keys is no JSON object.
impl From<Vec<(KillOwner, u64)>> for ReportedKills {
    fn from(kills: Vec<(KillOwner, u64)>) -> Self {
        Self(kills.into_iter().collect())
    }
}

impl From<ReportedKills> for Vec<(KillOwner, u64)> {
    fn from(kills: ReportedKills) -> Self {
        kills.0.into_iter().collect()
    }
}

impl IntoIterator for ReportedKills {
    type Item = (KillOwner, u64);
    type IntoIter = std::collections::btree_map::IntoIter<KillOwner, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// What became of kills that were recorded, since this was last taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillOutcomes {
    /// The API server has them in an Event, or has refused that Event for good.
    pub acknowledged: ReportedKills,
    /// Their Events were dropped: for lack of room, or after too many tries.
    pub dropped: ReportedKills,
}

impl KillOutcomes {
    /// Whether nothing is new.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.acknowledged.is_empty() && self.dropped.is_empty()
    }
}
