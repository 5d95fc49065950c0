//! The alarm: when it fires next, and the work that is due then.

use tracing::info;

use super::{App, CompanionConditions, Once};
use crate::clock::{BootNanos, Now, Stamp};
use crate::config::Mode;
use crate::pressure::change::PressureChange;
use crate::reading::Resource;
use crate::reporting::{self, Reporting, Why};
use crate::subjects::{DiskInput, IncidentInput, Input, KillCounterInput};

impl App {
    /// The time of the next work.
    pub(super) fn due(&self) -> BootNanos {
        let falls = self.evaluator.next_fall();
        let reports = self.reporting.as_ref().map(Reporting::due);
        let deadlines = [
            falls,
            self.subjects.due(),
            self.companion
                .as_ref()
                .and_then(CompanionConditions::fall_at),
            reports,
            self.heartbeat.due(),
            self.once.as_ref().map(Once::deadline),
        ];
        let storage = (!self.storage_asked).then(|| self.storage.due());
        let all = deadlines.into_iter().chain([storage]).flatten();
        all.fold(self.hot.due(), BootNanos::min)
    }

    pub(super) fn tick(&mut self, now: Now) {
        let past = |at: Option<BootNanos>| at.is_some_and(|at| at <= now.boot);
        let must = past(self.evaluator.next_fall()) || past(self.subjects.pids.due());
        // Work that is due shortly is done in the same wake-up.
        let soon = now.boot.plus(reporting::ALIGN);
        if must || self.hot.due() <= soon {
            self.sample(now, None);
        }
        if must || self.storage.due() <= soon {
            self.ask_storage();
        }
        self.feed(Input::Disk(DiskInput::Tick { soon }), now);
        self.read_stalls(soon, now);
        self.feed(Input::Incident(IncidentInput::Due), now);
        self.kills_settled(now);
        self.check_kill_source(now);
        self.save_exceeded(now);
        self.heartbeat.beat(now.boot, soon);
        self.notify_ready();
        let Some(reporting) = &mut self.reporting else {
            return;
        };
        if reporting.status_due(now.boot) {
            if self.config.mode == Mode::Node {
                self.observe.refresh(&mut self.facts);
            }
            if self.probes.log_losses(self.metering.simulated().as_ref()) {
                self.feed(Input::KillCounter(KillCounterInput::RecordsLost), now);
            }
            self.sync(Why::Tick, now);
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.on_time(now.boot);
        }
    }

    /// Samples the signals that can be read without waiting for a disk. `stamp` is that of the pid
    /// record that caused the sample, if any.
    pub(super) fn sample(&mut self, now: Now, stamp: Option<Stamp>) {
        let samples = self.observe.hot();
        self.update_pods_cgroup();
        self.record_samples(&samples, now);
        let changes = self.evaluator.evaluate(&samples, now.boot);
        self.hot.next(&samples, &self.evaluator, now.boot);
        self.pids_sampled(now);
        self.name_largest(&changes, now);
        self.changed(&changes, stamp.map(|stamp| (Resource::Pids, stamp)), now);
        self.kills_settled(now);
        self.sampled(now);
    }

    /// Logs changes and reports them to the API server; `cause` is the kernel record behind them.
    pub(super) fn changed(
        &mut self,
        changes: &[PressureChange],
        cause: Option<(Resource, Stamp)>,
        now: Now,
    ) {
        let edge = self.update_pressures() || !changes.is_empty();
        // Saved before it is reported, so that a restart cannot lose it.
        self.save_exceeded(now);
        for change in changes {
            info!(
                resource = change.resource.as_str(),
                from = %change.from,
                to = %change.to,
                reason = change.reason.as_str(),
                "pressure changed"
            );
            self.journal.record_change(change, now.wall);
            let stamp = cause.filter(|(resource, _)| *resource == change.resource);
            if let (Some(reporting), Some((resource, stamp))) = (&mut self.reporting, stamp) {
                reporting.caused_by(resource, stamp);
            }
        }
        self.facts_changed(edge, now);
    }
}
