//! Resolves cgroup ids to paths by walking the hierarchy, which needs no capability.
//!
//! On 64-bit kernels the id is the inode number of the cgroup's directory.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nodepulse_core::units::CgroupId;
use tracing::warn;

use super::Hierarchy;
use crate::host::HostError;

/// Maximum number of levels below the top. Kubernetes uses five, systemd inside a container a few
/// more.
pub const MAX_DEPTH: usize = 10;

/// Maximum number of cgroups per walk: forty per pod on a node of 500 pods.
pub const MAX_CGROUPS: usize = 20_000;

/// Maximum length of a stored path, which limits memory to 10 MiB with [`MAX_CGROUPS`].
const LONGEST_PATH: usize = 512;

/// Paths by id, from the last walk.
///
/// Ids are not reused while the node is up, so a path remains correct, but its cgroup may have been
/// removed.
#[derive(Debug, Clone, Default)]
pub struct InodeMap(HashMap<CgroupId, String>);

impl InodeMap {
    /// Returns the path from the last walk.
    pub fn known(&self, id: CgroupId) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// Returns the path of a cgroup. Walks once if the id is unknown. A cgroup that was removed
    /// before any walk remains unknown.
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

    /// Walks the hierarchy and replaces the map.
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

/// Calls `visit` for every cgroup, until it returns `false` or a limit is reached. See
/// [`each_below`].
pub(super) fn each(
    hierarchy: &Hierarchy,
    visit: impl FnMut(CgroupId, &Path, &str) -> bool,
) -> Result<(), HostError> {
    each_below(hierarchy, "/", MAX_DEPTH, visit)
}

/// The next step of a walk after a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Visits the cgroups below it, too.
    Below,
    /// Leaves out the cgroups below it.
    Skip,
    Stop,
}

/// Calls `visit` for `cgroup` and those up to `depth` levels below it, until it returns `false` or
/// [`MAX_CGROUPS`] is reached: id, directory, and path within the hierarchy. See [`each_selected`].
pub fn each_below(
    hierarchy: &Hierarchy,
    cgroup: &str,
    depth: usize,
    mut visit: impl FnMut(CgroupId, &Path, &str) -> bool,
) -> Result<(), HostError> {
    each_selected(hierarchy, cgroup, depth, |id, dir, path| {
        if visit(id, dir, path) {
            Next::Below
        } else {
            Next::Stop
        }
    })
}

/// Visits cgroups like [`each_below`], but `visit` decides for each cgroup. Visits level by level,
/// so that many cgroups of one tenant cannot exclude others. Cgroups that are removed meanwhile are
/// skipped.
pub fn each_selected(
    hierarchy: &Hierarchy,
    cgroup: &str,
    depth: usize,
    mut visit: impl FnMut(CgroupId, &Path, &str) -> Next,
) -> Result<(), HostError> {
    let top = hierarchy.dir(cgroup);
    let found = fs::metadata(&top).map_err(HostError::of_read(&top));
    let id = CgroupId(found?.ino());
    let path = cgroup.trim_end_matches('/').to_owned();
    let mut waiting = VecDeque::from([(id, top, path, 0)]);
    let mut found = 1;
    while let Some((id, dir, path, level)) = waiting.pop_front() {
        match visit(id, &dir, if path.is_empty() { "/" } else { &path }) {
            Next::Below if level < depth && found < MAX_CGROUPS => {}
            Next::Below | Next::Skip => continue,
            Next::Stop => return Ok(()),
        }
        let room = MAX_CGROUPS - found;
        for (id, child, name) in children(&dir).take(room) {
            found += 1;
            waiting.push_back((id, child, format!("{path}/{name}"), level + 1));
        }
        if found == MAX_CGROUPS {
            warn!(cgroups = found, "too many cgroups: some are skipped");
        }
    }
    Ok(())
}

/// Returns the subdirectories of `dir`. Symbolic links are not followed.
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
    fn a_miss_causes_a_walk_and_removed_cgroups_are_kept() {
        let dir = Scratch::new();
        dir.mkdir("a");
        let a = id(&dir, "a");
        // The directory is kept open, so that this file system does not reuse the inode, as cgroups
        // never do.
        let _open = fs::File::open(dir.path().join("a")).unwrap();
        let mut map = InodeMap::default();
        assert_eq!(map.resolve(&hierarchy(&dir), a).unwrap(), Some("/a"));

        fs::remove_dir(dir.path().join("a")).unwrap();
        assert_eq!(
            map.resolve(&hierarchy(&dir), a).unwrap(),
            Some("/a"),
            "known from the last walk"
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
    fn a_path_that_is_too_long_is_not_stored() {
        let dir = Scratch::new();
        let name = "d".repeat(LONGEST_PATH / 2 - 1);
        dir.mkdir(&format!("{name}/{name}/d"));
        let mut map = InodeMap::default();
        let longer = id(&dir, &format!("{name}/{name}/d"));
        assert_eq!(map.resolve(&hierarchy(&dir), longer).unwrap(), None);
        let longest = id(&dir, &format!("{name}/{name}"));
        assert!(map.known(longest).is_some(), "{LONGEST_PATH} bytes");
    }

    #[test]
    fn a_missing_hierarchy_is_an_error() {
        let dir = Scratch::new();
        let missing = Hierarchy {
            mount: dir.path().join("none"),
            version: Version::V2,
        };
        let mut map = InodeMap::default();
        assert!(map.resolve(&missing, CgroupId(1)).unwrap_err().is_absent());
    }
}
