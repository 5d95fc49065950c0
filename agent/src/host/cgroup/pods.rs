//! Where the cgroup of all pods is, by what exists.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Hierarchy, Layout};

/// The cgroup of all pods, of which it may not be known yet how it is called.
#[derive(Debug, Clone)]
pub struct PodsPath {
    memory: Option<Hierarchy>,
    candidates: Vec<String>,
    /// Which of them.
    found: OnceLock<usize>,
}

impl PodsPath {
    /// Of several `candidates` the first that exists is it; one alone is, whether it exists or not.
    #[must_use]
    pub fn new(layout: Option<&Layout>, candidates: &[PathBuf]) -> Self {
        let candidates = candidates.iter().map(|path| path.display().to_string());
        Self {
            memory: layout.map(|layout| layout.memory.clone()),
            candidates: candidates.collect(),
            found: OnceLock::new(),
        }
    }

    /// Its path, as the kernel writes it. Until one was seen each call looks again, which takes 2 µs,
    /// and the first stands for the one that will come.
    #[must_use]
    pub fn path(&self) -> &str {
        let first = self.candidates.first();
        let seen = self.found().and_then(|n| self.candidates.get(n)).or(first);
        seen.map_or("", String::as_str)
    }

    /// Itself where it is known, else every path that it may have.
    #[must_use]
    pub fn possible(&self) -> &[String] {
        let found = self.found().and_then(|n| self.candidates.get(n));
        found.map_or(&self.candidates, std::slice::from_ref)
    }

    fn found(&self) -> Option<usize> {
        if let Some(&found) = self.found.get() {
            return Some(found);
        }
        let memory = self.memory.as_ref()?;
        let there = |path: &String| memory.dir(path).is_dir();
        let found = self.candidates.iter().position(there)?;
        Some(*self.found.get_or_init(|| found))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Version;
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

    #[test]
    fn the_first_that_comes_is_it_and_stays_it() {
        let (slice, plain) = ("/a/kubepods.slice", "/a/kubepods");
        let both = [slice, plain].map(PathBuf::from);
        // What is there, what comes later, and what it is called then.
        let rows: [(&[&str], &str, &str); 4] = [
            (&[], plain, plain),
            (&[], slice, slice),
            (&[plain], slice, plain),
            (&[plain, slice], plain, slice),
        ];
        for (there, later, expected) in rows {
            let dir = Scratch::new();
            for path in there {
                dir.mkdir(&path[1..]);
            }
            let pods = PodsPath::new(Some(&layout(dir.path())), &both);
            let possible = if there.is_empty() { 2 } else { 1 };
            assert_eq!(pods.possible().len(), possible, "{there:?}");
            assert!(both.contains(&pods.path().into()), "{there:?}");
            dir.mkdir(&later[1..]);
            assert_eq!(pods.path(), expected, "{there:?}, then {later}");
            assert_eq!(pods.possible(), [expected], "{there:?}, then {later}");
            std::fs::remove_dir(dir.path().join(&expected[1..])).unwrap();
            assert_eq!(pods.path(), expected, "gone again");
        }
    }

    #[test]
    fn one_that_is_named_is_it_unseen() {
        let dir = Scratch::new();
        dir.mkdir("kubepods.slice");
        for layout in [Some(layout(dir.path())), None] {
            let pods = PodsPath::new(layout.as_ref(), &["/kubepods".into()]);
            assert_eq!(pods.path(), "/kubepods");
            assert_eq!(pods.possible(), ["/kubepods"]);
        }
    }
}
