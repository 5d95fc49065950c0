//! Output to a terminal, or to any other reader.

use std::io::{self, Write as _};

use nodepulse_core::escape::escape_to;
use textwrap::{Options, WordSplitter};

use crate::failure::Failure;
use crate::style::Style;

/// Maximum length of one external text in characters.
const TEXT_CHARS: usize = 2048;

/// Appends a text to `first`, in lines that fit. All but the first begin with `indent` spaces.
pub fn wrapped(style: Style, text: &str, first: &str, indent: usize) -> String {
    let Some(columns) = style.sentence_columns() else {
        return format!("{first}{text}\n");
    };
    let indent = " ".repeat(indent);
    let options = Options::new(columns)
        .initial_indent(first)
        .subsequent_indent(&indent)
        .word_splitter(WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(text, options) + "\n"
}

/// Escapes control characters, so that external text is safe to print in one line. A backslash is
/// not escaped, because the agent has escaped its texts.
pub fn safe(text: &str) -> String {
    escape_to(text, TEXT_CHARS).replace("\\\\", "\\")
}

pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|err| match err.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Output(err),
    })
}

pub fn print_error(failure: &Failure) {
    note(&format!("error: {failure}"));
}

pub fn note(line: &str) {
    // Nothing can be reported if stderr is closed.
    drop(writeln!(io::stderr(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_may_begin_before_the_others() {
        let style = Style {
            width: Some(40),
            colors: false,
        };
        let text = "word ".repeat(12);
        let expected = format!(
            "- {}\n    {}\n",
            "word ".repeat(7).trim(),
            "word ".repeat(5).trim()
        );
        assert_eq!(wrapped(style, &text, "- ", 4), expected);
        assert_eq!(wrapped(Style::PLAIN, "a", "- ", 4), "- a\n");
    }
}
