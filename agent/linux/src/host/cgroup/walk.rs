//! Walks a hierarchy, which needs no capability.
//!
//! On 64-bit kernels the id is the inode number of the cgroup's directory.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nodepulse_core::units::CgroupId;
use tracing::warn;

use super::Hierarchy;
use crate::host::HostError;

/// Maximum number of levels below the top. Kubernetes uses five, systemd in a pod a few more.
pub const MAX_DEPTH: usize = 10;

/// Maximum number of cgroups per walk: forty per pod on a node of 500 pods.
pub const MAX_CGROUPS: usize = 20_000;

/// Calls `visit` for every cgroup until it returns `false`, within the limits of [`each_below`].
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

/// Like [`each_below`], but `visit` decides for each cgroup. Visits level by level, so that many
/// cgroups of one tenant cannot exclude others. Skips cgroups that are removed meanwhile.
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
        super::super::tests::hierarchy(dir.path(), Version::V2)
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
}
