//! What follows from the reports of the completion probe, and from the stalls of other tasks.

use super::{DiskDecision, DiskQuery, DiskReport, DiskWatch, Sampling, log, query, unhealthy};
use crate::clock::{BootNanos, Stamp};
use crate::pressure::disks::{Health, Window};
use crate::pressure::io_wait::{IoWait, StallShare};
use crate::subjects::{Effect, Query};
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
                effects.extend(self.health_changed(device, health));
                if health.is_some() {
                    effects.extend(self.publish(Some(stamp)));
                }
                // A file system may become read-only because of it.
                if self.filesystems.request(now) {
                    effects.push(query(DiskQuery::Filesystems));
                }
            }
        }
        effects
    }

    /// Whether the requests of a slow window carry their start times is known now; `None`: they do not.
    pub(super) fn confirmed(
        &mut self,
        device: DeviceNumber,
        window: Option<Window>,
        stamp: Stamp,
        now: BootNanos,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(name) = self.board.name(device).map(str::to_owned) else {
            return effects;
        };
        self.slow_stamp = Some(stamp);
        let changed = if let Some(window) = window {
            let health = self.board.slow_window(device, window, stamp.kernel, now);
            effects.extend(self.health_changed(device, health));
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

    /// Queries who waits for I/O if that decides whether a disk is slow.
    pub(super) fn query_io_wait(&mut self, now: BootNanos) -> Option<Effect> {
        let devices = self.board.needs_io_wait(now);
        if devices.is_empty() || self.io_wait == Sampling::InProgress {
            return None;
        }
        self.io_wait = Sampling::InProgress;
        Some(Effect::Query(Query::IoWait(devices)))
    }

    pub(super) fn io_wait_read(&mut self, io_wait: IoWait, now: BootNanos) -> Vec<Effect> {
        self.io_wait = Sampling::Idle;
        let others = io_wait.others.map(StallShare::percent);
        self.last_io_wait = io_wait;
        let mut effects = Vec::new();
        for (device, health) in self.board.io_wait(others, now) {
            effects.extend(self.health_changed(device, Some(health)));
        }
        if !effects.is_empty() {
            effects.extend(self.publish(self.slow_stamp));
        }
        effects
    }

    /// The state of a disk changed, if it did.
    pub(super) fn health_changed(
        &self,
        device: DeviceNumber,
        health: Option<Health>,
    ) -> Vec<Effect> {
        let disk = (health, self.board.name(device), self.board.role(device));
        let (Some(health), Some(name), Some(role)) = disk else {
            return Vec::new();
        };
        let details = self.details(device, health);
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

    /// What is known of the reason for the state of a disk.
    fn details(&self, device: DeviceNumber, health: Health) -> String {
        match health {
            Health::Healthy => String::new(),
            Health::Failing => "at least 3 failed requests within a minute".to_owned(),
            Health::Stalled => {
                let seconds = self.settings.stalled_after.as_secs_f64();
                format!("requests in flight, and none completed for {seconds} s")
            }
            Health::Slow => {
                let requests = self.board.slow_requests(device);
                let requests = requests.map(|requests| requests.to_string());
                let causes = self.last_io_wait.to_string();
                let parts = requests.into_iter().chain(Some(causes));
                let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
                parts.join("; ")
            }
        }
    }
}
