//! Latency histograms of disks.

use std::time::Duration;

use agent_common::settings::{FIRST_BUCKET_NS, HISTOGRAM_BUCKETS};

/// Requests by latency; see [`bucket_end`].
pub type Buckets = [u64; HISTOGRAM_BUCKETS];

/// Latency of the requests of a disk since it is watched. Short requests are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskLatency {
    /// Of reads.
    pub reads: OperationLatency,
    /// Of writes.
    pub writes: OperationLatency,
}

/// Latency of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationLatency {
    /// Requests in each bucket.
    pub buckets: Buckets,
    /// All latencies, added up.
    pub sum: Duration,
}

/// Upper bound of a bucket; `None` for the last one.
#[must_use]
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
