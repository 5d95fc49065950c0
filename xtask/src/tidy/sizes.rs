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
/// Columns of a comment. `max_width` of rustfmt is for code.
const WIDTH: usize = 100;
/// Links, and rows of tables and drawings, have no place for a break.
const UNBREAKABLE: &[&str] = &["://", "//! |", "/// |", "─"];

/// Lines of product code below a path, without unit tests, and at most how many there may be.
const LIMITS: &[(&str, usize)] = &[
    ("agent", 80_310),
    ("agent/simulate/", 2_560),
    ("agent/top/", 900),
    ("xtask/", 8_510),
];
/// The README is read in a minute.
const README: (usize, usize) = (110, 700);
/// Lines of all tests.
const TESTS_MAX: usize = 89_700;

/// The lines of each crate, for people.
pub fn table(sources: &[Source]) -> String {
    let mut by_crate: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for source in rust(sources) {
        let inside = ["/src/", "/tests/", "/"];
        let of_crate = inside.iter().find_map(|at| source.path.split_once(at));
        let (product, tests) = lines(source);
        let sum = by_crate.entry(of_crate.map_or("", |(name, _)| name));
        let sum = sum.or_default();
        *sum = (sum.0 + product, sum.1 + tests);
    }
    let row =
        |(name, (product, tests))| format!("{name:<14} {product:>6} lines {tests:>6} of tests");
    by_crate.into_iter().map(row).collect::<Vec<_>>().join("\n")
}

fn rust(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.is_rust())
}

/// Product code and tests. Of the crate of tests, all are tests.
fn lines(source: &Source) -> (usize, usize) {
    let is_product = source.is_product() && !source.path.starts_with("tests/");
    let product = usize::from(is_product) * source.product_lines();
    (product, source.text.lines().count() - product)
}

pub fn broken(sources: &[Source]) -> Vec<String> {
    let mut broken: Vec<String> = rust(sources).filter_map(too_long).collect();
    broken.extend(rust(sources).flat_map(wide_comments));
    let mut limit = |path: &str, what: &str, lines: usize, most: usize| {
        let line = || format!("{path}:1: {lines} {what}, above {most}");
        broken.extend((lines > most).then(line));
    };
    for (path, most) in LIMITS {
        let below = rust(sources).filter(|source| source.path.starts_with(path));
        let product = below.map(|source| lines(source).0).sum();
        limit(path, "lines of product code", product, *most);
    }
    let tests = rust(sources).map(|source| lines(source).1).sum();
    limit("tests", "lines of tests", tests, TESTS_MAX);
    if let Some(readme) = sources.iter().find(|source| source.path == "README.md") {
        let (lines, words) = README;
        let text = &readme.text;
        limit("README.md", "lines", text.lines().count(), lines);
        limit("README.md", "words", text.split_whitespace().count(), words);
    }
    broken
}

fn too_long(source: &Source) -> Option<String> {
    let reason = |line: &str| line.strip_prefix(REASON).is_some_and(|why| !why.is_empty());
    let (lines, most, remedy) = if !source.is_product() {
        (source.text.lines().count(), TEST_FILE_MAX, "split it")
    } else if source.text.lines().take(TOP).any(reason) {
        (source.product_lines(), FILE_MAX, "find its second noun")
    } else {
        let remedy = "split it, or give the reason near the top: `// tidy: long: <reason>`";
        (source.product_lines(), FILE_NEEDS_REASON, remedy)
    };
    let path = &source.path;
    (lines > most).then(|| format!("{path}:1: {lines} lines, above {most}: {remedy}"))
}

fn wide_comments(source: &Source) -> impl Iterator<Item = String> {
    let is_wide = |line: &str| {
        line.trim_start().starts_with("//")
            && line.chars().count() > WIDTH
            && !UNBREAKABLE.iter().any(|part| line.contains(part))
    };
    let lines = source.text.lines().zip(1..);
    let wide = lines.filter(move |(line, _)| is_wide(line));
    wide.map(|(_, number)| format!("{}:{number}: a comment is wider than {WIDTH}", source.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn a_file_has_a_limit_which_a_reason_moves() {
        let lines =
            |start: &str, count: usize| format!("{start}{}", "const A: u8 = 1;\n".repeat(count));
        let [reason, no_reason] = ["a table.", ""].map(|why| format!("{REASON}{why}\n"));
        let table = [
            ("agent/src/a.rs", lines("", FILE_NEEDS_REASON), 0),
            ("agent/src/a.rs", lines("", FILE_NEEDS_REASON + 1), 1),
            ("agent/src/a.rs", lines(&reason, FILE_MAX - 1), 0),
            ("agent/src/a.rs", lines(&reason, FILE_MAX), 1),
            ("agent/src/a.rs", lines(&no_reason, FILE_NEEDS_REASON), 1),
            ("agent/src/a.rs", lines("mod tests {\n", 800), 0),
            ("tests/tests/a.rs", lines("", TEST_FILE_MAX), 0),
            ("tests/tests/a/main.rs", lines("", TEST_FILE_MAX + 1), 1),
            ("agent/src/a/tests.rs", lines("", TEST_FILE_MAX + 1), 1),
            ("docs/tests.md", lines("", TEST_FILE_MAX + 1), 0),
            ("README.md", "a b c d e\n".repeat(README.0), 0),
            ("README.md", "\n".repeat(README.0 + 1), 1),
            ("README.md", "a ".repeat(README.1 + 1), 1),
        ];
        for (path, text, expected) in table {
            let found = broken(&[source(path, &text)]);
            assert_eq!(found.len(), expected, "{path}: {found:?}");
        }
    }

    #[test]
    fn a_comment_has_a_width_unless_it_is_a_link() {
        let long = "a ".repeat(WIDTH / 2);
        let text = format!("// {long}\n// {}\n// <https://{long}>\n", &long[..90]);
        let found = broken(&[source("agent/src/a.rs", &text)]);
        assert_eq!(found, ["agent/src/a.rs:1: a comment is wider than 100"]);
    }

    #[test]
    fn the_whole_has_a_limit_and_is_printed_by_crate() {
        let sources = [
            source("agent/core/src/a.rs", &"\n".repeat(600)),
            source("agent/src/b.rs", "fn b() {}\n#[cfg(test)]\nmod tests {\n"),
            source("tests/src/c.rs", "\n\n"),
        ];
        let expected = "agent               1 lines      2 of tests\n\
                        agent/core        600 lines      0 of tests\n\
                        tests               0 lines      2 of tests";
        assert_eq!(table(&sources), expected);
        let (path, most) = LIMITS[0];
        let file = |_| source("agent/src/d.rs", &"\n".repeat(FILE_NEEDS_REASON));
        let many: Vec<_> = (0..=most / FILE_NEEDS_REASON).map(file).collect();
        let found = broken(&many);
        assert!(found.len() == 1 && found[0].starts_with(path), "{found:?}");
    }
}
