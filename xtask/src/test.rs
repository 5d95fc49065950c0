//! Everything that must pass before a change is merged: stages, one after the other, each with a
//! time budget. A stage that fails stops only those that need it, so that one run shows all
//! failures.
//!
//! A stage over its budget is a note, because a busy or slow machine is not a fault of the change.
//! Only the whole run has a limit.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::repo::Repo;
use crate::skips::{self, Skip};

mod libtest;
mod stages;
mod watchdog;

pub use libtest::Counts;
use stages::{STAGES, Stage, StageOutcome};

/// Time limit of a run; the same as of a CI job.
const LIMIT: Duration = Duration::from_mins(90);

/// Time limit of a run with `--all`.
const LIMIT_OF_ALL: Duration = Duration::from_hours(4);

#[derive(clap::Args)]
pub struct Args {
    /// Only these stages, and those that they need
    #[arg(value_parser = stages::names())]
    stages: Vec<String>,
    /// All stages, with every kernel in `vm`, and a quarter of an hour each for `alarms` and
    /// `hostile`
    #[arg(long)]
    all: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let start = Instant::now();
    let limit = if args.all { LIMIT_OF_ALL } else { LIMIT };
    let mut reports: Vec<StageReport> = Vec::new();
    for stage in STAGES.iter().filter(|stage| args.wants(stage)) {
        let report = match unmet(stage, &reports) {
            Some(need) => StageReport::new(stage, StageVerdict::NotRun(format!("needs {need}"))),
            None => {
                let named = args.stages.iter().any(|name| name == stage.name);
                let run = match (args.all, named) {
                    (true, _) => stage.run_all,
                    (false, true) => stage.run_if_named,
                    (false, false) => stage.run,
                };
                attend(stage, run, &repo, start + limit)
            }
        };
        reports.push(report);
    }
    println!("\n{}", table(&reports));
    let total = total(&reports);
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    Ok(ExitCode::from(u8::from(total.failed > 0)))
}

/// The result of one stage.
struct StageReport {
    name: &'static str,
    verdict: StageVerdict,
    counts: Counts,
    skips: Vec<Skip>,
    took: Duration,
    budget: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum StageVerdict {
    Ok,
    Failed(String),
    /// This machine cannot run it.
    Skipped(String),
    /// Something that it needs failed.
    NotRun(String),
}

impl StageReport {
    fn new(stage: &Stage, verdict: StageVerdict) -> Self {
        Self {
            name: stage.name,
            verdict,
            counts: Counts::default(),
            skips: Vec::new(),
            took: Duration::ZERO,
            budget: stage.budget(),
        }
    }

    fn ran_nothing(&self) -> bool {
        self.counts.passed == 0 && !self.skips.is_empty()
    }

    /// A note for a stage that took longer than its budget.
    fn over_budget(&self) -> Option<String> {
        let (took, budget) = (self.took.as_secs_f64(), self.budget.as_secs());
        let is_over = self.took > self.budget;
        is_over.then(|| format!("over budget: {took:.1} s of {budget} s"))
    }
}

impl Args {
    fn wants(&self, stage: &Stage) -> bool {
        match self.stages.as_slice() {
            [] => self.all || !stage.only_all,
            only => wanted(stage.name, only),
        }
    }
}

/// Is this stage one of `only`, or needed by one of them?
fn wanted(name: &str, only: &[String]) -> bool {
    let needed_by = |other: &String| {
        let stage = STAGES.iter().find(|stage| stage.name == other.as_str());
        stage.is_some_and(|stage| {
            stage
                .needs
                .iter()
                .any(|need| wanted(name, &[(*need).to_owned()]))
        })
    };
    only.iter().any(|other| other == name || needed_by(other))
}

/// The first need of `stage` that did not succeed.
fn unmet(stage: &Stage, reports: &[StageReport]) -> Option<&'static str> {
    let ok = |need: &str| {
        let report = reports.iter().find(|report| report.name == need);
        report.is_some_and(|report| report.verdict == StageVerdict::Ok)
    };
    stage.needs.iter().copied().find(|need| !ok(need))
}

