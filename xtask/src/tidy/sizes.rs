//! How long files and crates may be. A function has at most 100 lines by a lint of clippy.

use std::collections::BTreeMap;

use super::Source;

/// Lines of a file before its unit tests.
const FILE_NEEDS_REASON: usize = 500;
const FILE_MAX: usize = 700;
/// Lines in a file of tests.
const TEST_FILE_MAX: usize = 500;
/// A long table or one long `match` need not be split: this near the top excuses it.
const REASON: &str = "// tidy: long: ";
/// The number of lines that count as the top of a file.
const TOP: usize = 40;

/// Lines of product code below a path, without unit tests, and at most how many there may be.
const LIMITS: &[(&str, usize)] = &[("agent", 67_300), ("xtask/", 9_100)];
/// Lines of all tests.
const TESTS_MAX: usize = 90_500;

/// The folders of the crates, and their names in the table.
const CRATES: &[&str] = &[
    "agent/core/",
    "agent/io/",
    "agent/linux/",
    "agent/kube/",
    "agent/kubectl/",
    "agent/",
    "agent-common/",
    "agent-ebpf/",
    "tests/",
    "xtask/",
];

/// Product code and tests of a crate.
#[derive(Default)]
struct Lines {
    product: usize,
    tests: usize,
}

/// The lines of each crate, for people.
pub fn table(sources: &[Source]) -> Vec<String> {
    let mut by_crate: BTreeMap<&str, Lines> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let mut folders = CRATES.iter();
        let Some(folder) = folders.find(|folder| source.path.starts_with(**folder)) else {
            continue;
        };
        let lines = by_crate.entry(folder).or_default();
        lines.product += product(source);
        lines.tests += source.text.lines().count() - product(source);
    }
    let row = |(folder, lines): (&str, Lines)| {
        let name = folder.trim_end_matches('/');
        format!(
            "{name:<14} {:>6} lines {:>6} of tests",
            lines.product, lines.tests
        )
    };
    by_crate.into_iter().map(row).collect()
}

/// Of the crate of tests, all are tests.
fn product(source: &Source) -> usize {
    match source.is_product() && !source.path.starts_with("tests/") {
        true => source.product_lines(),
        false => 0,
    }
}

pub fn broken(sources: &[Source]) -> Vec<String> {
    let rust = || sources.iter().filter(|source| source.is_rust());
    let mut broken: Vec<String> = rust().filter_map(too_long).collect();
    for (path, most) in LIMITS {
        let below = rust().filter(|source| source.path.starts_with(path));
        let lines: usize = below.map(product).sum();
        if lines > *most {
            broken.push(format!(
                "{path}:1: {lines} lines of product code, above {most}"
            ));
        }
    }
    let tests: usize = rust()
        .map(|one| one.text.lines().count() - product(one))
        .sum();
    if tests > TESTS_MAX {
        broken.push(format!(
            "tests:1: {tests} lines of tests, above {TESTS_MAX}"
        ));
    }
    broken
}

fn too_long(source: &Source) -> Option<String> {
    let path = &source.path;
    if !source.is_product() {
        let lines = source.text.lines().count();
        return (lines > TEST_FILE_MAX)
            .then(|| format!("{path}:1: {lines} lines of tests, above {TEST_FILE_MAX}: split it"));
    }
    let lines = source.product_lines();
    let reason = |line: &str| line.strip_prefix(REASON).is_some_and(|why| !why.is_empty());
    if lines > FILE_MAX {
        return Some(format!(
            "{path}:1: {lines} lines, above {FILE_MAX}: find its second noun"
        ));
    }
    (lines > FILE_NEEDS_REASON && !source.text.lines().take(TOP).any(reason)).then(|| {
        format!(
            "{path}:1: {lines} lines, above {FILE_NEEDS_REASON}: split it, or give the reason near the \
             top: `{REASON}<reason>`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn a_file_has_a_limit_which_a_reason_moves() {
        let lines = |count: usize| "const A: u8 = 1;\n".repeat(count);
        let reason = format!("{REASON}a table.\n");
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(800));
        let table = [
            ("agent/src/a.rs", lines(FILE_NEEDS_REASON), 0),
            ("agent/src/a.rs", lines(FILE_NEEDS_REASON + 1), 1),
            (
                "agent/src/a.rs",
                format!("{reason}{}", lines(FILE_MAX - 1)),
                0,
            ),
            ("agent/src/a.rs", format!("{reason}{}", lines(FILE_MAX)), 1),
            (
                "agent/src/a.rs",
                format!("{REASON}\n{}", lines(FILE_NEEDS_REASON)),
                1,
            ),
            ("agent/src/a.rs", tests, 0),
            ("tests/tests/a.rs", lines(TEST_FILE_MAX), 0),
            ("tests/tests/a/main.rs", lines(TEST_FILE_MAX + 1), 1),
            ("agent/src/a/tests.rs", lines(TEST_FILE_MAX + 1), 1),
            ("docs/tests.md", lines(TEST_FILE_MAX + 1), 0),
        ];
        for (path, text, expected) in table {
            let found = broken(&[source(path, &text)]);
            assert_eq!(found.len(), expected, "{path}: {found:?}");
        }
    }

    #[test]
    fn the_whole_has_a_limit_and_is_printed_by_crate() {
        let (path, most) = LIMITS[0];
        let sources = [
            source("agent/core/src/a.rs", &"\n".repeat(600)),
            source("agent/src/b.rs", "fn b() {}\n#[cfg(test)]\nmod tests {}\n"),
            source("tests/src/c.rs", "\n\n"),
        ];
        let expected = [
            "agent               1 lines      2 of tests",
            "agent/core        600 lines      0 of tests",
            "tests               0 lines      2 of tests",
        ];
        assert_eq!(table(&sources), expected);
        let many: Vec<_> = (0..=most / FILE_NEEDS_REASON)
            .map(|n| {
                source(
                    &format!("agent/src/{n}.rs"),
                    &"\n".repeat(FILE_NEEDS_REASON),
                )
            })
            .collect();
        let found = broken(&many);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("{path}:1: ")), "{found:?}");
    }
}
