//! PURE: untrusted text in a form that is safe to log, print and send.

#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// Characters that [`escape`] keeps before it cuts.
pub const ESCAPED_CHARS: usize = 256;

/// At most [`ESCAPED_CHARS`] characters of untrusted text, in the form of [`escape_to`].
pub fn escape(text: impl AsRef<[u8]>) -> String {
    escape_to(text, ESCAPED_CHARS)
}

/// Control characters become `\n`, `\u{1b}` and so on, bytes that are not UTF-8 `\xff`, a
/// backslash two; marks that turn the reading direction are escaped too. What would make it longer
/// than `limit` characters is cut, and the cut is shown by `…`, which comes on top.
pub fn escape_to(text: impl AsRef<[u8]>, limit: usize) -> String {
    let mut out = String::new();
    let mut left = limit;
    // An escaped character is whole or absent: half of one would read as something else.
    let mut push = |piece: &str| {
        let Some(rest) = left.checked_sub(piece.chars().count()) else {
            left = 0;
            out.push('…');
            return false;
        };
        left = rest;
        out.push_str(piece);
        true
    };
    let mut piece = String::new();
    for chunk in text.as_ref().utf8_chunks() {
        for c in chunk.valid().chars() {
            piece.clear();
            if c.is_control() || c == '\\' || turns_direction(c) {
                piece.extend(c.escape_default());
            } else {
                piece.push(c);
            }
            if !push(&piece) {
                return out;
            }
        }
        for byte in chunk.invalid() {
            piece.clear();
            // Writing to a String cannot fail.
            let written = write!(piece, "\\x{byte:02x}");
            if written.is_err() || !push(&piece) {
                return out;
            }
        }
    }
    out
}

/// Line separators and the marks of Unicode's bidirectional algorithm, with which a name can be
/// used to imitate another.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        let rows: [(&[u8], &str, &str); 8] = [
            (b"nginx", "nginx", "plain text is left alone"),
            ("käse".as_bytes(), "käse", "and so are letters beyond ASCII"),
            (
                b"a\nb\t\x1b[31m",
                "a\\nb\\t\\u{1b}[31m",
                "control characters",
            ),
            (b"\x7f\xc2\x9b", "\\u{7f}\\u{9b}", "DEL and the C1 set"),
            (b"a\xff\xfeb", "a\\xff\\xfeb", "bytes that are not UTF-8"),
            (
                b"\\n",
                "\\\\n",
                "a backslash, so that escapes are unambiguous",
            ),
            (
                "a\u{202e}b".as_bytes(),
                "a\\u{202e}b",
                "right-to-left override",
            ),
            (b"", "", "nothing"),
        ];
        for (text, expected, why) in rows {
            assert_eq!(escape(text), expected, "{why}");
        }
    }

    #[test]
    fn long_text_is_cut_at_the_limit_and_never_inside_an_escape() {
        let rows = [
            ("abcd", 4, "abcd", "exactly the limit"),
            ("abcde", 4, "abcd…", "one more"),
            (
                "abc\n",
                4,
                "abc…",
                "an escape of two characters where one is left",
            ),
            ("ab\n", 4, "ab\\n", "an escape that just fits"),
        ];
        for (text, limit, expected, why) in rows {
            assert_eq!(escape_to(text, limit), expected, "{why}");
        }
        assert_eq!(escape("x".repeat(300)).chars().count(), ESCAPED_CHARS + 1);
    }
}
