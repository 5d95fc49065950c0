//! The command line: the only room that prints.

#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "usage errors go to the caller")]

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

pub mod check;
pub mod cleanup;
mod client;
pub mod config;
mod explanation;
pub mod log;
mod logging;
pub mod run;
pub mod settings;
pub mod status;
mod supervision;
mod terminal;
mod text;
pub mod version;

/// Exit code for invalid usage or configuration.
pub const USAGE: u8 = 2;

/// Kernel events to node conditions, without polling.
#[derive(Debug, Parser)]
#[command(
    name = "nodepulse",
    bin_name = "nodepulse",
    disable_version_flag = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent.
    Run(Box<run::Arguments>),
    /// Check what this machine and the API server provide, with a remedy for each fault.
    Check(check::Arguments),
    /// Print or check the configuration.
    Config(config::Arguments),
    /// Remove nodepulse's conditions and taints from this Node, or from all Nodes.
    Cleanup(cleanup::Arguments),
    /// Print the node status of the running daemon, or compute it if none is running.
    Status(status::StatusArguments),
    /// Print why each condition has its status.
    Explain(status::ExplainArguments),
    /// Print the version.
    Version(version::Arguments),
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Plain text.
    Text,
    /// A JSON object.
    Json,
}

/// Runs the command in `args` and returns the exit code: 0 success or stopped on request, 1 runtime
/// failure, 2 invalid usage or configuration, 3 `check` found that a required item is missing.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) => return report_usage_error(&err),
    };
    match cli.command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Config(arguments) => config::run(arguments),
        Command::Cleanup(arguments) => cleanup::run(arguments),
        Command::Status(arguments) => status::status(arguments),
        Command::Explain(arguments) => status::explain(arguments),
        Command::Version(arguments) => version::print(&arguments),
    }
}

/// The command line, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Prints help as it is, and any error in one line with an example.
fn report_usage_error(err: &clap::Error) -> ExitCode {
    if matches!(
        err.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let code = if err.kind() == ErrorKind::DisplayHelp {
            0
        } else {
            USAGE
        };
        // If help cannot be printed, neither can an error.
        drop(err.print());
        return ExitCode::from(code);
    }
    let context = |kind| err.get(kind).map(ToString::to_string);
    let value = context(ContextKind::InvalidValue).filter(|value| !value.is_empty());
    let flag = context(ContextKind::InvalidArg);
    let flag = flag.map(|flag| flag.split(' ').next().unwrap_or_default().to_owned());
    let problem = match (err.kind(), flag) {
        (ErrorKind::UnknownArgument, Some(flag)) => format!("unknown flag {flag}"),
        (ErrorKind::InvalidSubcommand, _) => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {command:?}")
        }
        (ErrorKind::ArgumentConflict, Some(flag)) => match context(ContextKind::PriorArg) {
            Some(other) if !is_flag(&other, &flag) => format!("{flag} conflicts with {other}"),
            Some(_) | None => format!("{flag} is repeated"),
        },
        (ErrorKind::InvalidValue, Some(flag)) if value.is_some() => {
            let value = value.unwrap_or_default();
            let valid = context(ContextKind::ValidValue).unwrap_or_default();
            format!("{flag}: {value:?} is not one of {valid}")
        }
        (_, Some(flag)) => format!("{flag} requires a value"),
        (_, None) => err
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    };
    let hint = context(ContextKind::SuggestedArg)
        .or_else(|| context(ContextKind::SuggestedSubcommand))
        .or_else(|| context(ContextKind::SuggestedValue));
    let hint = hint.map_or_else(String::new, |hint| format!(", did you mean {hint}?"));
    refuse(&format!(
        "{problem}{hint}; example: nodepulse run --mode node --kubeconfig /etc/kubernetes/kubelet.conf"
    ))
}

/// Whether `argument`, such as `--mode <MODE>`, is `flag`.
fn is_flag(argument: &str, flag: &str) -> bool {
    argument.split(' ').next() == Some(flag)
}

/// Prints one line on standard error, and returns the exit code for invalid usage.
fn refuse(reason: &impl Display) -> ExitCode {
    eprintln!("nodepulse: {reason}");
    ExitCode::from(USAGE)
}

/// Prints one line on standard error, and returns the exit code for a runtime failure.
fn fail(reason: &impl Display) -> ExitCode {
    eprintln!("nodepulse: {reason}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(of: &clap::Command) -> Vec<String> {
        let direct = of.get_arguments().filter_map(clap::Arg::get_long);
        let below = of.get_subcommands().flat_map(flags);
        direct
            .map(|flag| format!("`--{flag}`"))
            .chain(below)
            .collect()
    }

    #[test]
    fn every_command_and_flag_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        let text = std::fs::read_to_string(path).unwrap();
        let all = command();
        for flag in flags(&all) {
            let named =
                text.contains(&flag) || text.contains(&flag.replace("config`", "config FILE`"));
            assert!(named, "{flag}");
        }
        for command in all.get_subcommands() {
            let name = command.get_name();
            let named =
                text.contains(&format!("| `{name}`")) || text.contains(&format!("| `{name} "));
            assert!(named, "{name}");
        }
    }
}
