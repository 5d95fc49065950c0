//! Remembers how often each cgroup has hit its own memory limit. A later count then shows if a kill
//! was at a limit, or because the node was out of memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::oom::LimitCounters;
use crate::units::CgroupId;

/// Kills within this time share the movement of a counter: the first of them sees it move.
const SAME_MOMENT: Duration = Duration::from_secs(2);

/// The number of cgroups from which on removed ones are forgotten.
const MAX_CGROUPS: usize = 8192;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LimitHits(BTreeMap<CgroupId, Hits>);

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Hits {
    count: u64,
    /// Time at which the counter was last seen to have moved.
    moved: Option<BootNanos>,
}

impl LimitHits {
    /// Takes the counters at start. A cgroup that is missing never hit its limit.
    pub(super) fn new(counted: Vec<(CgroupId, u64)>) -> Self {
        let hits = |(id, count)| (id, Hits { count, moved: None });
        Self(counted.into_iter().map(hits).collect())
    }

    /// Compares the counters of the victim's cgroup and of those above it with the last count.
    pub(super) fn compare(
        &mut self,
        counted: &[Option<(CgroupId, u64)>],
        now: BootNanos,
    ) -> LimitCounters {
        let mut verdict = LimitCounters::Still;
        for one in counted {
            let Some((id, count)) = *one else {
                if verdict == LimitCounters::Still {
                    verdict = LimitCounters::Unknown;
                }
                continue;
            };
            // A cgroup that did not exist at start began at zero.
            let known = self.0.entry(id).or_default();
            if count > known.count {
                *known = Hits {
                    count,
                    moved: Some(now),
                };
            }
            if known.has_just_moved(now) {
                verdict = LimitCounters::Moved;
            }
        }
        verdict
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() > MAX_CGROUPS
    }

    pub(super) fn forget_removed(&mut self, live: &[CgroupId], now: BootNanos) {
        let live: BTreeSet<CgroupId> = live.iter().copied().collect();
        self.0
            .retain(|id, hits| live.contains(id) || hits.has_just_moved(now));
    }
}

impl Hits {
    fn has_just_moved(&self, now: BootNanos) -> bool {
        self.moved
            .is_some_and(|moved| now.since(moved) < SAME_MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LimitCounters::{Moved, Still, Unknown};

    #[test]
    fn kills_of_one_moment_share_the_movement_of_a_counter() {
        let id = CgroupId;
        let mut hits = LimitHits::new(vec![(id(1), 5)]);
        // At ms, counts of the victim's cgroup and those above it, verdict, case.
        #[rustfmt::skip]
        let script = [
            (0, vec![Some((id(2), 0)), Some((id(1), 5))], Still, "as at start"),
            (1, vec![Some((id(2), 1)), Some((id(1), 5))], Moved, "a new cgroup began at zero"),
            (1500, vec![Some((id(2), 1))], Moved, "another kill of that moment"),
            (2001, vec![Some((id(2), 1))], Still, "2 s later"),
            (2002, vec![None, Some((id(1), 5))], Unknown, "one cannot be read"),
            (2003, vec![None, Some((id(1), 6))], Moved, "one cannot, another moved"),
            (2004, vec![Some((id(1), 6)), None], Moved, "the same in another order"),
        ];
        for (ms, counted, expected, case) in script {
            let now = BootNanos(ms * 1_000_000);
            assert_eq!(hits.compare(&counted, now), expected, "{case}");
        }
        hits.forget_removed(&[id(9)], BootNanos(2_100_000_000));
        assert_eq!(hits.0.len(), 1, "only what has just moved");
        hits.forget_removed(&[id(9)], BootNanos(5_000_000_000));
        assert!(hits.0.is_empty());
    }
}
