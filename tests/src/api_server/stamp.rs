//! Formats times like the API, and reads the two clocks that they come from.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z, the start time of every simulated server.
const SIMULATED_START: Duration = Duration::from_secs(1_767_225_600);

/// The source of a server's time.
#[derive(Debug, Clone, Copy)]
pub(super) enum ServerClock {
    /// The machine's clocks.
    Machine,
    /// The runtime's clock, which tests pause and move.
    Runtime { start: Instant },
}

impl ServerClock {
    /// Returns the time since boot, or since the server was started if time is simulated.
    pub(super) fn boot(self) -> Duration {
        match self {
            Self::Machine => read(ClockId::CLOCK_BOOTTIME),
            Self::Runtime { start } => start.elapsed(),
        }
    }

    /// Returns the time since 1970.
    pub(super) fn wall(self) -> Duration {
        match self {
            Self::Machine => read(ClockId::CLOCK_REALTIME),
            Self::Runtime { start } => SIMULATED_START + start.elapsed(),
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let spec = clock_gettime(clock).expect("Linux has this clock");
    Duration::from(spec)
}

/// Formats `wall` as a `metav1.Time`: whole seconds, UTC.
pub(super) fn time(wall: Duration) -> String {
    let (days, second) = (wall.as_secs() / 86_400, wall.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses the format of [`time`], with or without a fraction, as seconds since 1970.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let clock = clock.split('.').next()?;
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    Some(days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second)
}

// Uses Howard Hinnant's algorithms: the year starts in March, so that the leap day is its last.
//
// https://howardhinnant.github.io/date_algorithms.html
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year;
    Some(year / 400 * 146_097 + of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_it_is_read() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
        assert_eq!(parse("2026-01-01T00:00:00.000000Z"), Some(1_767_225_600));
        assert_eq!(parse("yesterday"), None);
    }
}
