//! Counters by owner, and the baseline with which later ones are compared.

use super::ledger::{Counter, Counters, NO_CGROUP, owner_of};
use super::states::Baseline;
use super::{CountedKills, KillCounters};
use crate::kube_event::KillOwner;

impl KillCounters {
    /// Makes `counted` the baseline, and returns it by owner.
    pub(super) fn take(&mut self, counted: &CountedKills) -> Counters {
        let pods = &counted.pods;
        let all = counted.cgroups.iter().find(|one| one.cgroup == *pods);
        self.baseline = Baseline::Known {
            under: pods.clone(),
            any: !counted.cgroups.is_empty(),
            all: all.map(|one| one.kills),
        };
        let mut counters = Counters::new();
        for one in &counted.cgroups {
            let Some(owner) = owner_of(&one.cgroup, pods) else {
                continue;
            };
            let sum = counters.entry(owner).or_insert(Counter {
                id: one.id,
                kills: 0,
            });
            sum.kills = sum.kills.saturating_add(one.kills);
        }
        let (owner, kills) = if self.ledger.is_nested() {
            let all = counters.get(&KillOwner::Pods);
            (KillOwner::NoPod, self.no_pod.take(counted.node, all))
        } else {
            (KillOwner::Node, counted.node)
        };
        if let Some(kills) = kills {
            let id = NO_CGROUP;
            counters.insert(owner, Counter { id, kills });
        }
        if self.no_pod.begins {
            self.ledger.begin_outside_pods(&counters);
        }
        counters
    }
}
