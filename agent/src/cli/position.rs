//! The position after some words of a command line: the command, and the flag that has no value
//! yet.

use clap::{Arg, ArgAction, Command};

#[derive(Debug, Clone)]
pub(super) struct Position<'a> {
    pub(super) command: &'a Command,
    /// The command's name with those of the commands above it: `nodepulse config print`.
    pub(super) path: String,
    /// The flag whose value is the next word.
    pub(super) waiting: Option<&'a Arg>,
    pub(super) given: Vec<&'a str>,
    /// Number of words that are no flags.
    pub(super) operands: usize,
}

impl<'a> Position<'a> {
    /// The position after `words`, which follow the name of the program.
    pub(super) fn after(root: &'a Command, words: &[String]) -> Self {
        let mut position = Self {
            command: root,
            path: root.get_name().to_owned(),
            waiting: None,
            given: Vec::new(),
            operands: 0,
        };
        for word in words {
            position.next(word);
        }
        position
    }

    fn next(&mut self, word: &str) {
        if self.waiting.take().is_some() {
            return;
        }
        if word.len() > 1 && word.starts_with('-') {
            let Some(flag) = flag(self.command, word) else {
                return;
            };
            self.given.push(flag.get_id().as_str());
            let has_value = match word.strip_prefix("--") {
                Some(long) => long.contains('='),
                None => word.len() > 2,
            };
            if takes_next_word(flag) && !has_value {
                self.waiting = Some(flag);
            }
        } else if let Some(below) = self.command.find_subcommand(word) {
            self.command = below;
            self.path = format!("{} {word}", self.path);
            self.given.clear();
        } else {
            self.operands += 1;
        }
    }
}

/// Returns `true` if the value of `flag` is the next word, if it does not follow `=`.
pub(super) fn takes_next_word(flag: &Arg) -> bool {
    takes_value(flag) && !flag.is_require_equals_set()
}

pub(super) fn takes_value(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The flag in a word such as `--mode`, `--mode=node`, `-o` or `-ojson`.
pub(super) fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut flags = command.get_arguments().filter(|arg| !arg.is_positional());
    let Some(long) = word.strip_prefix("--") else {
        let short = word.chars().nth(1);
        return flags.find(|arg| short.is_some() && arg.get_short() == short);
    };
    let name = long.split('=').next().unwrap_or_default();
    flags.find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    })
}
