//! Answers requests for metrics, `status` and `explain`, and notifies the service manager.

use tracing::debug;

use super::App;
use super::blocking::Persistence;
use super::metering::Metering;
use super::parts::RunMode;
use super::power::Power;
use super::reload::{Reloading, Reloads};
use crate::api::convert;
use crate::clock::{BootNanos, Now};
use crate::explain::CurrentState;
use crate::host::cgroup::pods::PodsPath;
use crate::node_status::setters::Setters;
use crate::notify::Notify;
use crate::serve::{Query, QueryKind};
use crate::subjects::recording::Recorder;

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

/// Keep-alive messages to the watchdog of the service manager.
pub(super) struct Heartbeat {
    pub(super) notify: Notify,
    /// `None`: there is no watchdog.
    due: Option<BootNanos>,
}

impl Heartbeat {
    pub(super) fn new(notify: Notify, now: BootNanos) -> Self {
        let due = notify.watchdog().map(|every| now.plus(every));
        Self { notify, due }
    }

    pub(super) fn due(&self) -> Option<BootNanos> {
        self.due
    }

    /// Sends a keep-alive message if one is due by `soon`.
    pub(super) fn beat(&mut self, now: BootNanos, soon: BootNanos) {
        if self.due.is_some_and(|due| due <= soon) {
            self.notify.alive();
            self.due = self.notify.watchdog().map(|every| now.plus(every));
        }
    }
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

    /// Notifies the service manager once the agent is ready.
    pub(super) fn notify_ready(&mut self) {
        let reading = self.reloading.as_ref().is_some_and(Reloading::is_busy);
        if self.metering.is_ready() && !reading {
            self.heartbeat.notify.ready();
        }
    }
}
