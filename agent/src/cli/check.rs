//! `nodepulse check`: what this machine and this cluster offer, and what to do about the rest.
//!
//! Everything is really tried: programs are attached and detached again, triggers are set and
//! dropped. What needs a right that we do not have says so.

#![expect(clippy::print_stdout, reason = "this is what the command is for")]

use std::process::ExitCode;

use clap::Args;

use super::settings::{Settings, for_once};
use super::{Output, refuse};

mod cluster;
mod host;
mod kernel;
mod report;

use report::Verdict;

/// Exit code where something is missing without which the configured mode cannot do its job.
const MISSING: u8 = 3;

/// Flags of `check`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How it is printed.
    #[arg(short, long, value_name = "text|json", default_value = "text")]
    output: Output,
    #[command(flatten)]
    settings: Box<Settings>,
}

/// Looks at everything, prints it, and gives exit code 0, or 3 where a required item is missing.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let (config, runtime) = match for_once(*arguments.settings) {
        Ok(both) => both,
        Err(err) => return refuse(&err),
    };
    let mut items = kernel::items(&config);
    items.extend(host::items(&config));
    match runtime.block_on(cluster::items(&config)) {
        Ok(of_cluster) => items.extend(of_cluster),
        Err(err) => return refuse(&err),
    }
    match arguments.output {
        Output::Text => items.iter().for_each(|item| println!("{item}")),
        Output::Json => println!("{}", report::json(&items)),
    }
    if items.iter().any(|item| item.verdict == Verdict::Missing) {
        return ExitCode::from(MISSING);
    }
    ExitCode::SUCCESS
}
