//! Configuration errors: one line with the key, the value and a valid example.

use std::io;
use std::path::{Path, PathBuf};

use super::nearest::nearest;
use super::table::{KEYS, REMOVED};
use super::{API_VERSION, KIND};

/// Maximum length of a value in an error, in characters.
const LONGEST_VALUE: usize = 80;
/// Maximum length of a key or an explanation in an error.
const LONGEST_TEXT: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path:?} ({source}); set a readable file with {flag}")]
    Read {
        path: PathBuf,
        flag: &'static str,
        source: io::Error,
    },
    /// The file is not YAML, or a key has a value of the wrong kind.
    #[error("{path:?}, line {line}: {text:?}: {why}; example: {example}")]
    Syntax {
        path: PathBuf,
        /// The line, from one; zero if unknown.
        line: u64,
        text: String,
        why: String,
        example: String,
    },
    #[error("{path:?}, line {line}: unknown key {key:?}; the nearest known key is {nearest}")]
    UnknownKey {
        path: PathBuf,
        /// The line, from one.
        line: u64,
        key: String,
        nearest: String,
    },
    /// A key of an earlier release.
    #[error("{origin} was removed: {instead}")]
    RemovedKey {
        /// The key and the line of a file, or the environment variable.
        origin: String,
        instead: &'static str,
    },
    #[error("{origin}: {value:?} {why}; example: {example}")]
    Value {
        /// The key in the file, the flag, or the environment variable.
        origin: String,
        value: String,
        why: String,
        example: String,
    },
}

impl ConfigError {
    pub(super) fn value(key: &str, origin: &str, value: &str, why: &str) -> Self {
        Self::Value {
            origin: one_line(origin),
            value: shortened(value, LONGEST_VALUE),
            why: one_line(why),
            example: example(key),
        }
    }

    /// A file of another kind: `key` at its head must have the value `want`.
    pub(super) fn head(key: &str, path: &Path, value: &str, want: &str) -> Self {
        Self::Value {
            origin: one_line(&format!("{key} in {}", path.display())),
            value: shortened(value, LONGEST_VALUE),
            why: format!("is not {want}"),
            example: format!("{key}: {want}"),
        }
    }

    /// An unknown key, with the block that it is in, such as `oom.`.
    pub(super) fn unknown_key(
        (path, line): (&Path, u64),
        block: &str,
        key: &str,
        known: &[&str],
    ) -> Self {
        let whole = format!("{block}{key}");
        if let Some((name, instead)) = REMOVED.iter().find(|(name, _)| *name == whole) {
            return Self::RemovedKey {
                origin: format!("{name} in {}, line {line},", path.display()),
                instead,
            };
        }
        let key = shortened(key, LONGEST_VALUE);
        Self::UnknownKey {
            path: path.to_owned(),
            line,
            nearest: nearest(&key, known).to_owned(),
            key,
        }
    }

    pub(super) fn syntax(path: &Path, line: u64, text: &str, why: &str) -> Self {
        let key = text.trim_start_matches([' ', '-']);
        let key = key.split(':').next().unwrap_or_default();
        Self::Syntax {
            path: path.to_owned(),
            line,
            text: shortened(text.trim(), LONGEST_VALUE),
            why: one_line(why),
            example: example(key),
        }
    }
}

/// Returns a valid example of a key or a block, or the file's head if neither is known.
fn example(key: &str) -> String {
    let known = KEYS.iter().find(|spec| is_at_or_below(key, spec.name));
    let below = || KEYS.iter().find(|spec| is_at_or_below(spec.name, key));
    match known.or_else(below) {
        Some(spec) => spec.example(),
        None if key == "kind" => format!("{key}: {KIND}"),
        None => format!("apiVersion: {API_VERSION}"),
    }
}

/// Returns `true` if `key` is `of`, or an entry or a key in it.
fn is_at_or_below(key: &str, of: &str) -> bool {
    key.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Escapes control characters and bidirectional marks: a key must not imitate another message.
pub(super) fn one_line(text: &str) -> String {
    let text = shortened(text, LONGEST_TEXT);
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        // Invisible characters are escaped, but not quotes and backslashes.
        if c.is_control() || c.escape_debug().len() > 2 {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    line
}

fn shortened(text: &str, limit: usize) -> String {
    let mut cut: String = text.chars().take(limit).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_bounded_line() {
        let key = "\u{202e}\n\u{1}'k".repeat(1000);
        let value = ConfigError::value(&key, &key, &key, &key);
        let unknown = ConfigError::unknown_key((Path::new("/f"), 1), "", &key, &["mode"]);
        for line in [value, unknown].map(|err| err.to_string()) {
            let shown = line.chars().all(|c| !c.is_control() && c != '\u{202e}');
            assert!(shown && line.contains("'k"), "{line}");
            assert!(line.len() < 4000, "{}", line.len());
        }
    }

    #[test]
    fn the_example_is_that_of_the_key() {
        #[rustfmt::skip]
        let rows = [
            ("maxPods", "maxPods: 110"),
            ("evictionHard.memory.available", "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}"),
            ("evictionSoftGracePeriod.a", "evictionSoftGracePeriod: {memory.available: 1m30s}"),
            ("diskIO.rotational.slow", "diskIO: {rotational: {slow: 100ms}}"),
            ("diskIO.devices.sda.slow", "diskIO: {devices: {sda: {slow: 50ms}}}"),
            ("diskIO", "diskIO: {solidState: {slow: 20ms}}"),
            ("kind", "kind: NodepulseConfiguration"),
            ("nonsense", "apiVersion: nodepulse.dev/v1alpha1"),
        ];
        for (key, expected) in rows {
            assert_eq!(example(key), expected, "{key}");
        }
    }
}
