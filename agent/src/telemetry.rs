//! EDGE: reports what the agent does, in metrics and in the log. Decides nothing.

#![forbid(unsafe_code)]

use nodepulse_core::clock::Now;
use nodepulse_core::explanation::Journal;
use nodepulse_core::incident::Incident;
use nodepulse_core::node_status::Facts;
use nodepulse_core::node_status::setters::SetterError;
use nodepulse_core::pressure::Policy;
use nodepulse_core::record::{Received, Record};
use nodepulse_core::settings::Mode;
use nodepulse_core::subjects::{Decision, StallDecision};
use tracing::{info, warn};

use crate::config::ConfigChanges;

pub mod certificate;
mod decisions;
mod incidents;
mod journald;
pub mod metering;
pub mod series;

pub use journald::Journald;
use metering::Metering;

pub struct Telemetry {
    pub metering: Metering,
    pub journal: Journal,
    /// The parts of the status that cannot be computed, as logged.
    failed: Vec<(&'static str, SetterError)>,
}

impl Telemetry {
    pub fn new(metering: Metering) -> Self {
        Self {
            metering,
            journal: Journal::default(),
            failed: Vec::new(),
        }
    }

    /// Logs the parts of the status that cannot be computed, once.
    pub fn record_failed(&mut self, failed: &[(&'static str, SetterError)]) {
        if self.failed == failed {
            return;
        }
        for (setter, err) in failed.iter().filter(|entry| !self.failed.contains(entry)) {
            let err = err as &dyn std::error::Error;
            warn!(setter, err, "part of the node status cannot be computed");
        }
        if failed.is_empty() {
            info!("every part of the node status can be computed again");
        }
        self.failed = failed.to_vec();
    }

    /// Logs the conditions that companion mode omits, and sets their metric.
    pub fn record_omitted(&mut self, mode: Mode, facts: &Facts) {
        if mode == Mode::Companion {
            self.metering.omitted(facts.companion.omitted());
        }
    }

    /// Counts a record of the kernel, and logs one that cannot be used.
    pub fn record_received(&self, received: &Received) {
        self.metering.record_received(&received.record);
        match &received.record {
            Ok(Record::Unknown { kind }) => warn!(kind, "record of an unknown kind"),
            Ok(_) => {}
            Err(err) => warn!(err = err as &dyn std::error::Error, "malformed record"),
        }
    }

    /// Records a decision of a subject in the log, the metrics and the journal.
    pub fn decided(&mut self, decision: Decision, policy: &Policy, now: Now) {
        match &decision {
            Decision::Sampled(samples) => {
                self.metering.record_samples(samples, policy);
                self.journal.record_samples(samples, now.boot);
            }
            Decision::PressureChanged(change) => self.journal.record_change(change, now.wall),
            Decision::Stall(StallDecision::Changed { change, .. }) => {
                self.journal.record_stall_change(change, now.wall);
            }
            decision => self.metering.record_decision(decision),
        }
        decisions::log(decision, now.wall);
    }
}

/// Logs an incident, once and with everything that is known about it.
pub fn log_incident(incident: &Incident, journald: Option<&Journald>) {
    if !incident.settled {
        return;
    }
    let is_logged = journald.is_some_and(|journald| journald.report(incident));
    if !is_logged {
        incidents::log(incident);
    }
}

/// Logs what a reload changed. Returns its result for metrics.
pub fn log_changes(changes: &ConfigChanges) -> &'static str {
    let ConfigChanges {
        applied,
        pending_restart,
    } = changes;
    info!(changed = %applied.join(", "), "configuration reloaded");
    if !pending_restart.is_empty() {
        warn!(keys = %pending_restart.join(","), "changed keys take effect after a restart");
        "needs_restart"
    } else if applied.is_empty() {
        "unchanged"
    } else {
        "applied"
    }
}
