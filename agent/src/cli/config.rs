//! `nodepulse config`: what holds, whether it makes sense, and what holds where nobody says anything.

#![expect(clippy::print_stdout, reason = "this is what the command is for")]

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::refuse;
use super::settings::{Settings, configuration};
use crate::config;

/// Flags of `config`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what holds, as a file that says the same; where each value comes from is in a comment.
    Print(Box<Settings>),
    /// Check it, as `run` would on any machine; `--config -` reads standard input.
    Validate(Box<Settings>),
    /// Print what holds where nobody says anything.
    Defaults {
        /// The mode, which some defaults depend on.
        #[arg(long, value_name = "companion|node")]
        mode: Option<String>,
    },
}

/// Exit code 2 where the configuration cannot work.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    match arguments.command {
        Command::Print(settings) => match configuration(&settings.overrides()) {
            Ok(loaded) => {
                print!("{}", loaded.effective.to_yaml());
                ExitCode::SUCCESS
            }
            Err(err) => refuse(&err),
        },
        Command::Validate(settings) => match configuration(&settings.overrides()) {
            Ok(_) => {
                println!("the configuration is valid");
                ExitCode::SUCCESS
            }
            Err(err) => refuse(&err),
        },
        Command::Defaults { mode } => match config::defaults(mode) {
            Ok(defaults) => {
                print!("{}", defaults.to_yaml());
                ExitCode::SUCCESS
            }
            Err(err) => refuse(&err),
        },
    }
}
