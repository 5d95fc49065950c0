//! Queries the I/O wait of tasks other than the main user of a disk, which decides if it is slow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::DiskWatch;
use crate::clock::BootNanos;
use crate::pressure::io_wait::{IoWait, OthersStall};
use crate::subjects::{BlockingQuery, Effect};
use crate::units::DeviceNumber;

/// If the cgroups could not be read this many times in a row, the wait of the whole node decides.
const REPEATED: u32 = 2;

/// The queries of I/O wait, and their answers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct IoWaitReads {
    /// The disk of the query that is not answered yet. One disk is queried at a time: its main
    /// user, whose tasks do not count as waiting, is not that of another disk.
    queried: Option<DeviceNumber>,
    /// The last answer about each disk, and the time of its arrival.
    #[serde(with = "crate::pairs")]
    last: BTreeMap<DeviceNumber, (IoWait, BootNanos)>,
    failed: u32,
}

impl IoWaitReads {
    /// Returns the last answer about a disk, and the time of its arrival.
    pub(super) fn at(&self, device: DeviceNumber) -> Option<(&IoWait, BootNanos)> {
        self.last.get(&device).map(|(read, at)| (read, *at))
    }

    pub(super) fn forget(&mut self, device: DeviceNumber) {
        self.last.remove(&device);
    }

    /// Returns the share of time in percent, or `None` without PSI.
    fn decide(&mut self, others: OthersStall) -> Result<Option<f32>, Undecided> {
        let failed = match others {
            OthersStall::Share(_) | OthersStall::NoPsi => 0,
            OthersStall::Unread { .. } => self.failed.saturating_add(1),
        };
        self.failed = failed;
        match others {
            OthersStall::Share(share) => Ok(Some(share.percent())),
            OthersStall::NoPsi => Ok(None),
            OthersStall::Unread { node: Some(share) } if failed >= REPEATED => {
                Ok(Some(share.percent()))
            }
            OthersStall::Unread { .. } => Err(Undecided),
        }
    }
}

/// The cgroups could not be read now.
#[derive(Debug)]
struct Undecided;

impl DiskWatch {
    /// Queries the I/O wait if it decides that a disk is slow.
    pub(super) fn query_io_wait(&mut self, now: BootNanos) -> Option<Effect> {
        if self.io_wait.queried.is_some() {
            return None;
        }
        self.io_wait.queried = self.board.needs_io_wait(now);
        let query = self.io_wait.queried.map(BlockingQuery::IoWait);
        query.map(Effect::BlockingQuery)
    }

    pub(super) fn io_wait_read(&mut self, io_wait: IoWait, now: BootNanos) -> Vec<Effect> {
        let Some(device) = self.io_wait.queried.take() else {
            return Vec::new();
        };
        let others = io_wait.others;
        if self.board.name(device).is_some() {
            self.io_wait.last.insert(device, (io_wait, now));
        }
        let Ok(percent) = self.io_wait.decide(others) else {
            // Otherwise it is read again after the next slow window.
            let again = self.io_wait.failed < REPEATED;
            let again = again.then(|| self.query_io_wait(now)).flatten();
            return again.into_iter().collect();
        };
        let mut effects = Vec::new();
        if let Some(health) = self.board.io_wait(device, percent, now) {
            effects.extend(self.health_changed(device, Some(health), now));
        }
        if !effects.is_empty() {
            effects.extend(self.publish(self.slow_stamp));
        }
        effects.extend(self.query_io_wait(now));
        effects
    }
}
