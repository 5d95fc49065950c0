//! Records a run as a table with one line for each workload.

use std::time::Duration;

use super::observed::Alarm;
use super::{Expected, Workload};

#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    pub expected: Expected,
    pub took: Duration,
    /// Maximum of io PSI over a second, in percent; `None` without PSI.
    pub io_pressure: Option<f64>,
    /// Number of slow windows; `None` if the agent did not answer.
    pub slow_windows: Option<f64>,
    /// Conditions that were True.
    pub alarms: Vec<Alarm>,
    /// Output of the load.
    pub detail: String,
    /// Time from the fault to the condition.
    pub latency: Option<Duration>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// The reason.
    Failed(String),
    /// The reason.
    Skipped(String),
}

impl Outcome {
    /// Creates the outcome of a workload that did not run to its end.
    pub fn without_run(workload: &Workload, verdict: Verdict) -> Self {
        Self {
            name: workload.name.clone(),
            expected: workload.expected,
            took: Duration::ZERO,
            io_pressure: None,
            slow_windows: None,
            alarms: Vec::new(),
            detail: String::new(),
            latency: None,
            verdict,
        }
    }

    /// Compares the conditions that were True with those that were expected.
    pub fn judge(expected: Expected, alarms: &[Alarm], latency: Option<Duration>) -> Verdict {
        let (wanted, within) = match expected {
            Expected::NoAlarm | Expected::PodEvent { .. } => (None, Duration::ZERO),
            Expected::Alarm {
                condition,
                reason,
                within,
                ..
            } => (Some((condition, reason)), within),
        };
        let is_wanted = |alarm: &&Alarm| {
            wanted.is_some_and(|(type_, reason)| alarm.condition == type_ && alarm.reason == reason)
        };
        if let Some(alarm) = alarms.iter().find(|alarm| !is_wanted(alarm)) {
            return Verdict::Failed(format!("{} was True: {}", alarm.condition, words(alarm)));
        }
        if let Expected::PodEvent { reason, within, .. } = expected {
            return match latency {
                None => Verdict::Failed(format!("the pod has no Event {reason}")),
                Some(after) if after > within => {
                    Verdict::Failed(format!("the pod had it after {after:.1?}, not {within:?}"))
                }
                Some(_) => Verdict::Ok,
            };
        }
        match (wanted, latency) {
            (None, _) => Verdict::Ok,
            (Some((type_, reason)), None) => {
                Verdict::Failed(format!("{type_} ({reason}) did not become True"))
            }
            (Some((type_, _)), Some(after)) if after > within => Verdict::Failed(format!(
                "{type_} was True after {after:.1?}, not {within:?}"
            )),
            (Some(_), Some(_)) => Verdict::Ok,
        }
    }

    fn expectation(&self) -> String {
        match self.expected {
            Expected::NoAlarm => "none".to_owned(),
            Expected::Alarm {
                condition,
                reason,
                within,
                ..
            } => format!("{condition} ({reason}) within {within:?}"),
            Expected::PodEvent { reason, within, .. } => {
                format!("no condition, Event {reason} within {within:?}")
            }
        }
    }

    fn came(&self) -> String {
        let names: Vec<String> = self.alarms.iter().map(|a| a.condition.clone()).collect();
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        match self.latency {
            Some(after) => format!("{names} after {:.2} s", after.as_secs_f64()),
            None => names,
        }
    }

    /// Formats the observations in one line.
    pub fn summary(&self) -> String {
        let windows = self.slow_windows.unwrap_or_default();
        let share = self.io_pressure.unwrap_or_default();
        let detail = &self.detail;
        format!(
            "{}; io PSI {share:.0} %, {windows} slow windows {detail}",
            self.came()
        )
    }

    /// Formats the result like libtest, for `cargo xtask test`.
    pub fn line(&self) -> String {
        let result = match &self.verdict {
            Verdict::Ok => "ok".to_owned(),
            Verdict::Failed(_) => "FAILED".to_owned(),
            Verdict::Skipped(why) => format!("ignored, {why}"),
        };
        format!("test alarms::{} ... {result}", self.name)
    }
}

fn words(alarm: &Alarm) -> String {
    format!("{}: {}", alarm.reason, alarm.message)
}

