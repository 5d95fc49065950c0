//! The names of the links to container logs. Nothing in the directory is opened or followed.

use std::fs;

use super::{HostError, HostRoot};

/// The directory in which a kubelet makes one link for each container.
pub const DIRECTORY: &str = "var/log/containers";

/// Maximum number of links: 60 per pod on a node with 500 pods, which are read in under 50 ms.
const MAX_LINKS: usize = 30_000;

/// Calls `visit` for the name of each link. Names that are not UTF-8 are skipped.
///
/// # Errors
///
/// If the directory cannot be read, or has more entries than any node has containers.
pub fn each_name(root: &HostRoot, mut visit: impl FnMut(&str)) -> Result<(), HostError> {
    let path = root.path(DIRECTORY);
    let failed = HostError::of_read(&path);
    for (count, entry) in fs::read_dir(&path).map_err(failed)?.enumerate() {
        if count == MAX_LINKS {
            return Err(HostError::TooManyEntries {
                path: path.clone(),
                limit: MAX_LINKS,
            });
        }
        if let Some(name) = entry.map_err(failed)?.file_name().to_str() {
            visit(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    fn names(dir: &Scratch) -> Result<Vec<String>, HostError> {
        let mut names = Vec::new();
        each_name(&dir.root(), |name| names.push(name.to_owned()))?;
        names.sort();
        Ok(names)
    }

    #[test]
    fn links_are_listed_by_name_whatever_they_point_to() {
        let dir = Scratch::new();
        assert!(names(&dir).unwrap_err().is_absent(), "no directory");
        dir.mkdir(DIRECTORY);
        assert_eq!(names(&dir).unwrap(), [""; 0]);
        let containers = dir.path().join(DIRECTORY);
        symlink("/nonexistent/0.log", containers.join("dangling")).unwrap();
        symlink("circle", containers.join("circle")).unwrap();
        dir.mkdir(&format!("{DIRECTORY}/directory/below"));
        symlink("x", containers.join(OsStr::from_bytes(b"not\xfftext"))).unwrap();
        assert_eq!(names(&dir).unwrap(), ["circle", "dangling", "directory"]);
    }

    #[test]
    fn the_number_of_links_is_limited() {
        let dir = Scratch::new();
        dir.mkdir(DIRECTORY);
        let containers = dir.path().join(DIRECTORY);
        let link = |n: usize| symlink("x", containers.join(n.to_string())).unwrap();
        (0..MAX_LINKS).for_each(link);
        assert_eq!(names(&dir).unwrap().len(), MAX_LINKS);
        link(MAX_LINKS);
        let err = names(&dir).unwrap_err();
        assert!(err.to_string().contains("more than 30000 entries"), "{err}");
        assert!(!err.is_absent());
    }
}
