//! Whether other tasks than the main user of a disk wait for I/O, which decides whether it is slow.

use super::DiskWatch;
use crate::clock::BootNanos;
use crate::pressure::io_wait::{IoWait, OthersStall};
use crate::subjects::{Effect, Query};
use crate::units::DeviceNumber;

/// If the cgroups could not be read this many times in a row, the wait of the whole node decides.
const REPEATED: u32 = 2;

/// The reads of who waits for I/O.
#[derive(Debug, Default)]
pub(super) struct IoWaitReads {
    /// The disks of the query that is not answered yet.
    queried: Option<Vec<DeviceNumber>>,
    /// The last answer, of which disks, and when.
    last: Option<(IoWait, Vec<DeviceNumber>, BootNanos)>,
    /// Reads in a row that failed.
    failed: u32,
}

impl IoWaitReads {
    /// Who used a disk and who waited when that was read last, and when that was.
    pub(super) fn at(&self, device: DeviceNumber) -> Option<(&IoWait, BootNanos)> {
        let (read, devices, at) = self.last.as_ref()?;
        devices.contains(&device).then_some((read, *at))
    }

    /// What an answer decides: the share of time in percent, or `None` without PSI.
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
    /// Queries who waits for I/O if that decides whether a disk is slow.
    pub(super) fn query_io_wait(&mut self, now: BootNanos) -> Option<Effect> {
        let devices = self.board.needs_io_wait(now);
        if devices.is_empty() || self.io_wait.queried.is_some() {
            return None;
        }
        self.io_wait.queried = Some(devices.clone());
        Some(Effect::Query(Query::IoWait(devices)))
    }

    pub(super) fn io_wait_read(&mut self, io_wait: IoWait, now: BootNanos) -> Vec<Effect> {
        let devices = self.io_wait.queried.take().unwrap_or_default();
        let others = io_wait.others;
        self.io_wait.last = Some((io_wait, devices, now));
        let Ok(percent) = self.io_wait.decide(others) else {
            // Otherwise it is read again after the next slow window.
            let again = self.io_wait.failed < REPEATED;
            let again = again.then(|| self.query_io_wait(now)).flatten();
            return again.into_iter().collect();
        };
        let mut effects = Vec::new();
        for (device, health) in self.board.io_wait(percent, now) {
            effects.extend(self.health_changed(device, Some(health), now));
        }
        if !effects.is_empty() {
            effects.extend(self.publish(self.slow_stamp));
        }
        effects
    }
}
