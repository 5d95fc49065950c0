//! The terminal: its width, its colours, and lines that fit.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use rustix::termios::tcgetwinsize;

use super::settings::variable;

/// Columns assumed for a terminal that does not report them.
const USUAL: usize = 80;
/// Least and greatest number of columns to which sentences are wrapped.
const PROSE: (usize, usize) = (40, 120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Bold: a title.
    Bold,
    /// Bold and red: a problem.
    Red,
    /// Bold and yellow: something to check.
    Yellow,
    /// Bold and green: a healthy state.
    Green,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; `None` if there is none, which can wrap a line.
    pub width: Option<usize>,
    pub colors: bool,
}

impl Style {
    /// The style of a file or a pipe.
    pub const PLAIN: Self = Self {
        width: None,
        colors: false,
    };

    /// Reads the style of standard output. `COLUMNS` overrides the width of a terminal; colors are
    /// for terminals, unless `NO_COLOR` is set, or `TERM` is `dumb` or absent.
    pub fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
        Self {
            width: Some(columns().unwrap_or(USUAL)),
            colors: !is_set("NO_COLOR") && !is_dumb,
        }
    }

    /// The width to which sentences are wrapped; `None` without a terminal.
    pub fn prose(self) -> Option<usize> {
        let (least, most) = PROSE;
        self.width.map(|width| width.clamp(least, most))
    }

    /// Returns `text` with the control sequences of `paint`, if colors are enabled.
    pub fn paint(self, paint: Paint, text: &str) -> String {
        if !self.colors {
            return text.to_owned();
        }
        let parameters = match paint {
            Paint::Bold => "1",
            Paint::Red => "1;31",
            Paint::Yellow => "1;33",
            Paint::Green => "1;32",
        };
        format!("\u{1b}[{parameters}m{text}\u{1b}[0m")
    }
}

fn columns() -> Option<usize> {
    let set = variable("COLUMNS").and_then(|columns| columns.parse().ok());
    let of_terminal = || Some(usize::from(tcgetwinsize(io::stdout()).ok()?.ws_col));
    let columns = set.filter(|columns| *columns > 0).or_else(of_terminal);
    columns.filter(|columns| *columns > 0)
}

/// The width of sentences on standard output, or the usual one.
pub(super) fn width() -> usize {
    Style::of_stdout().prose().unwrap_or(USUAL)
}

/// Appends `text`, whose lines begin with `indent` spaces and, as far as its words allow, end
/// before `width`. The first line continues one that has `column` characters already.
pub fn wrap(out: &mut String, text: &str, column: usize, indent: usize, width: usize) {
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

pub fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

pub(super) fn print(text: &str) -> ExitCode {
    match write(text) {
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
        assert_eq!(Style::PLAIN.paint(Paint::Red, "missing"), "missing");
        let style = Style {
            width: None,
            colors: true,
        };
        assert_eq!(style.paint(Paint::Red, "x"), "\u{1b}[1;31mx\u{1b}[0m");
    }

    #[test]
    fn sentences_are_neither_narrow_nor_wide() {
        let rows = [(None, None), (Some(10), Some(40)), (Some(300), Some(120))];
        for (width, expected) in rows {
            let style = Style {
                width,
                colors: false,
            };
            assert_eq!(style.prose(), expected);
        }
    }
}
