//! The result of one check, as a line or a JSON object.

use std::fmt;

use nodepulse_core::escape::escape_to;
use serde_json::{Value, json};

use super::super::terminal::{Paint, Style, wrap};

/// Maximum length of one text in characters: a verifier log can be long.
const LONGEST: usize = 400;

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

    const fn paint(self) -> Paint {
        match self {
            Self::Ok => Paint::Green,
            Self::Degraded => Paint::Yellow,
            Self::Missing => Paint::Red,
        }
    }
}

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
    pub(super) fn ok(found: impl AsRef<str>) -> Self {
        Self::new(Verdict::Ok, found, "")
    }

    pub(super) fn degraded(found: impl AsRef<str>, cure: impl AsRef<str>) -> Self {
        Self::new(Verdict::Degraded, found, cure)
    }

    pub(super) fn missing(found: impl AsRef<str>, cure: impl AsRef<str>) -> Self {
        Self::new(Verdict::Missing, found, cure)
    }

    pub(super) fn new(verdict: Verdict, found: impl AsRef<str>, cure: impl AsRef<str>) -> Self {
        Self {
            name: String::new(),
            verdict,
            found: escape_to(found.as_ref(), LONGEST),
            cure: escape_to(cure.as_ref(), LONGEST),
        }
    }

    pub(super) fn named(self, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name, ..self }
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

/// All items and a summary: one line each in a file, wrapped on a terminal.
pub(super) fn text(items: &[Item], style: Style) -> String {
    let mut out = String::new();
    for item in items {
        match style.prose() {
            None => out.extend([item.to_string().as_str(), "\n"]),
            Some(width) => wrapped(&mut out, item, style, width),
        }
    }
    out.push('\n');
    let mut summary = String::new();
    wrap(
        &mut summary,
        &self::summary(items),
        0,
        0,
        style.prose().unwrap_or(usize::MAX),
    );
    out.push_str(&style.paint(worst(items).paint(), summary.trim_end()));
    out.push('\n');
    out
}

fn wrapped(out: &mut String, item: &Item, style: Style, width: usize) {
    /// Column at which findings begin.
    const COLUMN: usize = 36;
    /// Column of findings on a narrow terminal, where they are on a separate line.
    const NARROW: usize = 10;

    let verdict = format!("{:<8}", item.verdict.as_str());
    out.push_str(&style.paint(item.verdict.paint(), &verdict));
    out.push_str("  ");
    out.push_str(&item.name);
    let end = NARROW + item.name.chars().count();
    if width < 2 * COLUMN {
        out.push('\n');
        wrap(out, &item.found, 0, NARROW, width);
    } else if end + 2 > COLUMN {
        out.push('\n');
        wrap(out, &item.found, 0, COLUMN, width);
    } else {
        wrap(out, &item.found, end, COLUMN, width);
    }
    if !item.cure.is_empty() {
        let indent = if width < 2 * COLUMN { NARROW } else { COLUMN };
        wrap(out, &format!("To do: {}", item.cure), 0, indent, width);
    }
}

fn count(items: &[Item], verdict: Verdict) -> usize {
    items.iter().filter(|item| item.verdict == verdict).count()
}

fn worst(items: &[Item]) -> Verdict {
    let mut worst = [Verdict::Missing, Verdict::Degraded].into_iter();
    worst
        .find(|verdict| count(items, *verdict) > 0)
        .unwrap_or(Verdict::Ok)
}

/// The number of items with each verdict, and what they mean.
fn summary(items: &[Item]) -> String {
    let (ok, degraded) = (count(items, Verdict::Ok), count(items, Verdict::Degraded));
    let missing = count(items, Verdict::Missing);
    let of_degraded = items
        .iter()
        .filter(|item| item.verdict == Verdict::Degraded);
    let with_remedy = of_degraded.filter(|item| !item.cure.is_empty()).count();
    let meaning = match worst(items) {
        Verdict::Ok => "nodepulse works here without restrictions",
        Verdict::Degraded => "nodepulse works here",
        Verdict::Missing => "nodepulse requires what is missing",
    };
    format!(
        "{missing} missing, {degraded} degraded ({with_remedy} with a remedy), {ok} ok: {meaning}"
    )
}

