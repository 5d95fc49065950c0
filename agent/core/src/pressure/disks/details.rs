//! The facts about a disk that `explain` shows.

use std::fmt;
use std::time::Duration;

use super::auto_limit::{AutoLimit, FACTOR, MAX_FACTOR, MIN_REQUESTS};
use super::{Health, SlowRequests};
use crate::pressure::io_wait::IoWait;
use crate::reading::DiskRole;
use crate::units::latency::{Buckets, Millis};

/// The counters of the completion probe since the agent began to watch the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Latency-sensitive requests by latency.
    pub judged: Buckets,
    /// Errors of the medium and the transport.
    pub errors: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLimit {
    /// A latency-sensitive request that takes this long or longer is slow.
    pub limit: Duration,
    /// The fixed limit of its kind, and the limit that is computed now from its latency. `None` if
    /// the limit is configured.
    pub computed: Option<(Duration, AutoLimit)>,
}

#[derive(Debug, Clone)]
pub struct DiskDetails {
    /// Any text.
    pub name: String,
    pub role: DiskRole,
    pub health: Health,
    pub limit: DiskLimit,
    /// `None` if there were no slow windows recently.
    pub slow: Option<SlowRequests>,
    /// `None` without the completion probe.
    pub counts: Option<DiskCounts>,
    /// The time for which requests have been in flight without a completion. `None` if no request
    /// is known to be.
    pub pending: Option<Duration>,
    /// Errors in the last minute, at most as many as make the disk failing.
    pub recent_errors: usize,
    /// The users and waiters of the disk, and the time since they were read.
    pub io_wait: Option<(IoWait, Duration)>,
}

impl fmt::Display for DiskLimit {
    /// Writes `80 ms (auto: 4 × 20 ms, the 99.9th percentile of 120345 latency-sensitive requests,
    /// …)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Millis(self.limit))?;
        let Some((fixed, auto)) = self.computed else {
            return f.write_str(" (configured)");
        };
        let AutoLimit {
            percentile,
            requests,
            hours,
            ..
        } = auto;
        let largest = Millis(fixed.saturating_mul(MAX_FACTOR));
        let fixed = Millis(fixed);
        match percentile {
            Some(usual) => write!(
                f,
                " (auto: {FACTOR} × {}, the 99.9th percentile of {requests} latency-sensitive requests, counted \
                 once an hour for the last {hours} h, at least {fixed} and at most {largest})",
                Millis(usual)
            ),
            None if hours == 0 => f.write_str(
                " (auto: the least limit until the latency-sensitive requests are first counted, which \
                 happens once an hour)",
            ),
            None => write!(
                f,
                " (auto: the least limit, because only {requests} latency-sensitive requests, of {MIN_REQUESTS} \
                 that are required, were counted once an hour for the last {hours} h)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_with_how_it_was_computed() {
        let ms = Duration::from_millis;
        let auto = |percentile, requests, hours| {
            let limit = ms(0);
            let auto = AutoLimit {
                limit,
                percentile,
                requests,
                hours,
            };
            Some((ms(20), auto))
        };
        let usual = Duration::from_micros(12_340);
        let rows = [
            (30, None, "30 ms (configured)"),
            (
                20,
                auto(None, 0, 0),
                "20 ms (auto: the least limit until the latency-sensitive requests are first counted, which \
                 happens once an hour)",
            ),
            (
                20,
                auto(None, 400, 3),
                "20 ms (auto: the least limit, because only 400 latency-sensitive requests, of 5000 that are \
                 required, were counted once an hour for the last 3 h)",
            ),
            (
                49,
                auto(Some(usual), 120_345, 24),
                "49 ms (auto: 4 × 12 ms, the 99.9th percentile of 120345 latency-sensitive requests, counted \
                 once an hour for the last 24 h, at least 20 ms and at most 200 ms)",
            ),
        ];
        for (limit, computed, expected) in rows {
            let limit = ms(limit);
            assert_eq!(DiskLimit { limit, computed }.to_string(), expected);
        }
    }
}
