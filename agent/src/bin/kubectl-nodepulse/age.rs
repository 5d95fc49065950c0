//! Times as an API server writes them, and ages as kubectl prints them.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nodepulse::clock::Clock;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// This moment.
pub fn now() -> Timestamp {
    let wall = Clock::kernel().now().wall;
    Timestamp::try_from(wall).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A time in RFC 3339. `None`: absent, or invalid.
pub fn parse(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// Seconds from `at` to `now`; 0 if `at` is later, because clocks differ.
pub fn seconds(at: Timestamp, now: Timestamp) -> u64 {
    let seconds = now.as_second().saturating_sub(at.as_second());
    u64::try_from(seconds).unwrap_or(0)
}

/// The age of something since `at`; `-` if the time is unknown.
pub fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| human(seconds(at, now)))
}

/// As kubectl prints ages: two units while the first is small.
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

/// `90s`, `30m`, `2h`, `1d`, or several together.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 30m or 2h");
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let mut tail = tail.chars();
        let unit = match tail.next() {
            Some('s') => 1,
            Some('m') => MINUTE,
            Some('h') => HOUR,
            Some('d') => DAY,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(unit).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail.as_str();
    }
    match total {
        0 => Err(wrong()),
        seconds => Ok(Duration::from_secs(seconds)),
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
    fn durations_have_units() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("1h30m"), Ok(5400));
        assert_eq!(seconds("2d"), Ok(172_800));
        for wrong in ["", "1", "h", "1x", "-1h", "0s", "99999999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
