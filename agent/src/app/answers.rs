//! Answers of the blocking threads, reports of the API tasks, and requests to the latter.

use tracing::info;

use super::{App, AppError};
use crate::clock::Now;
use crate::config::Mode;
use crate::kube_event::{Draft, Involved, ReportedKills};
use crate::logind::PowerMessage;
use crate::node_status::transition::EventType;
use crate::node_status::{Shutdown, StoredNode, setters};
use crate::pressure::sample::Sample;
use crate::queries::blocking::Answer;
use crate::reporting::{Report, Reporting, Why};
use crate::subjects::{IncidentInput, Input, KillCounterInput};

impl App {
    pub(super) fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Storage(found) => self.storage_answered(found, now),
            Answer::Kills(counted) => {
                self.feed(Input::KillCounter(KillCounterInput::Counted(counted)), now);
                self.check_kill_source(now);
            }
            Answer::Loaded { state, kills } => {
                self.load_exceeded(state.as_deref(), now);
                let loaded = KillCounterInput::Recalled {
                    previous: self.exceeded.previous_kills(state.as_deref()),
                    counted: kills,
                };
                self.feed(Input::KillCounter(loaded), now);
                self.check_kill_source(now);
            }
            Answer::Saved => {
                self.feed(Input::KillCounter(KillCounterInput::Saved), now);
                self.exceeded.written();
            }
            Answer::Resolved(addresses) => self.facts.network.resolved = addresses,
            Answer::Configured(read) => self.configured(read, now),
            Answer::Disk(input) => self.feed(Input::Disk(input), now),
        }
    }

    pub(super) fn record_samples(&mut self, samples: &[Sample], now: Now) {
        self.metering.record_samples(samples, &self.config.policy);
        self.journal.record_samples(samples, now.boot);
    }

    pub(super) fn reported(&mut self, report: Report, now: Now) {
        self.metering.record_report(&report);
        self.notify_ready();
        if let Some(once) = &mut self.once {
            once.record(&report);
        }
        if let Report::Synced { node, .. } = &report {
            self.ledger.record_on_node(node);
        }
        if let Report::Registered { stored, .. } = &report {
            self.ledger.record_stored(stored);
            match self.config.mode {
                Mode::Companion => self.seed_companion_conditions(stored, now),
                Mode::Node => self.seed_conditions(stored, now),
            }
            self.adopted(now);
        }
        self.update_ledger(now);
        if let Some(reporting) = &mut self.reporting {
            reporting.took(report, now.boot);
        }
        self.release_shutdown_lock();
        self.kills_settled(now);
    }

    /// Passes the outcomes of Events about OOM kills to the kill counters.
    pub(super) fn kills_settled(&mut self, now: Now) {
        let outcomes = self.reporting.as_ref().map(Reporting::kill_outcomes);
        if let Some(outcomes) = outcomes.filter(|outcomes| !outcomes.is_empty()) {
            self.feed(Input::KillCounter(KillCounterInput::Settled(outcomes)), now);
        }
        let due = self.subjects.kill_counters.due();
        if due.is_some_and(|due| due <= now.boot) {
            self.feed(Input::KillCounter(KillCounterInput::Due), now);
        }
    }

    /// Seeds the conditions of node mode: see [`ExceededTimes::adopted_from`].
    ///
    /// [`ExceededTimes::adopted_from`]: super::exceeded::ExceededTimes::adopted_from
    fn seed_conditions(&mut self, stored: &StoredNode, now: Now) {
        for condition in self.exceeded.adopted_from(stored) {
            if let Some(resource) = setters::resource(&condition.type_) {
                self.evaluator.seed(resource, now.boot);
            }
        }
        self.update_pressures();
    }

    pub(super) fn record(&mut self, event: Draft) {
        if let Some(reporting) = &mut self.reporting {
            reporting.record(event);
        }
    }

    pub(super) fn sync(&mut self, why: Why, now: Now) {
        self.update_ledger(now);
        if let Some(reporting) = &mut self.reporting {
            reporting.sync(why);
        }
    }

    /// Handles an update, and all that are already queued.
    pub(super) fn pods_updated(&mut self, first: IncidentInput, now: Now) {
        let mut next = Some(first);
        while let Some(update) = next {
            self.feed(Input::Incident(update), now);
            next = self.pod_updates.try_next();
        }
        self.feed(Input::Incident(IncidentInput::Due), now);
    }

    /// Incidents become Events from now on, if there is an API server.
    pub(super) fn reporting_started(&mut self, now: Now) {
        if self.reporting.is_some() {
            self.feed(Input::Incident(IncidentInput::ReportingStarted), now);
        }
    }

    /// Reports at once that the machine shuts down, or that the shutdown was cancelled. The rate limit
    /// of status writes for changed conditions does not apply.
    pub(super) fn power(&mut self, message: PowerMessage, now: Now) {
        let (shutdown, text) = match message {
            PowerMessage::ShuttingDown(lock) => {
                info!("logind announced a shutdown");
                self.power.keep(lock);
                (
                    Shutdown::Announced,
                    "Shutdown manager detected shutdown event",
                )
            }
            PowerMessage::Cancelled => {
                info!("logind cancelled the shutdown");
                self.power.keep(None);
                (
                    Shutdown::NotAnnounced,
                    "Shutdown manager detected shutdown cancellation",
                )
            }
        };
        self.facts.shutdown = shutdown;
        self.record(Draft {
            object: Involved::Node,
            type_: EventType::Normal,
            reason: "Shutdown".to_owned(),
            message: text.to_owned(),
            of: 1,
            times: 1,
            kills: ReportedKills::default(),
            at: now.wall,
            stamp: None,
        });
        self.sync(Why::Edge, now);
    }

    /// Lets the machine shut down once no status write is in progress.
    pub(super) fn release_shutdown_lock(&mut self) {
        let syncing = self.reporting.as_ref().is_some_and(Reporting::is_syncing);
        if !syncing && self.power.release() {
            info!("released the shutdown inhibitor lock");
        }
    }

    /// The result of `--once`; `None` while writes are pending.
    pub(super) fn once_outcome(&self) -> Option<Result<(), AppError>> {
        let once = self.once.as_ref()?;
        if self.reporting.is_none() {
            return Some(Ok(()));
        }
        let outcome = once.outcome(self.clock.now().boot)?;
        Some(outcome.map_err(AppError::NotWritten))
    }
}
