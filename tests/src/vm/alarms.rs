//! Runs the suite of false alarms in a virtual machine, whose disk `node` can be made to fail.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MsFlags, mount};

use super::{disk, line, loopback};
use crate::alarms::record::{Outcome, Verdict};
use crate::alarms::runner::Runner;
use crate::alarms::{Pace, Workload, faulty, in_machine, workloads};
use crate::provoke::Provoke;

/// Directory on which the disk `node` is mounted.
const NODE_DISK: &str = "/node";
/// Time limit under emulation.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the workloads that a virtual machine can run, and those with a disk that fails, whose names
/// contain one of the comma-separated `names`. Prints the results like the checks.
pub fn run(names: &str) -> io::Result<()> {
    loopback::up()?;
    fs::create_dir_all(NODE_DISK)?;
    let (flags, none) = (MsFlags::empty(), None::<&str>);
    mount(Some(&disk("node")?), NODE_DISK, Some("ext4"), flags, none)?;
    let runner = Runner {
        provoke: Provoke::next_to_this_program()?,
        parent: PathBuf::from(NODE_DISK),
        pace: Pace::MACHINE,
        soon: PATIENCE,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let all = chosen(names);
    let names: Vec<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
    println!("vm-plan: {}", names.join(" "));
    for workload in &all {
        let outcome = runtime.block_on(runner.run(workload));
        println!("{}", result(&outcome));
    }
    runtime.shutdown_background();
    println!("vm-done");
    Ok(())
}

/// Returns the workloads for which this machine has the programs.
fn chosen(names: &str) -> Vec<Workload> {
    let is_named = |workload: &Workload| names.split(',').any(|name| workload.name.contains(name));
    let mut all = workloads(Pace::MACHINE);
    all.retain(|workload| workload.runs_in_machines());
    all.extend(in_machine::workloads());
    all.extend(faulty::workloads(Path::new(NODE_DISK)));
    all.retain(is_named);
    all
}

fn result(outcome: &Outcome) -> String {
    let (verdict, detail) = match &outcome.verdict {
        Verdict::Ok => ("ok", outcome.summary()),
        Verdict::Skipped(why) => ("skipped", why.clone()),
        Verdict::Failed(why) => ("FAILED", format!("{why} ({})", outcome.summary())),
    };
    line(&outcome.name, verdict, outcome.took.as_millis(), &detail)
}
