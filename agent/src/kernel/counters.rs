//! Counters of the probes, read on request.

use std::time::Duration;

use agent_common::DropReason;
use agent_common::settings::HISTOGRAM_SLOTS;

use super::Probe;
use crate::units::DeviceNumber;

/// One reading of all counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeCounters {
    /// Lost records, by reason.
    pub losses: Vec<(DropReason, u64)>,
    /// Time and runs of each probe; empty unless the kernel collects BPF statistics.
    pub runs: Vec<(Probe, Duration, u64)>,
    /// Requests of each watched disk by latency: [`agent_common::DiskEntry::histogram`].
    pub disks: Vec<(DeviceNumber, [u64; HISTOGRAM_SLOTS])>,
}
