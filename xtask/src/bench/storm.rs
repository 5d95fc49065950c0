//! Measures memory after a storm of kills: runs `kills --storm` of the tests package, and checks
//! its gates.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::report::machine;
use super::{agent, exceeds, figure, judged, markdown, measured, write};
use crate::repo::{Repo, command};
use crate::run;

/// Maximum memory above the idle values after the rest, in MiB.
const REMAINS: f64 = 0.3;

#[derive(clap::Args)]
pub struct Args {
    /// Kills without a pause, in 60 pods
    #[arg(long, default_value_t = 25_000, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Seconds from the storm to the last measurement
    #[arg(long, default_value_t = 300)]
    rest: u32,
    /// Measure this agent, and do not build one
    #[arg(long)]
    agent: Option<PathBuf>,
    /// Write the figures to OVERHEAD.md, between its two `bench-storm` comments
    #[arg(long)]
    write: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = agent(&repo, args.agent.as_deref())?;
    // `kills` expects it in the same directory.
    run::test_program(&repo, "provoke")?;
    let mut kills = command(run::test_program(&repo, "kills")?);
    kills.arg("--agent").arg(&agent);
    kills.args(["--storm", &args.kills.to_string()]);
    kills.args(["--rest", &args.rest.to_string()]);
    eprintln!("bench: {} kills, then {} s", args.kills, args.rest);
    let measured = measured(&mut kills)?;
    let rows = rows(&measured);
    let table = table(&rows);
    print!("{table}");
    if args.write {
        let method = method(&measured, args.rest);
        write(&repo, "bench-storm", &method, &table)?;
    }
    Ok(judged(&over(&rows)))
}

/// A kind of memory, in MiB: idle, at the end of the storm, and after the rest.
type StormRow = (&'static str, [f64; 3]);

fn over(rows: &[StormRow]) -> Vec<String> {
    let is_over = |(_, [idle, _, rest]): &&StormRow| exceeds(*rest, Some(idle + REMAINS));
    let over = rows.iter().filter(is_over);
    over.map(|(what, _)| (*what).to_owned()).collect()
}

fn rows(measured: &Value) -> [StormRow; 2] {
    let mib = |name: &str| {
        ["idle", "storm", "rest"].map(|when| figure(measured, &format!("/{when}/{name}")) / 1024.0)
    };
    [
        ("resident memory, MiB", mib("rss")),
        ("anonymous memory, MiB", mib("anonymous")),
    ]
}

fn table(rows: &[StormRow]) -> String {
    let row = |(what, [idle, storm, rest]): &StormRow| {
        let gate = idle + REMAINS;
        format!("| {what} | {idle:.2} | {storm:.2} | {rest:.2} | {gate:.2} |")
    };
    let head = "| | idle | end of the storm | after the rest | gate |";
    markdown(head, rows.iter().map(row))
}

fn method(measured: &Value, rest: u32) -> String {
    format!(
        "{} `cargo xtask bench storm --write`. The release binary in node mode against the test API server over TLS \
         on loopback; {} processes in 60 simulated pods are killed at their limits in {} s, of which the kernel counts \
         {} kills and Events report {}. Idle is 75 s after the start, and the rest takes {rest} s. The gate is the idle \
         value + {REMAINS} MiB.",
        machine(),
        measured["kills"],
        measured["seconds"],
        measured["counted"],
        measured["reported"],
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_remains_is_compared_with_the_idle_value_of_the_same_run() {
        let measured = |rss: u32, anonymous: u32| {
            json!({
                "idle": {"rss": 7168, "anonymous": 1024},
                "storm": {"rss": 10_240, "anonymous": 4096},
                "rest": {"rss": rss, "anonymous": anonymous},
            })
        };
        assert_eq!(over(&rows(&measured(7475, 1331))).len(), 0);
        assert_eq!(over(&rows(&measured(7476, 1332))).len(), 2);
        assert_eq!(over(&rows(&json!({}))).len(), 2, "missing figures");
        let table = table(&rows(&measured(7372, 1024)));
        let expected = "| resident memory, MiB | 7.00 | 10.00 | 7.20 | 7.30 |";
        assert_eq!(table.lines().nth(2), Some(expected));
    }
}
