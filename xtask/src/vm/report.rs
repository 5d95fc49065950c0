//! Reports → a table for people, a page for the documentation, counts for the test run.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::console::{Check, Verdict};
use super::{Outcome, Ran, Report};
use crate::test::Counts;

/// Around what is written here; the rest of the page is written by people.
const BEGIN: &str = "<!-- written by `cargo xtask vm --all`: begin -->";
const END: &str = "<!-- written by `cargo xtask vm --all`: end -->";

/// The page where there is none yet.
const PAGE: &str = "\
# Kernels

What each probe does on the kernels that are tried, in virtual machines, without hardware support.
`cargo xtask vm` boots the oldest and the newest; `cargo xtask vm --all` boots all and writes this.

";

/// One kernel a block, one check a line.
pub fn table(reports: &[Report]) -> String {
    let mut lines = Vec::new();
    for Report { kernel, outcome } in reports {
        let ran = match outcome {
            Outcome::Skipped(why) => {
                lines.push(format!("SKIPPED {kernel}: {why}\n"));
                continue;
            }
            Outcome::Ran(ran) => ran,
        };
        let (boot, took) = (ran.boot.as_secs_f64(), ran.took.as_secs_f64());
        let release = &ran.release;
        lines.push(format!(
            "{kernel}: {release}, PID 1 after {boot:.1} s, off after {took:.1} s"
        ));
        lines.extend(ran.note.iter().map(|note| format!("  {note}")));
        for check in &ran.checks {
            let (name, took) = (&check.name, check.took.as_secs_f64());
            let verdict = word(check.verdict);
            let detail = &check.detail;
            lines.push(format!("  {name:<19} {verdict:<8} {took:>5.1} s  {detail}"));
        }
        lines.push(String::new());
    }
    lines.join("\n")
}

/// Each check is a test, and so is a kernel that could not be had.
pub fn counts(reports: &[Report]) -> Counts {
    let mut counts = Counts {
        skipped: u32::try_from(skipped(reports).len()).unwrap_or(u32::MAX),
        ..Counts::default()
    };
    for check in reports.iter().filter_map(ran).flat_map(|ran| &ran.checks) {
        match check.verdict {
            Verdict::Ok => counts.passed += 1,
            Verdict::Failed => counts.failed += 1,
            Verdict::Skipped => counts.skipped += 1,
        }
    }
    counts
}

/// Kernels that could not be had, each with its reason.
pub fn skipped(reports: &[Report]) -> Vec<String> {
    let reason = |report: &Report| match &report.outcome {
        Outcome::Skipped(why) => Some(format!("{}: {why}", report.kernel)),
        Outcome::Ran(_) => None,
    };
    reports.iter().filter_map(reason).collect()
}

fn ran(report: &Report) -> Option<&Ran> {
    match &report.outcome {
        Outcome::Ran(ran) => Some(ran),
        Outcome::Skipped(_) => None,
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skipped",
    }
}

/// Replaces what an earlier run wrote into `file`.
pub fn write(file: &Path, reports: &[Report]) -> Result<()> {
    let page = std::fs::read_to_string(file).unwrap_or_else(|_| format!("{PAGE}{BEGIN}\n{END}\n"));
    let page = replaced(&page, &section(reports))
        .with_context(|| format!("{} lacks the line `{BEGIN}` or `{END}`", file.display()))?;
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
}

fn replaced(page: &str, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{section}\n{END}{after}"))
}

/// Kernels across, checks down; then why something is not `ok`.
fn section(reports: &[Report]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for check in reports.iter().filter_map(ran).flat_map(|ran| &ran.checks) {
        if !names.contains(&check.name.as_str()) {
            names.push(&check.name);
        }
    }
    let row = |first: &str, cell: &dyn Fn(&Report) -> String| {
        let cells: Vec<_> = reports.iter().map(cell).collect();
        format!("| {first} | {} |\n", cells.join(" | "))
    };
    let of_run = |cell: fn(&Ran) -> String| {
        move |report: &Report| ran(report).map_or("SKIPPED".to_owned(), cell)
    };
    let mut text = row("kernel", &|report| report.kernel.clone());
    text += &format!("|---|{}\n", "---|".repeat(reports.len()));
    text += &row("release", &of_run(|ran| ran.release.clone()));
    for name in names {
        text += &row(&format!("`{name}`"), &|report| cell(report, name));
    }
    text += &row("PID 1 after", &of_run(|ran| seconds(ran.boot)));
    text += &row("off after", &of_run(|ran| seconds(ran.took)));
    text + &reasons(reports)
}

