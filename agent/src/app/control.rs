//! Answers requests for metrics, `status` and `explain`, and notifies the service manager.

use tracing::debug;

use super::App;
use super::builder::RunMode;
use super::reload::{Reloading, Reloads};
use crate::api::convert;
use crate::clock::Now;
use crate::explain::CurrentState;
use crate::host::cgroup::pods::PodsPath;
use crate::logind::power::Power;
use crate::node_status::setters::Setters;
use crate::notify::Notify;
use crate::queries::blocking::Persistence;
use crate::serve::{Query, QueryKind};
use crate::subjects::recording::Recorder;
use crate::telemetry::metering::Metering;

/// The parts from which `App` is built.
pub(super) struct AppParts {
    pub(super) pods: PodsPath,
    pub(super) metering: Metering,
    pub(super) persistence: Persistence,
    pub(super) setters: Setters,
    pub(super) reloads: Option<Reloads>,
    pub(super) notify: Notify,
    pub(super) run_mode: RunMode,
    pub(super) power: Power,
    pub(super) recorder: Option<Box<dyn Recorder>>,
}

impl App {
    pub(super) fn queried(&mut self, query: Query, now: Now) {
        let text = match query.subject {
            QueryKind::Metrics => self.metrics(now),
            QueryKind::Status => {
                self.update_ledger(now);
                convert::status_value(&self.ledger.status(now)).to_string()
            }
            QueryKind::Explain => self.explained(now),
        };
        if query.answer.send(text).is_err() {
            debug!("the client closed the connection before the answer");
        }
    }

    fn explained(&mut self, now: Now) -> String {
        self.update_ledger(now);
        let blocked = self.metering.lanes().blocked();
        let present = CurrentState {
            node: &self.config.node_name,
            evaluator: &self.evaluator,
            stalls: &self.facts.stalls,
            on_node: self.ledger.on_node(),
            disks: &self.facts.disks,
            transition_period: self.config.policy.transition_period,
            blocked: &blocked,
            now,
            time: convert::time,
        };
        let status = self.ledger.status(now);
        self.journal.explain(&status, present).to_string()
    }

    /// All metrics as text, including those that are read on demand.
    pub(super) fn metrics(&mut self, now: Now) -> String {
        self.update_ledger(now);
        if let Some(reporting) = &self.reporting {
            self.metering.events(&reporting.events());
        }
        let figures = self.metering.simulated();
        let figures = figures.unwrap_or_else(|| self.probes.figures(self.subjects.disks.devices()));
        let disks: Vec<(&str, &[u64])> = figures
            .disks
            .iter()
            .filter_map(|(device, slots)| Some((self.subjects.disks.name(*device)?, &slots[..])))
            .collect();
        self.metering.text(&figures, &disks, now)
    }

    /// Notifies the service manager once the agent is ready.
    pub(super) fn notify_ready(&mut self) {
        let reading = self.reloading.as_ref().is_some_and(Reloading::is_busy);
        if self.metering.is_ready() && !reading {
            self.heartbeat.notify.ready();
        }
    }
}
