//! Rejects words that no tracked text may contain: a private vocabulary costs every reader, and an
//! operator cannot find it with grep.

use super::Source;
use super::pieces::{Kind, pieces};

/// Comma-separated words and phrases, and what to write instead.
type Rejected = (&'static str, &'static str);

/// Words that are rejected in names and in prose.
#[rustfmt::skip]
const ANYWHERE: &[Rejected] = &[
    ("tell,tells,telling,told,untold,say,says,saying,said",
     "report, log, record, send, print or set; contain; mean"),
    ("look,looks,looked,looking", "sample (of signals), read, check, search"),
    ("hold,holds,held,holding",
     "keep, be in effect, apply, contain; of a condition: is True, is kept True"),
    ("ours", "nodepulse's, the agent's"),
    ("news", "change, message, update"),
    ("whoever,whomever,nobody,somebody,anybody,everybody",
     "the client, another client, no process, \"a pod that\""),
    ("noted", "recorded"),
    ("heard", "received, reported"),
    ("blind,eyes", "source, unavailable, source lost"),
    ("anew", "again"),
    ("beside", "alongside, next to, with"),
    ("rights", "permissions (RBAC), capabilities (Linux), privileges"),
    ("take off,takes off,taking off,took off,taken off", "remove"),
];

/// Words that are rejected in names of files, types, functions and variables only.
#[rustfmt::skip]
const IN_NAMES: &[Rejected] = &[
    ("own", "nodepulse (its conditions and taints), companion (the mode), self (the process)"),
    ("who,whom", "the subject: a client, a pod, a process"),
];

/// Phrases that are rejected in comments, string literals and documents.
#[rustfmt::skip]
const IN_PROSE: &[Rejected] = &[
    ("of its own,of their own,of our own,of your own", "separate, other; nodepulse's"),
    ("our own,own condition,own conditions,own taint,own taints", "nodepulse's"),
    ("for want of", "out of, for lack of"),
    ("from outside", "external, untrusted"),
    ("on paper", "dry run"),
];

/// Phrases in which a rejected word is the standard term.
const STANDARD: &str = "look up,looks up,looked up,looking up,look ups,holding lock,scm rights";

/// Texts of one person's machine or unfinished work, which do not belong in the repository. Each is
/// split in two, so that this file does not contain it.
#[rustfmt::skip]
const BANNED: &[&str] = &[
    concat!("sha", "red/"), concat!("/tmp", "/wt"), concat!("/work", "/main"), concat!("TO", "DO"),
    concat!("FIX", "ME"), concat!("<<<<", "<<<"), concat!("dbg", "!("), concat!("====", "===="),
];

/// Names that are too general for a file: a file is named after its noun.
const FILE_NAMES: &str = "common helper helpers misc mod types util utils";

/// Data, and generated files, whose words are checked at their source.
const NOT_CHECKED: &str = "Cargo.lock LICENSE deploy/packages/musl-copyright deploy/completions/ \
                           deploy/man/ tests/fixtures/ tests/fuzz/corpus/ \
                           xtask/src/tidy/vocabulary.rs";

/// Returns a line for each rejected word, name and text.
pub fn broken(sources: &[Source]) -> Vec<String> {
    let skipped = NOT_CHECKED.split(' ');
    let is_checked = |one: &&Source| !skipped.clone().any(|path| one.path.starts_with(path));
    let checked = sources.iter().filter(is_checked);
    checked.flat_map(of_source).collect()
}

fn of_source(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let lines = || (1..).zip(text.lines());
    let mut names = words(1, path);
    let mut prose = Vec::new();
    for (line, kind, text) in pieces(source) {
        match kind {
            Kind::Name => names.extend(words(line, &text)),
            Kind::Literal | Kind::Comment => prose.extend(words(line, &text)),
        }
    }
    if !source.is_rust() {
        prose.extend(lines().flat_map(|(line, text)| words(line, text)));
    }
    let mut found = hits(&names, [ANYWHERE, IN_NAMES]);
    found.extend(hits(&prose, [ANYWHERE, IN_PROSE]));
    let file = path.rsplit('/').next().unwrap_or_default();
    let is_file = |name| file.strip_suffix(".rs") == Some(name);
    if FILE_NAMES.split(' ').any(is_file) {
        found.push((1, "name it after its noun".to_owned()));
    }
    for (line, text) in lines() {
        let banned = BANNED.iter().filter(|banned| text.contains(**banned));
        found.extend(banned.map(|banned| (line, format!("contains `{banned}`"))));
    }
    found.sort();
    found.dedup();
    let report = |(line, what)| format!("{path}:{line}: {what}");
    found.into_iter().map(report).collect()
}

/// Splits a text into words: `OomKill`, `oom_kill` and `OOM kill` are `oom` and `kill`.
fn words(line: usize, text: &str) -> Vec<(usize, String)> {
    let mut spaced = String::new();
    let mut before = ' ';
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_next_small = letters.peek().is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (!before.is_uppercase() || is_next_small) {
            spaced.push(' ');
        }
        spaced.push(letter);
        before = letter;
    }
    let words = spaced.split(|letter: char| !letter.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    words.map(|word| (line, word.to_lowercase())).collect()
}

/// Finds rejected phrases, also across lines.
fn hits(words: &[(usize, String)], tables: [&[Rejected]; 2]) -> Vec<(usize, String)> {
    let mut text = String::from(" ");
    for (_, word) in words {
        text = text + word + " ";
    }
    for standard in STANDARD.split(',') {
        text = text.replace(&format!(" {standard} "), " - - ");
    }
    let mut hits = Vec::new();
    for (rejected, instead) in tables.into_iter().flatten() {
        for phrase in rejected.split(',') {
            for (at, _) in text.match_indices(&format!(" {phrase} ")) {
                let (line, _) = words[text[..at].matches(' ').count()];
                hits.push((line, format!("`{phrase}`: use {instead}")));
            }
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

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
            let words: Vec<String> = words(1, text).into_iter().map(|(_, word)| word).collect();
            assert_eq!(words.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_word_is_rejected_in_its_place_only() {
        let banned = format!("see {}b", BANNED[0]);
        let table = [
            ("a.rs", "fn told() {}", "a.rs:1: `told`"),
            ("a.rs", "\n// It says so.", "a.rs:2: `says`"),
            ("a.rs", "f(\"it says {x}\")", "a.rs:1: `says`"),
            ("a.md", "What holds\nit", "a.md:1: `holds`"),
            ("a.md", "It\nis Told.", "a.md:2: `told`"),
            ("a.rs", "struct OwnTaint; // its own Node", "a.rs:1: `own`"),
            ("a.md", "its own Node", ""),
            ("a.md", "a thread\nof its\nown", "a.md:2: `of its own`"),
            ("a.rs", "fn look_up() {} // a look-up", ""),
            ("a.rs", "ScmRights(rights)", "a.rs:1: `rights`"),
            ("a/own.rs", "", "a/own.rs:1: `own`"),
            ("a.rs", "let x = to_owned(OwnedFd, household);", ""),
            ("a/util.rs", "", "a/util.rs:1: name it"),
            ("a.md", &banned, "a.md:1: contains"),
        ];
        for (path, text, expected) in table {
            let found = broken(&[source(path, text)]);
            assert_eq!(found.is_empty(), expected.is_empty(), "{text}: {found:?}");
            assert!(
                found.iter().all(|line| line.starts_with(expected)),
                "{found:?}"
            );
        }
    }
}
