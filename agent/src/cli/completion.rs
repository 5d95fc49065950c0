//! `nodepulse completion`, and the words that can follow those of a command line.
//!
//! The scripts of the shells call `nodepulse __complete -- WORD...`, whose last word is incomplete.
//! It prints a line for each word that can stand there, with a description after a tab; or `:file`
//! or `:directory`, which shells complete themselves.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Arg, Args, Command, ValueEnum};

use super::position::{self, Position, takes_value};
use super::terminal::print;
use crate::config::{Form, Json, KEYS, Scalar};

/// Flags of `completion`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A shell with completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// The Z shell.
    Zsh,
    /// Fish.
    Fish,
}

impl Shell {
    pub const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("../../../deploy/completions/nodepulse.bash"),
            Self::Zsh => include_str!("../../../deploy/completions/_nodepulse"),
            Self::Fish => include_str!("../../../deploy/completions/nodepulse.fish"),
        }
    }
}

/// Words of an incomplete command line.
#[derive(Debug, Args)]
pub struct Incomplete {
    #[arg(value_name = "WORD")]
    words: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    print(arguments.shell.script())
}

/// Prints the candidates for the last word.
pub fn complete(arguments: &Incomplete) -> ExitCode {
    let mut root = super::command();
    root.build();
    let words = arguments.words.iter();
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into()).collect();
    let lines = candidates(&root, &words);
    let lines = lines
        .into_iter()
        .map(|(word, meaning)| match meaning.as_str() {
            "" => format!("{word}\n"),
            meaning => format!("{word}\t{meaning}\n"),
        });
    print(&lines.collect::<String>())
}

type Candidate = (String, String);

fn candidates(root: &Command, words: &[String]) -> Vec<Candidate> {
    let (words, is_split) = joined(words);
    let Some((current, before)) = words.split_last() else {
        return Vec::new();
    };
    let position = Position::after(root, before);
    let found = if let Some(flag) = position.waiting {
        values(flag, current)
    } else if let (true, Some((name, value))) = (current.starts_with("--"), current.split_once('='))
    {
        let flag = position::flag(position.command, name).filter(|flag| takes_value(flag));
        let found = flag.map(|flag| values(flag, value)).unwrap_or_default();
        let with_flag = |(word, meaning): Candidate| {
            if is_split || word.starts_with(':') {
                (word, meaning)
            } else {
                (format!("{name}={word}"), meaning)
            }
        };
        return found.into_iter().map(with_flag).collect();
    } else if current.starts_with('-') {
        flags(&position)
    } else {
        operands(&position, current)
    };
    let matches = |(word, _): &Candidate| word.starts_with(':') || word.starts_with(&**current);
    found.into_iter().filter(matches).collect()
}

/// Joins words that bash has split at `=`. The flag is `true` if the last one was split.
fn joined(words: &[String]) -> (Vec<String>, bool) {
    let mut all: Vec<String> = Vec::new();
    let mut is_split = false;
    let mut after_sign = false;
    for word in words {
        let is_sign = word == "=";
        let last = all.last_mut().filter(|last| last.starts_with("--"));
        match last {
            Some(last) if is_sign || after_sign => {
                last.push_str(word);
                is_split = true;
            }
            Some(_) | None => {
                all.push(word.clone());
                is_split = false;
            }
        }
        after_sign = is_sign;
    }
    (all, is_split)
}

fn flags(position: &Position<'_>) -> Vec<Candidate> {
    let shown = position.command.get_arguments();
    let shown = shown.filter(|arg| !arg.is_hide_set());
    let shown = shown.filter(|arg| !position.given.contains(&arg.get_id().as_str()));
    let flag = |arg: &Arg| Some((format!("--{}", arg.get_long()?), help(arg)));
    shown.filter_map(flag).collect()
}

