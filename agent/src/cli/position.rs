//! The command to which the words of a command line refer.

use clap::{Arg, ArgAction, Command};

#[derive(Debug, Clone)]
pub(super) struct Position<'a> {
    pub(super) command: &'a Command,
    /// The command's name with those of the commands above it: `nodepulse config print`.
    pub(super) path: String,
    /// The next word is the value of a flag.
    is_value: bool,
}

impl<'a> Position<'a> {
    /// The position after `words`, which follow the name of the program.
    pub(super) fn after(root: &'a Command, words: &[String]) -> Self {
        let mut position = Self {
            command: root,
            path: root.get_name().to_owned(),
            is_value: false,
        };
        for word in words {
            position.next(word);
        }
        position
    }

    fn next(&mut self, word: &str) {
        if std::mem::take(&mut self.is_value) {
            return;
        }
        if word.len() > 1 && word.starts_with('-') {
            let has_value = match word.strip_prefix("--") {
                Some(long) => long.contains('='),
                None => word.len() > 2,
            };
            let flag = flag(self.command, word);
            self.is_value = !has_value && flag.is_some_and(takes_next_word);
        } else if let Some(below) = self.command.find_subcommand(word) {
            self.command = below;
            self.path = format!("{} {word}", self.path);
        }
    }
}

/// Returns `true` if the value of `flag` is the next word, if it does not follow `=`.
fn takes_next_word(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append) && !flag.is_require_equals_set()
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
