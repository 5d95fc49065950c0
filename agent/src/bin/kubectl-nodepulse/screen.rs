//! The terminal, or whatever reads the output.

use std::env::var_os;
use std::io::{self, IsTerminal as _, Write as _};

use nodepulse::escape::escape_to;

use crate::failure::Failure;

/// Characters of one external text.
const TEXT_CHARS: usize = 2048;

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Columns of the terminal. `None`: lines have any length.
    pub width: Option<usize>,
    /// Whether colors are used.
    pub colors: bool,
}

/// What a text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Nothing special.
    Plain,
    /// A title.
    Bold,
    /// Less important.
    Dim,
    /// A problem.
    Red,
    /// Something to check.
    Yellow,
}

impl Screen {
    /// Of the standard output.
    pub fn of_stdout() -> Self {
        let stdout = io::stdout();
        let is_set = |name: &str| var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = var_os("COLUMNS");
        let columns = columns.and_then(|columns| columns.to_str()?.parse().ok());
        let size = || rustix::termios::tcgetwinsize(&stdout).ok();
        let columns = columns.or_else(|| Some(usize::from(size()?.ws_col)));
        Self {
            width: columns.filter(|columns| *columns > 0),
            colors: stdout.is_terminal() && !is_set("NO_COLOR") && !is_dumb,
        }
    }

    /// The text in its color.
    pub fn paint(&self, text: &str, paint: Paint) -> String {
        let code = match paint {
            _ if !self.colors => return text.to_owned(),
            Paint::Plain => return text.to_owned(),
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Red => "31",
            Paint::Yellow => "33",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A text in lines that fit, each after `indent`, but for the first.
    pub fn wrap(&self, text: &str, first: &str, indent: &str) -> String {
        let width = self.width.unwrap_or(usize::MAX).max(40);
        let mut out = first.to_owned();
        let mut column = first.chars().count();
        let mut is_start = true;
        for word in text.split(' ') {
            let length = word.chars().count();
            if !is_start && column.saturating_add(1).saturating_add(length) > width {
                out.push('\n');
                out.push_str(indent);
                column = indent.chars().count();
                is_start = true;
            }
            if !is_start {
                out.push(' ');
                column = column.saturating_add(1);
            }
            out.push_str(word);
            column = column.saturating_add(length);
            is_start = false;
        }
        out.push('\n');
        out
    }
}

/// External text that is safe to print in one line: control characters are escaped. A backslash is not,
/// because the agent has escaped its texts.
pub fn safe(text: &str) -> String {
    escape_to(text, TEXT_CHARS).replace("\\\\", "\\")
}

/// Prints to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|err| match err.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Output(err),
    })
}

/// Prints a failure to standard error.
pub fn print_error(failure: &Failure) {
    note(&format!("error: {failure}"));
}

/// Prints a line to standard error.
pub fn note(line: &str) {
    // Nothing can be reported if stderr is closed.
    drop(writeln!(io::stderr(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words() {
        let screen = Screen {
            width: Some(40),
            colors: false,
        };
        let wrapped = screen.wrap(&"word ".repeat(12), "- ", "  ");
        assert!(wrapped.lines().all(|line| line.chars().count() <= 40));
        assert_eq!(wrapped.lines().count(), 2, "{wrapped}");
        let long = screen.wrap(&"x".repeat(60), "", "");
        assert_eq!(long.trim_end().len(), 60, "a long word is not cut");
    }
}
