//! `nodepulse config`: prints and checks the configuration.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::meminfo::MeminfoFile;

use super::refuse;
use super::settings::{Settings, configuration, one_of};
use super::terminal::print;
use crate::config::{self, key};

/// Flags of `config`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the effective configuration as a file, with the source of each value in a comment.
    Print(Box<Settings>),
    /// Check the configuration; `--config -` reads standard input.
    Validate(Box<Settings>),
    /// Print the default configuration.
    Defaults {
        /// The mode, on which some defaults depend.
        #[arg(long = key::mode.spec.flag_name(), value_name = "MODE",
              value_parser = one_of(&key::mode.spec))]
        mode: Option<String>,
    },
}

/// Returns exit code 2 if the configuration is invalid.
pub fn run(arguments: Arguments) -> ExitCode {
    let text = match arguments.command {
        Command::Print(settings) => configuration(&settings.overrides()).map(|loaded| {
            let root = HostRoot::new(&loaded.config.host_root);
            let effective = match MeminfoFile::new(&root).read(&mut Vec::new()) {
                Ok(memory) => loaded.effective.with_memory(memory.total),
                // Without the file, the output is as valid, but lacks the sizes of this machine.
                Err(_) => loaded.effective,
            };
            effective.to_yaml()
        }),
        Command::Validate(settings) => {
            configuration(&settings.overrides()).map(|_| "the configuration is valid\n".to_owned())
        }
        Command::Defaults { mode } => match config::defaults(mode) {
            Ok(defaults) => Ok(defaults.to_yaml()),
            Err(err) => Err(err.to_string()),
        },
    };
    match text {
        Ok(text) => print(&text),
        Err(err) => refuse(&err),
    }
}