fn help(arg: &Arg) -> String {
    let spec = KEYS.iter().find(|spec| spec.name == arg.get_id().as_str());
    match spec {
        Some(spec) => spec.help.to_owned(),
        None => arg.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

fn operands(position: &Position<'_>, current: &str) -> Vec<Candidate> {
    let below = position.command.get_subcommands();
    let below = below.filter(|below| !below.is_hide_set() && position.operands == 0);
    let about = |of: &Command| of.get_about().map(ToString::to_string);
    let below = below.map(|of| (of.get_name().to_owned(), about(of).unwrap_or_default()));
    let mut positional = position
        .command
        .get_arguments()
        .filter(|arg| arg.is_positional());
    let values = positional
        .nth(position.operands)
        .map(|arg| values(arg, current));
    below.chain(values.unwrap_or_default()).collect()
}

/// The values of `arg` that begin with `current`.
fn values(arg: &Arg, current: &str) -> Vec<Candidate> {
    let spec = KEYS.iter().find(|spec| spec.name == arg.get_id().as_str());
    if let Some(Form::List(Scalar {
        json: Json::Values(known),
        ..
    })) = spec.map(|spec| spec.form)
    {
        let end = current.rfind(',').map_or(0, |at| at + 1);
        let (before, current) = current.split_at(end);
        let found = starting(&known(), current).into_iter();
        return found
            .map(|(word, meaning)| (format!("{before}{word}"), meaning))
            .collect();
    }
    let known = arg.get_possible_values();
    let names = arg.get_value_names().unwrap_or_default();
    match names.first().map(ToString::to_string).as_deref() {
        _ if !known.is_empty() => starting(&known, current),
        Some("FILE") => vec![(":file".to_owned(), String::new())],
        Some("DIR" | "PATH") => vec![(":directory".to_owned(), String::new())],
        Some(_) | None => Vec::new(),
    }
}

fn starting(known: &[PossibleValue], current: &str) -> Vec<Candidate> {
    let known = known
        .iter()
        .filter(|value| value.get_name().starts_with(current));
    let candidate = |value: &PossibleValue| {
        let help = value.get_help().map(ToString::to_string);
        (value.get_name().to_owned(), help.unwrap_or_default())
    };
    known.map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<String> {
        let mut root = super::super::command();
        root.build();
        let line: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
        let found = candidates(&root, &line).into_iter();
        found.map(|(word, _)| word).collect()
    }

    #[test]
    fn the_position_decides_what_can_follow() {
        let rows: [(&[&str], &[&str]); 21] = [
            (&["ch"], &["check"]),
            (&["config", "p"], &["print"]),
            (&["config", "print", "--mode", ""], &["companion", "node"]),
            (&["run", "--mode", "n"], &["node"]),
            (&["run", "--mode=n"], &["--mode=node"]),
            // As bash splits it.
            (&["run", "--mode", "=", "n"], &["node"]),
            (&["run", "--mode", "="], &["companion", "node"]),
            (
                &["run", "--register-node="],
                &["--register-node=true", "--register-node=false"],
            ),
            (&["run", "--register-node", "=", "f"], &["false"]),
            (
                &["run", "--mode", "node", "--kube"],
                &["--kubelet-config", "--kubeconfig", "--kube-reserved"],
            ),
            (&["run", "--once", "--on"], &[]),
            (&["run", "--kubeconfig", ""], &[":file"]),
            (&["run", "--config=/etc/"], &[":file"]),
            (&["explain", "--state-directory", "/r"], &[":directory"]),
            (
                &["explain", "Mem"],
                &["MemoryLow", "MemoryStallPressure", "MemoryPressure"],
            ),
            (&["explain", "MemoryLow", ""], &[]),
            (&["check", "-o", ""], &["text", "json"]),
            (&["check", "--take"], &[]),
            (&["completion", ""], &["bash", "zsh", "fish"]),
            (
                &["run", "--enforce-node-allocatable", "none,po"],
                &["none,pods"],
            ),
            (&["run", "--node-name", ""], &[]),
        ];
        for (line, expected) in rows {
            assert_eq!(words(line), expected, "{line:?}");
        }
        assert!(!words(&[""]).iter().any(|word| word.starts_with('_')));
    }
}
