//! Derives the latency limit of a disk from its usual latency: `slow: auto`.
//!
//! The kernel program counts the judged requests of a disk by latency. Once an hour, the difference
//! to the hour before is stored, for a day. The limit is [`FACTOR`] times the 99.9th percentile of
//! these requests, at least the fixed limit, and at most [`MAX_FACTOR`] times the fixed limit: a
//! disk that was slow for a day has a high percentile, and must still be found slow.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::latency::{Buckets, quantile, total};

/// The number of differences that are stored, one an hour.
const HOURS: usize = 24;

/// The ratio of the limit to the percentile.
pub(super) const FACTOR: u32 = 4;

/// The maximum ratio of the limit to the fixed limit.
pub(super) const MAX_FACTOR: u32 = 10;

/// With fewer requests, the percentile depends on a handful of them, and the fixed limit applies.
pub(super) const MIN_REQUESTS: u64 = 5_000;

/// The percentile, in requests of 1,000.
const PER_MILLE: u64 = 999;

/// A limit, and the values from which it was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoLimit {
    /// A judged request that takes this long is slow.
    pub limit: Duration,
    /// The 99.9th percentile; `None` if there are too few requests.
    pub percentile: Option<Duration>,
    /// Judged requests of the last day, when they were last counted.
    pub requests: u64,
    /// The number of hours for which they were counted, up to 24. Zero: not yet.
    pub hours: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LatencyDay {
    /// The counters as last read.
    last: Buckets,
    /// The requests of each hour, the oldest first.
    hours: VecDeque<Buckets>,
}

impl LatencyDay {
    /// Takes the counters of the program. Must be called once an hour.
    pub fn add(&mut self, counters: Buckets) {
        // The counters start again at zero if the disk is watched again.
        let restarted = counters
            .iter()
            .zip(&self.last)
            .any(|(now, last)| now < last);
        let mut hour = counters;
        if !restarted {
            for (count, last) in hour.iter_mut().zip(&self.last) {
                *count = count.saturating_sub(*last);
            }
        }
        self.last = counters;
        if self.hours.len() == HOURS {
            self.hours.pop_front();
        }
        self.hours.push_back(hour);
    }

    /// Returns the limit for the next hour. `fixed` is that of this kind of disk.
    pub fn limit(&self, fixed: Duration) -> AutoLimit {
        let day = self.day();
        let requests = total(&day);
        let percentile = quantile(&day, PER_MILLE).filter(|_| requests >= MIN_REQUESTS);
        let largest = fixed.saturating_mul(MAX_FACTOR);
        let limit = percentile.map_or(fixed, |usual| {
            usual.saturating_mul(FACTOR).clamp(fixed, largest)
        });
        AutoLimit {
            limit,
            percentile,
            requests,
            hours: self.hours.len(),
        }
    }

    fn day(&self) -> Buckets {
        let mut day = Buckets::default();
        for hour in &self.hours {
            for (sum, count) in day.iter_mut().zip(hour) {
                *sum = sum.saturating_add(*count);
            }
        }
        day
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: Duration = Duration::from_millis(20);

    /// Returns `requests` of which `count` are in one bucket, and the others below 65 µs.
    fn hour(in_bucket: usize, count: u64, requests: u64) -> Buckets {
        let mut hour = Buckets::default();
        hour[0] = requests - count;
        hour[in_bucket] += count;
        hour
    }

    fn after(hours: &[Buckets]) -> LatencyDay {
        let (mut day, mut counters) = (LatencyDay::default(), Buckets::default());
        for hour in hours {
            for (sum, count) in counters.iter_mut().zip(hour) {
                *sum += count;
            }
            day.add(counters);
        }
        day
    }

    #[test]
    fn the_limit_follows_the_percentile_between_the_fixed_limit_and_ten_times_that() {
        let ms = Duration::from_micros;
        //  requests of an hour, limit in µs, name
        #[rustfmt::skip]
        let rows = [
            (hour(0, 0, 10_000), 20_000, "a fast disk has the fixed limit"),
            (hour(6, 100, 10_000), 20_000, "4 × 4.2 ms is below it"),
            // From 8.4 to 16.8 ms: 10 of the 20 are above the percentile.
            (hour(8, 20, 10_000), 50_332, "half of the bucket, times four"),
            (hour(8, 10, 10_000), 20_000, "exactly 0.1 % are slower"),
            (hour(9, 11, 10_000), 73_214, "a little more than 0.1 %"),
            (hour(12, 5_000, 10_000), 200_000, "at most ten times"),
            (hour(15, 5_000, 10_000), 200_000, "in the open bucket"),
            (hour(12, 2_500, 4_999), 20_000, "too few requests"),
            (hour(12, 2_500, 5_000), 200_000, "enough of them"),
        ];
        for (requests, expected, name) in rows {
            let limit = after(&[requests]).limit(FIXED).limit;
            let off = limit.abs_diff(ms(expected));
            assert!(off < ms(10), "{name}: {limit:?}");
        }
    }

    #[test]
    fn the_computation_is_part_of_the_limit() {
        let day = after(&[hour(8, 20, 10_000), hour(0, 0, 50)]);
        let limit = day.limit(FIXED);
        assert_eq!((limit.requests, limit.hours), (10_050, 2));
        assert_eq!(LatencyDay::default().limit(FIXED).hours, 0);
        assert!(
            limit
                .percentile
                .is_some_and(|usual| usual * 4 == limit.limit)
        );
        let few = after(&[hour(12, 1, 50)]).limit(FIXED);
        assert_eq!((few.percentile, few.requests), (None, 50));
    }

    #[test]
    fn an_hour_is_forgotten_after_a_day() {
        let slow = hour(12, 10_000, 10_000);
        let quick = hour(0, 0, 10_000);
        let mut hours = vec![slow];
        hours.extend([quick; 23]);
        assert_eq!(after(&hours).limit(FIXED).limit, FIXED * 10);
        hours.push(quick);
        let day = after(&hours);
        assert_eq!(day.limit(FIXED).limit, FIXED);
        assert_eq!(day.hours.len(), HOURS);
    }

    #[test]
    fn counters_that_start_again_are_all_of_this_hour() {
        let mut day = after(&[hour(0, 0, 10_000)]);
        day.add(hour(0, 0, 300));
        assert_eq!(day.limit(FIXED).requests, 10_300);
    }
}
