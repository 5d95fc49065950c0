//! Measures the time from a kill to the API server: runs `kills` of the tests package, and checks
//! its gates.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::report::machine;
use super::{agent, exceeds, figure, gate, judged, markdown, measured, write};
use crate::repo::{Repo, command};
use crate::run;

/// Milliseconds that a kill may take in addition to 1.5 times a bare Event create.
const BEYOND: f64 = 1.0;
/// Maximum time from the kernel to the first byte of the request, in milliseconds: median and 99th
/// percentile.
const FIRST: [f64; 2] = [0.3, 2.0];
/// Maximum time from the accepted Event to the accepted details, in milliseconds: median and 99th
/// percentile.
const DETAILS: [f64; 2] = [50.0, 50.0];

/// Milliseconds by which a collector or a webhook may get a kill after the API server.
const LATER: f64 = 1.0;

#[derive(clap::Args)]
pub struct Args {
    /// Write the figures to OVERHEAD.md, between its two `bench-kills` comments
    #[arg(long)]
    write: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = agent(&repo, None)?;
    // `kills` expects it in the same directory.
    run::test_program(&repo, "provoke")?;
    let mut kills = command(run::test_program(&repo, "kills")?);
    let measured = measured(kills.arg("--agent").arg(&agent))?;
    let rows = rows(&measured);
    let table = table(&rows);
    print!("{table}");
    if args.write {
        write(&repo, "bench-kills", &method(&measured), &table)?;
    }
    Ok(judged(&over(&rows)))
}

struct KillsRow {
    what: &'static str,
    /// Median and 99th percentile, in milliseconds.
    took: [f64; 2],
    gates: [Option<f64>; 2],
}

fn over(rows: &[KillsRow]) -> Vec<String> {
    let is_over = |row: &&KillsRow| (0..2).any(|n| exceeds(row.took[n], row.gates[n]));
    let over = rows.iter().filter(is_over);
    over.map(|row| row.what.to_owned()).collect()
}

fn rows(measured: &Value) -> [KillsRow; 10] {
    let took = |at: &str| ["p50", "p99"].map(|rank| figure(measured, &format!("{at}/{rank}")));
    let whole = [Some(1.5 * took("/bare")[0] + BEYOND), None];
    let event = [Some(took("/sinks/event")[0] + LATER), None];
    let settled = [Some(took("/sinks/settled")[0]), None];
    let asked = "kill → Event on the Pod, container name requested";
    let last = "kill → settled revision at the collector";
    let details = "Event on the Pod → its details";
    [
        ("bare Event create", "/bare", [None; 2]),
        ("kill → Event on the Pod", "/knowing/whole", whole),
        ("kill → request sent", "/knowing/first", FIRST.map(Some)),
        (asked, "/asking/whole", whole),
        (details, "/details", DETAILS.map(Some)),
        ("kill → Event received", "/sinks/event", [None; 2]),
        ("kill → collector", "/sinks/collector", event),
        ("kill → webhook", "/sinks/webhook", event),
        (last, "/sinks/settled", [None; 2]),
        ("kill → journal", "/sinks/journal", settled),
    ]
    .map(|(what, at, gates)| KillsRow {
        what,
        took: took(at),
        gates,
    })
}

fn table(rows: &[KillsRow]) -> String {
    let row = |row: &KillsRow| {
        let ([p50, p99], what) = (row.took, row.what);
        let [first, second] = row.gates.map(|most| gate(most, 2));
        format!("| {what} | {p50:.2} | {first} | {p99:.2} | {second} |")
    };
    let head = "| ms | median | gate | 99th percentile | gate |";
    markdown(head, rows.iter().map(row))
}

fn method(measured: &Value) -> String {
    format!(
        "{} `cargo xtask bench kills --write`. The release binary against the test API server over TLS \
         on loopback, a collector, a webhook and a journal; one kill at a time in simulated pods, and a bare Event create after each: {} \
         kills with the container's name known, {} for which it is requested first. The agent records \
         the times, since the kernel's timestamp. The details of {} more kills, one in 2 s, are timed by the \
         server, from the answer to the Event to the answer to the patch. The gate of the whole is 1.5 × a bare Event create \
         of the same run + {BEYOND} ms. The last five rows are from the kernel's timestamp to the arrival at the \
         receiver: the first revision at the collector and the webhook, whose gate is the Event + {LATER} ms, \
         and the last one, which the journal gets first.",
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

    #[test]
    fn a_kill_is_compared_with_a_bare_create_of_the_same_run() {
        let measured = |first, whole, asking| {
            let figures = |p50: f64| json!({"count": 9, "p50": p50, "p99": 2.0});
            json!({
                "bare": figures(1.0),
                "knowing": {"first": figures(first), "whole": figures(whole)},
                "asking": {"first": figures(9.0), "whole": figures(asking)},
                "details": figures(if first > 0.3 { 51.0 } else { 3.0 }),
                "sinks": {
                    "event": figures(1.0), "collector": figures(first + 1.7), "webhook": figures(1.2),
                    "settled": figures(3500.0), "journal": figures(3499.0),
                },
            })
        };
        assert_eq!(over(&rows(&measured(0.3, 2.5, 2.5))), [""; 0]);
        assert_eq!(over(&rows(&measured(0.31, 2.51, 2.51))).len(), 5);
        assert_eq!(over(&rows(&json!({}))).len(), 7, "missing figures");
        let table = table(&rows(&measured(0.25, 2.0, 2.25)));
        let expected = "| kill → Event on the Pod | 2.00 | 2.50 | 2.00 | - |";
        assert_eq!(table.lines().nth(3), Some(expected));
    }
}
