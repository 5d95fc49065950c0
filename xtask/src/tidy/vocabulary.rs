//! Words that no tracked text may contain: a private vocabulary costs every reader, and an operator
//! does not find it with grep.

use super::Source;
use super::code::{code_only, prose_only};

mod tables;

use tables::{ALLOWED, NOT_CHECKED, NOT_CONVERTED, Place, REJECTED, STANDARD};

/// Words or phrases with one replacement.
pub struct Rejected {
    words: &'static [&'static str],
    place: Place,
    instead: &'static str,
}

/// An exception.
pub struct Allowed {
    path: &'static str,
    words: &'static [&'static str],
    reason: &'static str,
}

/// A part of a text between two separators, or of a name between two capitals.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    line: usize,
    text: String,
    /// As in the name of a type: `Gone`, not `gone` or `GONE`.
    is_capitalised: bool,
}

impl Token {
    fn new(line: usize, text: &str) -> Self {
        let mut chars = text.chars();
        let first = chars.next().is_some_and(char::is_uppercase);
        Self {
            line,
            text: text.to_lowercase(),
            is_capitalised: first && !chars.any(char::is_uppercase),
        }
    }
}

/// One rejected word.
struct Hit {
    line: usize,
    word: &'static str,
    instead: &'static str,
}

/// A line for each rejected word, and for each exception without one.
pub fn broken(sources: &[Source]) -> Vec<String> {
    let checked = sources
        .iter()
        .filter(|source| !is_below(&source.path, NOT_CHECKED))
        .filter(|source| !is_below(&source.path, NOT_CONVERTED));
    let mut broken = rejected(checked, ALLOWED);
    broken.sort();
    broken
}

/// A line for each entry of [`NOT_CONVERTED`] whose files contain no rejected word.
pub fn notes(sources: &[Source]) -> Vec<String> {
    let converted = |path: &&&str| {
        let below = |source: &&Source| is_below(&source.path, &[**path]);
        sources
            .iter()
            .filter(below)
            .all(|source| hits(source).is_empty())
    };
    let line =
        |path: &&str| format!("{path}: contains no rejected word: remove it from NOT_CONVERTED");
    NOT_CONVERTED.iter().filter(converted).map(line).collect()
}

fn rejected<'a>(sources: impl Iterator<Item = &'a Source>, allowed: &[Allowed]) -> Vec<String> {
    let mut used = vec![false; allowed.len()];
    let mut broken = Vec::new();
    for source in sources {
        for Hit {
            line,
            word,
            instead,
        } in hits(source)
        {
            let exception = allowed.iter().position(|entry| {
                is_below(&source.path, &[entry.path]) && entry.words.contains(&word)
            });
            match exception {
                Some(at) => used[at] = true,
                None => broken.push(format!("{}:{line}: `{word}`: use {instead}", source.path)),
            }
        }
    }
    let unused = allowed.iter().zip(used).filter(|(_, used)| !used);
    broken.extend(unused.map(|(Allowed { path, reason, .. }, _)| {
        format!("{path}:1: does not need the exception \"{reason}\": remove it")
    }));
    broken
}

/// Whether `path` is one of `paths`, or in a folder that is.
fn is_below(path: &str, paths: &[&str]) -> bool {
    let matches = |entry: &&str| path == *entry || entry.ends_with('/') && path.starts_with(*entry);
    paths.iter().any(matches)
}

fn hits(source: &Source) -> Vec<Hit> {
    let mut hits = find(&tokens(&source.path, 1), Place::Name);
    if source.is_rust() {
        hits.extend(find(&of_lines(&code_only(&source.text)), Place::Name));
        hits.extend(find(&of_lines(&prose_only(&source.text)), Place::Prose));
    } else {
        hits.extend(find(&of_lines(&source.text), Place::Prose));
    }
    hits
}

fn of_lines(text: &str) -> Vec<Token> {
    let lines = text.lines().enumerate();
    lines.flat_map(|(n, line)| tokens(line, n + 1)).collect()
}

/// `OomKill`, `oom_kill` and `OOM kill` are the tokens `oom` and `kill`.
fn tokens(text: &str, line: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()) {
        let mut token = String::new();
        let mut chars = run.chars().peekable();
        let mut before = None;
        while let Some(c) = chars.next() {
            let after_small = before.is_some_and(|b: char| !b.is_uppercase());
            let before_small = chars.peek().is_some_and(|next| next.is_lowercase());
            if c.is_uppercase() && (after_small || before_small) && !token.is_empty() {
                tokens.push(Token::new(line, &token));
                token.clear();
            }
            token.push(c);
            before = Some(c);
        }
        if !token.is_empty() {
            tokens.push(Token::new(line, &token));
        }
    }
    tokens
}

