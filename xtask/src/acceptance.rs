//! Runs the tests of the acceptance lines, and prints number, line, result and test.
//!
//! Numbers and texts come from the tests' source (`tests/tests/acceptance/`): a function named
//! `aNNN_what_is_true`, and the doc comment above it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::repo::{self, Repo, shown};
use crate::skips::{self, Record, Skip};
use crate::{build_ebpf, files};

const LINES: u16 = 100;

#[derive(clap::Args)]
pub struct Args {
    /// Only these numbers; by default, all
    numbers: Vec<u16>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let tests = tests(&repo.root.join("tests/tests/acceptance"))?;
    // The agent's build script needs the object.
    build_ebpf::object(&repo, "")?;
    // Some tests start the real program.
    repo::run(repo.cargo().args(["build", "--package", "nodepulse"]))?;
    let CriteriaRun {
        results,
        skips,
        succeeded,
    } = run(&repo, &args.numbers)?;
    let wanted = |number: &u16| args.numbers.is_empty() || args.numbers.contains(number);
    let rows: Vec<CriterionRow> = (1..=LINES)
        .filter(wanted)
        .map(|number| row(number, &tests, &results))
        .collect();
    for row in &rows {
        println!("{row}");
    }
    let count = |wanted: &str| rows.iter().filter(|row| row.result == wanted).count();
    let (ok, skipped) = (count(OK), count(SKIPPED));
    let bad = rows.len() - ok - skipped;
    for skip in &skips {
        println!("SKIPPED {skip}");
    }
    println!("{ok} ok, {skipped} skipped, {bad} failed or missing");
    let unaccepted = skips::failure(&skips).filter(|_| skips::in_ci());
    if let Some(why) = &unaccepted {
        println!("FAILED: {why}");
    }
    let failed = bad > 0 || !succeeded || unaccepted.is_some();
    Ok(ExitCode::from(u8::from(failed)))
}

const OK: &str = "ok";
const SKIPPED: &str = "skipped";
const MISSING: &str = "MISSING";
const NOT_RUN: &str = "not run";

#[derive(Debug, PartialEq, Eq)]
struct Test {
    number: u16,
    words: String,
    /// The path that the test harness prints: `module::function`.
    name: String,
}

#[derive(Debug, PartialEq, Eq)]
struct CriterionRow {
    number: u16,
    words: String,
    result: String,
    tests: String,
}

impl std::fmt::Display for CriterionRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            number,
            words,
            result,
            tests,
        } = self;
        write!(f, "{number:>3}  {result:<8}  {words}  [{tests}]")
    }
}

/// Finds the tests of all source files of the directory, sorted by number.
fn tests(dir: &Path) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for path in files::entries(dir)? {
        let text = files::text(&path)?;
        let module = path.file_stem().unwrap_or_default().to_string_lossy();
        tests.extend(in_source(&module, &text));
    }
    tests.sort_by(|a, b| (a.number, &a.name).cmp(&(b.number, &b.name)));
    Ok(tests)
}

/// Finds the functions whose names begin with a number, each with the doc comment above it.
fn in_source(module: &str, text: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(doc) = line.strip_prefix("/// ") {
            words.push(doc.trim());
        } else if let Some((number, name)) = function(line) {
            tests.push(Test {
                number,
                words: words.join(" "),
                name: format!("{module}::{name}"),
            });
            words.clear();
        } else if !line.starts_with("#[") {
            words.clear();
        }
    }
    tests
}

fn function(line: &str) -> Option<(u16, &str)> {
    let rest = line.strip_prefix("async ").unwrap_or(line);
    let (name, _) = rest.strip_prefix("fn ")?.split_once('(')?;
    Some((number(name)?, name))
}

/// Parses the number 42 from `a042_what_is_true`.
fn number(name: &str) -> Option<u16> {
    let (digits, _) = name.strip_prefix('a')?.split_once('_')?;
    digits.parse().ok().filter(|_| digits.len() == 3)
}

struct CriteriaRun {
    /// The result of each test, by name.
    results: BTreeMap<String, String>,
    skips: Vec<Skip>,
    succeeded: bool,
}

fn run(repo: &Repo, numbers: &[u16]) -> Result<CriteriaRun> {
    let mut cargo = repo.cargo();
    cargo.args(["test", "--package", "nodepulse-tests"]);
    cargo.args(["--test", "acceptance", "--"]);
    cargo.args(numbers.iter().map(|number| format!("::a{number:03}_")));
    let record = Record::new();
    let (name, path) = record.variable();
    let (output, succeeded) = finish(cargo.env(name, path))?;
    let skips = record.read()?;
    let mut results: BTreeMap<String, String> = output.lines().filter_map(result).collect();
    mark_skipped(&mut results, &skips);
    Ok(CriteriaRun {
        results,
        skips,
        succeeded,
    })
}

