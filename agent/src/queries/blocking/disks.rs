//! Queries about disks: files of `/sys/block`.

use std::time::Duration;

use tracing::warn;

use crate::host::{HostError, HostRoot, block};
use crate::pressure::disks::DiskSample;
use crate::reading::Disk;
use crate::subjects::disks::{CountersRead, DiskCounters};
use crate::subjects::{DiskInput, DiskQuery};

/// Reads the answer. The probe's state of a disk is not available on this thread.
pub(super) fn answer(root: &HostRoot, query: DiskQuery) -> DiskInput {
    match query {
        DiskQuery::List => DiskInput::Listed(list(root)),
        DiskQuery::Find(change) => {
            let found = logged(block::disk(root, change.name.clone())).flatten();
            // The name may belong to another disk by now.
            let disk = found.filter(|disk| disk.device == change.device);
            DiskInput::Found { change, disk }
        }
        DiskQuery::Statistics {
            device,
            name,
            stamp,
        } => DiskInput::Confirmed {
            device,
            valid: matches!(block::iostats(root, &name), Ok(Some(true))),
            probe: None,
            stamp,
        },
        DiskQuery::Counters(disks) => {
            let read = |(device, name): (_, String)| DiskCounters {
                device,
                counters: counters(root, &name),
                probe: None,
            };
            DiskInput::Sampled(disks.into_iter().map(read).collect())
        }
        DiskQuery::Switched(known) => {
            let is_switched = |(name, on): &(String, bool)| {
                // A removed disk is announced.
                matches!(block::iostats(root, name), Ok(Some(now)) if now != *on)
            };
            let switched = known.iter().any(is_switched);
            DiskInput::StatisticsChecked { switched }
        }
    }
}

/// All disks; `None` if they could not be read.
pub fn list(root: &HostRoot) -> Option<Vec<Disk>> {
    logged(block::disks(root))
}

/// The answer if the call timed out. A report on a disk that cannot even be queried counts.
pub(super) fn timed_out(query: &DiskQuery) -> DiskInput {
    match query {
        DiskQuery::List => DiskInput::Listed(None),
        DiskQuery::Find(change) => DiskInput::Found {
            change: change.clone(),
            disk: None,
        },
        DiskQuery::Statistics { device, stamp, .. } => DiskInput::Confirmed {
            device: *device,
            valid: true,
            probe: None,
            stamp: *stamp,
        },
        DiskQuery::Counters(disks) => {
            let failed = |(device, _): &(_, String)| DiskCounters {
                device: *device,
                counters: CountersRead::Failed,
                probe: None,
            };
            DiskInput::Sampled(disks.iter().map(failed).collect())
        }
        DiskQuery::Switched(_) => DiskInput::StatisticsChecked { switched: false },
    }
}

fn counters(root: &HostRoot, name: &str) -> CountersRead {
    match block::counters(root, name) {
        Ok(Some(now)) => CountersRead::Read(DiskSample {
            completed: now
                .reads
                .saturating_add(now.writes)
                .saturating_add(now.others),
            answered: now.reads.saturating_add(now.writes),
            waited: Duration::from_millis(now.read_ms.saturating_add(now.write_ms)),
            in_flight: now.in_flight,
        }),
        Ok(None) => CountersRead::Removed,
        Err(_) => CountersRead::Failed,
    }
}

fn logged<T>(read: Result<T, HostError>) -> Option<T> {
    read.inspect_err(|err| warn!(err = err as &dyn std::error::Error, "disks not read"))
        .ok()
}
