//! Measures the cost of the eBPF programs in the kernel: runs `cost` of the tests package, and
//! checks its gates.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::report::machine;
use super::{exceeds, figure, judged, markdown, measured, require_root, write};
use crate::repo::{Repo, command};
use crate::{build_ebpf, run, setup};

/// Maximum net cost of one run of a program, in nanoseconds.
const NET_NS: f64 = 80.0;
/// Maximum ratio of the duration of a loop that only triggers a program, with and without it.
const RATIO: f64 = 1.01;

#[derive(clap::Args)]
pub struct Args {
    /// Number of pairs of measurements, with and without the programs
    #[arg(long, default_value_t = 61, value_parser = clap::value_parser!(u32).range(30..))]
    pairs: u32,
    /// Write the figures to OVERHEAD.md, between its two `bench-kernel` comments
    #[arg(long)]
    write: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    require_root()?;
    let repo = Repo::find()?;
    setup::all(&repo)?;
    build_ebpf::object(&repo, "")?;
    build_ebpf::object(&repo, build_ebpf::TESTING)?;
    let mut cost = command(run::test_program(&repo, "cost")?);
    cost.arg("--dir").arg(&repo.target_dir);
    cost.arg("--pairs").arg(args.pairs.to_string());
    eprintln!("bench: {} pairs of measurements of each loop", args.pairs);
    let costs = measured(&mut cost)?;
    let table = table(&costs);
    print!("{table}");
    if args.write {
        write(&repo, "bench-kernel", &method(&costs), &table)?;
    }
    Ok(judged(&over_budget(&costs)))
}

/// The description, its JSON pointer, the printed digits, and the gate.
type ProbeRow = (&'static str, &'static str, usize, Option<f64>);

#[rustfmt::skip]
const ROWS: [ProbeRow; 10] = [
    ("`sched_process_fork`, ns a run, net", "/fork/net", 0, Some(NET_NS)),
    ("an empty program there, ns a run", "/fork/empty", 0, None),
    ("`block_rq_complete`, ns a run, net", "/completion/net", 0, Some(NET_NS)),
    ("an empty program there, ns a run", "/completion/empty", 0, None),
    ("starting and joining a thread, with / without", "/forks/ratio", 4, Some(RATIO)),
    ("the same, without / without before", "/forks/noise", 4, None),
    ("the same, µs without", "/forks/without", 2, None),
    ("reading 4 KiB with O_DIRECT, with / without", "/reads/ratio", 4, Some(RATIO)),
    ("the same, without / without before", "/reads/noise", 4, None),
    ("the same, µs without", "/reads/without", 2, None),
];

fn table(costs: &Value) -> String {
    let row = |(what, at, digits, most): &ProbeRow| {
        let [median, low, high] =
            ["median", "low", "high"].map(|name| figure(costs, &format!("{at}/{name}")));
        let gate = most.map_or("-".to_owned(), |gate| gate.to_string());
        format!("| {what} | {median:.digits$} | {low:.digits$} to {high:.digits$} | {gate} |")
    };
    let head = "| in the kernel | median | 95 % interval | gate |";
    markdown(head, ROWS.iter().map(row))
}

/// Returns the figures whose whole interval exceeds the gate.
fn over_budget(costs: &Value) -> Vec<String> {
    let over = |(what, at, _, gate): &ProbeRow| {
        let low = figure(costs, &format!("{at}/low"));
        let line = || {
            format!(
                "{what}: at least {low:.4}, gate {}",
                gate.unwrap_or_default()
            )
        };
        exceeds(low, *gate).then(line)
    };
    ROWS.iter().filter_map(over).collect()
}

fn method(costs: &Value) -> String {
    format!(
        "{} `cargo xtask bench kernel --write`. {} pairs for each figure, alternating; the interval \
         contains the true median with 95 % confidence. Net: the time that the kernel measures for a \
         run of the program (`BPF_ENABLE_STATS`) minus that of an empty program on the same \
         tracepoint in the same pair. With / without: the same loop with all of the agent's programs \
         attached and with none. A gate fails if the whole interval exceeds it; a difference smaller \
         than the interval of \"without / without before\" is not significant.",
        machine(),
        costs["pairs"],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn costs(net: [f64; 3], ratio: [f64; 3]) -> Value {
        let spread =
            |[median, low, high]: [f64; 3]| json!({"median": median, "low": low, "high": high});
        let net = json!({"empty": spread([60.0; 3]), "net": spread(net)});
        let paired = json!({
            "without": spread([20.0; 3]),
            "ratio": spread(ratio),
            "noise": spread([1.0, 0.9, 1.1]),
        });
        json!({"pairs": 61, "fork": net, "completion": net, "forks": paired, "reads": paired})
    }

    #[test]
    fn a_gate_fails_only_if_the_whole_interval_exceeds_it() {
        let fine = costs([85.0, 79.0, 90.0], [1.02, 1.0, 1.04]);
        assert_eq!(over_budget(&fine), [""; 0]);
        let over = costs([90.0, 81.0, 99.0], [1.02, 1.011, 1.04]);
        assert_eq!(over_budget(&over).len(), 4);
        assert_eq!(
            over_budget(&over)[0],
            "`sched_process_fork`, ns a run, net: at least 81.0000, gate 80"
        );
        assert_eq!(over_budget(&json!({})).len(), 4, "a missing figure");
    }

    #[test]
    fn a_row_shows_the_median_the_interval_and_the_gate() {
        let table = table(&costs([41.4, 38.5, 44.0], [1.002, 0.99, 1.01]));
        let expected = "| `sched_process_fork`, ns a run, net | 41 | 38 to 44 | 80 |";
        assert_eq!(table.lines().nth(2), Some(expected));
    }
}
