//! Handles the reports of the completion probe.

use super::{DiskDecision, DiskQuery, DiskWatch, log, query, unhealthy};
use crate::clock::{BootNanos, Stamp};
use crate::pressure::disks::{EndedWindow, Health};
use crate::reading::DiskReport;
use crate::subjects::Effect;
use crate::units::DeviceNumber;

impl DiskWatch {
    pub(super) fn reported(
        &mut self,
        device: DeviceNumber,
        report: DiskReport,
        stamp: Stamp,
        now: BootNanos,
    ) -> Vec<Effect> {
        let mut effects = vec![log(DiskDecision::Reported { device, report })];
        let Some(name) = self.board.name(device).map(str::to_owned) else {
            return effects;
        };
        match report {
            DiskReport::SlowWindow(window) => effects.push(query(DiskQuery::Statistics {
                device,
                name,
                window,
                stamp,
            })),
            // Errors need no start times.
            DiskReport::Error(_) => {
                let health = self.board.error(device, stamp.kernel, now);
                effects.extend(self.health_changed(device, health, now));
                if health.is_some() {
                    effects.extend(self.publish(Some(stamp)));
                }
                // A file system may become read-only because of the error.
                if self.filesystems.request(now) {
                    effects.push(query(DiskQuery::Filesystems));
                }
            }
        }
        effects
    }

    /// Applies a slow window; `None` if the requests had no start times, because I/O statistics are
    /// off.
    pub(super) fn confirmed(
        &mut self,
        device: DeviceNumber,
        window: Option<EndedWindow>,
        stamp: Stamp,
        now: BootNanos,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(name) = self.board.name(device).map(str::to_owned) else {
            return effects;
        };
        self.slow_stamp = Some(stamp);
        let changed = if let Some(window) = window {
            let health = self.board.slow_window(device, window);
            effects.extend(self.health_changed(device, health, now));
            effects.extend(self.query_io_wait(now));
            health.is_some()
        } else {
            self.statistics_off(device, &name, now, &mut effects)
        };
        if changed {
            effects.extend(self.publish(Some(stamp)));
        }
        effects
    }

    pub(super) fn health_changed(
        &self,
        device: DeviceNumber,
        health: Option<Health>,
        now: BootNanos,
    ) -> Vec<Effect> {
        let disk = (health, self.board.name(device), self.board.role(device));
        let (Some(health), Some(name), Some(role)) = disk else {
            return Vec::new();
        };
        let details = self.reason(device, health, now);
        let name = name.to_owned();
        let reported = unhealthy::report(device, &name, role, health, &details);
        let logged = log(DiskDecision::HealthChanged {
            device,
            name,
            role,
            health,
            details,
        });
        reported.into_iter().chain(Some(logged)).collect()
    }
}
