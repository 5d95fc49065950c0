//! The kills that an incident reports, by the kernel's counters that include them.

use serde::{Deserialize, Serialize};

use crate::pods::PodId;

/// The counter of the kernel that contains a kill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KillOwner {
    /// The cgroup of all pods; the pod is unknown.
    Pods,
    /// The cgroup of one pod.
    Pod(PodId),
    /// No counter of pods: the node's counter without that of all pods.
    NoPod,
    /// The node's counter, on version 1: the cgroup is unknown.
    Node,
}

/// Kills that are reported together, by owner. Empty for other Events.
///
/// Contains one number per pod, so combined Events need no more room than the pods. Most contain a
/// single one, for which a tree would allocate 456 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(KillOwner, u64)>")]
pub struct ReportedKills(Vec<(KillOwner, u64)>);

impl ReportedKills {
    pub fn of(owner: KillOwner, kills: u64) -> Self {
        let mut all = Self::default();
        all.add(owner, kills);
        all
    }

    pub fn add(&mut self, owner: KillOwner, kills: u64) {
        if kills == 0 {
            return;
        }
        let place = self.0.partition_point(|(known, _)| *known < owner);
        match self.0.get_mut(place) {
            Some((known, sum)) if *known == owner => *sum = sum.saturating_add(kills),
            _ => {
                self.0.reserve_exact(1);
                self.0.insert(place, (owner, kills));
            }
        }
    }

    pub fn add_all(&mut self, other: Self) {
        for (owner, kills) in other.0 {
            self.add(owner, kills);
        }
    }

    /// Counts one of the kills twice, as the kernel does.
    pub fn repeat_first(&mut self) {
        if let Some((_, kills)) = self.0.first_mut() {
            *kills = kills.saturating_add(1);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves out the first `reported` kills.
    #[must_use]
    pub fn beyond(&self, mut reported: u64) -> Self {
        let mut rest = Self::default();
        for (owner, kills) in &self.0 {
            let known = reported.min(*kills);
            reported -= known;
            rest.add(owner.clone(), kills - known);
        }
        rest
    }

    pub fn total(&self) -> u64 {
        let kills = self.0.iter().map(|(_, kills)| *kills);
        kills.fold(0, u64::saturating_add)
    }
}

impl From<Vec<(KillOwner, u64)>> for ReportedKills {
    fn from(kills: Vec<(KillOwner, u64)>) -> Self {
        let mut all = Self::default();
        all.add_all(Self(kills));
        all
    }
}

impl IntoIterator for ReportedKills {
    type Item = (KillOwner, u64);
    type IntoIter = std::vec::IntoIter<(KillOwner, u64)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
