//! Counters of the probes, read on request.

use std::time::Duration;

use agent_common::settings::{CLASS_JUDGED, CLASS_WRITE, HISTOGRAM_BUCKETS, REQUEST_CLASSES};
use agent_common::{DiskEntry, DropReason};
use nodepulse_core::units::DeviceNumber;
use nodepulse_core::units::latency::{Buckets, DiskLatency, OperationLatency};

use super::Probe;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeCounters {
    pub losses: Vec<(DropReason, u64)>,
    /// Total time and runs of each probe; empty unless the kernel collects BPF statistics.
    pub runs: Vec<(Probe, Duration, u64)>,
    /// Latency of the requests of each watched disk.
    pub disks: Vec<(DeviceNumber, DiskLatency)>,
}

pub fn latency(entry: &DiskEntry) -> DiskLatency {
    let [of_reads, of_writes] = entry.sum_ns;
    let operation = |write, sum| OperationLatency {
        buckets: added(entry, |class| class & CLASS_WRITE == write),
        sum: Duration::from_nanos(sum),
    };
    DiskLatency {
        reads: operation(0, of_reads),
        writes: operation(CLASS_WRITE, of_writes),
    }
}

/// Returns the buckets of the judged requests of a disk.
pub fn judged(entry: &DiskEntry) -> Buckets {
    added(entry, |class| class & CLASS_JUDGED != 0)
}

/// Adds up the buckets of the classes of requests that `of` selects.
fn added(entry: &DiskEntry, of: impl Fn(usize) -> bool) -> Buckets {
    let classes = (0..REQUEST_CLASSES).zip(&entry.histogram);
    let mut sum = [0_u64; HISTOGRAM_BUCKETS];
    for (_, histogram) in classes.filter(|(class, _)| of(*class)) {
        for (sum, count) in sum.iter_mut().zip(histogram) {
            *sum = sum.saturating_add(*count);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_added_up_by_operation_and_by_what_is_judged() {
        let mut entry = DiskEntry::new(1, 1);
        entry.sum_ns = [30, 40];
        //  other reads, other writes, judged reads, judged writes
        for (class, count) in entry.histogram.iter_mut().zip([1, 10, 100, 1000]) {
            class[3] = count;
        }
        let latency = super::latency(&entry);
        assert_eq!(latency.reads.buckets[3], 101);
        assert_eq!(latency.writes.buckets[3], 1010);
        assert_eq!(judged(&entry)[3], 1100);
        assert_eq!(latency.reads.sum, Duration::from_nanos(30));
        assert_eq!(latency.writes.sum, Duration::from_nanos(40));
        assert_eq!(latency.reads.buckets.iter().sum::<u64>(), 101);
    }
}
