//! The daemon's explanation of its conditions on a terminal.

use nodepulse_core::explanation::{Explanation, Line, Tone};

use super::terminal::{Paint, Style, wrap};

/// Columns without a terminal.
const WIDTH: usize = 80;

/// Each condition with its signals, causes and changes.
pub(super) fn text(explanation: &Explanation, style: Style) -> String {
    let width = style.prose().unwrap_or(WIDTH);
    let mut out = String::new();
    for line in explanation.lines() {
        match line {
            Line::Gap => out.push('\n'),
            // Not wrapped: colors have no width.
            Line::Condition {
                type_,
                status,
                tone,
                rest,
            } => {
                let color = match tone {
                    Tone::Healthy => Paint::Green,
                    Tone::Unknown => Paint::Yellow,
                    Tone::Problem => Paint::Red,
                };
                let (type_, status) = (
                    style.paint(Paint::Bold, &type_),
                    style.paint(color, &status),
                );
                let line = format!("{type_} is {status} {rest}\n");
                out.push_str(&line);
            }
            Line::Text { indent, text } => {
                let mut wrapped = String::new();
                wrap(&mut wrapped, &text, indent, indent + 2, width);
                out.extend(std::iter::repeat_n(' ', indent));
                // The first line begins before the others.
                out.push_str(wrapped.trim_start());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_fits_the_terminal() {
        let explanation = json!({
            "node": "n", "at": "t", "transitionPeriodSeconds": 300, "blockedCalls": [],
            "missingCredentials": "",
            "conditions": [{
                "type": "MemoryPressure", "status": "True", "reason": "Low", "message": "m",
                "since": "t0",
                "because": ["it was low, which is a sentence that is longer than a line can be"],
            }, { "type": "Ready", "status": "True", "reason": "R", "message": "m", "since": "t3" }],
        });
        let explanation: Explanation = serde_json::from_value(explanation).unwrap();
        let narrow = Style {
            width: Some(50),
            ..Style::PLAIN
        };
        let expected = "\
MemoryPressure is True (Low) since t0
  m
  cause: it was low, which is a sentence that is
    longer than a line can be

Ready is True (R) since t3
  m
";
        assert_eq!(text(&explanation, narrow), expected);
        let colors = Style {
            colors: true,
            ..Style::PLAIN
        };
        let colored = text(&explanation, colors);
        for status in ["1;31mTrue\u{1b}[0m (Low)", "1;32mTrue\u{1b}[0m (R)"] {
            assert!(colored.contains(status), "{colored}");
        }
    }
}
