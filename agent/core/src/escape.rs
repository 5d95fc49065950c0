//! PURE: untrusted text in a form that is safe to log, print and send.
//!
//! In a sentence or a line of the log, an untrusted name is in quotes unless it is plain, so that
//! it cannot imitate the text around it: [`quote`].

use std::borrow::Cow;
use std::fmt::Write as _;

/// The number of characters after which [`escape`] cuts.
pub const ESCAPED_CHARS: usize = 256;

/// Returns at most [`ESCAPED_CHARS`] characters of untrusted text, in the form of [`escape_to`].
pub fn escape(text: impl AsRef<[u8]>) -> String {
    escape_to(text, ESCAPED_CHARS)
}

/// Returns at most [`ESCAPED_CHARS`] characters of an untrusted name, in the form of [`quoted`].
pub fn quote(name: impl AsRef<[u8]>) -> String {
    quote_to(name, ESCAPED_CHARS)
}

/// Returns at most `limit` characters of an untrusted name, in the form of [`quoted`].
pub fn quote_to(name: impl AsRef<[u8]>, limit: usize) -> String {
    quoted(&escape_to(name, limit)).into_owned()
}

/// Puts an escaped name in quotes unless it is plain: `java`, but `"a) with 9Gi, (b"`. A quote in
/// it is escaped, too.
pub fn quoted(escaped: &str) -> Cow<'_, str> {
    if !escaped.is_empty() && escaped.chars().all(is_plain) {
        Cow::Borrowed(escaped)
    } else {
        Cow::Owned(format!("\"{}\"", escaped.replace('"', "\\\"")))
    }
}

/// Accepts the characters of the usual names of processes, cgroups and devices. The sign of a cut
/// is one of them, and so is the backslash: an escaped character is recognisable as such.
const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(
            c,
            '.' | '_' | '-' | '+' | '@' | ':' | '/' | '!' | '\\' | '…'
        )
}

/// Escapes untrusted text: control characters become `\n`, `\u{1b}` and so on, bytes that are not
/// UTF-8 `\xff`, and a backslash two. Marks that turn the reading direction or are invisible are
/// escaped, too. Text that would exceed `limit` characters is cut, which an additional `…` shows.
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
            if c == '\\' || is_unsafe(c) {
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

/// Joins a text of several lines, such as an error of a parser, into one line. Nothing is escaped.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Joins an error and its causes. Nothing is escaped.
pub fn chain(err: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(err), |err| err.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Encodes any text as the value of a query: everything but ASCII letters and digits becomes `%xx`.
pub fn query_value(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Returns true for control characters, line separators, the marks of Unicode's bidirectional
/// algorithm, and characters that are not visible (`Default_Ignorable_Code_Point`), with which a
/// name can imitate another.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Escapes the unsafe characters of a JSON document so that it is safe to print. It remains the
/// same document. Returns `None` if it is not UTF-8.
pub fn escape_json(document: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(document.len());
    for c in str::from_utf8(document).ok()?.chars() {
        // Outside of its strings, a document can contain these two.
        if !is_unsafe(c) || matches!(c, '\n' | '\t') {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _written = write!(out, "\\u{unit:04x}");
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        #[rustfmt::skip]
        let rows: [(&[u8], &str, &str); 11] = [
            (b"nginx", "nginx", "plain text is left alone"),
            ("käse".as_bytes(), "käse", "and so are letters beyond ASCII"),
            (b"a\nb\t\x1b[31m", "a\\nb\\t\\u{1b}[31m", "control characters"),
            (b"\x7f\xc2\x9b", "\\u{7f}\\u{9b}", "DEL and the C1 set"),
            (b"a\xff\xfeb", "a\\xff\\xfeb", "bytes that are not UTF-8"),
            (b"\\n", "\\\\n", "a backslash, so that escapes are unambiguous"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b", "right-to-left override"),
            ("a\u{61c}b".as_bytes(), "a\\u{61c}b", "a mark of Arabic letters"),
            ("a\u{200b}b\u{feff}".as_bytes(), "a\\u{200b}b\\u{feff}", "spaces without a width"),
            ("a\u{e0041}\u{e007f}".as_bytes(), "a\\u{e0041}\\u{e007f}", "tags"),
            (b"", "", "nothing"),
        ];
        for (text, expected, why) in rows {
            assert_eq!(escape(text), expected, "{why}");
        }
    }

    #[test]
    fn a_document_stays_the_same_when_it_is_escaped() {
        let document = serde_json::json!({ "a": "k\u{e4}se\u{9b}31m\u{202e}\u{e0041}\n\t\\" });
        let text = serde_json::to_string_pretty(&document).unwrap();
        let escaped = escape_json(text.as_bytes()).unwrap();
        let plain = "\\u009b31m\\u202e\\udb40\\udc41\\n\\t";
        assert!(escaped.contains(&format!("k\u{e4}se{plain}")), "{escaped}");
        let again: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(again, document);
        assert_eq!(escape_json(b"\xff"), None);
    }

    #[test]
    fn a_name_is_in_quotes_unless_it_is_plain() {
        let rows = [
            ("java", "java"),
            ("kworker/0:1H-kblockd", "kworker/0:1H-kblockd"),
            (
                "/system.slice/dev\\x2dsda.swap",
                "/system.slice/dev\\\\x2dsda.swap",
            ),
            ("cciss!c0d0", "cciss!c0d0"),
            ("a\nb", "a\\nb"),
            ("", "\"\""),
            ("Web Content", "\"Web Content\""),
            ("a) with 9Gi, (b", "\"a) with 9Gi, (b\""),
            ("a\", (b", "\"a\\\", (b\""),
            ("a\\\"b", "\"a\\\\\\\"b\""),
            ("k\u{e4}se", "\"k\u{e4}se\""),
            ("\u{202e}b", "\"\\u{202e}b\""),
        ];
        for (name, expected) in rows {
            assert_eq!(quote(name), expected);
        }
        assert_eq!(quote_to("abcde", 4), "abcd…");
        assert_eq!(quote_to("ab de", 4), "\"ab d…\"");
    }

    #[test]
    fn long_text_is_cut_at_the_limit_and_never_inside_an_escape() {
        #[rustfmt::skip]
        let rows = [
            ("abcd", 4, "abcd", "exactly the limit"),
            ("abcde", 4, "abcd…", "one more"),
            ("abc\n", 4, "abc…", "an escape of two characters where one is left"),
            ("ab\n", 4, "ab\\n", "an escape that just fits"),
        ];
        for (text, limit, expected, why) in rows {
            assert_eq!(escape_to(text, limit), expected, "{why}");
        }
        assert_eq!(escape("x".repeat(300)).chars().count(), ESCAPED_CHARS + 1);
    }
}
