//! Measures conditions that flap: runs `flapping` of the tests package, and checks its gates.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::report::machine;
use super::{agent, exceeds, figure, gate, judged, markdown, measured, write};
use crate::repo::{Repo, command};
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
    let repo = Repo::find()?;
    let agent = agent(&repo, args.agent.as_deref())?;
    let crossings = args.crossings;
    let mut flapping = command(run::test_program(&repo, "flapping")?);
    flapping.arg("--agent").arg(agent);
    flapping.args(["--crossings", &crossings.to_string()]);
    flapping.args(["--seed", &args.seed.to_string()]);
    flapping.arg("--dir").arg(&repo.target_dir);
    eprintln!("bench: {crossings} crossings of each threshold, 20 s apart");
    let measured = measured(&mut flapping)?;
    let rows = rows(&measured);
    let table = table(&rows);
    print!("{table}");
    if args.write {
        write(&repo, "bench-flapping", &method(&measured), &table)?;
    }
    let faults: Vec<String> = rows.iter().flat_map(FlappingRow::faults).collect();
    Ok(judged(&faults))
}

struct FlappingRow {
    what: String,
    seen: u64,
    /// `None` if the expected number is unknown.
    crossings: Option<u64>,
    /// Median and maximum, in milliseconds.
    took: [f64; 2],
    gates: [Option<f64>; 2],
}

impl FlappingRow {
    /// Returns crossings that were not observed, and figures over their gates.
    fn faults(&self) -> Vec<String> {
        let what = &self.what;
        let mut faults = Vec::new();
        if self.crossings.is_some_and(|all| self.seen < all) {
            faults.push(format!("{what}: not all crossings were seen"));
        }
        let is_over = |n| exceeds(self.took[n], self.gates[n]);
        if self.seen > 0 && (0..2).any(is_over) {
            faults.push(what.clone());
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
        |way: &str| ["median", "max"].map(|name| figure(measured, &format!("/{way}/{name}")));
    let [median, largest] = took("alone");
    // Only the median of what the kernel reports is checked: the maximum depends on other load.
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

fn table(rows: &[FlappingRow]) -> String {
    let row = |row: &FlappingRow| {
        let ([median, largest], what) = (row.took, &row.what);
        let [first, second] = row.gates.map(|most| gate(most, 1));
        let of = row.crossings.map(|crossings| format!(" of {crossings}"));
        let seen = format!("{}{}", row.seen, of.unwrap_or_default());
        format!("| {what} | {seen} | {median:.1} | {first} | {largest:.1} | {second} |")
    };
    let head = "| ms | seen | median | gate | largest | gate |";
    markdown(head, rows.iter().map(row))
}

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
