//! The account of kills: for each cgroup of a pod, and for that of all pods,
//!
//! ```text
//! counted by the kernel = acknowledged + pending + missing
//! ```
//!
//! *Acknowledged*: its incident is recorded in the history, or without one delivered. *Pending*:
//! it is only in the memory of this process. *Missing*: no record of it came; it is reported by
//! number. Only what is acknowledged is kept from one start to the next, so whatever happens to
//! this process no kill goes unreported.
//!
//! Version 2 counts the kills of a pod in the cgroup of all pods too, and goes on counting them
//! there when the pod is gone. Version 1 counts each cgroup alone: what it counted in a cgroup that
//! is gone is gone with it, so there a sum can fall, and kills that were missing in it are only the
//! node's.
//!
//! Kills outside of the pods are one more owner: what the node has counted without what the cgroup
//! of all pods has. Version 1 has no such difference, but there the node is an owner of all kills:
//! what it has counted, and what is neither known nor missing in a pod, was in a cgroup that is
//! gone or outside of the pods.
//!
//! No I/O, and no clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::AcknowledgedKills;
use crate::clock::BootNanos;
use crate::incident::Position;
use crate::kube_event::{KillOwner, ReportedKills};
use crate::pods::{CgroupKind, classify};
use crate::subjects::kills::GROUP;
use crate::units::CgroupId;

/// What the kernel has counted for one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    pub id: CgroupId,
    pub kills: u64,
}

/// What the kernel has counted.
pub type Counters = BTreeMap<KillOwner, Counter>;

/// Whose counter that of the cgroup at `path` is, if `pods` is that of all pods.
pub fn owner_of(path: &str, pods: &str) -> Option<KillOwner> {
    match classify(path, pods) {
        CgroupKind::Pods => Some(KillOwner::Pods),
        CgroupKind::Pod { pod } => Some(KillOwner::Pod(pod)),
        CgroupKind::Container { .. } | CgroupKind::Other => None,
    }
}

/// Stands for the counter of kills outside of the pods, or of the node, which has no cgroup. No
/// cgroup has this id.
pub const NO_CGROUP: CgroupId = CgroupId(0);

/// Kills by owner.
pub type ByOwner = BTreeMap<KillOwner, u64>;

/// The account.
#[derive(Debug, Serialize, Deserialize)]
pub struct KillLedger {
    /// Version 2: the counter of all pods has the kills of each.
    nested: bool,
    #[serde(with = "crate::pairs")]
    entries: BTreeMap<KillOwner, KillEntry>,
    /// What is acknowledged is in the history up to here.
    recorded: Position,
    /// When the counters were last asked for.
    asked_at: BootNanos,
}

/// What follows from the counters.
#[derive(Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Kills that are missing.
    pub missing: ByOwner,
    /// Kills that the kernel has counted twice, so that the second count is not missing.
    pub counted_twice: ByOwner,
    /// A group was not counted twice, unlike what is saved.
    pub is_corrected: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct KillEntry {
    /// The cgroup, once it was found.
    id: Option<CgroupId>,
    /// Of what the kernel counts. Below zero while a record is pending that the kernel did not
    /// count.
    acknowledged: i128,
    pending: u64,
    /// Kills that came to be known after the counters were last asked for.
    since: u64,
    /// Group kills, each of which the kernel may count once more than it records.
    groups: u64,
    /// Those of them whose incident is recorded. The next start takes them for counted twice.
    recorded_groups: u64,
    /// The last of them.
    group_at: Option<BootNanos>,
}

impl KillLedger {
    pub const fn new(nested: bool) -> Self {
        Self {
            nested,
            entries: BTreeMap::new(),
            recorded: Position(0),
            asked_at: BootNanos(0),
        }
    }

    /// Whether the counter of all pods has the kills of each.
    pub const fn is_nested(&self) -> bool {
        self.nested
    }

    /// Returns true if every kill is in a counter: that of its pod, and else that of the node.
    pub fn counts_node(&self) -> bool {
        let mut node = [KillOwner::NoPod, KillOwner::Node].into_iter();
        node.any(|owner| self.entries.get(&owner).is_some_and(|of| of.id.is_some()))
    }

    /// A record of a kill came, and an Event for it is recorded next. `counted`: the kernel counted
    /// it before the counters were last asked for.
    pub fn seen(&mut self, owner: &KillOwner, counted: bool) {
        self.each(owner, |entry| {
            entry.pending = entry.pending.saturating_add(1);
            entry.since = entry.since.saturating_add(u64::from(!counted));
        });
    }

    /// A cgroup was killed as a whole at `at`. The kernel counts its first victim twice if that has
    /// not released its memory yet when the others are killed (`oom_kill_process()`).
    pub fn seen_group(&mut self, owner: &KillOwner, at: BootNanos) {
        self.each(owner, |entry| {
            entry.groups = entry.groups.saturating_add(1);
            entry.group_at = Some(at);
        });
    }

