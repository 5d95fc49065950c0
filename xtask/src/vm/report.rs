//! Formats reports as a table and as a page of the documentation, and counts their results.

use std::path::Path;

use anyhow::Result;

use super::boots::{ALARMS, BOOTS, Boot, KILLS};
use super::console::{Check, CheckVerdict};
use super::features::FEATURES;
use super::{BootReport, KernelOutcome, KernelReport};
use crate::files;
use crate::skips::{NO_IMAGE, Skip};
use crate::test::Counts;

/// Returns the comments around the part of the page that `command` generates.
fn markers(command: &str) -> [String; 2] {
    ["begin", "end"].map(|side| format!("<!-- written by `{command}`: {side} -->"))
}

/// Formats one block for each boot, one line for each check.
pub fn table(reports: &[KernelReport]) -> String {
    let mut lines = Vec::new();
    for KernelReport { kernel, outcome } in reports {
        match outcome {
            KernelOutcome::Skipped(why) => lines.push(format!("SKIPPED {kernel}: {why}\n")),
            KernelOutcome::Booted(boots) => {
                boots.iter().for_each(|ran| block(kernel, ran, &mut lines))
            }
        }
    }
    lines.join("\n")
}

fn block(kernel: &str, ran: &BootReport, lines: &mut Vec<String>) {
    let (boot, took) = (ran.boot.as_secs_f64(), ran.took.as_secs_f64());
    let (plan, release) = (ran.plan, &ran.release);
    lines.push(format!(
        "{kernel}, {plan}: {release}, PID 1 after {boot:.1} s, off after {took:.1} s"
    ));
    lines.extend(ran.note.iter().map(|note| format!("  {note}")));
    for check in &ran.checks {
        let (name, took) = (&check.name, check.took.as_secs_f64());
        let verdict = word(check.verdict);
        let detail = &check.detail;
        lines.push(format!("  {name:<28} {verdict:<8} {took:>5.1} s  {detail}"));
    }
    lines.push(String::new());
}

/// Counts each check as a test, and so each kernel that could not be downloaded.
pub fn counts(reports: &[KernelReport]) -> Counts {
    let mut counts = Counts {
        skipped: u32::try_from(skips(reports).len()).unwrap_or(u32::MAX),
        ..Counts::default()
    };
    for (_, check) in reports.iter().flat_map(checks) {
        match check.verdict {
            CheckVerdict::Ok => counts.passed += 1,
            CheckVerdict::Failed => counts.failed += 1,
            CheckVerdict::Skipped => {}
        }
    }
    counts
}

/// Returns kernels that could not be downloaded, and checks that a kernel cannot run.
pub fn skips(reports: &[KernelReport]) -> Vec<Skip> {
    let mut skips = Vec::new();
    for report in reports {
        let kernel = &report.kernel;
        if let KernelOutcome::Skipped(why) = &report.outcome {
            skips.push(Skip::new(kernel, format!("{NO_IMAGE}: {why}")));
        }
        let checks = checks(report).into_iter();
        let skipped = checks.filter(|(_, check)| check.verdict == CheckVerdict::Skipped);
        skips.extend(
            skipped.map(|(name, check)| Skip::new(format!("{kernel} {name}"), &*check.detail)),
        );
    }
    skips
}

/// Returns the checks that failed, by kernel, with their details.
pub fn failures(reports: &[KernelReport]) -> Vec<String> {
    let mut failures = Vec::new();
    for report in reports {
        let checks = checks(report).into_iter();
        let failed = checks.filter(|(_, check)| check.verdict == CheckVerdict::Failed);
        let kernel = &report.kernel;
        failures.extend(failed.map(|(name, check)| format!("{kernel} {name}: {}", check.detail)));
    }
    failures
}

pub fn booted(reports: &[KernelReport]) -> usize {
    let booted = |report: &&KernelReport| matches!(report.outcome, KernelOutcome::Booted(_));
    reports.iter().filter(booted).count()
}

fn boots(report: &KernelReport) -> &[BootReport] {
    match &report.outcome {
        KernelOutcome::Booted(boots) => boots,
        KernelOutcome::Skipped(_) => &[],
    }
}

