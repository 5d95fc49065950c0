//! Checks what the API server sends, and what a program prints that issues credentials.

use std::time::Duration;

use nodepulse_kube::fuzzing;

use super::text::safe;

/// Maximum delay that a server can request.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// Maximum length of a log line about an answer.
const LONGEST_LINE: usize = 4 * 512 + 100;

/// What the program that a kubeconfig names has printed.
///
/// # Panics
///
/// If an error is not one short line.
pub fn exec_credential(input: &[u8]) {
    if let Err(why) = fuzzing::exec_credential(input) {
        safe(&why);
        assert!(why.len() < 100, "{why}");
    }
}

/// An object of the API server, alone or in a line of a watch.
///
/// # Panics
///
/// If more conditions are read than there are bytes for.
pub fn api_object(input: &[u8]) {
    let _is_event = fuzzing::watch_line(input);
    if let Some(node) = fuzzing::object(input) {
        assert!(node.conditions.len() <= input.len() / 2);
    }
}

/// An answer that is no success: its first line is the `Retry-After` header, the rest its body.
///
/// # Panics
///
/// If its log line is not one line below the limit, or the wait exceeds its limit.
pub fn api_refusal(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let header = parts.next().unwrap_or_default();
    let body = parts.next().unwrap_or_default();
    for code in [401, 409, 410, 429, 500, 503] {
        let (line, wait) = fuzzing::refusal(code, header, body);
        safe(&line);
        assert!(line.len() <= LONGEST_LINE, "{} bytes", line.len());
        if let Some(wait) = wait {
            assert!(wait <= LONGEST_WAIT && !wait.is_zero(), "{wait:?}");
        }
    }
}
