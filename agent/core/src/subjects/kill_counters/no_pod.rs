//! Kills outside of the pods: what the node has counted without what the cgroup of all pods has.

use serde::{Deserialize, Serialize};

use super::ledger::Counter;
use crate::units::CgroupId;

/// How often the counters are read until no kill falls between them.
const TRIES: usize = 3;

/// Reads the counters, and reads them again if the kernel counted a kill meanwhile: `total` counts
/// it. The second result of `read` counts only if there was none; `None` if there was one at each
/// try, or if that is not known.
pub fn undisturbed<T>(
    mut total: impl FnMut() -> Option<u64>,
    mut read: impl FnMut() -> (T, Option<u64>),
) -> (T, Option<u64>) {
    let mut before = total();
    let mut tries = 1;
    loop {
        let (counted, node) = read();
        let after = total();
        if before.is_some() && before == after {
            return (counted, node);
        }
        if before.is_none() || tries == TRIES {
            return (counted, None);
        }
        tries += 1;
        before = after;
    }
}

/// The last difference.
///
/// The kernel counts a kill on the node before it counts it in a pod, so the difference can be too
/// large for a moment, never too small. The second reading, before which nothing is reported,
/// corrects it.
#[derive(Debug, Default, Serialize, Deserialize)]
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

    /// Takes both counters, and returns how many kills there were outside of the pods. `None`:
    /// unknown.
    pub(super) fn take(&mut self, node: Option<u64>, pods: Option<&Counter>) -> Option<u64> {
        let id = pods.map(|pods| pods.id);
        self.begins = self.pods.is_some() && self.pods != id;
        self.pods = id;
        if self.begins {
            self.kills = None;
        }
        let in_pods = pods.map_or(0, |pods| pods.kills);
        let now = node.map(|node| node.saturating_sub(in_pods));
        self.kills = now.or(self.kills);
        self.kills
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_the_node_is_used_only_if_no_kill_fell_between_the_readings() {
        //  the total before and after each try, the try that is the last one, and if it is used
        let rows: [(&[Option<u64>], u64, bool, &str); 4] = [
            (&[Some(4), Some(4)], 1, true, "no kill"),
            (&[Some(4), Some(5), Some(5)], 2, true, "one kill"),
            (&[Some(4), Some(5), Some(6), Some(7)], 3, false, "a storm"),
            (&[None, None], 1, false, "it cannot be read"),
        ];
        for (totals, last, is_used, name) in rows {
            let mut totals = totals.iter().copied();
            let mut tries = 0;
            let read = || {
                tries += 1;
                (tries, Some(tries))
            };
            let found = undisturbed(|| totals.next().flatten(), read);
            assert_eq!(found, (last, is_used.then_some(last)), "{name}");
            assert_eq!(totals.next(), None, "{name}");
        }
    }

    #[test]
    fn the_difference_is_the_last_one_and_begins_again_with_the_cgroup_of_all_pods() {
        let mut no_pod = NoPodKills::default();
        // of the node, id and kills of the cgroup of all pods, then the difference and if it begins
        #[rustfmt::skip]
        let rows = [
            (None, None, None, false, "not read"),
            (Some(9), None, Some(9), false, "no pods yet"),
            (Some(9), Some((1, 0)), Some(9), false, "the first pod"),
            (Some(14), Some((1, 4)), Some(10), false, "a kill that is not counted in its pod yet"),
            (Some(14), Some((1, 5)), Some(9), false, "and then is"),
            (Some(15), Some((1, 5)), Some(10), false, "one outside"),
            (None, Some((1, 5)), Some(10), false, "not read"),
            (Some(15), Some((2, 0)), Some(15), true, "another cgroup"),
            (Some(16), None, Some(16), true, "it was removed"),
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
