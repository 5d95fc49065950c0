//! The cost of the eBPF programs in the kernel: runs `cost` of the tests package, and checks its gates.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::report::{Section, machine};
use crate::repo::{Repo, command, output};
use crate::{build_ebpf, run, setup};

/// Largest net cost of one run of a program, in nanoseconds.
const NET_NS: f64 = 80.0;
/// Largest ratio of a loop that does nothing but trigger a program, with and without it.
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
    ensure!(
        nix::unistd::geteuid().is_root(),
        "loading eBPF programs requires root"
    );
    let repo = Repo::find()?;
    setup::all(&repo)?;
    build_ebpf::object(&repo, "")?;
    build_ebpf::object(&repo, build_ebpf::TESTING)?;
    let program = run::test_program(&repo, "cost")?;
    let mut cost = command(program);
    cost.arg("--dir").arg(&repo.target_dir);
    cost.arg("--pairs").arg(args.pairs.to_string());
    eprintln!("bench: {} pairs of measurements of each loop", args.pairs);
    let costs: Value =
        serde_json::from_str(&output(&mut cost)?).context("`cost` did not print JSON")?;
    let table = table(&costs);
    print!("{table}");
    if args.write {
        let section = format!("{}\n\n{table}", method(&costs));
        Section("bench-kernel").write(&repo.root.join("OVERHEAD.md"), &section)?;
    }
    let over = over_budget(&costs);
    for what in &over {
        eprintln!("bench: over budget: {what}");
    }
    Ok(ExitCode::from(u8::from(!over.is_empty())))
}

struct ProbeRow {
    what: &'static str,
    /// JSON pointer.
    at: &'static str,
    digits: usize,
    gate: Option<f64>,
}

const fn row(what: &'static str, at: &'static str, digits: usize, gate: Option<f64>) -> ProbeRow {
    ProbeRow {
        what,
        at,
        digits,
        gate,
    }
}

const ROWS: [ProbeRow; 10] = [
    row(
        "`sched_process_fork`, ns a run, net",
        "/fork/net",
        0,
        Some(NET_NS),
    ),
    row("an empty program there, ns a run", "/fork/empty", 0, None),
    row(
        "`block_rq_complete`, ns a run, net",
        "/completion/net",
        0,
        Some(NET_NS),
    ),
    row(
        "an empty program there, ns a run",
        "/completion/empty",
        0,
        None,
    ),
    row(
        "starting and joining a thread, with / without",
        "/forks/ratio",
        4,
        Some(RATIO),
    ),
    row(
        "the same, without / without before",
        "/forks/noise",
        4,
        None,
    ),
    row("the same, µs without", "/forks/without", 2, None),
    row(
        "reading 4 KiB with O_DIRECT, with / without",
        "/reads/ratio",
        4,
        Some(RATIO),
    ),
    row(
        "the same, without / without before",
        "/reads/noise",
        4,
        None,
    ),
    row("the same, µs without", "/reads/without", 2, None),
];

fn number(costs: &Value, at: &str, name: &str) -> f64 {
    costs
        .pointer(&format!("{at}/{name}"))
        .and_then(Value::as_f64)
        .unwrap_or(f64::NAN)
}

/// As Markdown.
fn table(costs: &Value) -> String {
    let mut lines = vec![
        "| in the kernel | median | 95 % interval | gate |".to_owned(),
        "| --- | ---: | ---: | ---: |".to_owned(),
    ];
    lines.extend(ROWS.iter().map(|row| {
        let [median, low, high] = ["median", "low", "high"].map(|name| number(costs, row.at, name));
        let (what, digits) = (row.what, row.digits);
        let gate = row.gate.map_or("-".to_owned(), |gate| format!("{gate}"));
        format!("| {what} | {median:.digits$} | {low:.digits$} to {high:.digits$} | {gate} |")
    }));
    lines.join("\n") + "\n"
}

/// Figures whose whole interval exceeds the gate.
fn over_budget(costs: &Value) -> Vec<String> {
    let over = |row: &&ProbeRow| {
        let low = number(costs, row.at, "low");
        row.gate.is_some_and(|gate| low.is_nan() || low > gate)
    };
    let line = |row: &ProbeRow| {
        let (low, gate) = (number(costs, row.at, "low"), row.gate.unwrap_or_default());
        format!("{}: at least {low:.4}, gate {gate}", row.what)
    };
    ROWS.iter().filter(over).map(line).collect()
}

/// Date, machine and method.
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
