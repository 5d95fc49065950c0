//! What comes of answers of the helper threads and of the API server, and what the latter is to do.

use super::App;
use super::blocking::Answer;
use crate::clock::Now;
use crate::config::Mode;
use crate::kube_event::Draft;
use crate::node_status::{Status, StoredNode, setters};
use crate::pressure::sample::Sample;
use crate::reporting::{Report, Reporting, Why};
use crate::subjects::{Input, KillCounterInput};

impl App {
    pub(super) fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Storage(found) => self.storage_answered(found, now),
            Answer::Kills(counted) => {
                self.feed(Input::KillCounter(KillCounterInput::Counted(counted)), now);
                self.look_at_kills(now);
            }
            Answer::Recalled { state, kills } => {
                self.recall_exceeded(state.as_deref(), now);
                let recalled = KillCounterInput::Recalled {
                    previous: self.exceeded.previous_kills(state.as_deref()),
                    counted: kills,
                };
                self.feed(Input::KillCounter(recalled), now);
                self.look_at_kills(now);
            }
            Answer::Remembered => {
                self.feed(Input::KillCounter(KillCounterInput::Saved), now);
                self.exceeded.written();
            }
            Answer::Resolved(addresses) => self.facts.network.resolved = addresses,
            Answer::Configured(read) => self.configured(read, now),
            Answer::Disk(input) => self.feed(Input::Disk(input), now),
        }
    }

    pub(super) fn looked(&mut self, looks: &[Sample], now: Now) {
        self.metering.looked(looks, &self.config.policy);
        self.journal.record_samples(looks, now.boot);
    }

    pub(super) fn reported(&mut self, report: Report, now: Now) {
        self.metering.reported(&report);
        self.tell_ready();
        if let Some(once) = &mut self.once {
            once.took(&report);
        }
        if let Report::Synced { node, .. } = &report {
            self.ledger.record_on_node(node);
        }
        if let Report::Registered { stored, .. } = &report {
            self.ledger.record_stored(stored);
            match self.config.mode {
                Mode::Companion => self.hold_own(stored, now),
                Mode::Node => self.hold(stored, now),
            }
            self.adopted(now);
        }
        self.settle(now);
        if let Some(reporting) = &mut self.reporting {
            reporting.took(report, now.boot);
        }
        self.let_go();
        self.kills_settled(now);
    }

    /// Passes on what became of the Events about kills.
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

    /// What the Node has as True, and nobody remembers, is held for a whole transition period from when
    /// we first saw it well.
    fn hold(&mut self, stored: &StoredNode, now: Now) {
        let was_true = stored
            .conditions
            .iter()
            .filter(|c| c.status == Status::True && !self.exceeded.knows(&c.type_));
        let was_true: Vec<_> = was_true.collect();
        for condition in was_true {
            if let Some(resource) = setters::resource(&condition.type_) {
                self.evaluator.seed(resource, now.boot);
            }
        }
        self.take_pressures();
    }
    pub(super) fn record_all(&mut self, events: Vec<Draft>) {
        if let Some(reporting) = &mut self.reporting {
            for event in events {
                reporting.record(event);
            }
        }
    }

    pub(super) fn sync(&mut self, why: Why, now: Now) {
        self.settle(now);
        if let Some(reporting) = &mut self.reporting {
            reporting.sync(why);
        }
    }
}
