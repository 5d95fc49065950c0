//! The terminal: its width, its colours, and lines that fit.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use rustix::termios::tcgetwinsize;

use super::settings::variable;

/// Width if there is no terminal.
const USUAL: usize = 80;
/// Narrower and wider terminals are treated like these.
const WIDTHS: (usize, usize) = (40, 120);

/// A color of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Red,
    Yellow,
    Green,
}

/// How to print on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    /// Maximum width of a line; `None` if no terminal wraps it.
    pub(super) width: Option<usize>,
    /// Whether to print in color.
    pub(super) colors: bool,
}

impl Style {
    /// Of a file or a pipe.
    pub(super) const PLAIN: Self = Self {
        width: None,
        colors: false,
    };

    /// Of this process. Colors are for terminals, unless `NO_COLOR` is set.
    pub(super) fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
        Self {
            width: Some(width()),
            colors: !is_set("NO_COLOR") && !is_dumb,
        }
    }

    /// `text` in bold and in `color`.
    pub(super) fn paint(self, color: Color, text: &str) -> String {
        let code = match color {
            Color::Red => 31,
            Color::Yellow => 33,
            Color::Green => 32,
        };
        self.with_code(text, &format!("1;{code}"))
    }

    /// `text` in bold.
    pub(super) fn bold(self, text: &str) -> String {
        self.with_code(text, "1")
    }

    fn with_code(self, text: &str, code: &str) -> String {
        if self.colors {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The width of the terminal on standard output, or the usual one.
pub(super) fn width() -> usize {
    let of_variable = || variable("COLUMNS")?.parse::<usize>().ok();
    let of_terminal = || {
        let size = tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    let (least, most) = WIDTHS;
    let width = of_terminal().or_else(of_variable).unwrap_or(USUAL);
    width.clamp(least, most)
}

/// Appends `text`, whose lines begin with `indent` spaces and, as far as its words allow, end before
/// `width`. The first line continues one that has `column` characters already.
pub(super) fn wrap(out: &mut String, text: &str, column: usize, indent: usize, width: usize) {
    let mut at = column;
    let mut is_first = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let len = word.chars().count();
        if is_first {
            out.extend(std::iter::repeat_n(' ', indent.saturating_sub(at)));
            at = at.max(indent);
        } else if at + 1 + len > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            at = indent;
        } else {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += len;
        is_first = false;
    }
    out.push('\n');
}

/// Prints `text` on standard output.
pub(super) fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(err) => super::fail(&format!("cannot print: {err}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_before_the_width_and_begin_with_the_indentation() {
        let rows = [
            ("a bb ccc", 0, 0, 80, "a bb ccc\n"),
            ("a bb ccc", 0, 2, 6, "  a bb\n  ccc\n"),
            ("a bb ccc", 4, 4, 7, "a\n    bb\n    ccc\n"),
            ("unbreakable x", 0, 1, 5, " unbreakable\n x\n"),
            ("", 0, 4, 80, "\n"),
        ];
        for (text, column, indent, width, expected) in rows {
            let mut out = String::new();
            wrap(&mut out, text, column, indent, width);
            assert_eq!(out, expected, "{text:?} {indent} {width}");
        }
    }

    #[test]
    fn only_a_style_with_colors_prints_them() {
        assert_eq!(Style::PLAIN.paint(Color::Red, "missing"), "missing");
        let style = Style {
            width: None,
            colors: true,
        };
        assert_eq!(style.paint(Color::Red, "x"), "\u{1b}[1;31mx\u{1b}[0m");
    }
}