/// Returns every check, by the name that [`FEATURES`] uses.
fn checks(report: &KernelReport) -> Vec<(String, &Check)> {
    let mut checks = Vec::new();
    for ran in boots(report) {
        let prefix = match ran.plan {
            "full" => String::new(),
            plan => format!("{plan}/"),
        };
        let named = ran.checks.iter();
        checks.extend(named.map(|check| (format!("{prefix}{}", check.name), check)));
    }
    checks
}

const fn word(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Ok => "ok",
        CheckVerdict::Failed => "FAILED",
        CheckVerdict::Skipped => "skipped",
    }
}

/// Replaces the part of `file` that an earlier run of `command` wrote.
pub fn write(file: &Path, command: &str, reports: &[KernelReport]) -> Result<()> {
    let markers = markers(command);
    let markers = markers.each_ref().map(String::as_str);
    files::write_between(file, markers, &section(reports))
}

/// Formats a table with a column for each kernel and a row for each feature; then the reasons why a
/// cell is not `ok`.
fn section(reports: &[KernelReport]) -> String {
    let row = |first: &str, cell: &dyn Fn(&KernelReport) -> String| {
        let cells: Vec<_> = reports.iter().map(cell).collect();
        format!("| {first} | {} |\n", cells.join(" | "))
    };
    let mut text = "\n".to_owned();
    text += &row("kernel", &|report| report.kernel.clone());
    text += &format!("|---|{}\n", "---|".repeat(reports.len()));
    text += &row("release", &|report| {
        let release = boots(report).first().map(|ran| ran.release.clone());
        release.unwrap_or_else(|| "SKIPPED".to_owned())
    });
    for (feature, names) in rows(reports) {
        text += &row(&feature, &|report| cell(report, &names));
    }
    for Boot { plan, .. } in BOOTS.iter().chain([&KILLS, &ALARMS]) {
        let has_plan = |report| boots(report).iter().any(|ran| ran.plan == *plan);
        if !reports.iter().any(has_plan) {
            continue;
        }
        text += &row(&format!("boot `{plan}`: PID 1, off"), &|report| {
            let ran = boots(report).iter().find(|ran| ran.plan == *plan);
            let times = |ran: &BootReport| format!("{}, {}", seconds(ran.boot), seconds(ran.took));
            ran.map_or_else(|| "-".to_owned(), times)
        });
    }
    text + &reasons(reports)
}

/// Returns features that have a check, then each check without a feature.
fn rows(reports: &[KernelReport]) -> Vec<(String, Vec<String>)> {
    let mut there: Vec<String> = Vec::new();
    for (name, _) in reports.iter().flat_map(checks) {
        if !there.contains(&name) {
            there.push(name);
        }
    }
    let mut rows = Vec::new();
    for (feature, names) in FEATURES {
        let names = there.iter().filter(|name| is_listed(names, name));
        let names: Vec<_> = names.cloned().collect();
        if !names.is_empty() {
            rows.push(((*feature).to_owned(), names));
        }
    }
    let is_feature = |name: &String| FEATURES.iter().any(|(_, names)| is_listed(names, name));
    let others = there.into_iter().filter(|name| !is_feature(name));
    rows.extend(others.map(|name| (format!("`{name}`"), vec![name])));
    rows
}

/// Returns whether the space-separated `names` contain `name`. One with a slash at the end contains
/// all checks of a plan.
fn is_listed(names: &str, name: &str) -> bool {
    let is = |listed: &str| match listed.strip_suffix('/') {
        Some(plan) => name.split_once('/').is_some_and(|(of, _)| of == plan),
        None => name == listed,
    };
    names.split(' ').any(is)
}

