//! The path of the pods cgroup.

use std::path::PathBuf;
use std::sync::{Arc, Once, OnceLock};

use tracing::warn;

use super::{Layout, Version, pids};
use crate::host::field;

/// Levels below the cgroup of all pods at which pods are: directly below it or below a class.
pub const POD_LEVELS: usize = 2;

/// The path of the pods cgroup, which may not be known yet. Clones share the result.
#[derive(Debug, Clone)]
pub struct PodsPath(Arc<SharedPath>);

#[derive(Debug)]
struct SharedPath {
    layout: Option<Layout>,
    candidates: Vec<String>,
    certain: OnceLock<usize>,
    warned: Once,
}

impl PodsPath {
    /// Selects permanently the only one of `candidates` that contains processes; until then the
    /// first that exists. A single candidate is selected unconditionally.
    pub fn new(layout: Option<Layout>, candidates: &[PathBuf]) -> Self {
        let candidates = candidates.iter().map(|path| path.display().to_string());
        let candidates: Vec<String> = candidates.collect();
        let certain = OnceLock::new();
        if candidates.len() == 1 {
            certain.get_or_init(|| 0);
        }
        Self(Arc::new(SharedPath {
            layout,
            candidates,
            certain,
            warned: Once::new(),
        }))
    }

    /// Returns the hierarchies; `None` if none has the memory controller.
    pub fn layout(&self) -> Option<&Layout> {
        self.0.layout.as_ref()
    }

    /// Returns the path, relative to the hierarchy. Until the choice is final, each call checks
    /// again, which takes 2 µs if none exists; then the first candidate is returned.
    pub fn path(&self) -> &str {
        let found = self.detect().unwrap_or_default();
        let path = self.0.candidates.get(found);
        path.map_or("", String::as_str)
    }

    /// Returns the selected path if the choice is final, otherwise all candidates.
    pub fn possible(&self) -> &[String] {
        self.detect();
        let certain = self.0.certain.get();
        let found = certain.and_then(|&n| self.0.candidates.get(n));
        found.map_or(&self.0.candidates, std::slice::from_ref)
    }

    pub fn candidates(&self) -> &[String] {
        &self.0.candidates
    }

    pub fn existing(&self) -> Vec<&str> {
        self.existing_candidates().map(|(_, path)| path).collect()
    }

    fn existing_candidates(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.0.candidates.iter().map(String::as_str).enumerate();
        let layout = self.layout();
        all.filter(move |(_, path)| layout.is_some_and(|on| on.memory.dir(path).is_dir()))
    }

    /// Selects the best existing candidate. The choice is final once only one contains processes:
    /// the leftover of a kubelet with another driver has none.
    fn detect(&self) -> Option<usize> {
        if let Some(&certain) = self.0.certain.get() {
            return Some(certain);
        }
        let layout = self.layout()?;
        let existing: Vec<(usize, &str)> = self.existing_candidates().collect();
        let used = existing
            .iter()
            .filter(|(_, path)| is_populated(layout, path));
        let used: Vec<usize> = used.map(|(n, _)| *n).collect();
        let first = existing.first().map(|(n, _)| *n);
        let best = used.first().copied().or(first)?;
        if existing.len() > 1 {
            self.warn_once(best);
        }
        Some(match used.as_slice() {
            // Another thread may have set it first.
            [only] => *self.0.certain.get_or_init(|| *only),
            _ => best,
        })
    }

    fn warn_once(&self, selected: usize) {
        self.0.warned.call_once(|| {
            warn!(
                selected = self.0.candidates.get(selected),
                "more than one pods cgroup exists; set cgroupDriver as in the kubelet"
            );
        });
    }
}

