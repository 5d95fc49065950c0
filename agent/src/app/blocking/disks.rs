//! Reads the counters of one disk.

use std::time::Duration;

use super::Found;
use crate::host::{HostRoot, block};
use crate::pressure::disks::DiskSample;

pub(super) fn counters(root: &HostRoot, name: &str) -> Found {
    match block::counters(root, name) {
        Ok(Some(now)) => Found::Counted(DiskSample {
            completed: now
                .reads
                .saturating_add(now.writes)
                .saturating_add(now.others),
            answered: now.reads.saturating_add(now.writes),
            waited: Duration::from_millis(now.read_ms.saturating_add(now.write_ms)),
            in_flight: now.in_flight,
        }),
        Ok(None) => Found::Gone,
        Err(_) => Found::Unread,
    }
}
