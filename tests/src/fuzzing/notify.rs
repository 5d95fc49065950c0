//! Checks the variables that the service manager sets.

use std::time::Duration;

use nodepulse::testing::{notify_address, watchdog};

use super::text::safe;

/// Allowed intervals between notifications of the watchdog.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_hours(1);
/// Maximum length of an error.
const LONGEST: usize = 1000;

/// `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`, a line each.
///
/// # Panics
///
/// If the interval is out of its range, if a socket is accepted that is neither an absolute path
/// nor an abstract name, or if an error is not one short line that names the variable.
pub fn notify_variables(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let mut lines = text.split('\n');
    let socket = lines.next().unwrap_or_default();
    let (usec, pid) = (lines.next(), lines.next());
    match notify_address(socket) {
        Ok(address) if socket.starts_with('/') => {
            assert_eq!(address.as_pathname(), Some(socket.as_ref()));
        }
        Ok(address) => {
            use std::os::linux::net::SocketAddrExt as _;
            let name = address.as_abstract_name().expect("an abstract name");
            assert_eq!(Some(name), socket.strip_prefix('@').map(str::as_bytes));
            assert!(!name.is_empty());
        }
        Err(err) => clear(&err.to_string(), "NOTIFY_SOCKET"),
    }
    match watchdog(usec, pid, 7) {
        Ok(None) => {}
        Ok(Some(interval)) => {
            assert!(INTERVALS.contains(&interval), "{interval:?}");
            let patience = usec.and_then(|usec| usec.parse().ok());
            let patience = Duration::from_micros(patience.expect("a number"));
            assert!(interval * 2 <= patience, "{interval:?} of {patience:?}");
        }
        Err(line) => clear(&line, "WATCHDOG_USEC"),
    }
}

fn clear(line: &str, variable: &str) {
    safe(line);
    assert!(line.starts_with(variable), "{line}");
    assert!(line.len() <= LONGEST, "{} bytes: {line}", line.len());
}
