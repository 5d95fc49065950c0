//! The time from a kill to the API server: runs `kills` of the tests package, and checks its gates.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::report::{Section, machine};
use crate::repo::{Repo, command, output};
use crate::run;

/// A kill may take 1.5 × a bare Event create and this many milliseconds.
const BEYOND: f64 = 1.0;
/// From the kernel to the first byte of the request, in milliseconds: median and 99th percentile.
const FIRST: [f64; 2] = [0.3, 2.0];
/// From the accepted Event to the accepted details, in milliseconds: median and 99th percentile.
const DETAILS: [f64; 2] = [50.0, 50.0];

#[derive(clap::Args)]
pub struct Args {
    /// Write the figures to OVERHEAD.md, between its two `bench-kills` comments
    #[arg(long)]
    write: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "creating cgroups and loading eBPF programs requires root"
    );
    let repo = Repo::find()?;
    let agent = run::agent(&repo)?;
    // `kills` expects it in the same directory.
    run::test_program(&repo, "provoke")?;
    let mut kills = command(run::test_program(&repo, "kills")?);
    let printed = output(kills.arg("--agent").arg(&agent))?;
    let measured: Value = serde_json::from_str(&printed).context("`kills` did not print JSON")?;
    let rows = rows(&measured);
    let table = table(&rows);
    print!("{table}");
    if args.write {
        let section = format!("{}\n\n{table}", method(&measured));
        Section("bench-kills").write(&repo.root.join("OVERHEAD.md"), &section)?;
    }
    let over: Vec<&KillsRow> = rows.iter().filter(|row| row.is_over()).collect();
    for row in &over {
        eprintln!("bench: over budget: {}", row.what);
    }
    Ok(ExitCode::from(u8::from(!over.is_empty())))
}

struct KillsRow {
    what: &'static str,
    /// Median and 99th percentile.
    took: [f64; 2],
    gates: [Option<f64>; 2],
}

impl KillsRow {
    fn is_over(&self) -> bool {
        let judged = self.took.iter().zip(self.gates);
        // A missing figure exceeds its gate.
        judged
            .into_iter()
            .any(|(took, gate)| gate.is_some_and(|gate| took.is_nan() || *took > gate))
    }
}

fn rows(measured: &Value) -> Vec<KillsRow> {
    let took = |at: &str| {
        ["p50", "p99"].map(|rank| {
            let figure = measured.pointer(&format!("{at}/{rank}"));
            figure.and_then(Value::as_f64).unwrap_or(f64::NAN)
        })
    };
    let bare = took("/bare");
    let whole = [Some(1.5 * bare[0] + BEYOND), None];
    let row = |what, at, gates| KillsRow {
        what,
        took: took(at),
        gates,
    };
    vec![
        row("bare Event create", "/bare", [None; 2]),
        row("kill → Event on the Pod", "/knowing/whole", whole),
        row("kill → request sent", "/knowing/first", FIRST.map(Some)),
        row(
            "kill → Event on the Pod, container name requested",
            "/asking/whole",
            whole,
        ),
        row(
            "Event on the Pod → its details",
            "/details",
            DETAILS.map(Some),
        ),
    ]
}

/// As Markdown.
fn table(rows: &[KillsRow]) -> String {
    let mut lines = vec![
        "| ms | median | gate | 99th percentile | gate |".to_owned(),
        "| --- | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        let ([p50, p99], what) = (row.took, row.what);
        let [first, second] = row
            .gates
            .map(|gate| gate.map_or("-".to_owned(), |gate| format!("{gate:.2}")));
        format!("| {what} | {p50:.2} | {first} | {p99:.2} | {second} |")
    }));
    lines.join("\n") + "\n"
}

/// Date, machine and method.
fn method(measured: &Value) -> String {
    format!(
        "{} `cargo xtask bench kills --write`. The release binary against the test API server over TLS \
         on loopback; one kill at a time in simulated pods, and a bare Event create after each: {} \
         kills with the container's name known, {} for which it is requested first. The agent records \
         the times, since the kernel's timestamp. The details of {} more kills, one in 2 s, are timed by the \
         server, from the answer to the Event to the answer to the patch. The gate of the whole is 1.5 × a bare Event create \
         of the same run + {BEYOND} ms.",
        machine(),
        measured["knowing"]["whole"]["count"],
        measured["asking"]["whole"]["count"],
        measured["details"]["count"],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn over(measured: &Value) -> Vec<&'static str> {
        let rows = rows(measured);
        let over = rows.iter().filter(|row| row.is_over());
        over.map(|row| row.what).collect()
    }

    #[test]
    fn a_kill_is_compared_with_a_bare_create_of_the_same_run() {
        let measured = |first, whole, asking| {
            let figures = |p50: f64| json!({"count": 9, "p50": p50, "p99": 2.0});
            json!({
                "bare": figures(1.0),
                "knowing": {"first": figures(first), "whole": figures(whole)},
                "asking": {"first": figures(9.0), "whole": figures(asking)},
                "details": figures(if first > 0.3 { 51.0 } else { 3.0 }),
            })
        };
        assert_eq!(over(&measured(0.3, 2.5, 2.5)), [""; 0]);
        assert_eq!(over(&measured(0.31, 2.51, 2.51)).len(), 4);
        assert_eq!(over(&json!({})).len(), 4, "missing figures");
        let table = table(&rows(&measured(0.25, 2.0, 2.25)));
        let expected = "| kill → Event on the Pod | 2.00 | 2.50 | 2.00 | - |";
        assert_eq!(table.lines().nth(3), Some(expected));
    }
}
