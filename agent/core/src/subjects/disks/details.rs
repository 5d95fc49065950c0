//! The facts about each disk that `explain` and Events show.

use super::DiskWatch;
use crate::clock::BootNanos;
use crate::pressure::disks::{DiskCounts, DiskDetails, DiskLimit, ERRORS, Health};
use crate::units::DeviceNumber;

impl DiskWatch {
    /// Returns the watched disks, sorted by name. `counts` are those of the completion probe.
    pub fn details(
        &self,
        counts: impl Fn(DeviceNumber) -> Option<DiskCounts>,
        now: BootNanos,
    ) -> Vec<DiskDetails> {
        let known = self.board.watched();
        let details = known.filter_map(|(device, name)| {
            let io_wait = self.io_wait.at(device);
            Some(DiskDetails {
                name: name.to_owned(),
                role: self.board.role(device)?,
                health: self.board.health(device)?,
                limit: self.limit(device),
                slow: self.board.slow_requests(device, now),
                counts: counts(device),
                pending: self.board.pending_since(device).map(|at| now.since(at)),
                recent_errors: self.board.recent_errors(device, now),
                io_wait: io_wait.map(|(read, at)| (read.clone(), now.since(at))),
            })
        });
        let mut details: Vec<DiskDetails> = details.collect();
        details.sort_by(|a, b| a.name.cmp(&b.name));
        details
    }

    fn limit(&self, device: DeviceNumber) -> DiskLimit {
        self.auto_limits.limit(device).unwrap_or_else(|| DiskLimit {
            limit: self.board.limit(device).unwrap_or_default(),
            computed: None,
        })
    }

    /// Returns the reason for the state of a disk, as far as it is known.
    pub(super) fn reason(&self, device: DeviceNumber, health: Health, now: BootNanos) -> String {
        match health {
            Health::Healthy => String::new(),
            Health::Failing => format!("at least {ERRORS} failed requests within a minute"),
            Health::Stalled => {
                let seconds = self.settings.stalled_after.as_secs_f64();
                format!("requests in flight, and none completed for {seconds} s")
            }
            Health::Slow => {
                let requests = self.board.slow_requests(device, now);
                let limit = self.limit(device).limit;
                let requests = requests.map(|requests| requests.describe(limit));
                let causes = self.io_wait.at(device).map(|(read, _)| read.to_string());
                let parts = requests.into_iter().chain(causes);
                let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
                parts.join("; ")
            }
        }
    }
}