/// Returns `true` if processes are in or below the cgroup. Version 1 needs the pids controller.
fn is_populated(layout: &Layout, cgroup: &str) -> bool {
    let mut buf = Vec::new();
    match (layout.memory.version, &layout.pids) {
        (Version::V2, _) => {
            let events = layout.memory.file(cgroup, "cgroup.events").read(&mut buf);
            events.is_ok_and(|()| field(&buf, b"populated") == Some(1))
        }
        (Version::V1, Some(hierarchy)) => {
            let read = pids::read(hierarchy, cgroup, &mut buf).ok().flatten();
            read.is_some_and(|pids| pids.current > 0)
        }
        (Version::V1, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::hierarchy;
    use super::*;
    use crate::host::scratch::Scratch;

    fn layout(mount: &Path) -> Layout {
        let memory = hierarchy(mount, Version::V2);
        Layout {
            pids: Some(memory.clone()),
            memory,
            unified: Some(mount.to_owned()),
        }
    }

    const SLICE: &str = "/a/kubepods.slice";
    const PLAIN: &str = "/a/kubepods";

    fn either(layout: Layout) -> PodsPath {
        PodsPath::new(Some(layout), &[SLICE, PLAIN].map(PathBuf::from))
    }

    fn populate(dir: &Scratch, path: &str, populated: bool) {
        let events = format!("populated {}\nfrozen 0\n", u8::from(populated));
        dir.write(&format!("{}/cgroup.events", &path[1..]), events);
        let tasks = if populated { "3\n" } else { "0\n" };
        dir.write(&format!("{}/pids.current", &path[1..]), tasks);
        dir.write(&format!("{}/pids.max", &path[1..]), "max\n");
    }

    #[test]
    fn the_only_cgroup_with_processes_is_selected_permanently() {
        // Existing cgroups, with or without processes; the selected one, and whether the choice is
        // final.
        type Row<'a> = (&'a [(&'a str, bool)], &'a str, bool);
        let rows: [Row<'_>; 9] = [
            (&[], SLICE, false),
            (&[(PLAIN, false)], PLAIN, false),
            (&[(SLICE, false)], SLICE, false),
            (&[(PLAIN, true)], PLAIN, true),
            (&[(SLICE, true)], SLICE, true),
            (&[(SLICE, false), (PLAIN, true)], PLAIN, true),
            (&[(SLICE, true), (PLAIN, false)], SLICE, true),
            (&[(SLICE, false), (PLAIN, false)], SLICE, false),
            (&[(SLICE, true), (PLAIN, true)], SLICE, false),
        ];
        for version in [Version::V1, Version::V2] {
            for (there, expected, certain) in rows {
                let dir = Scratch::new();
                let row = format!("{version:?} {there:?}");
                for (path, populated) in there {
                    populate(&dir, path, *populated);
                }
                let mut layout = layout(dir.path());
                layout.memory.version = version;
                let pods = either(layout);
                assert_eq!(pods.existing().len(), there.len(), "{row}");
                assert_eq!(pods.path(), expected, "{row}");
                let possible = if certain { 1 } else { 2 };
                assert_eq!(pods.possible().len(), possible, "{row}");
                // From now on the other one contains processes.
                let other = if expected == SLICE { PLAIN } else { SLICE };
                for (path, populated) in [(expected, false), (other, true)] {
                    populate(&dir, path, populated);
                }
                let later = if certain { expected } else { other };
                assert_eq!(pods.path(), later, "{row}, later");
                assert_eq!(pods.possible(), [later], "{row}, later");
                std::fs::remove_dir_all(dir.path().join(&later[1..])).unwrap();
                assert_eq!(pods.path(), later, "{row}, removed");
            }
        }
    }

    #[test]
    fn clones_share_the_selection() {
        let dir = Scratch::new();
        populate(&dir, PLAIN, true);
        let pods = either(layout(dir.path()));
        let other = pods.clone();
        assert_eq!(pods.path(), PLAIN);
        populate(&dir, PLAIN, false);
        populate(&dir, SLICE, true);
        assert_eq!(other.path(), PLAIN, "first call of the clone");
    }

    #[test]
    fn a_configured_path_need_not_exist() {
        let dir = Scratch::new();
        populate(&dir, "/kubepods.slice", true);
        for layout in [Some(layout(dir.path())), None] {
            let pods = PodsPath::new(layout, &["/kubepods".into()]);
            assert_eq!(pods.path(), "/kubepods");
            assert_eq!(pods.possible(), ["/kubepods"]);
        }
    }
}
