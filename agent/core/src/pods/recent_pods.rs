//! Paths of known cgroups, so that events of a removed cgroup can be reported with its path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::CgroupId;

/// Maximum number of cgroups: eight per pod on a node with 500 pods.
pub const MAX_PATHS: usize = 4096;
/// Longer paths are not stored. A container's path has about 200 bytes; longer ones are created by
/// tenants. With [`MAX_PATHS`] this limits the memory to 2 MiB.
pub const LONGEST_PATH: usize = 512;

/// The paths of the cgroups that were used last, by id. An id is never reused while the node is up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecentPods {
    paths: BTreeMap<CgroupId, (u64, String)>,
    by_age: BTreeMap<u64, CgroupId>,
    turn: u64,
}

impl RecentPods {
    /// Stores a path, and drops the one that was not used for the longest time.
    pub fn remember(&mut self, id: CgroupId, path: &str) {
        if path.len() > LONGEST_PATH {
            return;
        }
        let path = match self.paths.remove(&id) {
            Some((turn, known)) => {
                self.by_age.remove(&turn);
                if known == path {
                    known
                } else {
                    path.to_owned()
                }
            }
            None => path.to_owned(),
        };
        if self.paths.len() >= MAX_PATHS
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.paths.remove(&oldest);
        }
        self.turn += 1;
        self.by_age.insert(self.turn, id);
        self.paths.insert(id, (self.turn, path));
    }

    /// Returns the path, if it is stored. This counts as use.
    pub fn path(&mut self, id: CgroupId) -> Option<&str> {
        let (turn, _) = self.paths.get(&id)?;
        self.by_age.remove(turn);
        self.turn += 1;
        self.by_age.insert(self.turn, id);
        let (turn, path) = self.paths.get_mut(&id)?;
        *turn = self.turn;
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_path_is_dropped_first_and_nothing_grows() {
        let mut recent_pods = RecentPods::default();
        let id = |n: usize| CgroupId(n as u64);
        for n in 0..MAX_PATHS {
            recent_pods.remember(id(n), &format!("/a/{n}"));
        }
        assert_eq!(recent_pods.path(id(0)), Some("/a/0"));
        recent_pods.remember(id(1), "/a/1");
        recent_pods.remember(id(MAX_PATHS), "/new");
        let rows = [
            (0, Some("/a/0"), "used"),
            (1, Some("/a/1"), "stored again"),
            (2, None, "the least recently used"),
            (3, Some("/a/3"), "the next"),
            (MAX_PATHS, Some("/new"), "the new one"),
        ];
        for (n, expected, why) in rows {
            assert_eq!(recent_pods.path(id(n)), expected, "{why}");
        }
        for n in 0..10 * MAX_PATHS {
            recent_pods.remember(id(n % (2 * MAX_PATHS)), "/x");
            assert_eq!(recent_pods.paths.len(), recent_pods.by_age.len());
            assert!(recent_pods.paths.len() <= MAX_PATHS);
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_not_stored() {
        let mut recent_pods = RecentPods::default();
        recent_pods.remember(CgroupId(1), &"x".repeat(LONGEST_PATH));
        recent_pods.remember(CgroupId(2), &"x".repeat(LONGEST_PATH + 1));
        assert!(recent_pods.path(CgroupId(1)).is_some());
        assert_eq!(recent_pods.path(CgroupId(2)), None);
    }
}
