//! One line, or one object, a thing that was looked at.

use std::fmt;

use serde_json::{Value, json};

use crate::escape::escape_to;

/// Characters of one text: the verifier's log can be long.
const LONGEST: usize = 400;

/// What something came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As good as it gets.
    Ok,
    /// There is another way, or something is left out.
    Degraded,
    /// The configured mode cannot do its job without.
    Missing,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// What was found, escaped.
    pub(super) found: String,
    /// What to do about it, escaped; empty where there is nothing to do.
    pub(super) cure: String,
}

impl Item {
    pub(super) fn ok(name: &str, found: impl AsRef<str>) -> Self {
        Self::new(name, Verdict::Ok, found.as_ref(), "")
    }

    pub(super) fn degraded(name: &str, found: impl AsRef<str>, cure: &str) -> Self {
        Self::new(name, Verdict::Degraded, found.as_ref(), cure)
    }

    pub(super) fn missing(name: &str, found: impl AsRef<str>, cure: &str) -> Self {
        Self::new(name, Verdict::Missing, found.as_ref(), cure)
    }

    pub(super) fn new(name: &str, verdict: Verdict, found: &str, cure: &str) -> Self {
        Self {
            name: name.to_owned(),
            verdict,
            found: escape_to(found, LONGEST),
            cure: escape_to(cure, LONGEST),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.verdict.word();
        write!(f, "{verdict:<8}  {:<28}  {}", self.name, self.found)?;
        if self.cure.is_empty() {
            return Ok(());
        }
        write!(f, "; to do: {}", self.cure)
    }
}

/// All of them, and the worst.
pub(super) fn json(items: &[Item]) -> Value {
    let worst = [Verdict::Missing, Verdict::Degraded];
    let worst = worst
        .into_iter()
        .find(|verdict| items.iter().any(|item| item.verdict == *verdict));
    let shown = items.iter().map(|item| {
        json!({
            "name": item.name,
            "verdict": item.verdict.word(),
            "found": item.found,
            "toDo": item.cure,
        })
    });
    json!({
        "verdict": worst.unwrap_or(Verdict::Ok).word(),
        "items": shown.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_one_line_whatever_was_found() {
        let log = "line\nline\u{1b}[2J\u{202e}".repeat(1000);
        let line = Item::degraded("probe x", &log, &log).to_string();
        assert!(!line.contains(['\n', '\u{1b}', '\u{202e}']), "{line}");
        assert!(line.chars().count() < 3 * LONGEST, "{}", line.len());
        assert!(line.starts_with("degraded  probe x"), "{line}");
    }

    #[test]
    fn the_worst_verdict_is_that_of_the_whole() {
        let (ok, degraded) = (Item::ok("a", "b"), Item::degraded("a", "b", "c"));
        let missing = Item::missing("a", "b", "c");
        assert_eq!(json(&[])["verdict"], "ok");
        assert_eq!(json(&[ok.clone(), degraded.clone()])["verdict"], "degraded");
        let all = json(&[ok, missing, degraded]);
        assert_eq!(all["verdict"], "missing");
        let item = json!({"name": "a", "verdict": "missing", "found": "b", "toDo": "c"});
        assert_eq!(all["items"][1], item);
    }
}