/// Formats a table in Markdown, and below it the reasons of failed and skipped workloads.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut rows = vec![
        [
            "workload",
            "duration",
            "io PSI max",
            "slow windows",
            "conditions that were True",
            "expected",
            "result",
        ]
        .map(str::to_owned),
    ];
    for outcome in outcomes {
        let percent = outcome.io_pressure.map(|share| format!("{share:.0} %"));
        let windows = outcome.slow_windows.map(|count| format!("{count}"));
        rows.push([
            outcome.name.clone(),
            format!("{:.1} s", outcome.took.as_secs_f64()),
            percent.unwrap_or_else(|| "-".to_owned()),
            windows.unwrap_or_else(|| "-".to_owned()),
            outcome.came(),
            outcome.expectation(),
            match &outcome.verdict {
                Verdict::Ok => "ok",
                Verdict::Failed(_) => "FAILED",
                Verdict::Skipped(_) => "skipped",
            }
            .to_owned(),
        ]);
    }
    let mut text = aligned(&rows);
    for outcome in outcomes {
        let words = match &outcome.verdict {
            Verdict::Ok if outcome.detail.is_empty() => continue,
            Verdict::Ok => outcome.detail.clone(),
            Verdict::Failed(why) => format!("FAILED: {why}"),
            Verdict::Skipped(why) => format!("skipped: {why}"),
        };
        text += &format!("\n- {}: {words}", outcome.name);
    }
    text + "\n"
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if n == 0 {
            let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            text += &format!("| {} |\n", rules.join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Expected = Expected::Alarm {
        condition: "DiskIOPressure",
        reason: "SlowDisk",
        within: Duration::from_secs(18),
        culprit: None,
    };

    fn alarm(condition: &str, reason: &str) -> Alarm {
        Alarm {
            condition: condition.to_owned(),
            reason: reason.to_owned(),
            message: "slow disk: vda".to_owned(),
            at: Duration::ZERO,
        }
    }

    #[test]
    fn a_workload_is_judged_by_the_conditions_that_were_true() {
        let slow = || vec![alarm("DiskIOPressure", "SlowDisk")];
        let both = [slow(), vec![alarm("DiskFailing", "DiskErrors")]].concat();
        let seconds = |n| Some(Duration::from_secs(n));
        let rows = [
            (Expected::NoAlarm, vec![], None, Ok(())),
            (
                Expected::NoAlarm,
                slow(),
                None,
                Err("SlowDisk: slow disk: vda"),
            ),
            (SLOW, slow(), seconds(16), Ok(())),
            (SLOW, slow(), seconds(19), Err("after 19.0s, not 18s")),
            (SLOW, vec![], None, Err("did not become True")),
            (SLOW, both, seconds(16), Err("DiskFailing was True")),
            (
                SLOW,
                vec![alarm("DiskIOPressure", "Other")],
                seconds(1),
                Err("DiskIOPressure was True: Other"),
            ),
        ];
        let volume = Expected::PodEvent {
            reason: "SlowVolume",
            pod: "database",
            within: Duration::from_secs(18),
        };
        let of_pod = [
            (volume, vec![], seconds(16), Ok(())),
            (volume, vec![], seconds(19), Err("after 19.0s, not 18s")),
            (volume, vec![], None, Err("no Event SlowVolume")),
            (volume, slow(), seconds(16), Err("DiskIOPressure was True")),
        ];
        for (expected, alarms, latency, wanted) in rows.into_iter().chain(of_pod) {
            match (Outcome::judge(expected, &alarms, latency), wanted) {
                (Verdict::Ok, Ok(())) => {}
                (Verdict::Failed(why), Err(words)) if why.contains(words) => {}
                (verdict, wanted) => panic!("{expected:?} {alarms:?}: {verdict:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn the_table_contains_each_workload_and_the_reason_of_each_failure() {
        let workload = super::super::workload("bulk", super::super::Form::Short, SLOW, |_| {
            Err(super::super::cannot_run("unused"))
        });
        let failed = Verdict::Failed("DiskIOPressure (SlowDisk) did not become True".to_owned());
        let text = table(&[Outcome::without_run(&workload, failed)]);
        let row = text.lines().nth(2).unwrap();
        assert!(
            row.starts_with("| bulk     | 0.0 s    | -          | -"),
            "{text}"
        );
        assert!(
            row.contains("| DiskIOPressure (SlowDisk) within 18s | FAILED |"),
            "{text}"
        );
        let reason = "\n- bulk: FAILED: DiskIOPressure (SlowDisk) did not become True\n";
        assert!(text.ends_with(reason), "{text}");
    }
}
