//! From a cgroup's id to its path.
//!
//! On 64-bit kernels the id is the inode number of the cgroup's directory, so a walk of the
//! hierarchy finds it. Neither nix nor rustix offers `open_by_handle_at`, which would find it at
//! once, and this room has no `unsafe`: the walk is the way that needs no capability.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tracing::warn;

use super::Hierarchy;
use crate::host::HostError;
use crate::units::CgroupId;

/// Levels below the top. Kubernetes uses five, systemd inside a container a few more.
pub const MAX_DEPTH: usize = 10;

/// Cgroups that one walk looks at: forty a pod on a node of 500 pods.
pub const MAX_CGROUPS: usize = 20_000;

/// A longer path is not remembered: only a tenant makes such names, and with [`MAX_CGROUPS`] it
/// bounds the memory of one walk at 10 MiB.
const LONGEST_PATH: usize = 512;

/// Paths by id, as the last walk found them.
///
/// An id is never given twice while the node is up, so a path that was once right stays right; it
/// may be that of a cgroup that is gone since.
#[derive(Debug, Clone, Default)]
pub struct InodeMap(HashMap<CgroupId, String>);

impl InodeMap {
    /// The path as of the last walk.
    #[must_use]
    pub fn known(&self, id: CgroupId) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// The path of a cgroup. Walks once where the id is unknown; a cgroup that was gone before
    /// any walk saw it stays unknown.
    pub fn resolve(
        &mut self,
        hierarchy: &Hierarchy,
        id: CgroupId,
    ) -> Result<Option<&str>, HostError> {
        if self.known(id).is_none() {
            self.refresh(hierarchy)?;
        }
        Ok(self.known(id))
    }

    /// Walks now, so that cgroups that will be gone are known. Forgets those that are gone.
    fn refresh(&mut self, hierarchy: &Hierarchy) -> Result<(), HostError> {
        let mut paths = HashMap::with_capacity(self.0.len());
        each(hierarchy, |id, _, path| {
            if path.len() <= LONGEST_PATH {
                paths.insert(id, path.to_owned());
            }
            true
        })?;
        self.0 = paths;
        Ok(())
    }
}

/// Shows every cgroup to `look`, until it says `false` or a bound is met. See [`each_below`].
pub(super) fn each(
    hierarchy: &Hierarchy,
    look: impl FnMut(CgroupId, &Path, &str) -> bool,
) -> Result<(), HostError> {
    each_below(hierarchy, "/", MAX_DEPTH, look)
}

/// Shows `cgroup` and those up to `depth` levels below it to `look`, until it says `false` or there
/// were [`MAX_CGROUPS`]: id, directory, and path within the hierarchy. Level by level, so that the
/// many that a tenant made below its own cannot hide another's. Those that go away meanwhile are
/// left out.
///
/// # Errors
///
/// Where `cgroup` itself is not there.
pub fn each_below(
    hierarchy: &Hierarchy,
    cgroup: &str,
    depth: usize,
    mut look: impl FnMut(CgroupId, &Path, &str) -> bool,
) -> Result<(), HostError> {
    let top = hierarchy.dir(cgroup);
    let failed = |source| HostError::Read {
        path: top.clone(),
        source,
    };
    let id = CgroupId(fs::metadata(&top).map_err(failed)?.ino());
    let path = cgroup.trim_end_matches('/').to_owned();
    let mut waiting = VecDeque::from([(id, top, path, 0)]);
    let mut found = 1;
    while let Some((id, dir, path, level)) = waiting.pop_front() {
        if !look(id, &dir, if path.is_empty() { "/" } else { &path }) {
            return Ok(());
        }
        if level == depth || found == MAX_CGROUPS {
            continue;
        }
        let room = MAX_CGROUPS - found;
        for (id, child, name) in children(&dir).take(room) {
            found += 1;
            waiting.push_back((id, child, format!("{path}/{name}"), level + 1));
        }
        if found == MAX_CGROUPS {
            warn!(cgroups = found, "too many cgroups, some are not looked at");
        }
    }
    Ok(())
}

/// The directories in `dir`; links are not followed, and a directory that is gone has none.
fn children(dir: &Path) -> impl Iterator<Item = (CgroupId, PathBuf, String)> + use<> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_dir().then(|| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (CgroupId(entry.ino()), entry.path(), name)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::cgroup::Version;
    use crate::host::scratch::Scratch;

    fn hierarchy(dir: &Scratch) -> Hierarchy {
        Hierarchy {
            mount: dir.path().to_owned(),
            version: Version::V2,
        }
    }

    fn id(dir: &Scratch, rel: &str) -> CgroupId {
        CgroupId(dir.path().join(rel).metadata().unwrap().ino())
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
            let mut map = InodeMap::default();
            let found = map.resolve(&hierarchy(&dir), id(&dir, rel)).unwrap();
            assert_eq!(found, Some(expected));
        }
        let mut map = InodeMap::default();
        assert_eq!(map.resolve(&hierarchy(&dir), CgroupId(1)).unwrap(), None);
    }

    #[test]
    fn the_map_walks_on_a_miss_and_remembers_what_is_gone() {
        let dir = Scratch::new();
        dir.mkdir("a");
        let a = id(&dir, "a");
        // Held open, so that this file system does not give the inode to the next directory;
        // cgroups never do.
        let _held = fs::File::open(dir.path().join("a")).unwrap();
        let mut map = InodeMap::default();
        assert_eq!(map.resolve(&hierarchy(&dir), a).unwrap(), Some("/a"));

        fs::remove_dir(dir.path().join("a")).unwrap();
        assert_eq!(
            map.resolve(&hierarchy(&dir), a).unwrap(),
            Some("/a"),
            "known from before"
        );
        dir.mkdir("b/c");
        let c = id(&dir, "b/c");
        assert_eq!(
            map.resolve(&hierarchy(&dir), c).unwrap(),
            Some("/b/c"),
            "walked again"
        );
        assert_eq!(map.0.len(), 3, "the top, b and b/c");
    }

    #[test]
    fn a_walk_is_bounded_in_depth_and_follows_no_links() {
        let dir = Scratch::new();
        dir.mkdir(&["d"; MAX_DEPTH + 1].join("/"));
        symlink(dir.path(), dir.path().join("loop")).unwrap();
        let mut depths = Vec::new();
        each(&hierarchy(&dir), |_, _, path| {
            depths.push(path.matches('d').count());
            true
        })
        .unwrap();
        assert_eq!(depths, (0..=MAX_DEPTH).collect::<Vec<_>>());
    }

    #[test]
    fn a_hierarchy_that_is_not_there_is_an_error() {
        let dir = Scratch::new();
        let gone = Hierarchy {
            mount: dir.path().join("none"),
            version: Version::V2,
        };
        let mut map = InodeMap::default();
        assert!(map.resolve(&gone, CgroupId(1)).unwrap_err().is_absent());
    }
}
