//! How long files and functions may be: lines with code on them, without comments and tests.
//!
//! A long table or a long `match` need not be split: the comment
//! `// tidy: long: <reason>` on the line above a function, or near the top of a file, excuses it.
//! There is no exception for a file above the last limit.

use super::code::{Function, code_lines, functions, product_code};
use super::{Found, Source};

const FILE_NEEDS_REASON: usize = 400;
const FILE_MAX: usize = 600;
/// Lines of any kind in a file of tests.
const TEST_FILE_MAX: usize = 500;
const AGENT_MAIN: &str = "agent/src/main.rs";
const AGENT_MAIN_MAX: usize = 80;

/// The number of lines that count as the top of a file.
const TOP: usize = 40;
/// Attributes and doc comments may stand between a function and its reason.
const ABOVE: usize = 12;

const REASON: &str = "// tidy: long: ";

struct FunctionLimits {
    note: usize,
    max: usize,
}

const FUNCTIONS: FunctionLimits = FunctionLimits { note: 50, max: 80 };
/// The verifier and the reader both follow every branch.
const EBPF_FUNCTIONS: FunctionLimits = FunctionLimits { note: 30, max: 50 };

pub fn check(sources: &[Source]) -> Found {
    let mut found = Found::default();
    found.broken.extend(sources.iter().filter_map(test_file));
    for source in sources.iter().filter(|source| source.is_product()) {
        let code = product_code(&source.text);
        found.broken.extend(file(source, code_lines(&code)));
        for function in functions(&code) {
            measure(source, &function, &mut found);
        }
    }
    found
}

/// Integration tests, and unit tests in a separate file.
fn test_file(source: &Source) -> Option<String> {
    let path = &source.path;
    let lines = source.text.lines().count();
    let is_test = source.is_rust() && !source.is_product();
    (is_test && lines > TEST_FILE_MAX)
        .then(|| format!("{path}:1: {lines} lines of tests, above {TEST_FILE_MAX}: split it"))
}

fn file(source: &Source, lines: usize) -> Option<String> {
    let Source { path, text } = source;
    let whole = text.lines().count();
    if path == AGENT_MAIN && whole > AGENT_MAIN_MAX {
        return Some(format!(
            "{path}:1: {whole} lines, above {AGENT_MAIN_MAX}: move it to a room"
        ));
    }
    if lines > FILE_MAX {
        return Some(format!(
            "{path}:1: {lines} lines of code, above {FILE_MAX}: find its second noun"
        ));
    }
    if lines > FILE_NEEDS_REASON && !has_reason(text.lines().take(TOP)) {
        return Some(format!(
            "{path}:1: {lines} lines of code, above {FILE_NEEDS_REASON}: split it, or give the reason \
             near the top: `{REASON}<reason>`"
        ));
    }
    None
}

fn measure(source: &Source, function: &Function<'_>, found: &mut Found) {
    let ebpf = source.path.starts_with("agent-ebpf/");
    let limits = if ebpf { EBPF_FUNCTIONS } else { FUNCTIONS };
    let line = function.line;
    let what = format!(
        "{}:{line}: function `{}` has {} lines of code",
        source.path, function.name, function.code_lines
    );
    let above = source
        .text
        .lines()
        .take(line)
        .skip(line.saturating_sub(ABOVE));
    if function.code_lines > limits.max && !has_reason(above) {
        found.broken.push(format!("{what}, above {}", limits.max));
    } else if function.code_lines > limits.note {
        found.notes.push(what);
    }
}

fn has_reason<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    let reason = |line: &str| {
        line.trim_start()
            .strip_prefix(REASON)
            .map(str::trim)
            .map(str::len)
    };
    lines.any(|line| reason(line).is_some_and(|len| len > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn constants(count: usize) -> String {
        "const A: u8 = 1;\n\n// A comment is not code.\n".repeat(count)
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_has_at_most_600_lines_and_needs_a_reason_above_400() {
        let reason = format!("{REASON}a table.\n");
        let table = [
            (constants(400), true, "at the first limit"),
            (constants(401), false, "above it without a reason"),
            (
                format!("{reason}{}", constants(600)),
                true,
                "at the last limit, with a reason",
            ),
            (
                format!("{reason}{}", constants(601)),
                false,
                "nothing excuses this",
            ),
            (
                format!("{REASON}\n{}", constants(401)),
                false,
                "an empty reason",
            ),
            (
                format!("#[cfg(test)]\nmod tests {{\n{}}}\n", constants(700)),
                true,
                "tests are not counted",
            ),
        ];
        for (text, allowed, why) in table {
            let found = check(&[source("agent/linux/src/host.rs", &text)]);
            assert_eq!(found.broken.is_empty(), allowed, "{why}: {found:?}");
        }
    }

    #[test]
    fn a_function_has_at_most_80_lines_and_a_note_above_50() {
        let reason = format!("{REASON}one table.\n#[must_use]\n");
        let table = [
            ("agent/linux/src/host.rs", function(50), 0, 0),
            ("agent/linux/src/host.rs", function(51), 0, 1),
            ("agent/linux/src/host.rs", function(80), 0, 1),
            ("agent/linux/src/host.rs", function(81), 1, 0),
            (
                "agent/linux/src/host.rs",
                format!("{reason}{}", function(81)),
                0,
                1,
            ),
            ("agent-ebpf/src/oom.rs", function(30), 0, 0),
            ("agent-ebpf/src/oom.rs", function(31), 0, 1),
            ("agent-ebpf/src/oom.rs", function(51), 1, 0),
            ("tests/tests/kernel.rs", function(81), 0, 0),
            ("tests/src/node.rs", function(81), 1, 0),
        ];
        for (path, text, broken, notes) in table {
            let lines = text.lines().count();
            let found = check(&[source(path, &text)]);
            assert_eq!(
                found.broken.len(),
                broken,
                "{path}, {lines} lines: {found:?}"
            );
            assert_eq!(found.notes.len(), notes, "{path}, {lines} lines: {found:?}");
        }
    }

    #[test]
    fn a_file_of_tests_has_at_most_500_lines_of_any_kind() {
        let table = [
            ("tests/tests/kernel.rs", 500, 0),
            ("tests/tests/kernel.rs", 501, 1),
            ("tests/tests/cluster/main.rs", 501, 1),
            ("agent/src/config/tests.rs", 501, 1),
            ("agent/src/config/tests/table.rs", 501, 1),
            ("agent/src/config.rs", 501, 0),
            ("docs/tests.md", 501, 0),
        ];
        for (path, lines, broken) in table {
            let found = check(&[source(path, &"// A line.\n".repeat(lines))]);
            assert_eq!(
                found.broken.len(),
                broken,
                "{path}, {lines} lines: {found:?}"
            );
        }
    }

    #[test]
    fn main_has_at_most_80_lines_of_any_kind() {
        for (lines, allowed) in [(80, true), (81, false)] {
            let found = check(&[source(AGENT_MAIN, &"// A line.\n".repeat(lines))]);
            assert_eq!(found.broken.is_empty(), allowed, "{lines} lines: {found:?}");
        }
    }
}
