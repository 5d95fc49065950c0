//! Times as an API server writes them, and ages as kubectl prints them.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nodepulse_core::units::duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

#[derive(Debug, Clone, Copy)]
pub struct Present {
    pub now: Timestamp,
    /// An agent that has reported nothing for longer is silent.
    pub silent_after: Duration,
}

/// Parses a time in RFC 3339. Returns `None` if it is absent or invalid.
pub fn parse(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// Seconds from `at` to `now`; 0 if `at` is later, because clocks differ.
pub fn seconds(at: Timestamp, now: Timestamp) -> u64 {
    let seconds = now.as_second().saturating_sub(at.as_second());
    u64::try_from(seconds).unwrap_or(0)
}

/// Returns the age of something since `at`, or `-` if the time is unknown.
pub fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| human(seconds(at, now)))
}

/// Formats an age as kubectl does: with two units while the first is small.
pub fn human(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / MINUTE, seconds / HOUR, seconds / DAY);
    let two = |large: u64, unit: char, small: u64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 2 * MINUTE => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % MINUTE, 's'),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if days < 2 * 365 => format!("{days}d"),
        () => format!("{}y", days / 365),
    }
}

/// Parses a duration as in `kubectl logs --since`, which must be longer than 0.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => Err(format!("{text:?} is not longer than 0")),
        Ok(duration) => Ok(duration),
        Err(why) => Err(format!("{text:?} {why}; an example is 30m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        let rows = [
            (0, "0s"),
            (119, "119s"),
            (121, "2m1s"),
            (600, "10m"),
            (7200, "120m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 1200, "3h20m"),
            (47 * HOUR, "47h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (20 * DAY, "20d"),
            (800 * DAY, "2y"),
        ];
        for (seconds, expected) in rows {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_duration_is_longer_than_0_and_has_a_unit() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_mins(90)));
        for wrong in ["", "1", "1d", "-1h", "0s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
