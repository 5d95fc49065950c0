//! The result of one check, as a line or a JSON object.

use std::fmt;

use serde_json::{Value, json};

use crate::escape::escape_to;

/// Maximum characters of one text: a verifier log can be long.
const LONGEST: usize = 400;

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No restriction.
    Ok,
    /// A fallback is used, or a feature is missing.
    Degraded,
    /// The configured mode requires it.
    Missing,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// One checked item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// The finding, escaped.
    pub(super) found: String,
    /// The remedy, escaped; empty if none is needed.
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
        let verdict = self.verdict.as_str();
        write!(f, "{verdict:<8}  {:<28}  {}", self.name, self.found)?;
        if self.cure.is_empty() {
            return Ok(());
        }
        write!(f, "; to do: {}", self.cure)
    }
}

/// All items, and the worst verdict.
pub(super) fn json(items: &[Item]) -> Value {
    let worst = [Verdict::Missing, Verdict::Degraded];
    let worst = worst
        .into_iter()
        .find(|verdict| items.iter().any(|item| item.verdict == *verdict));
    let shown = items.iter().map(|item| {
        json!({
            "name": item.name,
            "verdict": item.verdict.as_str(),
            "found": item.found,
            "toDo": item.cure,
        })
    });
    json!({
        "verdict": worst.unwrap_or(Verdict::Ok).as_str(),
        "items": shown.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_always_one_line() {
        let log = "line\nline\u{1b}[2J\u{202e}".repeat(1000);
        let line = Item::degraded("probe x", &log, &log).to_string();
        assert!(!line.contains(['\n', '\u{1b}', '\u{202e}']), "{line}");
        assert!(line.chars().count() < 3 * LONGEST, "{}", line.len());
        assert!(line.starts_with("degraded  probe x"), "{line}");
    }

    #[test]
    fn the_worst_verdict_is_that_of_the_report() {
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
