//! Where the cgroup of all pods is, by what exists.

use std::path::PathBuf;
use std::sync::{Arc, Once, OnceLock};

use tracing::warn;

use super::{Layout, Version, pids};
use crate::host::field;

/// The cgroup of all pods, of which it may not be known yet how it is called. Made once: clones
/// share what is known, so that all who count by it count the same.
#[derive(Debug, Clone)]
pub struct PodsPath(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    layout: Option<Layout>,
    candidates: Vec<String>,
    /// Which of them, for good.
    certain: OnceLock<usize>,
    told: Once,
}

impl PodsPath {
    /// Of several `candidates` the one with processes is it, for good; before there are any, the
    /// first that exists. One alone is, whether it exists or not.
    #[must_use]
    pub fn new(layout: Option<Layout>, candidates: &[PathBuf]) -> Self {
        let candidates = candidates.iter().map(|path| path.display().to_string());
        let candidates: Vec<String> = candidates.collect();
        let certain = OnceLock::new();
        if candidates.len() == 1 {
            certain.get_or_init(|| 0);
        }
        Self(Arc::new(Shared {
            layout,
            candidates,
            certain,
            told: Once::new(),
        }))
    }

    /// Where the hierarchies are; `None`: none counts memory.
    #[must_use]
    pub fn layout(&self) -> Option<&Layout> {
        self.0.layout.as_ref()
    }

    /// Its path, as the kernel writes it. Until it is certain each call looks again, which takes
    /// 2 µs where nothing exists, and the first stands for the one that will come.
    #[must_use]
    pub fn path(&self) -> &str {
        let found = self.look().unwrap_or_default();
        let path = self.0.candidates.get(found);
        path.map_or("", String::as_str)
    }

    /// Itself where it is certain, else every path that it may have.
    #[must_use]
    pub fn possible(&self) -> &[String] {
        self.look();
        let certain = self.0.certain.get();
        let found = certain.and_then(|&n| self.0.candidates.get(n));
        found.map_or(&self.0.candidates, std::slice::from_ref)
    }

    /// All that it may be called by the configuration.
    #[must_use]
    pub fn candidates(&self) -> &[String] {
        &self.0.candidates
    }

    /// Those that exist now.
    #[must_use]
    pub fn existing(&self) -> Vec<&str> {
        self.there().map(|(_, path)| path).collect()
    }

    fn there(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.0.candidates.iter().map(String::as_str).enumerate();
        let layout = self.layout();
        all.filter(move |(_, path)| layout.is_some_and(|on| on.memory.dir(path).is_dir()))
    }

    /// The best of what is there now. It is certain once it alone has processes: what was left by a
    /// kubelet of another driver has none, and need not be the only one for long.
    fn look(&self) -> Option<usize> {
        if let Some(&certain) = self.0.certain.get() {
            return Some(certain);
        }
        let layout = self.layout()?;
        let there: Vec<(usize, &str)> = self.there().collect();
        let used = there.iter().filter(|(_, path)| is_populated(layout, path));
        let used: Vec<usize> = used.map(|(n, _)| *n).collect();
        let first = there.first().map(|(n, _)| *n);
        let best = used.first().copied().or(first)?;
        if there.len() > 1 {
            self.tell(best);
        }
        Some(match used.as_slice() {
            // Another thread may have been first.
            [only] => *self.0.certain.get_or_init(|| *only),
            _ => best,
        })
    }

    fn tell(&self, taken: usize) {
        self.0.told.call_once(|| {
            warn!(
                taken = self.0.candidates.get(taken),
                "there is more than one cgroup of pods; set cgroupDriver as the kubelet has it"
            );
        });
    }
}

/// Whether any process is in it or below. Version 1 says so only where pids are counted.
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

    use super::super::Hierarchy;
    use super::*;
    use crate::host::scratch::Scratch;

    fn layout(mount: &Path) -> Layout {
        let memory = Hierarchy {
            mount: mount.to_owned(),
            version: Version::V2,
        };
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
    fn the_one_with_processes_is_it_and_an_empty_one_only_until_then() {
        // What is there, with processes or without; which is it, and whether for good.
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
                // Pods run in the other one from here on.
                let other = if expected == SLICE { PLAIN } else { SLICE };
                for (path, populated) in [(expected, false), (other, true)] {
                    populate(&dir, path, populated);
                }
                let later = if certain { expected } else { other };
                assert_eq!(pods.path(), later, "{row}, later");
                assert_eq!(pods.possible(), [later], "{row}, later");
                std::fs::remove_dir_all(dir.path().join(&later[1..])).unwrap();
                assert_eq!(pods.path(), later, "{row}, gone again");
            }
        }
    }

    #[test]
    fn all_who_ask_are_told_the_same() {
        let dir = Scratch::new();
        populate(&dir, PLAIN, true);
        let pods = either(layout(dir.path()));
        let other = pods.clone();
        assert_eq!(pods.path(), PLAIN);
        populate(&dir, PLAIN, false);
        populate(&dir, SLICE, true);
        assert_eq!(other.path(), PLAIN, "asked for the first time");
    }

    #[test]
    fn one_that_is_named_is_it_unseen() {
        let dir = Scratch::new();
        populate(&dir, "/kubepods.slice", true);
        for layout in [Some(layout(dir.path())), None] {
            let pods = PodsPath::new(layout, &["/kubepods".into()]);
            assert_eq!(pods.path(), "/kubepods");
            assert_eq!(pods.possible(), ["/kubepods"]);
        }
    }
}
