//! Reads the console of the virtual machine. `tests/src/vm.rs` describes the lines.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    pub verdict: CheckVerdict,
    pub took: Duration,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    Ok,
    Failed,
    /// This kernel does not support it.
    Skipped,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Console {
    /// Output of `uname -r`, and the time since boot at which PID 1 printed it.
    pub kernel: Option<(String, Duration)>,
    plan: Vec<String>,
    checks: Vec<Check>,
    pub done: bool,
    /// Journal of the machine.
    pub journal: String,
    /// The last lines of other programs, for the report of an early end.
    others: Vec<String>,
}

/// Number of other lines that are stored: a kernel panic with its stack.
const KEPT: usize = 40;

impl Console {
    /// Adds a line, and returns the part that the tests printed: the firmware and the kernel may
    /// have written in front of it.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let line = line.trim_end();
        let line_of_tests = line.find("vm-").and_then(|at| line.get(at..));
        if let Some(line_of_tests) =
            line_of_tests.filter(|line_of_tests| self.take(line_of_tests).is_some())
        {
            return Some(line_of_tests);
        }
        if !line.is_empty() {
            if self.others.len() == KEPT {
                self.others.remove(0);
            }
            self.others.push(line.to_owned());
        }
        None
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(": ").unwrap_or((line, ""));
        match kind {
            "vm-kernel" => {
                let (release, since_boot) = rest.split_once(' ')?;
                self.kernel = Some((release.to_owned(), milliseconds(since_boot)?));
            }
            "vm-plan" => self.plan = rest.split_whitespace().map(str::to_owned).collect(),
            "vm-test" => self.checks.push(check(rest)?),
            "vm-done" => self.done = true,
            "vm-journal" => {
                self.journal += rest;
                self.journal.push('\n');
            }
            "vm-ask" => {}
            _ => return None,
        }
        Some(())
    }

    /// Returns all checks of the plan; those without a result failed, and the first of them has the
    /// reason `why`.
    pub fn checks(&self, why: &str) -> Vec<Check> {
        let mut checks = self.checks.clone();
        let mut why = Some(why);
        for name in &self.plan {
            if checks.iter().all(|check| check.name != *name) {
                let detail = why.take().unwrap_or("not reached");
                checks.push(Check::failed(name, detail));
            }
        }
        if checks.is_empty() {
            checks.push(Check::failed("boot", why.unwrap_or_default()));
        }
        checks
    }

    pub fn others(&self) -> String {
        self.others.join("\n")
    }
}

impl Check {
    pub fn failed(name: &str, detail: &str) -> Self {
        Self {
            name: name.to_owned(),
            verdict: CheckVerdict::Failed,
            took: Duration::ZERO,
            detail: detail.to_owned(),
        }
    }
}

/// Parses `<name> ok|FAILED|skipped <milliseconds> <detail>`.
fn check(rest: &str) -> Option<Check> {
    let mut words = rest.splitn(4, ' ');
    Some(Check {
        name: words.next()?.to_owned(),
        verdict: match words.next()? {
            "ok" => CheckVerdict::Ok,
            "FAILED" => CheckVerdict::Failed,
            "skipped" => CheckVerdict::Skipped,
            _ => return None,
        },
        took: milliseconds(words.next()?)?,
        detail: words.next().unwrap_or_default().to_owned(),
    })
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(lines: &[&str]) -> Console {
        let mut console = Console::default();
        for line in lines {
            console.line(line);
        }
        console
    }

    #[test]
    fn results_are_read_between_lines_of_other_programs() {
        let console = console(&[
            "\x1b[2JSeaBIOS vm-kernel: 5.10.0-46-cloud-amd64 1500\r",
            "[    1.0] cpu vm-like",
            "vm-plan: load oom\r",
            "vm-test: load ok 12 three: all of them\r",
            "vm-test: oom skipped 0 no task\r",
            "vm-test: oom perhaps 0\r",
            "vm-done\r",
        ]);
        let release = "5.10.0-46-cloud-amd64".to_owned();
        assert_eq!(console.kernel, Some((release, Duration::from_millis(1500))));
        assert!(console.done);
        let checks: Vec<_> = console
            .checks("unused")
            .into_iter()
            .map(|c| (c.name, c.verdict, c.took.as_millis(), c.detail))
            .collect();
        let expected = [
            ("load", CheckVerdict::Ok, 12, "three: all of them"),
            ("oom", CheckVerdict::Skipped, 0, "no task"),
        ];
        let expected = expected.map(|(n, v, t, d)| (n.to_owned(), v, t, d.to_owned()));
        assert_eq!(checks, expected);
        assert_eq!(
            console.others(),
            "[    1.0] cpu vm-like\nvm-test: oom perhaps 0"
        );
    }

    #[test]
    fn a_planned_check_without_a_result_failed_and_the_first_has_the_reason() {
        let ended = console(&["vm-plan: a b c", "vm-test: a ok 1"]);
        let failed: Vec<_> = ended.checks("timed out");
        let expected = [
            ("a", CheckVerdict::Ok, ""),
            ("b", CheckVerdict::Failed, "timed out"),
            ("c", CheckVerdict::Failed, "not reached"),
        ];
        for (check, (name, verdict, detail)) in failed.iter().zip(expected) {
            assert_eq!(
                (&*check.name, check.verdict, &*check.detail),
                (name, verdict, detail)
            );
        }
        assert_eq!(failed.len(), 3);
        let nothing = console(&["Kernel panic"]).checks("ended");
        assert_eq!(nothing, [Check::failed("boot", "ended")]);
    }
}
