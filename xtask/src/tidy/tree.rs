//! ARCHITECTURE.md names every source file, and none that is not there.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

const FILE: &str = "ARCHITECTURE.md";

/// Whose sources the tree must name, one by one.
const NAMED: &[&str] = &[
    "agent-common/src/",
    "agent-ebpf/src/",
    "agent/src/",
    "tests/src/",
    "xtask/src/",
];

pub fn broken(sources: &[Source]) -> Vec<String> {
    let Some(architecture) = sources.iter().find(|source| source.path == FILE) else {
        return vec![format!(
            "{FILE}:1: missing: it holds the tree of all sources"
        )];
    };
    let named = tree(&architecture.text);
    let have: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();

    let lacks = have
        .iter()
        .filter(|path| NAMED.iter().any(|prefix| path.starts_with(prefix)))
        .filter(|path| !is_named(&named, path))
        .map(|path| format!("{FILE}:1: the tree lacks {path}"));
    let stale = named
        .iter()
        .filter(|(path, _)| path.ends_with(".rs") && !have.contains(path.as_str()))
        .map(|(path, entry)| {
            format!(
                "{FILE}:{}: the tree names {path}, which is not there",
                entry.line
            )
        });
    lacks.chain(stale).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    line: usize,
    /// The words behind the name, those of the lines that follow included.
    words: String,
}

/// By name, or by a word behind the name of its directory: `setters/  one file each: ready, volumes`.
fn is_named(named: &BTreeMap<String, Entry>, path: &str) -> bool {
    if named.contains_key(path) {
        return true;
    }
    let Some((directory, file)) = path.rsplit_once('/') else {
        return false;
    };
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    named.get(directory).is_some_and(|entry| {
        let mut words = entry
            .words
            .split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == stem)
    })
}

/// Every path in a tree drawn with `├── `: four columns a level, two spaces behind a name.
fn tree(text: &str) -> BTreeMap<String, Entry> {
    let mut named: BTreeMap<String, Entry> = BTreeMap::new();
    // The directories that lead to the current line.
    let mut open: Vec<&str> = Vec::new();
    let mut last = String::new();
    for (n, line) in text.lines().enumerate() {
        let Some((indent, rest)) = line.split_once("── ") else {
            let more = line.trim_start_matches(['│', ' ']);
            match named.get_mut(&last) {
                Some(entry) if more.len() < line.len() => entry.words.extend([" ", more]),
                _ => last.clear(),
            }
            continue;
        };
        let (name, words) = rest.split_once("  ").unwrap_or((rest, ""));
        open.truncate(indent.chars().count() / 4);
        open.push(name.trim().trim_end_matches('/'));
        last = open.join("/");
        let entry = Entry {
            line: n + 1,
            words: words.to_owned(),
        };
        named.insert(last.clone(), entry);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    const TREE: &str = "\
# Architecture

```text
.
├── Cargo.toml                   members
│
├── agent/                       a library
│   └── src/
│       ├── lib.rs               the line
│       ├── host/
│       │   └── psi.rs
│       └── setters/             one file a setter: ready,
│                                volumes
└── xtask/
    └── src/
        ├── main.rs
        └── vm/qemu.rs           flags
```
";

    const FILES: &[&str] = &[
        "Cargo.toml",
        "agent/src/lib.rs",
        "agent/src/host/psi.rs",
        "agent/src/setters/ready.rs",
        "agent/src/setters/volumes.rs",
        "xtask/src/main.rs",
        "xtask/src/vm/qemu.rs",
    ];

    fn broken_with(files: &[&str]) -> Vec<String> {
        let mut sources = vec![source(FILE, TREE)];
        sources.extend(files.iter().map(|path| source(path, "")));
        broken(&sources)
    }

    #[test]
    fn a_tree_that_names_every_file_is_fine() {
        assert_eq!(broken_with(FILES), [""; 0]);
    }

    #[test]
    fn a_file_that_the_tree_does_not_name_is_found() {
        let mut files = FILES.to_vec();
        files.extend([
            "agent/src/host/new.rs",
            "agent/src/setters/address.rs",
            "deploy/a.yaml",
        ]);
        let expected = [
            "ARCHITECTURE.md:1: the tree lacks agent/src/host/new.rs",
            "ARCHITECTURE.md:1: the tree lacks agent/src/setters/address.rs",
        ];
        assert_eq!(broken_with(&files), expected);
    }

    #[test]
    fn a_line_of_the_tree_without_a_file_is_found() {
        let expected =
            ["ARCHITECTURE.md:17: the tree names xtask/src/vm/qemu.rs, which is not there"];
        assert_eq!(broken_with(&FILES[..6]), expected);
    }

    #[test]
    fn a_missing_tree_is_found() {
        let expected = ["ARCHITECTURE.md:1: missing: it holds the tree of all sources"];
        assert_eq!(broken(&[source("agent/src/lib.rs", "")]), expected);
    }
}
