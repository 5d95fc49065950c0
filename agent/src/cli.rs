//! The command line: the one room that prints.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "what is wrong with a call is said to whoever made it"
)]

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

pub mod check;
pub mod cleanup;
mod client;
pub mod config;
pub mod log;
mod logging;
pub mod run;
pub mod settings;
pub mod status;
mod supervision;
mod text;
pub mod version;

/// Exit code for a call or a configuration that cannot work.
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
    /// Tell what this machine and this cluster offer, and what to do about the rest.
    Check(check::Arguments),
    /// Print or check the configuration.
    Config(config::Arguments),
    /// Take our conditions and taints off this Node, or off all of them.
    Cleanup(cleanup::Arguments),
    /// Print the status that would be sent: of the daemon that runs, or as computed now.
    Status(status::StatusArguments),
    /// Print why each condition has its status.
    Explain(status::ExplainArguments),
    /// Print the version.
    Version(version::Arguments),
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One object.
    Json,
}

/// Does what `args` say, and gives the exit code: 0 stopped when asked or fine, 1 runtime failure,
/// 2 bad usage or configuration, 3 `check` found that a required item is missing.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) => return refuse_call(&err),
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
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Help goes out as it is; anything else in one line, with what to type instead.
fn refuse_call(err: &clap::Error) -> ExitCode {
    if matches!(
        err.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let code = if err.kind() == ErrorKind::DisplayHelp {
            0
        } else {
            USAGE
        };
        // Nowhere to print help to: nothing is left to say it with.
        drop(err.print());
        return ExitCode::from(code);
    }
    let context = |kind| err.get(kind).map(ToString::to_string);
    let value = context(ContextKind::InvalidValue).filter(|value| !value.is_empty());
    let what = match (err.kind(), context(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(flag)) => format!("unknown flag {flag}"),
        (ErrorKind::InvalidSubcommand, _) => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {command:?}")
        }
        (ErrorKind::ArgumentConflict, Some(flag)) => match context(ContextKind::PriorArg) {
            Some(other) if other != flag => format!("{flag} does not go with {other}"),
            Some(_) | None => format!("{flag} is given twice"),
        },
        (ErrorKind::InvalidValue, Some(flag)) if value.is_some() => {
            format!("{flag}: no such value {:?}", value.unwrap_or_default())
        }
        (_, Some(flag)) => format!("no value for {flag}"),
        (_, None) => err
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    };
    let hint =
        context(ContextKind::SuggestedArg).or_else(|| context(ContextKind::SuggestedSubcommand));
    let hint = hint.map_or_else(String::new, |hint| format!(", did you mean {hint}?"));
    refuse(&format!(
        "{what}{hint}; example: nodepulse run --mode node --kubeconfig /etc/kubernetes/kubelet.conf"
    ))
}

/// One line on standard error, and the exit code for what cannot work.
fn refuse(why: &impl Display) -> ExitCode {
    eprintln!("nodepulse: {why}");
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(of: &clap::Command) -> Vec<String> {
        let own = of.get_arguments().filter_map(clap::Arg::get_long);
        let below = of.get_subcommands().flat_map(flags);
        own.map(|flag| format!("`--{flag}`")).chain(below).collect()
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
