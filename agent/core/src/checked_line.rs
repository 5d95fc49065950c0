//! Lines of JSON with a checksum, so that each can be used alone, whatever happened to others.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// The beginning of the last member of a line: the checksum of the text before it.
const SUM: &str = ",\"sum\":";

/// Converts a struct to a line of text, which is JSON as well.
///
/// # Errors
///
/// Fails if a value has no JSON, such as a time before 1970.
pub fn line(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(with_checksum(serde_json::to_string(value)?))
}

/// Adds the checksum to an object, and the end of the line.
pub(crate) fn with_checksum(mut object: String) -> String {
    object.pop();
    let sum = checksum(object.as_bytes());
    // Writing to a String cannot fail.
    let _written: fmt::Result = writeln!(object, "{SUM}{sum}}}");
    object
}

/// Returns true if a line, without its end, has its checksum.
pub fn is_intact(line: &str) -> bool {
    let sum = line
        .strip_suffix('}')
        .and_then(|text| text.rsplit_once(SUM));
    sum.is_some_and(|(object, sum)| sum.parse() == Ok(checksum(object.as_bytes())))
}

/// FNV-1a, which finds each change of one byte: every step of it is invertible.
/// <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}
