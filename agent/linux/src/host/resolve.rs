//! Resolves paths with symbolic links, as the node follows them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use super::{HostError, HostRoot};

/// The kernel's limit on symbolic links in one path: `MAXSYMLINKS` in
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/namei.h>.
const MAX_LINKS: usize = 40;

enum Step {
    Root,
    Up,
    Down(OsString),
}

/// Returns the path below the root of the file that `path` names on the node. An absolute link
/// begins at the root, and `..` does not lead above it, so that a link never leads out of a root in
/// a container. Fails if a part of the path does not exist or cannot be read, or if the path has
/// too many links.
pub(super) fn resolve(root: &HostRoot, path: &Path) -> Result<PathBuf, HostError> {
    let mut left: VecDeque<Step> = steps(path).collect();
    let mut resolved = PathBuf::new();
    let mut links = 0;
    while let Some(step) = left.pop_front() {
        match step {
            Step::Root => resolved.clear(),
            Step::Up => drop(resolved.pop()),
            Step::Down(name) => {
                let next = root.dir().join(&resolved).join(&name);
                let failed = HostError::of_read(&next);
                if !next.symlink_metadata().map_err(failed)?.is_symlink() {
                    resolved.push(name);
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(failed(Errno::ELOOP.into()));
                }
                let target = next.read_link().map_err(failed)?;
                for step in steps(&target).rev() {
                    left.push_front(step);
                }
            }
        }
    }
    Ok(root.dir().join(resolved))
}

fn steps(path: &Path) -> impl DoubleEndedIterator<Item = Step> {
    path.components().filter_map(|part| match part {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn a_link_never_leads_out_of_the_root() {
        let dir = Scratch::new();
        dir.mkdir("var/lib/containerd");
        dir.mkdir("data/images");
        dir.write("data/file", "");
        let links = [
            ("var/lib/absolute", "/data/images"),
            ("var/lib/relative", "../../data/images"),
            ("var/lib/above", "../../../../../../../../etc"),
            ("var/lib/chain", "absolute/.."),
            ("var/lib/dangling", "/none"),
            ("var/lib/loop", "/var/lib/loop"),
            ("etc", "/data"),
        ];
        for (link, target) in links {
            symlink(target, dir.path().join(link)).unwrap();
        }
        let rows = [
            ("/var/lib/containerd", Some("var/lib/containerd")),
            ("var/./lib//containerd/", Some("var/lib/containerd")),
            ("/var/lib/absolute", Some("data/images")),
            ("/var/lib/relative", Some("data/images")),
            ("/var/lib/above/images", Some("data/images")),
            ("/var/lib/chain/file", Some("data/file")),
            ("/../..", Some("")),
            ("/var/lib/dangling", None),
            ("/var/lib/none", None),
            ("/data/file/below", None),
        ];
        for (path, expected) in rows {
            let found = resolve(&dir.root(), Path::new(path));
            match expected {
                Some(expected) => assert_eq!(found.unwrap(), dir.path().join(expected), "{path}"),
                None => assert!(found.unwrap_err().is_absent(), "{path}"),
            }
        }
        let err = resolve(&dir.root(), Path::new("/var/lib/loop")).unwrap_err();
        assert!(!err.is_absent(), "a loop is a fault: {err}");
    }
}
