//! What is printed, on a terminal or for whatever reads the output.

use std::io::{self, Write as _};

use nodepulse::cli::terminal::{self, Style};
use nodepulse::escape::escape_to;

use crate::failure::Failure;

/// Characters of one external text.
const TEXT_CHARS: usize = 2048;

/// A text after `first`, in lines that fit. All but the first begin with `indent` spaces.
pub fn wrapped(style: Style, text: &str, first: &str, indent: usize) -> String {
    let mut out = first.to_owned();
    let width = style.prose().unwrap_or(usize::MAX);
    terminal::wrap(&mut out, text, first.chars().count(), indent, width);
    out
}

/// External text that is safe to print in one line: control characters are escaped. A backslash is not,
/// because the agent has escaped its texts.
pub fn safe(text: &str) -> String {
    escape_to(text, TEXT_CHARS).replace("\\\\", "\\")
}

/// Prints to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    terminal::write(text).map_err(|err| match err.kind() {
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
