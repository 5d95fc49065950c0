//! Runs a test command, shows what it prints as it comes, and adds up its result lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::stages::Outcome;
use crate::repo::shown;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: u32,
    pub failed: u32,
    /// Ignored tests. Those that a filter left out are not meant to run, and are not counted.
    pub skipped: u32,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

pub fn run(command: &mut Command) -> Result<Outcome> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let mut counts = Counts::default();
    let mut lines = BufReader::new(child.stdout.take().context("the child has no output")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().write_all(&line)?;
        counts.add(counts_in(&String::from_utf8_lossy(&line)).unwrap_or_default());
        line.clear();
    }
    let status = child.wait()?;
    let failure = (!status.success()).then(|| {
        format!(
            "{} tests failed: `{}` ended with {status}",
            counts.failed,
            shown(command)
        )
    });
    Ok(Outcome {
        counts,
        failure,
        ..Outcome::default()
    })
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
    fn a_command_that_fails_without_a_result_line_is_a_failure() {
        let outcome = run(Command::new("sh").args(["-c", "echo oh; exit 3"])).unwrap();
        assert_eq!(outcome.counts, Counts::default());
        assert!(outcome.failure.unwrap().ends_with("exit status: 3"));
    }
}
