//! `nodepulse man` and `nodepulse help`.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use clap::{Args, Command};

use super::page::{Detail, has_page, help, page};
use super::position::Position;
use super::terminal::{print, width};

/// Flags of `man` and of `help`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A command [default: the whole program].
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

pub(super) fn names(root: &Command) -> Vec<String> {
    let below = root.get_subcommands().filter(|below| has_page(below));
    below.map(|below| below.get_name().to_owned()).collect()
}

/// Prints a manual page: as text on a terminal, otherwise for `man`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut root = super::command();
    root.build();
    let below = arguments.command.as_ref();
    let below = below.and_then(|name| root.find_subcommand(name));
    let page = page(below.unwrap_or(&root));
    if io::stdout().is_terminal() {
        return print(&page.text(width()));
    }
    print(&page.roff())
}

/// Prints the complete help of a command, or the commands.
pub fn full(arguments: &Arguments) -> ExitCode {
    let mut root = super::command();
    root.build();
    let words: Vec<String> = arguments.command.iter().cloned().collect();
    let position = Position::after(&root, &words);
    let detail = if words.is_empty() {
        Detail::Short
    } else {
        Detail::Full
    };
    print(&help(&position, detail, width()))
}