fn seconds(time: std::time::Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

/// Returns one verdict for all checks of a feature.
fn cell(report: &KernelReport, names: &[String]) -> String {
    let all = checks(report);
    let verdicts: Vec<_> = all
        .iter()
        .filter(|(name, _)| names.contains(name))
        .map(|(_, check)| check.verdict)
        .collect();
    let skipped = verdicts
        .iter()
        .filter(|v| **v == CheckVerdict::Skipped)
        .count();
    match verdicts.len() {
        0 => "-",
        _ if verdicts.contains(&CheckVerdict::Failed) => word(CheckVerdict::Failed),
        all if skipped == all => word(CheckVerdict::Skipped),
        _ if skipped > 0 => "in part",
        _ => word(CheckVerdict::Ok),
    }
    .to_owned()
}

fn reasons(reports: &[KernelReport]) -> String {
    let mut reasons = String::new();
    for report in reports {
        let kernel = &report.kernel;
        if let KernelOutcome::Skipped(why) = &report.outcome {
            reasons += &format!("- {kernel}: SKIPPED: {why}\n");
        }
        let mut reported: Vec<&str> = Vec::new();
        for (name, check) in checks(report) {
            if check.verdict != CheckVerdict::Ok && !reported.contains(&check.detail.as_str()) {
                reported.push(&check.detail);
                let verdict = word(check.verdict);
                reasons += &format!("- {kernel}: `{name}` {verdict}: {}\n", check.detail);
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

    fn reports() -> [KernelReport; 2] {
        let check = |name: &str, verdict, detail: &str| Check {
            name: name.to_owned(),
            verdict,
            took: Duration::from_millis(1500),
            detail: detail.to_owned(),
        };
        let ran = BootReport {
            plan: "full",
            release: "5.10.0-1".to_owned(),
            boot: Duration::from_secs(2),
            took: Duration::from_secs(20),
            checks: vec![
                check("load", CheckVerdict::Ok, "all"),
                check("oom-nested", CheckVerdict::Skipped, "no task"),
                check("oom-group", CheckVerdict::Skipped, "no task"),
                check("pid-crossing", CheckVerdict::Failed, "left: 1"),
                check("other", CheckVerdict::Ok, ""),
            ],
            note: None,
            journal: String::new(),
        };
        let kills = BootReport {
            plan: "kills",
            release: "5.10.0-1".to_owned(),
            boot: Duration::from_secs(2),
            took: Duration::from_secs(90),
            checks: vec![
                check("guaranteed-main-pod", CheckVerdict::Ok, "killed"),
                check("guaranteed-main-node", CheckVerdict::Ok, "killed"),
            ],
            note: None,
            journal: String::new(),
        };
        let bare = BootReport {
            plan: "bare",
            release: "5.10.0-1".to_owned(),
            boot: Duration::from_secs(3),
            took: Duration::from_secs(10),
            checks: vec![check("load", CheckVerdict::Skipped, "no task")],
            note: None,
            journal: String::new(),
        };
        [
            KernelReport {
                kernel: "5.10".to_owned(),
                outcome: KernelOutcome::Booted(vec![ran, bare, kills]),
            },
            KernelReport {
                kernel: "newest".to_owned(),
                outcome: KernelOutcome::Skipped("the mirror is gone".to_owned()),
            },
        ]
    }

    #[test]
    fn the_page_has_a_column_for_each_kernel() {
        let expected = "\n\
             | kernel | 5.10 | newest |\n|---|---|---|\n| release | 5.10.0-1 | SKIPPED |\n\
             | probes are attached | in part | - |\n| OOM kill in a cgroup | skipped | - |\n\
             | Event of each kind of kill | ok | - |\n\
             | OOM scope | skipped | - |\n| PID threshold exceeded | FAILED | - |\n\
             | `other` | ok | - |\n| boot `full`: PID 1, off | 2 s, 20 s | - |\n\
             | boot `bare`: PID 1, off | 3 s, 10 s | - |\n\
             | boot `kills`: PID 1, off | 2 s, 90 s | - |\n\n\
             - 5.10: `oom-nested` skipped: no task\n\
             - 5.10: `pid-crossing` FAILED: left: 1\n\
             - newest: SKIPPED: the mirror is gone\n";
        assert_eq!(section(&reports()), expected);
    }

    #[test]
    fn checks_are_counted_as_tests_and_a_missing_kernel_as_one_skipped() {
        let counts = counts(&reports());
        assert_eq!((counts.passed, counts.failed, counts.skipped), (4, 1, 4));
        assert_eq!(failures(&reports()), ["5.10 pid-crossing: left: 1"]);
    }

    #[test]
    fn the_table_shows_what_was_skipped() {
        let table = table(&reports());
        assert!(
            table.contains("SKIPPED newest: the mirror is gone"),
            "{table}"
        );
        assert!(
            table.contains("  pid-crossing                 FAILED     1.5 s  left: 1"),
            "{table}"
        );
    }
}
