//! Runs a test command, prints its output as it comes, and adds up its results.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result};

use super::stages::StageOutcome;
use crate::repo::shown;
use crate::skips::{Record, Skip};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: u32,
    pub failed: u32,
    /// Tests that are filtered out are not meant to run, and are not counted.
    pub skipped: u32,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

pub fn run(command: &mut Command) -> Result<StageOutcome> {
    let record = Record::new();
    let (name, path) = record.variable();
    let mut child = command
        .env(name, path)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let mut output = Output::default();
    let mut lines = BufReader::new(child.stdout.take().context("the child has no output")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        output.line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait()?;
    let failure = (!status.success()).then(|| output.failure(&shown(command), status));
    let (counts, skips) = output.end(record.read()?);
    Ok(StageOutcome {
        counts,
        failure,
        skips,
    })
}

/// What libtest has printed so far.
#[derive(Debug, Default)]
struct Output {
    counts: Counts,
    ignored: Vec<Skip>,
    failed: Vec<String>,
    /// Within the list of the tests that failed.
    in_failures: bool,
}

impl Output {
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        self.counts.add(counts_in(line).unwrap_or_default());
        self.ignored.extend(ignored_in(line));
        match line.strip_prefix("    ") {
            Some(name) if self.in_failures => self.failed.push(name.to_owned()),
            _ if line == "failures:" => self.in_failures = true,
            _ if !line.is_empty() => self.in_failures = false,
            _ => {}
        }
    }

    /// Names the tests that failed, if libtest got as far as its list of them.
    fn failure(&self, command: &str, status: ExitStatus) -> String {
        let names = match self.failed.as_slice() {
            [] => String::new(),
            names => format!("{}: ", names.join(", ")),
        };
        format!("{names}`{command}` ended with {status}")
    }

    /// With what tests have recorded: for libtest a skipped test has passed. A test that failed
    /// after a skip is a failure only.
    fn end(mut self, mut recorded: Vec<Skip>) -> (Counts, Vec<Skip>) {
        let failed = |skip: &Skip| {
            let mut failed = self.failed.iter();
            failed.any(|name| skip.what.split(' ').next_back() == Some(name))
        };
        recorded.retain(|skip| !failed(skip));
        let count = u32::try_from(recorded.len()).unwrap_or(u32::MAX);
        self.counts.passed = self.counts.passed.saturating_sub(count);
        self.counts.skipped = self.counts.skipped.saturating_add(count);
        recorded.append(&mut self.ignored);
        (self.counts, recorded)
    }
}

/// Of `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; …`.
fn counts_in(line: &str) -> Option<Counts> {
    let (_, results) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let of = |what: &str| {
        let part = results.split("; ").find_map(|part| part.strip_suffix(what));
        part.and_then(|number| number.trim().parse().ok())
    };
    Some(Counts {
        passed: of("passed")?,
        failed: of("failed")?,
        skipped: of("ignored")?,
    })
}

/// Of `test a::b ... ignored, why`.
fn ignored_in(line: &str) -> Option<Skip> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = result
        .strip_prefix(", ")
        .unwrap_or("ignored, without a reason");
    Some(Skip::new(name, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_gives_its_counts_and_other_lines_give_none() {
        let tail = "0 measured; 9 filtered out; finished in 0.00s\n";
        let table = [
            (
                format!("test result: ok. 5 passed; 0 failed; 1 ignored; {tail}"),
                Some((5, 0, 1)),
            ),
            (
                format!("test result: FAILED. 5 passed; 2 failed; 0 ignored; {tail}"),
                Some((5, 2, 0)),
            ),
            ("test a::b ... ok\n".to_owned(), None),
            ("test result: ok. many passed\n".to_owned(), None),
        ];
        for (line, expected) in table {
            let counts = counts_in(&line).map(|c| (c.passed, c.failed, c.skipped));
            assert_eq!(counts, expected, "{line}");
        }
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_one() {
        let printed = "\
test a::runs ... ok
test a::skips ... ok
test a::skips_and_fails ... FAILED
test a::waits ... ignored, no real API server
test a::rests ... ignored

failures:

---- a::skips_and_fails stdout ----
    a::skips

failures:
    a::skips_and_fails

test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0s
";
        let mut output = Output::default();
        printed.lines().for_each(|line| output.line(line));
        let recorded = ["unit a::skips", "unit a::skips_and_fails"];
        let recorded = recorded.map(|what| Skip::new(what, "needs root"));
        let (counts, skips) = output.end(recorded.to_vec());
        let expected = Counts {
            passed: 1,
            failed: 1,
            skipped: 3,
        };
        assert_eq!(counts, expected);
        let expected = [
            Skip::new("unit a::skips", "needs root"),
            Skip::new("a::waits", "no real API server"),
            Skip::new("a::rests", "ignored, without a reason"),
        ];
        assert_eq!(skips, expected);
    }

    #[test]
    fn what_a_child_records_is_collected() {
        let script = "printf 'unit\\ta::b\\tneeds root\\t-\\n' >> \"$NODEPULSE_SKIPPED_TESTS\"";
        let outcome = run(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(outcome.skips, [Skip::new("unit a::b", "needs root: -")]);
        assert_eq!(outcome.counts.skipped, 1);
    }

    #[test]
    fn a_command_that_fails_without_a_result_line_is_a_failure() {
        let outcome = run(Command::new("sh").args(["-c", "echo oh; exit 3"])).unwrap();
        assert_eq!(outcome.counts, Counts::default());
        assert!(outcome.failure.unwrap().ends_with("exit status: 3"));
    }

    #[test]
    fn a_failure_names_the_tests() {
        let script = "printf 'failures:\\n    a::b\\n    c\\n\\n'; exit 101";
        let why = run(Command::new("sh").args(["-c", script]))
            .unwrap()
            .failure;
        let why = why.unwrap();
        assert!(why.starts_with("a::b, c: `sh "), "{why}");
    }
}
