//! The command line: the only module that prints.

#![forbid(unsafe_code)]
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

mod certificate;
pub mod check;
pub mod cleanup;
mod client;
pub mod completion;
pub mod config;
mod dry_run;
mod explanation;
pub mod history;
mod line_limit;
pub mod log;
mod logging;
pub mod man;
mod obstacle;
mod position;
mod provoke;
pub mod record;
pub mod run;
pub mod settings;
pub mod status;
mod supervision;
pub mod terminal;
mod text;
pub mod texts;
mod usage;
pub mod version;

/// Exit code for invalid usage or configuration.
pub const USAGE: u8 = 2;

/// Turn kernel events into node conditions, without polling.
#[derive(Debug, Parser)]
#[command(
    name = "nodepulse",
    bin_name = "nodepulse",
    version = version::VERSION,
    disable_help_subcommand = true
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
    /// Print the node status of the running daemon, or compute it if none is running.
    Status(status::StatusArguments),
    /// Print why each condition has its status.
    Explain(status::ExplainArguments),
    /// Print the incidents of this machine: OOM kills, refused forks, unhealthy disks, conditions.
    History(history::Arguments),
    /// Cause one real incident on purpose, to see how it is reported.
    Provoke(provoke::Arguments),
    /// Record what the running daemon observes and decides.
    Record(record::Arguments),
    /// Print or check the configuration.
    Config(config::Arguments),
    /// Remove nodepulse's conditions and taints from this Node, or from all Nodes.
    Cleanup(cleanup::Arguments),
    /// Print a script that completes calls of nodepulse in a shell.
    Completion(completion::Arguments),
    /// Print a manual page.
    Man(man::Arguments),
    /// Print the version.
    Version(version::Arguments),
    /// Print the help of a command.
    Help(man::Arguments),
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
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = command().try_get_matches_from(&args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(err) => return usage::report(&err, &args),
    };
    // The daemon does not keep them.
    drop(args);
    nodepulse_io::lane::use_lane_threads();
    match cli.command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Status(arguments) => status::status(arguments),
        Command::Explain(arguments) => status::explain(arguments),
        Command::History(arguments) => history::run(arguments),
        Command::Provoke(arguments) => provoke::run(&arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Config(arguments) => config::run(arguments),
        Command::Cleanup(arguments) => cleanup::run(arguments),
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Version(arguments) => version::print(&arguments),
        Command::Help(arguments) => man::help(&arguments),
    }
}

/// The command line. Each command shows the flags that it uses.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "check" => settings::shown(command, check::USED),
        "cleanup" => settings::shown(command, cleanup::USED),
        _ => command,
    })
}

/// The command line with the texts that only help needs, so the daemon does not format them.
pub fn documented() -> clap::Command {
    texts::described(command()).term_width(terminal::width())
}

/// Prints one line on standard error, and returns the exit code for invalid usage.
fn refuse(reason: &impl Display) -> ExitCode {
    print_error(&format!("nodepulse: {reason}"));
    ExitCode::from(USAGE)
}

/// Prints one line on standard error, and returns the exit code for a runtime failure.
fn fail(reason: &impl Display) -> ExitCode {
    print_error(&format!("nodepulse: {reason}"));
    ExitCode::FAILURE
}

/// Prints text on standard error, if anything can be printed there.
fn print_error(text: &str) {
    let _unseen = writeln!(io::stderr(), "{text}");
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
        for command in all.get_subcommands().filter(|of| !of.is_hide_set()) {
            let name = command.get_name();
            let named =
                text.contains(&format!("| `{name}`")) || text.contains(&format!("| `{name} "));
            assert!(named, "{name}");
        }
    }
}