/// Corrects the results of skipped tests, which libtest reports as passed.
fn mark_skipped(results: &mut BTreeMap<String, String>, skips: &[Skip]) {
    for (name, result) in results {
        let of = |skip: &Skip| skip.what.split(' ').next_back() == Some(name);
        if result == OK && skips.iter().any(of) {
            SKIPPED.clone_into(result);
        }
    }
}

/// Returns the standard output, and whether the command succeeded. Standard error is inherited.
fn finish(command: &mut Command) -> Result<(String, bool)> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.contains("\ntest result: ") {
        bail!("`{}` ran no tests", shown(command));
    }
    if !output.status.success() {
        eprintln!("{text}");
    }
    Ok((text, output.status.success()))
}

/// Parses `test module::name ... ok`.
fn result(line: &str) -> Option<(String, String)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.to_owned(), result.trim().to_owned()))
}

/// Returns the row of a number, also if it has no test.
fn row(number: u16, tests: &[Test], results: &BTreeMap<String, String>) -> CriterionRow {
    let matching: Vec<&Test> = tests.iter().filter(|test| test.number == number).collect();
    if let Some(first) = matching.first() {
        let of = |test: &&Test| results.get(&test.name).map_or(NOT_RUN, String::as_str);
        let results: Vec<&str> = matching.iter().map(of).collect();
        // A failed test takes precedence over a skipped one.
        let failed = results
            .iter()
            .find(|result| ![OK, SKIPPED].contains(*result));
        let bad = failed.or_else(|| results.iter().find(|result| **result != OK));
        let names: Vec<&str> = matching.iter().map(|test| test.name.as_str()).collect();
        return CriterionRow {
            number,
            words: first.words.clone(),
            result: (*bad.unwrap_or(&OK)).to_owned(),
            tests: names.join(", "),
        };
    }
    CriterionRow {
        number,
        words: String::new(),
        result: MISSING.to_owned(),
        tests: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_identified_by_the_number_in_its_name_and_described_by_its_doc_comment() {
        let text = "\
/// A comment of another item.
const OTHER: u32 = 1;

/// Two lines
/// of words.
#[tokio::test(start_paused = true)]
async fn a007_it_is_so() {
    /// Not a line.
    fn inner() {}
}

#[test]
fn a_number_is_three_digits() {}
/// Short.
#[test]
fn a100_last() {}
";
        let test = |number, words: &str, name: &str| Test {
            number,
            words: words.to_owned(),
            name: name.to_owned(),
        };
        let expected = [
            test(7, "Two lines of words.", "lease::a007_it_is_so"),
            test(100, "Short.", "lease::a100_last"),
        ];
        assert_eq!(in_source("lease", text), expected);
    }

    #[test]
    fn a_line_is_as_good_as_the_worst_of_its_tests() {
        let test = |name: &str| Test {
            number: 1,
            words: "W.".to_owned(),
            name: name.to_owned(),
        };
        let tests = [test("m::a"), test("m::b")];
        let printed = |output: &str| {
            let results = output.lines().filter_map(result).collect();
            row(1, &tests, &results).to_string()
        };
        let all = "test m::a ... ok\ntest m::b ... ok\n";
        assert_eq!(printed(all), "  1  ok        W.  [m::a, m::b]");
        let one = "test m::a ... ok\ntest m::b ... FAILED\n";
        assert_eq!(printed(one), "  1  FAILED    W.  [m::a, m::b]");
        let mut results = all.lines().filter_map(result).collect();
        mark_skipped(&mut results, &[Skip::new("acceptance m::b", "no network")]);
        let skipped = row(1, &tests, &results).to_string();
        assert_eq!(skipped, "  1  skipped   W.  [m::a, m::b]");
        let none = "running 0 tests\n";
        assert_eq!(printed(none), "  1  not run   W.  [m::a, m::b]");
    }

    #[test]
    fn a_number_without_a_test_is_missing() {
        let missing = row(LINES + 1, &[], &BTreeMap::new());
        assert_eq!(missing.to_string(), "101  MISSING     []");
    }

    #[test]
    fn no_number_is_forgotten() {
        let tests = tests(&repo::root().join("tests/tests/acceptance")).unwrap();
        let missing: Vec<u16> = (1..=LINES)
            .filter(|number| row(*number, &tests, &BTreeMap::new()).result == MISSING)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        let silent = tests.iter().find(|test| test.words.is_empty());
        assert_eq!(silent, None, "a test without its line");
    }
}
