//! Paths of cgroups by their ids, for hosts on which a cgroup cannot be opened by its id.

use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::units::CgroupId;

use super::Hierarchy;
use super::walk::InodeMap;
use crate::host::HostError;

/// Shortest time between two walks for unknown ids.
const WALK_INTERVAL: Duration = Duration::from_secs(2);

/// Finds paths by walking the hierarchy, but does not walk for each of many unknown ids.
#[derive(Debug, Default)]
pub struct CgroupPaths {
    known: InodeMap,
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
        if recent || self.known.known(id).is_some() {
            return Ok(self.known.known(id));
        }
        self.walked = Some(now);
        self.known.resolve(hierarchy, id)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::host::cgroup::Version;
    use crate::host::scratch::Scratch;

    #[test]
    fn many_unknown_ids_in_one_moment_cause_one_walk() {
        let dir = Scratch::new();
        let memory = Hierarchy {
            mount: dir.path().to_owned(),
            version: Version::V2,
        };
        let id = |rel: &str| CgroupId(dir.path().join(rel).metadata().unwrap().ino());
        let mut paths = CgroupPaths::default();
        let mut find = |id, at| paths.find(&memory, id, at).unwrap().map(str::to_owned);
        let now = BootNanos(10_000_000_000);
        dir.mkdir("first");
        assert_eq!(find(id("first"), now), Some("/first".to_owned()));
        dir.mkdir("second");
        assert_eq!(
            find(id("second"), now),
            None,
            "no second walk in one moment"
        );
        let later = now.plus(WALK_INTERVAL);
        assert_eq!(find(id("second"), later), Some("/second".to_owned()));
    }
}
