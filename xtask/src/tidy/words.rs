//! Rejected names of files, and texts that no tracked file may contain.

use super::Source;

/// Names that attract whatever has no place: a file is named after its noun.
const FILE_NAMES: &[&str] = &[
    "common", "helper", "helpers", "misc", "mod", "types", "util", "utils",
];

/// In two parts, so that this file does not contain them. Each belongs to one person's machine or
/// afternoon, and not in the repository.
const ANYWHERE: &[&str] = &[
    concat!("sha", "red/"),
    concat!("/tmp", "/wt"),
    concat!("/work", "/main"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("<<<<", "<<<"),
];

const IN_RUST: &[&str] = &[
    concat!("dbg", "!("),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("====", "===="),
];

pub fn broken(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources {
        broken.extend(named_badly(source));
        broken.extend(contains_any(source, ANYWHERE));
        if source.is_rust() {
            broken.extend(contains_any(source, IN_RUST));
        }
    }
    broken
}

fn named_badly(source: &Source) -> Option<String> {
    let name = source.path.rsplit('/').next()?.strip_suffix(".rs")?;
    FILE_NAMES
        .contains(&name)
        .then(|| format!("{}:1: named `{name}`: name it after its noun", source.path))
}

fn contains_any<'a>(source: &'a Source, words: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    source.text.lines().enumerate().flat_map(move |(n, line)| {
        let found = words.iter().filter(move |word| line.contains(**word));
        found.map(move |word| format!("{}:{}: contains `{word}`", source.path, n + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn a_file_is_named_after_its_noun() {
        let table = [
            ("agent/linux/src/host/psi.rs", true),
            ("agent/linux/src/host/mod.rs", false),
            ("tests/src/utils.rs", false),
            ("agent/src/types.rs", false),
            ("docs/types.md", true),
        ];
        for (path, allowed) in table {
            let found = broken(&[source(path, "")]);
            assert_eq!(found.is_empty(), allowed, "{path}: {found:?}");
        }
    }

    #[test]
    fn each_banned_text_is_found_with_its_line() {
        for word in ANYWHERE {
            let found = broken(&[source("docs/a.md", &format!("fine\nsee {word}b\n"))]);
            assert_eq!(found, [format!("docs/a.md:2: contains `{word}`")]);
        }
        for word in IN_RUST {
            let text = format!("{word}x)\n");
            assert_eq!(
                broken(&[source("a.rs", &text)]),
                [format!("a.rs:1: contains `{word}`")]
            );
            assert_eq!(broken(&[source("a.md", &text)]), [""; 0], "only in Rust");
        }
    }
}
