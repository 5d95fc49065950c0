//! Forks that were refused at limits of cgroups: which are news, and when to say so.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::BootNanos;
use crate::units::CgroupId;

/// One cgroup is told of so often, with all that was refused since.
const AGAIN: Duration = Duration::from_mins(1);

/// What is known of one cgroup.
#[derive(Debug, Clone)]
struct Known {
    path: String,
    /// Refused since it was made, as last counted.
    count: u64,
    untold: u64,
    told: Option<BootNanos>,
}

/// Forks refused and not told of yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Path of the cgroup that counted them.
    pub path: String,
    /// How many.
    pub forks: u64,
}

/// The counters of many cgroups, as last counted: holds no more cgroups than one count had, and
/// those gone with something untold until that is told.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Option<BTreeMap<CgroupId, Known>>);

impl Refusals {
    /// All cgroups were counted: id, path, refused forks. The first count is the past, and no news;
    /// a cgroup that is new later began at zero.
    pub fn apply_counts(&mut self, counts: impl IntoIterator<Item = (CgroupId, String, u64)>) {
        let past = self.0.is_none();
        let mut old = self.0.take().unwrap_or_default();
        let mut new = BTreeMap::new();
        for (id, path, count) in counts {
            let before = old.remove(&id);
            let known = before.as_ref();
            let base = known.map_or(if past { count } else { 0 }, |known| known.count);
            let untold = known.map_or(0, |known| known.untold);
            let told = known.and_then(|known| known.told);
            let untold = untold.saturating_add(count.saturating_sub(base));
            let known = Known {
                path,
                count,
                untold,
                told,
            };
            new.insert(id, known);
        }
        new.extend(old.into_iter().filter(|(_, gone)| gone.untold > 0));
        self.0 = Some(new);
    }

    /// What to tell now.
    pub fn due(&mut self, now: BootNanos) -> Vec<Refused> {
        let again = |told: BootNanos| AGAIN <= now.since(told);
        let known = self.0.iter_mut().flat_map(BTreeMap::values_mut);
        known
            .filter(|known| known.untold > 0 && known.told.is_none_or(again))
            .map(|known| {
                known.told = Some(now);
                Refused {
                    path: known.path.clone(),
                    forks: std::mem::take(&mut known.untold),
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
    fn differences_are_told_at_once_and_then_once_a_minute_and_none_is_lost() {
        let at = |seconds: u64| BootNanos(seconds * 1_000_000_000);
        //  at s, counts, told, why
        let script: [(u64, Forks, Forks, &str); 9] = [
            (0, &[(1, 7), (2, 0)], &[], "the past"),
            (1, &[(1, 7), (2, 3)], &[(2, 3)], "the first"),
            (
                2,
                &[(1, 9), (2, 8)],
                &[(1, 2)],
                "another cgroup is told of at once",
            ),
            (59, &[(1, 9), (2, 9)], &[], "within the minute"),
            (61, &[(1, 9), (2, 9)], &[(2, 6)], "all since"),
            (
                62,
                &[(1, 9), (3, 4)],
                &[(3, 4)],
                "made since, so it began at zero",
            ),
            (
                63,
                &[(1, 10), (3, 4)],
                &[(1, 1)],
                "a minute after it was told of",
            ),
            (64, &[(3, 5)], &[], "one untold"),
            (200, &[], &[(3, 1)], "gone, with one untold"),
        ];
        let mut refusals = Refusals::default();
        for (seconds, counts, told, why) in script {
            let counts = counts.iter();
            refusals.apply_counts(counts.map(|(id, n)| (CgroupId(*id), format!("/{id}"), *n)));
            let expected: Vec<Refused> = told
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
            "what is gone and told is forgotten"
        );
    }
}
