//! What a disk transferred during its slow windows, and how long its latency-sensitive requests took.
//!
//! Both come from counters that are read when a slow window is reported. So the requests of a window
//! are the difference to the window before it, if no others completed in between.

use std::time::Duration;

use agent_common::settings::HISTOGRAM_BUCKETS;
use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::units::latency::{Buckets, total};
use crate::units::rate::Rate;

/// Counters of a disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskTotals {
    /// Read and written since the disk appeared. `None`: not known.
    pub bytes: Option<u64>,
    /// Latency-sensitive requests since the disk is watched. `None`: not counted.
    pub judged: Option<Buckets>,
}

/// Requests that may complete until the counters are read, with a quarter of those of the window.
const FEW: u64 = 5;

/// Requests of a window by latency.
type Counts = [u32; HISTOGRAM_BUCKETS];

/// What is stored of a slow window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// When the counters were read.
    at: BootNanos,
    /// Read and written until then.
    bytes: Option<u64>,
    /// Latency-sensitive requests since the window before.
    judged: Option<Counts>,
}

impl Measured {
    /// The counters after a window of `requests` latency-sensitive requests, and those after the
    /// window before it.
    pub(super) fn after(
        requests: u32,
        totals: DiskTotals,
        before: Option<Buckets>,
        at: BootNanos,
    ) -> Self {
        let judged = before.zip(totals.judged);
        Self {
            at,
            bytes: totals.bytes,
            judged: judged.and_then(|(before, now)| of_window(requests, &before, &now)),
        }
    }

    /// Adds the requests of the window to a histogram.
    pub(super) fn add_to(&self, sum: &mut Buckets) {
        for (sum, count) in sum.iter_mut().zip(self.judged.iter().flatten()) {
            *sum = sum.saturating_add(u64::from(*count));
        }
    }

    /// What was transferred in a second, from these counters to `later` ones.
    pub(super) fn rate(&self, later: &Self) -> Option<Rate> {
        let bytes = later.bytes?.checked_sub(self.bytes?)?;
        let elapsed = later.at.since(self.at);
        (elapsed > Duration::ZERO).then(|| Rate::of(bytes, elapsed))
    }
}

/// The difference, if nearly all of its requests are those of the window, and if the counters were not
/// reset.
fn of_window(requests: u32, before: &Buckets, now: &Buckets) -> Option<Counts> {
    let mut difference = Buckets::default();
    for (count, (now, before)) in difference.iter_mut().zip(now.iter().zip(before)) {
        *count = now.checked_sub(*before)?;
    }
    let requests = u64::from(requests);
    let most = requests.saturating_add(requests / 4).saturating_add(FEW);
    let is_of_window = total(&difference) <= most;
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    is_of_window.then(|| difference.map(narrow))
}
