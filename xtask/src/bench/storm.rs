//! Memory after a storm of kills: runs `kills --storm` of the tests package, and checks its gates.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::report::{Section, machine};
use crate::repo::{Repo, command, output};
use crate::run;

/// MiB above the idle values that may remain after the rest.
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
    ensure!(
        nix::unistd::geteuid().is_root(),
        "creating cgroups and loading eBPF programs requires root"
    );
    let repo = Repo::find()?;
    let agent = match &args.agent {
        Some(agent) => agent.clone(),
        None => run::agent(&repo)?,
    };
    // `kills` expects it in the same directory.
    run::test_program(&repo, "provoke")?;
    let mut kills = command(run::test_program(&repo, "kills")?);
    kills.arg("--agent").arg(&agent);
    kills.args(["--storm", &args.kills.to_string()]);
    kills.args(["--rest", &args.rest.to_string()]);
    eprintln!("bench: {} kills, then {} s", args.kills, args.rest);
    let printed = output(&mut kills)?;
    let measured: Value = serde_json::from_str(&printed).context("`kills` did not print JSON")?;
    let rows = rows(&measured);
    let table = table(&rows);
    print!("{table}");
    if args.write {
        let section = format!("{}\n\n{table}", method(&measured, args.rest));
        Section("bench-storm").write(&repo.root.join("OVERHEAD.md"), &section)?;
    }
    let over: Vec<&StormRow> = rows.iter().filter(|row| row.is_over()).collect();
    for row in &over {
        eprintln!("bench: over budget: {}", row.what);
    }
    Ok(ExitCode::from(u8::from(!over.is_empty())))
}

/// One kind of memory, in MiB.
struct StormRow {
    what: &'static str,
    idle: f64,
    storm: f64,
    rest: f64,
}

impl StormRow {
    fn gate(&self) -> f64 {
        self.idle + REMAINS
    }

    fn is_over(&self) -> bool {
        // A missing figure exceeds its gate.
        self.rest.is_nan() || self.gate().is_nan() || self.rest > self.gate()
    }
}

fn rows(measured: &Value) -> [StormRow; 2] {
    [
        ("resident memory, MiB", "rss"),
        ("anonymous memory, MiB", "anonymous"),
    ]
    .map(|(what, name)| {
        let mib = |when: &str| {
            let kib = measured[when][name].as_f64();
            kib.map_or(f64::NAN, |kib| kib / 1024.0)
        };
        StormRow {
            what,
            idle: mib("idle"),
            storm: mib("storm"),
            rest: mib("rest"),
        }
    })
}

/// As Markdown.
fn table(rows: &[StormRow]) -> String {
    let mut lines = vec![
        "| | idle | end of the storm | after the rest | gate |".to_owned(),
        "| --- | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        let StormRow {
            what,
            idle,
            storm,
            rest,
        } = row;
        let gate = row.gate();
        format!("| {what} | {idle:.2} | {storm:.2} | {rest:.2} | {gate:.2} |")
    }));
    lines.join("\n") + "\n"
}

/// Date, machine and method.
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
        let over = |measured: &Value| {
            let rows = rows(measured);
            rows.map(|row| row.is_over())
        };
        assert_eq!(over(&measured(7475, 1331)), [false, false]);
        assert_eq!(over(&measured(7476, 1332)), [true, true]);
        assert_eq!(over(&json!({})), [true, true], "missing figures");
        let table = table(&rows(&measured(7372, 1024)));
        let expected = "| resident memory, MiB | 7.00 | 10.00 | 7.20 | 7.30 |";
        assert_eq!(table.lines().nth(2), Some(expected));
    }
}