/// Words and phrases that are rejected in `place`; a phrase may continue on the next line.
fn find(tokens: &[Token], place: Place) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if is_standard(tokens, at) {
            continue;
        }
        for entry in REJECTED {
            let applies = match entry.place {
                Place::Anywhere => true,
                Place::Type => place == Place::Name && token.is_capitalised,
                other => other == place,
            };
            let found = entry
                .words
                .iter()
                .filter(|phrase| begins(tokens, at, phrase));
            hits.extend(found.filter(|_| applies).map(|word| Hit {
                line: token.line,
                word,
                instead: entry.instead,
            }));
        }
    }
    hits
}

fn begins(tokens: &[Token], at: usize, phrase: &str) -> bool {
    let words: Vec<&str> = phrase.split(' ').collect();
    let found = tokens.iter().skip(at).take(words.len());
    found.map(|token| &*token.text).eq(words)
}

/// Whether the token is a part of a phrase that is a standard term.
fn is_standard(tokens: &[Token], at: usize) -> bool {
    STANDARD.iter().any(|phrase| {
        let len = phrase.split(' ').count();
        (at.saturating_sub(len - 1)..=at).any(|first| begins(tokens, first, phrase))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn words(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let hits = hits(&source(path, text));
        hits.into_iter().map(|hit| (hit.line, hit.word)).collect()
    }

    #[test]
    fn a_name_is_split_at_underscores_and_capitals() {
        let table = [
            ("fn tell_pod()", "fn tell pod"),
            ("OwnCondition", "own condition"),
            ("PIDsLow OOMKill v2", "pi ds low oom kill v2"),
            ("toOwned to_owned", "to owned to owned"),
            ("", ""),
        ];
        for (text, expected) in table {
            let found: Vec<String> = tokens(text, 1).into_iter().map(|t| t.text).collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_word_is_rejected_in_its_place_only() {
        type Row = (&'static str, &'static str, &'static [(usize, &'static str)]);
        let table: [Row; 14] = [
            ("a.rs", "fn told() {}", &[(1, "told")]),
            ("a.rs", "\n// It says so.", &[(2, "says")]),
            ("a.rs", "f(\"it says {x}\")", &[(1, "says")]),
            (
                "a.md",
                "What holds\nand is Told.",
                &[(1, "holds"), (2, "told")],
            ),
            ("a.rs", "struct OwnTaint; // its own Node", &[(1, "own")]),
            ("a.md", "its own Node", &[]),
            ("a.md", "a thread\nof its\nown", &[(2, "of its own")]),
            ("a.rs", "/// a thread of\n/// its own", &[(1, "of its own")]),
            ("a.rs", "fn look_up() {} // a look-up", &[]),
            (
                "a.rs",
                "enum Stay { Gone } // Gone",
                &[(1, "stay"), (1, "gone")],
            ),
            ("a.rs", "let gone = GONE; // so they stay", &[]),
            ("a.rs", "ScmRights(rights)", &[(1, "rights")]),
            ("a/own.rs", "", &[(1, "own")]),
            ("a.rs", "let x = to_owned(OwnedFd, household);", &[]),
        ];
        for (path, text, expected) in table {
            assert_eq!(words(path, text), expected, "{text}");
        }
    }

    #[test]
    fn an_error_names_file_line_word_and_replacement() {
        let sources = [source("docs/a.md", "fine\nopened anew\n")];
        let expected = ["docs/a.md:2: `anew`: use again"];
        assert_eq!(rejected(sources.iter(), &[]), expected);
    }

    #[test]
    fn an_exception_is_for_its_words_in_its_path_and_must_be_needed() {
        let held = |path| Allowed {
            path,
            words: &["held"],
            reason: "a lock",
        };
        let sources = [source("a/b.md", "a held lock"), source("c.md", "held")];
        let other = [
            "c.md:1: `held`: use keep, be in effect, apply, contain; of a condition: is True, is kept True",
        ];
        assert_eq!(rejected(sources.iter(), &[held("a/")]), other);
        assert_eq!(rejected(sources.iter(), &[held("a/b.md")]), other);
        let unused = "a/c.md:1: does not need the exception \"a lock\": remove it".to_owned();
        assert!(rejected(sources.iter(), &[held("a/c.md")]).contains(&unused));
    }

    #[test]
    fn each_table_is_consistent() {
        for entry in REJECTED {
            for word in entry.words {
                assert_eq!(*word, word.to_lowercase(), "{word}");
                let again = words("a.md", entry.instead);
                assert!(again.is_empty(), "{word} is replaced with {again:?}");
            }
        }
        for entry in ALLOWED {
            assert!(
                !entry.reason.is_empty() && !entry.words.is_empty(),
                "{}",
                entry.path
            );
        }
    }
}
