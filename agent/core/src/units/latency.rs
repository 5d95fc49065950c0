//! Latency histograms of disks.

use std::fmt;
use std::time::Duration;

use agent_common::settings::{FIRST_BUCKET_NS, HISTOGRAM_BUCKETS};

/// Numbers of requests by latency; see [`bucket_end`].
pub type Buckets = [u64; HISTOGRAM_BUCKETS];

/// Start of the last bucket, which has no end.
const LAST_BUCKET: Duration = Duration::from_nanos(FIRST_BUCKET_NS << (HISTOGRAM_BUCKETS - 2));

/// The median as a parameter of [`quantile`].
pub const MEDIAN: u64 = 500;

pub fn total(buckets: &Buckets) -> u64 {
    buckets
        .iter()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

/// Returns the latency that `per_mille` of 1,000 requests do not exceed; `None` without requests.
/// Within a bucket, requests are taken as evenly distributed; in the last one, which is open, as
/// being at its start.
pub fn quantile(buckets: &Buckets, per_mille: u64) -> Option<Duration> {
    let requests = total(buckets);
    if requests == 0 {
        return None;
    }
    let rank = requests.saturating_mul(per_mille).div_ceil(1000);
    let (mut before, mut start) = (0_u64, Duration::ZERO);
    for (bucket, count) in buckets.iter().enumerate() {
        let Some(end) = bucket_end(bucket) else {
            break;
        };
        let within = rank.saturating_sub(before);
        if within <= *count {
            let bucket = end.saturating_sub(start).as_nanos();
            let part = bucket * u128::from(within) / u128::from(*count).max(1);
            let part = u64::try_from(part).map_or(Duration::MAX, Duration::from_nanos);
            return Some(start.saturating_add(part));
        }
        before = before.saturating_add(*count);
        start = end;
    }
    Some(start)
}

/// A latency for people: `0.4 ms`, `20 ms`, `5200 ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis(pub Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_micros().saturating_add(50) / 100;
        match (tenths / 10, tenths % 10) {
            (whole @ 0..10, tenths @ 1..) => write!(f, "{whole}.{tenths} ms"),
            _ => write!(f, "{} ms", self.0.as_micros().saturating_add(500) / 1000),
        }
    }
}

/// The median of a histogram. In the last bucket, which has no end, only its start is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Median(pub Duration);

impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let qualifier = if self.0 >= LAST_BUCKET { "over " } else { "" };
        write!(f, "{qualifier}{}", Millis(self.0))
    }
}

/// Latency of the requests of a disk since the agent began to watch it. Short requests are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskLatency {
    pub reads: OperationLatency,
    pub writes: OperationLatency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationLatency {
    pub buckets: Buckets,
    pub sum: Duration,
}

/// Returns the upper bound of a bucket; `None` for the last one.
pub fn bucket_end(bucket: usize) -> Option<Duration> {
    let doublings = u32::try_from(bucket).ok()?;
    let last = bucket.checked_add(1)? >= HISTOGRAM_BUCKETS;
    let end = FIRST_BUCKET_NS.checked_shl(doublings).filter(|_| !last)?;
    Some(Duration::from_nanos(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_the_last_one_is_open() {
        assert_eq!(bucket_end(0), Some(Duration::from_nanos(65_536)));
        assert_eq!(bucket_end(8), Some(Duration::from_nanos(16_777_216)));
        assert_eq!(bucket_end(14), Some(Duration::from_nanos(1_073_741_824)));
        assert_eq!(bucket_end(15), None);
        assert_eq!(bucket_end(usize::MAX), None);
    }
}
