//! The part of DER that requests and certificates need: definite lengths, tags of one byte.

/// `SEQUENCE`.
pub(super) const SEQUENCE: u8 = 0x30;
/// `SET`.
pub(super) const SET: u8 = 0x31;
/// `INTEGER`.
pub(super) const INTEGER: u8 = 0x02;
/// `BIT STRING`.
pub(super) const BIT_STRING: u8 = 0x03;
/// `OBJECT IDENTIFIER`.
pub(super) const OID: u8 = 0x06;
/// `UTF8String`.
pub(super) const UTF8: u8 = 0x0c;
/// `PrintableString`.
pub(super) const PRINTABLE: u8 = 0x13;
/// `UTCTime`.
pub(super) const UTC_TIME: u8 = 0x17;
/// `GeneralizedTime`.
pub(super) const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`, constructed.
pub(super) const CONTEXT_0: u8 = 0xa0;

/// The elements of a text, one after the other. Never reads beyond it, and copies nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

impl<'a> Elements<'a> {
    /// The next element: its tag, its content, and all of its bytes. `None` at the end, and if it is
    /// not DER.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&[tag, short], rest) = self.0.split_first_chunk::<2>()?;
        let (len, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            // At most four bytes, of which none is superfluous; 0x80 is an indefinite length.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                let len = bytes
                    .iter()
                    .fold(0, |len, byte| len << 8 | u32::from(*byte));
                let len = usize::try_from(len).ok()?;
                let minimal = *bytes.first()? != 0 && 0x80 <= len;
                (minimal.then_some(len)?, rest)
            }
            _ => return None,
        };
        // Tags above 30 take several bytes, and occur in none of these texts.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (content, after) = rest.split_at_checked(len)?;
        let whole = self
            .0
            .split_at_checked(self.0.len().checked_sub(after.len())?)?;
        self.0 = after;
        Some((tag, content, whole.0))
    }

    /// The content of the next element, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content, _) = self.next()?;
        (found == tag).then_some(content)
    }

    /// The same, with the elements in it.
    pub(super) fn inside(&mut self, tag: u8) -> Option<Self> {
        self.expect(tag).map(Elements)
    }
}

/// An element of these parts.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    if let Ok(short @ 0..=0x7f) = u8::try_from(content.len()) {
        out.push(short);
    } else {
        let bytes = content.len().to_be_bytes();
        let leading = bytes.iter().take_while(|byte| **byte == 0).count();
        let significant = bytes.get(leading..).unwrap_or_default();
        // A length has at most eight bytes.
        out.push(0x80 | u8::try_from(significant.len()).unwrap_or(0x7f));
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(&content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_written_whatever_their_length() {
        for len in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; len];
            let written = element(SEQUENCE, &[&content]);
            let mut elements = Elements(&written);
            assert_eq!(elements.expect(SEQUENCE), Some(&*content), "{len}");
            assert_eq!(elements.next(), None, "{len}: nothing follows");
        }
    }

    #[test]
    fn what_is_not_der_is_refused() {
        let rows: [(&[u8], &str); 8] = [
            (&[], "empty"),
            (&[0x30], "no length"),
            (&[0x30, 2, 0], "shorter than its length"),
            (&[0x30, 0x80, 0, 0], "of indefinite length"),
            (
                &[0x30, 0x81, 5, 0, 0, 0, 0, 0],
                "a long form for a short length",
            ),
            (&[0x30, 0x82, 0, 0x80], "a leading zero"),
            (&[0x30, 0x85, 1, 0, 0, 0, 0], "a length of five bytes"),
            (&[0x3f, 0x81, 0], "a tag of several bytes"),
        ];
        for (text, why) in rows {
            assert_eq!(Elements(text).next(), None, "{why}");
        }
    }
}
