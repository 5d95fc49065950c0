//! Kills outside of the pods: what the node has counted without what the cgroup of all pods has.

use super::ledger::Counter;
use crate::units::CgroupId;

/// The last difference.
///
/// The node's counter is read first, so a kill in a pod between the two readings makes the difference
/// too small, never too large. The true one does not fall, so the largest counts.
#[derive(Debug, Default)]
pub(super) struct NoPodKills {
    kills: Option<u64>,
    /// The cgroup of all pods.
    pods: Option<CgroupId>,
    /// What the cgroup of all pods had counted is gone, so the difference begins again.
    pub(super) begins: bool,
}

impl NoPodKills {
    /// Whether kills outside of the pods can be counted.
    pub(super) const fn is_known(&self) -> bool {
        self.kills.is_some()
    }

    /// Takes both counters, and returns how many kills there were outside of the pods. `None`: unknown.
    pub(super) fn take(&mut self, node: Option<u64>, pods: Option<&Counter>) -> Option<u64> {
        let id = pods.map(|pods| pods.id);
        self.begins = self.pods.is_some() && self.pods != id;
        self.pods = id;
        if self.begins {
            self.kills = None;
        }
        let in_pods = pods.map_or(0, |pods| pods.kills);
        let now = node.map(|node| node.saturating_sub(in_pods));
        self.kills = self.kills.max(now);
        self.kills
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_never_falls_and_begins_again_with_the_cgroup_of_all_pods() {
        let mut no_pod = NoPodKills::default();
        //  of the node, id and kills of the cgroup of all pods, then the difference and if it begins
        let rows = [
            (None, None, None, false, "not read"),
            (Some(9), None, Some(9), false, "no pods yet"),
            (Some(9), Some((1, 0)), Some(9), false, "the first pod"),
            (
                Some(12),
                Some((1, 4)),
                Some(9),
                false,
                "a pod's kill was read too late",
            ),
            (Some(14), Some((1, 4)), Some(10), false, "one outside"),
            (None, Some((1, 4)), Some(10), false, "not read"),
            (Some(14), Some((2, 0)), Some(14), true, "another cgroup"),
            (Some(15), None, Some(15), true, "it was removed"),
        ];
        for (node, pods, kills, begins, name) in rows {
            let pods = pods.map(|(id, kills)| Counter {
                id: CgroupId(id),
                kills,
            });
            assert_eq!(no_pod.take(node, pods.as_ref()), kills, "{name}");
            assert_eq!(no_pod.begins, begins, "{name}");
        }
    }
}
