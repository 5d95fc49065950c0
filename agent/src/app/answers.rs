//! What comes of answers of the helper threads and of the API server, and what the latter is to do.

use super::App;
use super::blocking::Answer;
use crate::clock::{BootNanos, Now};
use crate::config::Mode;
use crate::kube_event::Draft;
use crate::node_status::{Status, StoredNode, setters};
use crate::pressure::sample::Sample;
use crate::reporting::{Report, Why};

impl App {
    pub(super) fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Storage(found) => self.storage_answered(found, now),
            Answer::Kills(found) => {
                let (incidents, killed, question) = self.counts.counted(found.as_deref(), now);
                self.tell(incidents, now);
                self.look_at_kills(now);
                self.pods_killed(killed, now.boot, now);
                if let Some(question) = question {
                    self.ask_for_counts(question, now.boot);
                }
            }
            Answer::Recalled { state, kills } => {
                self.recall_exceeded(state.as_deref(), now);
                let kills = kills.as_deref();
                let question = self.counts.recalled(state.as_deref(), kills, now.boot);
                self.look_at_kills(now);
                if let Some(question) = question {
                    self.ask_for_counts(question, now.boot);
                }
            }
            Answer::Remembered => {
                self.counts.written();
                self.exceeded.written();
            }
            Answer::Resolved(addresses) => self.facts.network.resolved = addresses,
            Answer::Configured(read) => self.configured(read, now),
            Answer::Subject(input) => self.feed(input, now),
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
            self.journal.record_on_node(node);
        }
        if let Report::Registered { stored, .. } = &report {
            self.journal.record_stored(&stored.conditions);
            match self.config.mode {
                Mode::Companion => self.hold_own(stored, now),
                Mode::Node => self.hold(stored, now),
            }
            self.adopted(now);
            // What was not stored has been so since now, whenever it is asked for.
            self.conditions(now);
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.set_facts(&self.facts);
            reporting.took(report, now.boot);
        }
        self.let_go();
        self.kills_settled(now.boot);
    }

    /// Takes in what became of the Events about kills.
    pub(super) fn kills_settled(&mut self, now: BootNanos) {
        if let Some(reporting) = &self.reporting {
            self.counts.settle(reporting.kill_outcomes(), now);
        }
        if let Some(question) = self.counts.save_in_time(now) {
            self.ask_for_counts(question, now);
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

    pub(super) fn sync(&mut self, why: Why) {
        if let Some(reporting) = &mut self.reporting {
            reporting.set_facts(&self.facts);
            reporting.sync(why);
        }
    }
}
