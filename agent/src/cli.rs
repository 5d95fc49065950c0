//! The command line: the one room that prints.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "what is wrong with a call is said to whoever made it"
)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Parser, Subcommand};

pub mod log;
pub mod run;
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
    /// Print the version.
    Version,
}

/// Does what `args` say, and gives the exit code: 0 stopped when asked or fine, 1 runtime failure,
/// 2 bad usage or configuration.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) => return refuse(&err),
    };
    match cli.command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Version => version::print(),
    }
}

/// Help goes out as it is; anything else in one line, with what to type instead.
fn refuse(err: &clap::Error) -> ExitCode {
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
    let what = match (err.kind(), context(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(flag)) => format!("unknown flag {flag}"),
        (ErrorKind::InvalidSubcommand, _) => {
            let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {command:?}")
        }
        (ErrorKind::ArgumentConflict, Some(flag)) => format!("{flag} is given twice"),
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
    eprintln!(
        "nodepulse: {what}{hint}; example: nodepulse run --mode node --kubeconfig /etc/kubernetes/kubelet.conf"
    );
    ExitCode::from(USAGE)
}