    pub fn acknowledge(&mut self, kills: ReportedKills, until: Position) {
        self.recorded = self.recorded.max(until);
        for (owner, kills) in kills {
            self.each(&owner, |entry| entry.acknowledge(kills));
        }
    }

    /// The counters are read next.
    pub fn asked(&mut self, now: BootNanos) {
        for entry in self.entries.values_mut() {
            entry.since = 0;
        }
        self.asked_at = now;
    }

    /// What was counted so far is not reported: it is unknown how much of it was.
    pub fn begin(&mut self, counters: &Counters) {
        self.found(counters);
        self.acknowledge_counted(counters, |_| true);
    }

    fn acknowledge_counted(&mut self, counters: &Counters, which: impl Fn(&KillOwner) -> bool) {
        for (owner, counter) in counters.iter().filter(|(owner, _)| which(owner)) {
            if let Some(entry) = self.entries.get_mut(owner) {
                entry.begin(counter.kills);
            }
        }
    }

    /// Goes on from what the last start had acknowledged.
    pub fn resume(&mut self, counters: &Counters, acknowledged: &AcknowledgedKills) {
        let AcknowledgedKills {
            cgroups,
            pods,
            until,
            later,
        } = acknowledged;
        self.recorded = *until;
        self.found(counters);
        for (owner, counter) in counters {
            if let Some(entry) = self.entries.get_mut(owner) {
                let unread = match owner {
                    KillOwner::Pod(pod) => pods.get(pod),
                    KillOwner::Pods | KillOwner::NoPod | KillOwner::Node => None,
                };
                let known = cgroups.get(&counter.id).or(unread).copied();
                entry.acknowledged = i128::from(known.unwrap_or(0));
            }
        }
        for (owner, kills) in later.clone() {
            self.each(&owner, |entry| entry.acknowledged += i128::from(kills));
        }
        let has = |owner: &KillOwner| {
            let counter = counters.get(owner);
            counter.is_none_or(|counter| cgroups.contains_key(&counter.id))
        };
        // Saved by an older agent, or what the cgroup of all pods counted is gone.
        if !has(&KillOwner::NoPod) || !has(&KillOwner::Pods) {
            self.begin_outside_pods(counters);
        }
        if !has(&KillOwner::Node) {
            self.acknowledge_counted(counters, |owner| *owner == KillOwner::Node);
        }
    }

    /// What was counted outside of the pods so far is not reported.
    pub fn begin_outside_pods(&mut self, counters: &Counters) {
        self.found(counters);
        self.acknowledge_counted(counters, |owner| *owner == KillOwner::NoPod);
    }

    /// Takes in what was counted since it was asked for.
    pub fn count(&mut self, counters: &Counters) -> Comparison {
        self.found(counters);
        let mut counted_twice = ByOwner::new();
        let mut is_corrected = false;
        for (owner, counter) in counters {
            let Some(entry) = self.entries.get_mut(owner) else {
                continue;
            };
            // The kernel counts before it reports. What it did not count by now it never will: one
            // more thread of a victim, or a cgroup of version 1 that is gone.
            let reported = entry.known() - i128::from(entry.since);
            let surplus = reported - i128::from(counter.kills);
            // Not outside of the pods: that difference is an old one if kills fell between the
            // readings of its two counters.
            if *owner != KillOwner::NoPod {
                entry.acknowledged -= surplus.max(0);
            }
            let saved = entry.saved();
            let twice = entry.take_groups(counter.kills, self.asked_at);
            is_corrected |= entry.saved() != saved;
            if twice > 0 {
                counted_twice.insert(owner.clone(), twice);
            }
        }
        Comparison {
            missing: self.missing(counters),
            counted_twice,
            is_corrected,
        }
    }

    fn missing(&self, counters: &Counters) -> ByOwner {
        let of = |owner: &KillOwner| {
            let (entry, counter) = (self.entries.get(owner)?, counters.get(owner)?);
            let missing = i128::from(counter.kills) - entry.known();
            Some(u64::try_from(missing.max(0)).unwrap_or(u64::MAX))
        };
        let all = of(&KillOwner::Pods);
        let mut left = all.filter(|_| self.nested);
        let mut missing = ByOwner::new();
        for owner in counters.keys() {
            let kills = of(owner).unwrap_or(0);
            let kills = match owner {
                KillOwner::Pods | KillOwner::Node => continue,
                KillOwner::NoPod => kills,
                KillOwner::Pod(_) => {
                    // What is not missing at all was reported without the name of its pod.
                    let kills = left.map_or(kills, |left| kills.min(left));
                    left = left.map(|left| left - kills);
                    kills
                }
            };
            missing.insert(owner.clone(), kills);
        }
        // The cgroup of all pods contains no process itself, so on version 1 it counts nothing.
        if self.nested {
            missing.insert(KillOwner::Pods, left.unwrap_or(0));
        }
        if let Some(kills) = of(&KillOwner::Node) {
            let in_pods = missing.values().copied().fold(0, u64::saturating_add);
            missing.insert(KillOwner::Node, kills.saturating_sub(in_pods));
        }
        missing.retain(|_, kills| *kills > 0);
        missing
    }

