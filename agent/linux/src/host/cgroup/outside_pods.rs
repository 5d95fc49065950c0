//! The usage of units outside of pods: services, scopes, and other cgroups that are not slices.

use std::path::Path;

use super::walk::{self, Next};
use super::{Hierarchy, ancestors};
use crate::host::{HostError, HostFile};

/// Maximum number of units that are read. A node has about a hundred.
pub const MAX_UNITS: usize = 1000;

/// Maximum number of levels of slices that are searched for units.
const LEVELS: usize = 6;

/// Returns the units outside of pods with the result of `usage` for the directory of each, in no
/// order. `None` means that the unit has no such file.
///
/// A slice is not a unit if there is a unit in it that can be read, so nothing is counted twice.
/// The cgroups below a unit are part of it. Usage that is in no cgroup but the top is in none of
/// them.
///
/// # Cost
///
/// One file for each unit and slice.
pub fn units(
    hierarchy: &Hierarchy,
    pods: &str,
    mut usage: impl FnMut(&Path) -> Option<u64>,
) -> Result<Vec<(String, u64)>, HostError> {
    let mut found: Vec<(String, u64)> = Vec::new();
    walk::each_selected(hierarchy, "/", LEVELS, |_, dir, path| {
        if found.len() == MAX_UNITS {
            return Next::Stop;
        }
        if path == pods {
            return Next::Skip;
        }
        if ancestors(pods).any(|above| above == path) {
            return Next::Below;
        }
        let Some(used) = usage(dir) else {
            return Next::Skip;
        };
        found.push((path.to_owned(), used));
        if is_slice(path) {
            Next::Below
        } else {
            Next::Skip
        }
    })?;
    let above: Vec<String> = found
        .iter()
        .filter_map(|(path, _)| Some(path.rsplit_once('/')?.0.to_owned()))
        .collect();
    found.retain(|(path, _)| !is_slice(path) || !above.contains(path));
    Ok(found)
}

pub fn number(dir: &Path, file: &str, buf: &mut Vec<u8>) -> Option<u64> {
    HostFile::at(dir.join(file)).number(buf).ok()
}

fn is_slice(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, type_)| type_ == "slice")
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;
    use crate::host::scratch::Scratch;

    fn units_of(dir: &Scratch, pods: &str) -> Vec<(String, u64)> {
        let hierarchy = super::super::tests::hierarchy(dir.path(), Version::V2);
        let mut buf = Vec::new();
        let mut found = units(&hierarchy, pods, |dir| {
            number(dir, "pids.current", &mut buf)
        })
        .unwrap();
        found.sort();
        found
    }

    #[test]
    fn each_unit_is_counted_once_and_pods_are_not() {
        let dir = Scratch::new();
        #[rustfmt::skip]
        let cgroups = [
            ("init.scope", 1),
            ("system.slice", 90),
            ("system.slice/hog.service", 50),
            ("system.slice/hog.service/below.service", 50),
            ("system.slice/system-getty.slice", 3),
            ("system.slice/system-getty.slice/getty@tty1.service", 3),
            ("user.slice", 9),
            ("user.slice/user-1000.slice", 9),
            ("user.slice/user-1000.slice/session-3.scope", 5),
            ("user.slice/user-1000.slice/user@1000.service", 4),
            ("user.slice/user-1000.slice/user@1000.service/app.slice", 4),
            ("empty.slice", 7),
            ("docker", 20),
            ("docker/0123", 20),
            ("a.slice", 400),
            ("a.slice/kubepods.slice", 390),
            ("a.slice/kubepods.slice/kubepods-pod1.slice", 300),
            ("a.slice/other.service", 10),
        ];
        for (cgroup, tasks) in cgroups {
            dir.write(&format!("{cgroup}/pids.current"), format!("{tasks}\n"));
        }
        // This cgroup does not have the controller.
        dir.mkdir("system.slice/removed.service");
        let expected = [
            ("/a.slice/other.service", 10),
            ("/docker", 20),
            ("/empty.slice", 7),
            ("/init.scope", 1),
            ("/system.slice/hog.service", 50),
            ("/system.slice/system-getty.slice/getty@tty1.service", 3),
            ("/user.slice/user-1000.slice/session-3.scope", 5),
            ("/user.slice/user-1000.slice/user@1000.service", 4),
        ]
        .map(|(path, tasks)| (path.to_owned(), tasks));
        assert_eq!(units_of(&dir, "/a.slice/kubepods.slice"), expected);
    }

    #[test]
    fn the_number_of_units_is_limited() {
        let dir = Scratch::new();
        for n in 0..=MAX_UNITS {
            dir.write(&format!("system.slice/{n}.service/pids.current"), "1\n");
        }
        dir.write("system.slice/pids.current", "9999\n");
        let found = units_of(&dir, "/kubepods");
        assert_eq!(found.len(), MAX_UNITS - 1, "without the slice");
    }
}