/// Runs a stage, until the limit of the whole run at the latest.
fn attend(
    stage: &Stage,
    run: fn(&Repo) -> Result<StageOutcome>,
    repo: &Repo,
    until: Instant,
) -> StageReport {
    let budget = stage.budget();
    println!("\n=> {} (budget {} s)", stage.name, budget.as_secs());
    let start = Instant::now();
    let watchdog = watchdog::start(until.saturating_duration_since(start));
    let outcome = run(repo);
    let late = watchdog.stop();
    let mut report = StageReport::new(stage, StageVerdict::Ok);
    report.took = start.elapsed();
    report.verdict = match outcome {
        Ok(outcome) => {
            report.counts = outcome.counts;
            report.skips = outcome.skips;
            let unaccepted = skips::failure(&report.skips).filter(|_| skips::in_ci());
            match outcome.failure.or(unaccepted) {
                Some(why) => StageVerdict::Failed(why),
                None if report.ran_nothing() => {
                    StageVerdict::Skipped("nothing could run".to_owned())
                }
                None => StageVerdict::Ok,
            }
        }
        Err(err) => match err.downcast::<stages::CannotRunHere>() {
            Ok(reason) => skipped(&Skip::new(stage.name, reason.to_string()), skips::in_ci()),
            Err(err) => StageVerdict::Failed(format!("{err:#}")),
        },
    };
    if late {
        let why = "killed: the time limit of the whole run is over".to_owned();
        report.verdict = StageVerdict::Failed(why);
    }
    match &report.verdict {
        StageVerdict::Ok => println!(
            "<= {}: ok in {:.1} s",
            stage.name,
            report.took.as_secs_f64()
        ),
        StageVerdict::Skipped(reason) => println!("SKIPPED {}: {reason}", stage.name),
        StageVerdict::Failed(why) | StageVerdict::NotRun(why) => {
            println!("FAILED {}: {why}", stage.name)
        }
    }
    if let Some(note) = report.over_budget() {
        println!("NOTE {}: {note}", stage.name);
    }
    report
}

/// A stage that cannot run. In CI that is a failure, unless the reason is accepted.
fn skipped(skip: &Skip, in_ci: bool) -> StageVerdict {
    match skips::failure(std::slice::from_ref(skip)).filter(|_| in_ci) {
        Some(why) => StageVerdict::Failed(why),
        None => StageVerdict::Skipped(skip.reason.clone()),
    }
}

fn table(reports: &[StageReport]) -> String {
    let mut lines = vec![format!(
        "{:<13} {:>8} {:>8}  result",
        "stage", "seconds", "budget"
    )];
    for report in reports {
        let result = match &report.verdict {
            StageVerdict::Ok => "ok".to_owned(),
            StageVerdict::Failed(why) => {
                format!("FAILED: {}", why.lines().next().unwrap_or_default())
            }
            StageVerdict::Skipped(why) => format!("SKIPPED: {why}"),
            StageVerdict::NotRun(why) => format!("not run: {why}"),
        };
        let result = match report.skips.len() {
            0 => result,
            count => format!("{result}; {count} skipped"),
        };
        let note = report.over_budget();
        let result = note
            .into_iter()
            .fold(result, |result, note| format!("{result}; {note}"));
        let (took, budget) = (report.took.as_secs_f64(), report.budget.as_secs());
        lines.push(format!(
            "{:<13} {took:>8.1} {budget:>8}  {result}",
            report.name
        ));
    }
    let took: f64 = reports.iter().map(|report| report.took.as_secs_f64()).sum();
    lines.push(format!("{:<13} {took:>8.1}\n", "all"));
    for report in reports {
        let skips = report.skips.iter();
        lines.extend(skips.map(|skip| format!("SKIPPED {}: {skip}", report.name)));
    }
    lines.join("\n")
}