    /// Missing kills are reported now, and so they are pending.
    pub fn report(&mut self, owner: &KillOwner, kills: u64) {
        self.each(owner, |entry| {
            entry.pending = entry.pending.saturating_add(kills);
        });
    }

    /// Returns what the next start goes on from: for each cgroup the kills of the revisions up to
    /// `recorded`, as the kernel counts them.
    pub fn acknowledged(&self) -> AcknowledgedKills {
        let mut all = AcknowledgedKills {
            until: self.recorded,
            ..AcknowledgedKills::default()
        };
        for (owner, entry) in &self.entries {
            let known = u64::try_from(entry.saved().max(0)).unwrap_or(u64::MAX);
            if let Some(id) = entry.id {
                all.cgroups.insert(id, known);
            } else if let KillOwner::Pod(pod) = owner {
                all.pods.insert(pod.clone(), known);
            }
        }
        all
    }

    /// Whether the kernel may still count kills of a group that this reading did not have.
    pub fn expects_groups(&self) -> bool {
        let is_open = |entry: &KillEntry| entry.groups > 0 && !entry.groups_ended(self.asked_at);
        self.entries.values().any(is_open)
    }

    /// Those of pods that are gone are forgotten once nothing of them is pending. The counter of
    /// the node is not read at times.
    fn found(&mut self, counters: &Counters) {
        for (owner, counter) in counters {
            let entry = self.entries.entry(owner.clone()).or_default();
            if entry.id.is_some_and(|id| id != counter.id) {
                // Created again, and counts from zero. What is pending was counted by the previous
                // one.
                entry.acknowledged = -i128::from(entry.pending);
                (entry.since, entry.groups, entry.recorded_groups) = (0, 0, 0);
            }
            if entry.id.is_none() && matches!(owner, KillOwner::NoPod | KillOwner::Node) {
                // How much of it was reported is unknown.
                entry.begin(counter.kills);
            }
            entry.id = Some(counter.id);
        }
        self.entries.retain(|owner, entry| {
            entry.pending > 0 || *owner == KillOwner::Node || counters.contains_key(owner)
        });
    }

    /// The entry of `owner`, and that of all pods on version 2 or of the node on version 1.
    fn each(&mut self, owner: &KillOwner, change: impl Fn(&mut KillEntry)) {
        let of = self.entry_of(owner).clone();
        change(self.entries.entry(of).or_default());
        if matches!(owner, KillOwner::Pod(_)) {
            let all = if self.nested {
                KillOwner::Pods
            } else {
                KillOwner::Node
            };
            change(self.entries.entry(all).or_default());
        }
    }

    /// The owner whose entry has the kills of `owner`.
    fn entry_of<'a>(&self, owner: &'a KillOwner) -> &'a KillOwner {
        match owner {
            KillOwner::Pods | KillOwner::NoPod if !self.nested => &KillOwner::Node,
            owner => owner,
        }
    }
}

impl KillEntry {
    /// What was counted so far is acknowledged, except what is pending.
    fn begin(&mut self, counted: u64) {
        let pending = i128::from(self.pending) - i128::from(self.since);
        self.acknowledged = i128::from(counted) - pending;
        self.recorded_groups = 0;
    }

    /// The incident of these kills is recorded. What is not pending is the second count of a group.
    fn acknowledge(&mut self, kills: u64) {
        let pending = kills.min(self.pending);
        self.pending -= pending;
        self.acknowledged += i128::from(pending);
        let groups = self.recorded_groups.saturating_add(kills - pending);
        self.recorded_groups = groups.min(self.groups);
    }

    /// What the kernel has counted twice is not missing. What it did not count by now it never
    /// will. Returns how much that is.
    fn take_groups(&mut self, counted: u64, asked_at: BootNanos) -> u64 {
        let missing = i128::from(counted) - self.known();
        let missing = u64::try_from(missing.max(0)).unwrap_or(u64::MAX);
        let twice = missing.min(self.groups);
        let recorded = twice.min(self.recorded_groups);
        self.recorded_groups -= recorded;
        self.acknowledged += i128::from(recorded);
        self.pending = self.pending.saturating_add(twice - recorded);
        if self.groups_ended(asked_at) {
            (self.groups, self.recorded_groups) = (0, 0);
        } else {
            self.groups -= twice;
        }
        twice
    }

    /// Whether counters that were asked for at this time have all kills of its groups.
    fn groups_ended(&self, asked_at: BootNanos) -> bool {
        self.group_at.is_some_and(|at| at.plus(GROUP) <= asked_at)
    }

    fn saved(&self) -> i128 {
        self.acknowledged + i128::from(self.recorded_groups)
    }

    fn known(&self) -> i128 {
        self.acknowledged + i128::from(self.pending)
    }
}

#[cfg(test)]
mod tests;
