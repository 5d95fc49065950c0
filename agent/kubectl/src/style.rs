//! The width and the colors of the terminal on standard output.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

/// Columns assumed for a terminal that does not report them.
const DEFAULT_COLUMNS: usize = 80;
/// Least and greatest number of columns to which sentences are wrapped.
const SENTENCE_COLUMNS: (usize, usize) = (40, 120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Plain,
    /// A title.
    Bold,
    /// Less important text.
    Dim,
    /// A problem.
    Red,
    /// Something to check.
    Yellow,
    /// A healthy state.
    Green,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal. `None` for a file or a pipe, whose lines have any length.
    pub width: Option<usize>,
    pub colors: bool,
}

impl Style {
    /// The style for files and pipes.
    pub const PLAIN: Self = Self {
        width: None,
        colors: false,
    };

    /// Reads the style of standard output. `COLUMNS` overrides the width of a terminal; it has
    /// colors unless `NO_COLOR` is set, or `TERM` is `dumb` or absent.
    pub fn from_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let columns = variable("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
        let reported = || Some(usize::from(tcgetwinsize(io::stdout()).ok()?.ws_col));
        let columns = columns.or_else(reported).filter(|columns| *columns > 0);
        Self {
            width: Some(columns.unwrap_or(DEFAULT_COLUMNS)),
            colors: variable("NO_COLOR").is_none()
                && variable("TERM").is_some_and(|term| term != "dumb"),
        }
    }

    /// Columns for sentences. `None` if they are not wrapped.
    pub fn sentence_columns(self) -> Option<usize> {
        let (least, most) = SENTENCE_COLUMNS;
        self.width.map(|width| width.clamp(least, most))
    }

    /// Returns `text` in this color, if colors are enabled.
    pub fn paint(self, paint: Paint, text: &str) -> String {
        let parameters = match paint {
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Red => "1;31",
            Paint::Yellow => "1;33",
            Paint::Green => "1;32",
            Paint::Plain => return text.to_owned(),
        };
        if !self.colors {
            return text.to_owned();
        }
        format!("\u{1b}[{parameters}m{text}\u{1b}[0m")
    }
}
