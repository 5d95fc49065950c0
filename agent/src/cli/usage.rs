//! Invalid calls: one line with the fault and the probable intention.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::position::{self, Position};
use super::{USAGE, refuse, terminal, version};
use crate::config::similar;

/// Answers a call that names no command to run: prints help or the version, or refuses it.
pub(super) fn report(err: &clap::Error, args: &[OsString]) -> ExitCode {
    let mut root = super::command();
    root.build();
    let words = args.iter().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into()).collect();
    match err.kind() {
        ErrorKind::DisplayHelp => terminal::print(&help(args)),
        ErrorKind::DisplayVersion => version::print_text(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            super::print_error(help(args).trim_end());
            ExitCode::from(USAGE)
        }
        _ => refuse(&problem(&root, &words, err)),
    }
}

/// Returns the help that `args` ask for.
fn help(args: &[OsString]) -> String {
    let parsed = super::documented().try_get_matches_from(args);
    parsed.map_or_else(|err| err.to_string(), |_| String::new())
}

/// Describes the fault, and a remedy.
fn problem(root: &Command, words: &[String], err: &clap::Error) -> String {
    let context = |kind| err.get(kind).map(ToString::to_string);
    // `--mode <MODE>`, `[TYPE]`
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let argument = argument.split(' ').next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).filter(|value| !value.is_empty());
    match (err.kind(), value) {
        (ErrorKind::InvalidSubcommand, _) => {
            let name = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            unknown_command(root, words, &name)
        }
        (ErrorKind::UnknownArgument, _) => unknown_argument(root, words, argument),
        (ErrorKind::ArgumentConflict, _) => match context(ContextKind::PriorArg) {
            Some(other) if other.split(' ').next() != Some(argument) => {
                format!("{argument} conflicts with {other}; use only one of them")
            }
            Some(_) | None => format!("{argument} is repeated; use it once"),
        },
        (ErrorKind::InvalidValue, Some(value)) => {
            let valid = match err.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(valid)) => valid.as_slice(),
                _ => &[],
            };
            let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
            let name = argument.trim_matches(['[', ']', '<', '>']);
            let value: String = value.chars().take(80).collect();
            let list = valid.join(", ");
            format!(
                "{name}: {value:?} is not one of {list}{}",
                meant(&value, &valid)
            )
        }
        (ErrorKind::MissingRequiredArgument, _) => {
            let position = Position::after(root, words);
            let (name, example) = missing_operand(position.command);
            format!("{name} is missing; example: {} {example}", position.path)
        }
        _ if !argument.is_empty() => missing_value(root, words, argument),
        _ => {
            let first = err.to_string();
            first.lines().next().unwrap_or_default().to_owned()
        }
    }
}

/// Returns `; did you mean …?`, or nothing.
fn meant(word: &str, known: &[&str]) -> String {
    let similar = similar(word, known);
    similar.map_or_else(String::new, |similar| format!("; did you mean {similar}?"))
}

fn unknown_command(root: &Command, words: &[String], name: &str) -> String {
    let position = Position::after(root, before(words, name));
    let known = position.command.get_subcommands();
    let known: Vec<&str> = known
        .filter(|below| !below.is_hide_set())
        .map(Command::get_name)
        .collect();
    let name: String = name.chars().take(80).collect();
    let hint = match similar(&name, &known) {
        Some(similar) => format!("did you mean {similar}?"),
        None => format!("the commands are {}", known.join(", ")),
    };
    format!("unknown command {name:?}; {hint}")
}

fn unknown_argument(root: &Command, words: &[String], argument: &str) -> String {
    let position = Position::after(root, before(words, argument));
    let lists = format!("`{} --help` lists the flags", position.path);
    if !argument.starts_with('-') {
        // `--register-node true`
        let flag = before(words, argument).last();
        let flag = flag.filter(|flag| {
            let known = position::flag(position.command, flag);
            known.is_some_and(Arg::is_require_equals_set)
        });
        let argument: String = argument.chars().take(80).collect();
        return match flag {
            Some(flag) => {
                format!("unexpected argument {argument:?}; did you mean {flag}={argument}?")
            }
            None => format!("unexpected argument {argument:?}; {lists}"),
        };
    }
    // clap reads `-kubeconfig` as `-k`.
    let word = word_of(words, argument).unwrap_or(argument);
    let word: String = word.split('=').next().unwrap_or_default().chars().collect();
    let word: String = word.chars().take(80).collect();
    let known = position.command.get_arguments();
    let known: Vec<String> = known
        .filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let name = format!("--{}", word.trim_start_matches('-'));
    match similar(&name, &known).filter(|_| word.len() > 2) {
        Some(similar) => format!("unknown flag {word}; did you mean {similar}?"),
        None => format!("unknown flag {word}; {lists}"),
    }
}

/// The words before the one with `argument`.
fn before<'a>(words: &'a [String], argument: &str) -> &'a [String] {
    let at = words.iter().position(|word| is_of(word, argument));
    words.get(..at.unwrap_or(words.len())).unwrap_or_default()
}

fn word_of<'a>(words: &'a [String], argument: &str) -> Option<&'a str> {
    let word = words.iter().find(|word| is_of(word, argument));
    word.map(String::as_str)
}

/// Returns `true` if `word` is `argument`, also with a value, or as the first of several short
/// flags.
fn is_of(word: &str, argument: &str) -> bool {
    let is_short = argument.len() == 2 && !argument.starts_with("--");
    word == argument
        || word
            .strip_prefix(argument)
            .is_some_and(|rest| rest.starts_with('=') || is_short && argument.starts_with('-'))
}

fn missing_value(root: &Command, words: &[String], flag: &str) -> String {
    let position = Position::after(root, words);
    let arg = position::flag(position.command, flag);
    let values = arg.map(Arg::get_possible_values).unwrap_or_default();
    let value = match (values.first(), arg.and_then(Arg::get_value_names)) {
        (Some(value), _) => value.get_name().to_owned(),
        (None, Some([name, ..])) => name.to_string(),
        (None, _) => "VALUE".to_owned(),
    };
    format!("{flag} requires a value; example: {flag} {value}")
}

/// Returns the name of the first operand, and a valid one.
fn missing_operand(command: &Command) -> (String, String) {
    let operand = command.get_arguments().find(|arg| arg.is_positional());
    let names = operand.and_then(Arg::get_value_names).unwrap_or_default();
    let name = names.first().map(ToString::to_string).unwrap_or_default();
    let values = operand.map(Arg::get_possible_values).unwrap_or_default();
    let value = values.first().map(|value| value.get_name().to_owned());
    let example = value.unwrap_or_else(|| name.clone());
    (name, example)
}