/// Tests, and one more for each stage that failed or was skipped without a failed or skipped test:
/// the closing line never contains `0 failed` if the run failed.
fn total(reports: &[StageReport]) -> Counts {
    let mut total = Counts::default();
    for report in reports {
        let mut counts = report.counts;
        match report.verdict {
            StageVerdict::Failed(_) if counts.failed == 0 => counts.failed = 1,
            StageVerdict::Skipped(_) | StageVerdict::NotRun(_) if counts.skipped == 0 => {
                counts.skipped = 1
            }
            _ => {}
        }
        total.add(counts);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, verdict: StageVerdict, passed: u32, failed: u32) -> StageReport {
        let stage = STAGES.iter().find(|stage| stage.name == name).unwrap();
        let mut report = StageReport::new(stage, verdict);
        report.counts = Counts {
            passed,
            failed,
            skipped: 0,
        };
        report
    }

    #[test]
    fn a_stage_over_its_budget_is_a_note_and_no_failure() {
        let mut report = report("clippy-ebpf", StageVerdict::Ok, 0, 0);
        report.took = report.budget;
        assert_eq!(report.over_budget(), None, "at its budget");
        report.took += Duration::from_secs(1);
        assert_eq!(report.over_budget().unwrap(), "over budget: 61.0 s of 60 s");
        let line = table(std::slice::from_ref(&report));
        assert!(line.contains("ok; over budget: 61.0 s of 60 s\n"), "{line}");
        assert_eq!(total(&[report]).failed, 0);
    }

    #[test]
    fn the_table_lists_every_skip_below_the_stages() {
        let mut report = report("test", StageVerdict::Ok, 5, 0);
        report.skips = vec![Skip::new("unit a::b", "needs root")];
        let table = table(&[report]);
        assert!(table.contains("  ok; 1 skipped"), "{table}");
        assert!(
            table.contains("\nSKIPPED test: unit a::b: needs root"),
            "{table}"
        );
    }

    #[test]
    fn in_ci_a_stage_is_skipped_for_an_accepted_reason_only() {
        //  reason, in CI, whether it fails
        let rows = [
            ("no BTF", false, false),
            ("no BTF", true, true),
            (skips::NO_CLUSTER, true, false),
        ];
        for (reason, in_ci, fails) in rows {
            let verdict = skipped(&Skip::new("kernel", reason), in_ci);
            assert_eq!(
                matches!(verdict, StageVerdict::Failed(_)),
                fails,
                "{reason}"
            );
        }
    }

    #[test]
    fn every_stage_needs_only_earlier_ones_and_all_fit_in_the_limit() {
        for (n, stage) in STAGES.iter().enumerate() {
            for need in stage.needs {
                let earlier = STAGES.iter().take(n).any(|earlier| earlier.name == *need);
                assert!(earlier, "{} needs {need}", stage.name);
            }
        }
        let budget: Duration = STAGES.iter().map(Stage::budget).sum();
        assert!(budget <= LIMIT, "{budget:?}");
    }

    #[test]
    fn a_stage_waits_for_what_it_needs() {
        let stage = STAGES.iter().find(|stage| stage.name == "test").unwrap();
        let failed = |name| report(name, StageVerdict::Failed("x".to_owned()), 0, 0);
        let ok = |name| report(name, StageVerdict::Ok, 0, 0);
        assert_eq!(unmet(stage, &[failed("tidy"), ok("build")]), None);
        assert_eq!(unmet(stage, &[failed("build")]), Some("build"));
        assert_eq!(unmet(stage, &[]), Some("build"));
    }

    #[test]
    fn a_selected_stage_includes_the_stages_that_it_needs() {
        let only = ["doc".to_owned()];
        let chosen: Vec<_> = STAGES
            .iter()
            .map(|s| s.name)
            .filter(|n| wanted(n, &only))
            .collect();
        assert_eq!(chosen, ["setup", "build-ebpf", "doc"]);
    }

    #[test]
    fn the_closing_line_counts_tests_and_stages_that_had_none() {
        let reports = [
            report("fmt", StageVerdict::Failed("unformatted".to_owned()), 0, 0),
            report("test", StageVerdict::Failed("2 tests".to_owned()), 7, 2),
            report("kernel", StageVerdict::Skipped("no BTF".to_owned()), 0, 0),
            report("tidy", StageVerdict::Ok, 0, 0),
        ];
        let expected = Counts {
            passed: 7,
            failed: 3,
            skipped: 1,
        };
        assert_eq!(total(&reports), expected);
    }
}
