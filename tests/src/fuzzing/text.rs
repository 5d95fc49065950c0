//! Checks external text that is shown on a terminal.

use nodepulse_core::escape::{ESCAPED_CHARS, escape as escaped, escape_to};

/// Names of processes, cgroups and devices: any bytes.
///
/// # Panics
///
/// If what comes out is not one safe line within its bound.
pub fn escape(input: &[u8]) {
    let whole = escaped(input);
    safe(&whole);
    assert!(whole.chars().count() <= ESCAPED_CHARS + 1, "{whole:?}");
    for limit in [0, 1, 7] {
        let cut = escape_to(input, limit);
        safe(&cut);
        assert!(cut.chars().count() <= limit + 1, "{limit}: {cut:?}");
        let kept = cut.strip_suffix('…').unwrap_or(&cut);
        assert!(whole.starts_with(kept), "{cut:?} of {whole:?}");
    }
    let harmless = |b: &u8| b.is_ascii_graphic() && *b != b'\\';
    if input.iter().all(harmless) && input.len() <= ESCAPED_CHARS {
        assert_eq!(whole.as_bytes(), input, "harmless text is left alone");
    }
}

/// One line without control characters, and without what turns the reading direction.
///
/// # Panics
///
/// If it is not.
pub fn safe(text: &str) {
    let unsafe_char = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(unsafe_char), "{text:?}");
}