/// All items, and the worst verdict.
pub(super) fn json(items: &[Item]) -> Value {
    let shown = items.iter().map(|item| {
        json!({
            "name": item.name,
            "verdict": item.verdict.as_str(),
            "found": item.found,
            "toDo": item.cure,
        })
    });
    json!({
        "verdict": worst(items).as_str(),
        "counts": {
            "missing": count(items, Verdict::Missing),
            "degraded": count(items, Verdict::Degraded),
            "ok": count(items, Verdict::Ok),
        },
        "items": shown.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_always_one_line() {
        let log = "line\nline\u{1b}[2J\u{202e}".repeat(1000);
        let line = Item::degraded(&log, &log).named("probe x").to_string();
        assert!(!line.contains(['\n', '\u{1b}', '\u{202e}']), "{line}");
        assert!(line.chars().count() < 3 * LONGEST, "{}", line.len());
        assert!(line.starts_with("degraded  probe x"), "{line}");
    }

    #[test]
    fn a_terminal_wraps_items_and_shows_the_remedy_on_a_separate_line() {
        let items = [
            Item::ok("6.18").named("kernel"),
            Item::degraded("found", "boot another kernel")
                .named("a name that does not fit the column"),
            Item::degraded("refused, which needs no action at all on this machine", "")
                .named("scope"),
        ];
        let style = Style {
            width: Some(80),
            ..Style::PLAIN
        };
        let expected = "\
ok        kernel                    6.18
degraded  a name that does not fit the column
                                    found
                                    To do: boot another kernel
degraded  scope                     refused, which needs no action at all on
                                    this machine

0 missing, 2 degraded (1 with a remedy), 1 ok: nodepulse works here
";
        assert_eq!(text(&items, style), expected);
        let colors = Style {
            colors: true,
            ..style
        };
        assert!(text(&items, colors).starts_with("\u{1b}[1;32mok      \u{1b}[0m  kernel"));
        let longest = |width| {
            let style = Style {
                width: Some(width),
                ..style
            };
            text(&items, style)
                .lines()
                .map(|line| line.chars().count())
                .max()
        };
        assert!(longest(50).unwrap() <= 50);
    }

    #[test]
    fn the_summary_counts_and_judges() {
        let (ok, cured) = (Item::ok("b"), Item::degraded("b", "c"));
        let (uncured, missing) = (Item::degraded("b", ""), Item::missing("b", "c"));
        let rows = [
            (
                vec![ok.clone()],
                "0 missing, 0 degraded (0 with a remedy), 1 ok: nodepulse works here without restrictions",
            ),
            (
                vec![uncured, ok],
                "0 missing, 1 degraded (0 with a remedy), 1 ok: nodepulse works here",
            ),
            (
                vec![cured.clone()],
                "0 missing, 1 degraded (1 with a remedy), 0 ok: nodepulse works here",
            ),
            (
                vec![cured, missing],
                "1 missing, 1 degraded (1 with a remedy), 0 ok: nodepulse requires what is missing",
            ),
        ];
        for (items, expected) in rows {
            assert_eq!(summary(&items), expected);
        }
    }

    #[test]
    fn the_worst_verdict_is_that_of_the_report() {
        let (ok, degraded) = (Item::ok("b"), Item::degraded("b", "c"));
        let missing = Item::missing("b", "c").named("a");
        assert_eq!(json(&[])["verdict"], "ok");
        assert_eq!(json(&[ok.clone(), degraded.clone()])["verdict"], "degraded");
        let all = json(&[ok, missing, degraded]);
        assert_eq!(all["verdict"], "missing");
        let item = json!({"name": "a", "verdict": "missing", "found": "b", "toDo": "c"});
        assert_eq!(all["items"][1], item);
    }
}
