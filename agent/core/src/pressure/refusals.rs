//! Finds new refusals of forks at cgroup limits, and decides when to report them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::units::CgroupId;

/// The interval between reports about one cgroup.
const INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct CgroupCount {
    path: String,
    /// Refused forks since the cgroup was created, as last counted.
    count: u64,
    unreported: u64,
    last_reported: Option<BootNanos>,
}

/// The refused forks that were not reported before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Path of the cgroup that counted them.
    pub path: String,
    pub forks: u64,
}

/// The counters of many cgroups, as last counted. It contains the cgroups of one count, and removed
/// cgroups until their refused forks are reported.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Refusals(Option<BTreeMap<CgroupId, CgroupCount>>);

impl Refusals {
    /// Takes new counters of all cgroups: id, path, refused forks. The first call sets the
    /// baseline; a cgroup that appears later began at zero.
    pub fn apply_counts(&mut self, counts: impl IntoIterator<Item = (CgroupId, String, u64)>) {
        let past = self.0.is_none();
        let mut old = self.0.take().unwrap_or_default();
        let mut new = BTreeMap::new();
        for (id, path, count) in counts {
            let before = old.remove(&id);
            let known = before.as_ref();
            let base = known.map_or(if past { count } else { 0 }, |known| known.count);
            let unreported = known.map_or(0, |known| known.unreported);
            let last_reported = known.and_then(|known| known.last_reported);
            let unreported = unreported.saturating_add(count.saturating_sub(base));
            let known = CgroupCount {
                path,
                count,
                unreported,
                last_reported,
            };
            new.insert(id, known);
        }
        new.extend(
            old.into_iter()
                .filter(|(_, removed)| removed.unreported > 0),
        );
        self.0 = Some(new);
    }

    pub fn due(&mut self, now: BootNanos) -> Vec<Refused> {
        let is_due = |last_reported: BootNanos| INTERVAL <= now.since(last_reported);
        let known = self.0.iter_mut().flat_map(BTreeMap::values_mut);
        known
            .filter(|known| known.unreported > 0 && known.last_reported.is_none_or(is_due))
            .map(|known| {
                known.last_reported = Some(now);
                Refused {
                    path: known.path.clone(),
                    forks: std::mem::take(&mut known.unreported),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cgroup, forks.
    type Forks = &'static [(u64, u64)];

    #[test]
    fn new_refusals_are_reported_at_once_then_once_a_minute_and_none_is_lost() {
        let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
        // At s, counts, reported, why.
        #[rustfmt::skip]
        let script: [(u64, Forks, Forks, &str); 9] = [
            (0, &[(1, 7), (2, 0)], &[], "the baseline"),
            (1, &[(1, 7), (2, 3)], &[(2, 3)], "the first"),
            (2, &[(1, 9), (2, 8)], &[(1, 2)], "another cgroup is reported at once"),
            (59, &[(1, 9), (2, 9)], &[], "within the interval"),
            (61, &[(1, 9), (2, 9)], &[(2, 6)], "all since"),
            (62, &[(1, 9), (3, 4)], &[(3, 4)], "created since, so it began at zero"),
            (63, &[(1, 10), (3, 4)], &[(1, 1)], "a minute after its last report"),
            (64, &[(3, 5)], &[], "one not reported yet"),
            (200, &[], &[(3, 1)], "removed, with one not reported yet"),
        ];
        let mut refusals = Refusals::default();
        for (seconds, counts, last_reported, why) in script {
            let counts = counts.iter();
            refusals.apply_counts(counts.map(|(id, n)| (CgroupId(*id), format!("/{id}"), *n)));
            let expected: Vec<Refused> = last_reported
                .iter()
                .map(|(id, forks)| Refused {
                    path: format!("/{id}"),
                    forks: *forks,
                })
                .collect();
            assert_eq!(refusals.due(at(seconds)), expected, "at {seconds} s: {why}");
        }
        refusals.apply_counts([]);
        assert!(
            refusals.0.unwrap().is_empty(),
            "a removed cgroup is dropped once it is reported"
        );
    }
}
