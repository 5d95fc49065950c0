//! Paths of cgroups by their ids, for hosts on which a cgroup cannot be opened by its id.

use std::collections::HashMap;
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::units::CgroupId;

use super::Hierarchy;
use super::walk;
use crate::host::HostError;

/// Shortest time between two walks for unknown ids.
const WALK_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum length of a stored path, which limits memory to 10 MiB with [`walk::MAX_CGROUPS`].
const LONGEST_PATH: usize = 512;

/// Finds paths by walking the hierarchy, but does not walk for each of many unknown ids.
///
/// Ids are not reused while the node is up, so a path remains correct, but its cgroup may have been
/// removed.
#[derive(Debug, Default)]
pub struct CgroupPaths {
    /// From the last walk.
    known: HashMap<CgroupId, String>,
    walked: Option<BootNanos>,
}

impl CgroupPaths {
    /// Returns the path of a cgroup as of the last walk. Walks if the id is unknown. `None` if
    /// there is no such cgroup, or if the last walk was less than 2 s ago.
    pub fn find(
        &mut self,
        hierarchy: &Hierarchy,
        id: CgroupId,
        now: BootNanos,
    ) -> Result<Option<&str>, HostError> {
        let recent = self
            .walked
            .is_some_and(|last| now.since(last) < WALK_INTERVAL);
        if !recent && !self.known.contains_key(&id) {
            self.walked = Some(now);
            self.walk(hierarchy)?;
        }
        Ok(self.known.get(&id).map(String::as_str))
    }

    fn walk(&mut self, hierarchy: &Hierarchy) -> Result<(), HostError> {
        let mut paths = HashMap::with_capacity(self.known.len());
        walk::each(hierarchy, |id, _, path| {
            if path.len() <= LONGEST_PATH {
                paths.insert(id, path.to_owned());
            }
            true
        })?;
        self.known = paths;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::host::cgroup::Version;
    use crate::host::scratch::Scratch;

    const NOW: BootNanos = BootNanos(10_000_000_000);

    fn hierarchy(dir: &Scratch) -> Hierarchy {
        Hierarchy {
            mount: dir.path().to_owned(),
            version: Version::V2,
        }
    }

    fn id(dir: &Scratch, rel: &str) -> CgroupId {
        CgroupId(dir.path().join(rel).metadata().unwrap().ino())
    }

    /// Returns what is found by the first walk.
    fn found(dir: &Scratch, id: CgroupId) -> Option<String> {
        let mut paths = CgroupPaths::default();
        let found = paths.find(&hierarchy(dir), id, NOW).unwrap();
        found.map(str::to_owned)
    }

    #[test]
    fn many_unknown_ids_in_one_moment_cause_one_walk() {
        let dir = Scratch::new();
        let memory = hierarchy(&dir);
        let mut paths = CgroupPaths::default();
        let mut find = |id, at| paths.find(&memory, id, at).unwrap().map(str::to_owned);
        dir.mkdir("first");
        assert_eq!(find(id(&dir, "first"), NOW), Some("/first".to_owned()));
        dir.mkdir("second");
        let second = id(&dir, "second");
        assert_eq!(find(second, NOW), None, "no second walk in one moment");
        let later = NOW.plus(WALK_INTERVAL);
        assert_eq!(find(second, later), Some("/second".to_owned()));
    }

    #[test]
    fn an_id_is_resolved_to_its_path() {
        let dir = Scratch::new();
        dir.mkdir("kubepods/pod1/ctr");
        dir.mkdir("system");
        let rows = [
            ("", "/"),
            ("kubepods", "/kubepods"),
            ("kubepods/pod1/ctr", "/kubepods/pod1/ctr"),
        ];
        for (rel, expected) in rows {
            assert_eq!(found(&dir, id(&dir, rel)).as_deref(), Some(expected));
        }
        assert_eq!(found(&dir, CgroupId(1)), None);
    }

    #[test]
    fn a_miss_causes_a_walk_and_removed_cgroups_are_kept() {
        let dir = Scratch::new();
        let memory = hierarchy(&dir);
        dir.mkdir("a");
        let a = id(&dir, "a");
        // The directory is kept open, so that this file system does not reuse the inode, as cgroups
        // never do.
        let _open = fs::File::open(dir.path().join("a")).unwrap();
        let mut paths = CgroupPaths::default();
        assert_eq!(paths.find(&memory, a, NOW).unwrap(), Some("/a"));

        fs::remove_dir(dir.path().join("a")).unwrap();
        let later = NOW.plus(WALK_INTERVAL);
        let known = paths.find(&memory, a, later).unwrap();
        assert_eq!(known, Some("/a"), "known from the last walk");
        dir.mkdir("b/c");
        let walked = paths.find(&memory, id(&dir, "b/c"), later).unwrap();
        assert_eq!(walked, Some("/b/c"), "walked again");
        assert_eq!(paths.known.len(), 3, "the top, b and b/c");
    }

    #[test]
    fn a_path_that_is_too_long_is_not_stored() {
        let dir = Scratch::new();
        let name = "d".repeat(LONGEST_PATH / 2 - 1);
        dir.mkdir(&format!("{name}/{name}/d"));
        let longer = id(&dir, &format!("{name}/{name}/d"));
        assert_eq!(found(&dir, longer), None);
        let longest = id(&dir, &format!("{name}/{name}"));
        assert!(found(&dir, longest).is_some(), "{LONGEST_PATH} bytes");
    }

    #[test]
    fn a_missing_hierarchy_is_an_error() {
        let dir = Scratch::new();
        let missing = Hierarchy {
            mount: dir.path().join("none"),
            version: Version::V2,
        };
        let found = CgroupPaths::default()
            .find(&missing, CgroupId(1), NOW)
            .map(drop);
        assert!(found.unwrap_err().is_absent());
    }
}