fn seconds(time: std::time::Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

fn cell(report: &Report, name: &str) -> String {
    let mut checks = ran(report).into_iter().flat_map(|ran| &ran.checks);
    let check = checks.find(|check| check.name == name);
    check.map_or("-", |check| word(check.verdict)).to_owned()
}

fn reasons(reports: &[Report]) -> String {
    let mut reasons = String::new();
    for report in reports {
        let kernel = &report.kernel;
        if let Outcome::Skipped(why) = &report.outcome {
            reasons += &format!("- {kernel}: SKIPPED: {why}\n");
        }
        let mut told: Vec<&str> = Vec::new();
        let worth = |check: &&Check| check.verdict != Verdict::Ok;
        for check in ran(report)
            .into_iter()
            .flat_map(|r| r.checks.iter().filter(worth))
        {
            if !told.contains(&check.detail.as_str()) {
                told.push(&check.detail);
                let verdict = word(check.verdict);
                reasons += &format!("- {kernel}: `{}` {verdict}: {}\n", check.name, check.detail);
            }
        }
    }
    if reasons.is_empty() {
        return reasons;
    }
    format!("\n{reasons}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn reports() -> [Report; 2] {
        let check = |name: &str, verdict, detail: &str| Check {
            name: name.to_owned(),
            verdict,
            took: Duration::from_millis(1500),
            detail: detail.to_owned(),
        };
        let ran = Ran {
            release: "5.10.0-1".to_owned(),
            boot: Duration::from_secs(2),
            took: Duration::from_secs(20),
            checks: vec![
                check("load", Verdict::Ok, "all"),
                check("oom", Verdict::Skipped, "no task"),
                check("group", Verdict::Skipped, "no task"),
                check("pid", Verdict::Failed, "left: 1"),
            ],
            note: None,
        };
        [
            Report {
                kernel: "5.10".to_owned(),
                outcome: Outcome::Ran(ran),
            },
            Report {
                kernel: "newest".to_owned(),
                outcome: Outcome::Skipped("the mirror is gone".to_owned()),
            },
        ]
    }

    #[test]
    fn the_page_has_a_column_a_kernel_and_keeps_what_people_wrote() {
        let page = format!("Above.\n\n{BEGIN}\nold\n{END}\n\nBelow.\n");
        let expected = format!(
            "Above.\n\n{BEGIN}\n\n\
             | kernel | 5.10 | newest |\n|---|---|---|\n| release | 5.10.0-1 | SKIPPED |\n\
             | `load` | ok | - |\n| `oom` | skipped | - |\n| `group` | skipped | - |\n\
             | `pid` | FAILED | - |\n| PID 1 after | 2 s | SKIPPED |\n\
             | off after | 20 s | SKIPPED |\n\n\
             - 5.10: `oom` skipped: no task\n- 5.10: `pid` FAILED: left: 1\n\
             - newest: SKIPPED: the mirror is gone\n\n{END}\n\nBelow.\n"
        );
        assert_eq!(replaced(&page, &section(&reports())), Some(expected));
        assert_eq!(replaced("No markers.\n", ""), None);
    }

    #[test]
    fn checks_are_counted_as_tests_and_a_missing_kernel_as_one_skipped() {
        let counts = counts(&reports());
        assert_eq!((counts.passed, counts.failed, counts.skipped), (1, 1, 3));
    }

    #[test]
    fn the_table_says_loudly_what_was_skipped() {
        let table = table(&reports());
        assert!(
            table.contains("SKIPPED newest: the mirror is gone"),
            "{table}"
        );
        assert!(
            table.contains("  pid                 FAILED     1.5 s  left: 1"),
            "{table}"
        );
    }
}
