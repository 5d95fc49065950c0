//! Conditions that flap: runs `flapping` of the tests package, and checks its gates.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::report::{Section, machine};
use crate::repo::{Repo, command, output};
use crate::run;

/// A sampled signal that approaches its threshold is read again after this many milliseconds.
const SAMPLED: f64 = 250.0;
/// Two conditions that become True are patched this many milliseconds apart.
const SPACING: f64 = 1000.0;

#[derive(clap::Args)]
pub struct Args {
    /// Crossings of each threshold, 20 s apart
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    crossings: u32,
    /// Decides the moments of the crossings
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure this agent, and do not build one
    #[arg(long)]
    agent: Option<PathBuf>,
    /// Write the figures to OVERHEAD.md, between its two `bench-flapping` comments
    #[arg(long)]
    write: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "mounting a file system and loading eBPF programs requires root"
    );
    let repo = Repo::find()?;
    let agent = match &args.agent {
        Some(agent) => agent.clone(),
        None => run::agent(&repo)?,
    };
    let mut flapping = command(run::test_program(&repo, "flapping")?);
    flapping.arg("--agent").arg(agent);
    flapping.arg("--crossings").arg(args.crossings.to_string());
    flapping.arg("--seed").arg(args.seed.to_string());
    flapping.arg("--dir").arg(&repo.target_dir);
    eprintln!(
        "bench: {} crossings of each threshold, 20 s apart",
        args.crossings
    );
    let printed = output(&mut flapping)?;
    let measured: Value =
        serde_json::from_str(&printed).context("`flapping` did not print JSON")?;
    let rows = rows(&measured);
    let table = table(&rows);
    print!("{table}");
    if args.write {
        let section = format!("{}\n\n{table}", method(&measured));
        Section("bench-flapping").write(&repo.root.join("OVERHEAD.md"), &section)?;
    }
    let mut failed = false;
    for what in rows.iter().flat_map(FlappingRow::faults) {
        eprintln!("bench: {what}");
        failed = true;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// A condition in one of the three ways.
struct FlappingRow {
    what: String,
    seen: u64,
    /// `None`: it is not known how many there should be.
    crossings: Option<u64>,
    /// Median and largest, in milliseconds.
    took: [f64; 2],
    gates: [Option<f64>; 2],
}

impl FlappingRow {
    /// Crossings that were not seen, and figures over their gates.
    fn faults(&self) -> Vec<String> {
        let what = &self.what;
        let mut faults = Vec::new();
        if self
            .crossings
            .is_some_and(|crossings| self.seen < crossings)
        {
            faults.push(format!("not all crossings were seen: {what}"));
        }
        let judged = self.took.iter().zip(self.gates);
        // A missing figure exceeds its gate.
        let is_over = |(took, gate): (&f64, Option<f64>)| {
            gate.is_some_and(|gate| took.is_nan() || *took > gate)
        };
        if self.seen > 0 && judged.into_iter().any(is_over) {
            faults.push(format!("over budget: {what}"));
        }
        faults
    }
}

fn rows(measured: &Value) -> Vec<FlappingRow> {
    let conditions = measured["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .flat_map(of_condition)
        .collect()
}

fn of_condition(measured: &Value) -> [FlappingRow; 3] {
    let condition = measured["condition"].as_str().unwrap_or_default();
    let crossings = measured["crossings"].as_u64();
    let took =
        |way: &str| ["median", "max"].map(|name| measured[way][name].as_f64().unwrap_or(f64::NAN));
    let [median, largest] = took("alone");
    // What the kernel reports is compared by the median: the largest depends on other load.
    let gates = if condition == "PIDsLow" {
        [Some(1.5 * median + 1.0), None]
    } else {
        [None, Some(SAMPLED.max(largest) + 10.0)]
    };
    let delayed = gates[1].map(|gate| gate + SPACING);
    let row = |way: &str, words: &str, crossings, gates| FlappingRow {
        what: format!("{condition}, {words}"),
        seen: measured[way]["count"].as_u64().unwrap_or(0),
        crossings,
        took: took(way),
        gates,
    };
    [
        row("alone", "alone", crossings, [None; 2]),
        row("apart", "no other True in the second before", None, gates),
        row("flapping", "all", crossings, [None, delayed]),
    ]
}

/// As Markdown.
fn table(rows: &[FlappingRow]) -> String {
    let mut lines = vec![
        "| ms | seen | median | gate | largest | gate |".to_owned(),
        "| --- | ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        let ([median, largest], what) = (row.took, &row.what);
        let [first, second] = row
            .gates
            .map(|gate| gate.map_or("-".to_owned(), |gate| format!("{gate:.1}")));
        let seen = match row.crossings {
            Some(crossings) => format!("{} of {crossings}", row.seen),
            None => row.seen.to_string(),
        };
        format!("| {what} | {seen} | {median:.1} | {first} | {largest:.1} | {second} |")
    }));
    lines.join("\n") + "\n"
}

/// Date, machine and method.
fn method(measured: &Value) -> String {
    format!(
        "{} `cargo xtask bench flapping --write`, with seed {}. The release binary in companion mode \
         against the test API server over TLS on loopback; transition period 1 s. Threads, written \
         memory and an allocated file in an ext4 of 256 MiB cross a threshold close to the present value \
         every 20 s at random phases, each for 3 s. Four agents run at once: one for each threshold, and \
         one for all three. The time is from the last reading before the crossing to the answer of the \
         first patch with the condition True, while the threshold is exceeded.",
        machine(),
        measured["seed"],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(measured: &Value) -> Vec<String> {
        rows(measured)
            .iter()
            .flat_map(FlappingRow::faults)
            .collect()
    }

    #[test]
    fn a_crossing_that_was_not_seen_or_was_seen_late_is_a_fault() {
        let measured = |condition, count, median, largest| {
            let figures = |count: u64, median: f64, largest: f64| json!({"count": count, "median": median, "max": largest});
            json!({"conditions": [{
                "condition": condition,
                "crossings": 20,
                "alone": figures(20, 2.0, 240.0),
                "apart": figures(18, median, largest),
                "flapping": figures(count, median, 1_200.0),
            }]})
        };
        //  condition, seen, median, largest, faults
        let rows = [
            ("PIDsLow", 20, 4.0, 900.0, 0),
            ("PIDsLow", 20, 4.1, 4.2, 1),
            ("MemoryLow", 20, 150.0, 260.0, 0),
            ("MemoryLow", 20, 150.0, 260.1, 1),
            ("MemoryLow", 19, 150.0, 260.0, 1),
        ];
        for (condition, seen, median, largest, expected) in rows {
            let faults = faults(&measured(condition, seen, median, largest));
            assert_eq!(faults.len(), expected, "{condition} {median}: {faults:?}");
        }
        let table = table(&super::rows(&measured("PIDsLow", 19, 3.0, 3.5)));
        let last = "| PIDsLow, all | 19 of 20 | 3.0 | - | 1200.0 | - |";
        assert_eq!(table.lines().last(), Some(last));
    }
}
