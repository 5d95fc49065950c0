//! What conditions of our own go by beside the evaluator, and whether they have news.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::App;
use super::observe::Observe;
use crate::clock::{BootNanos, Now};
use crate::config::{Config, Mode};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::setters::SetterError;
use crate::node_status::{CompanionFacts, Status, StoredNode};
use crate::pressure::Exceeded;
use crate::pressure::kills::KillWindow;
use crate::reading::{Resource, Signal};
use crate::subjects::{Input, KillCounterInput, StallInput};

type Lost = BTreeMap<Resource, Vec<Signal>>;

/// One line for each resource whose condition is Unknown from here on, or no longer.
fn tell_lost(before: &Lost, now: &Lost) {
    let names = |signals: &[Signal]| -> Vec<_> { signals.iter().map(|s| s.as_str()).collect() };
    for (resource, signals) in now {
        if before.get(resource) != Some(signals) {
            let (resource, signals) = (resource.as_str(), names(signals));
            warn!(resource, ?signals, "source lost; the condition is Unknown");
        }
    }
    for resource in before.keys().filter(|resource| !now.contains_key(resource)) {
        info!(resource = resource.as_str(), "source is there again");
    }
}

pub(super) fn log_failed(failed: &[(&'static str, SetterError)]) {
    for (setter, err) in failed {
        let err = err as &dyn std::error::Error;
        debug!(setter, err, "setter failed");
    }
}

/// Of companion mode.
pub(super) struct Own {
    kills: KillWindow,
}

/// What is configured of the facts.
pub(super) fn facts(config: &Config, observe: &Observe) -> CompanionFacts {
    CompanionFacts {
        checks: config.conditions.clone(),
        pods_cgroup: observe.pods_cgroup().to_owned(),
        stall_threshold: config.psi.threshold,
        ..CompanionFacts::default()
    }
}

impl Own {
    /// `None` in node mode, which has the kubelet's conditions.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let period = config.policy.transition_period;
        (config.mode == Mode::Companion).then(|| Self {
            kills: KillWindow::new(period),
        })
    }

    /// From here on.
    pub(super) const fn set_transition_period(&mut self, period: Duration) {
        self.kills.set_transition_period(period);
    }

    /// When frequent kills were last over.
    pub(super) fn exceeded(&self) -> Exceeded {
        self.kills.exceeded()
    }

    /// When something may end by itself.
    pub(super) fn fall_at(&self) -> Option<BootNanos> {
        self.kills.fall_at()
    }
}

impl App {
    /// The facts have moved. `edge`: and with them a condition of node mode.
    pub(super) fn facts_changed(&mut self, edge: bool, now: Now) {
        self.settle(now);
        let edge = edge && self.config.mode == Mode::Node;
        if let Some(reporting) = self.reporting.as_mut().filter(|_| edge) {
            reporting.edge(now.boot);
        }
    }

    /// Has the ledger follow the facts, and its readers follow the ledger.
    pub(super) fn settle(&mut self, now: Now) {
        let update = self.ledger.update(&self.facts, now);
        let computed = self.ledger.computed();
        if update.conditions {
            self.metering
                .conditions(self.ledger.conditions(), &update.transitions);
        }
        let Some(reporting) = &mut self.reporting else {
            return;
        };
        if reporting.publish(computed) {
            log_failed(self.ledger.failed());
        }
        // In node mode, only what the evaluator reports is worth a request of its own.
        if update.conditions && self.config.mode == Mode::Companion {
            reporting.edge(now.boot);
        }
    }

    /// The cgroup of the pods may have come after us.
    pub(super) fn name_pods(&mut self) {
        let (known, now) = (
            &mut self.facts.companion.pods_cgroup,
            self.observe.pods_cgroup(),
        );
        if known != now {
            info!(cgroup = now, "pods cgroup found");
            now.clone_into(known);
        }
    }

    /// So many processes of pods were killed.
    pub(super) fn pods_killed(&mut self, count: u64, at: BootNanos, now: Now) {
        self.with_kills(now, |kills| kills.record_kills(at, count, now.boot));
    }

    /// Lets go of what has been held for long enough, and of everything where nothing tells of kills
    /// any more.
    pub(super) fn look_at_kills(&mut self, now: Now) {
        let blind = self.subjects.kill_counters.is_unavailable();
        self.with_kills(now, |kills| {
            if blind {
                kills.source_failed(now.boot);
            } else {
                kills.source_read(now.boot);
            }
            kills.advance(now.boot);
        });
    }

    /// From here on the cgroups' counters tell of kills.
    pub(super) fn log_ended(&mut self, now: Now) {
        self.feed(Input::KillCounter(KillCounterInput::LogEnded), now);
        self.look_at_kills(now);
    }

    pub(super) fn with_kills(&mut self, now: Now, change: impl FnOnce(&mut KillWindow)) {
        let Some(own) = &mut self.own else {
            return;
        };
        change(&mut own.kills);
        let (from, to) = (self.facts.companion.kills, own.kills.pressure());
        if from == to {
            return;
        }
        self.facts.companion.kills = to;
        if std::mem::discriminant(&from) != std::mem::discriminant(&to) {
            info!(%from, %to, "frequency of kills changed");
            self.facts_changed(false, now);
        }
    }

    /// What the Node has as True, and nobody remembers, is held for a whole transition period from when
    /// we first saw it well.
    pub(super) fn hold_own(&mut self, stored: &StoredNode, now: Now) {
        let was_true = stored
            .conditions
            .iter()
            .filter(|c| c.status == Status::True && !self.exceeded.knows(&c.type_));
        let was_true: Vec<_> = was_true.collect();
        for condition in was_true {
            match NodepulseCondition::parse(&condition.type_) {
                Some(NodepulseCondition::FrequentOomKills) => {
                    self.with_kills(now, |kills| kills.seed(now.boot));
                }
                Some(own) => {
                    if let Some(resource) = own.resource() {
                        self.evaluator.seed(resource, now.boot);
                    }
                    if let Some(stall) = own.stall() {
                        self.feed(Input::Stall(StallInput::Stored(stall)), now);
                    }
                }
                None => {}
            }
        }
        self.take_pressures();
    }

    /// Takes over what the evaluator has found. `true` where a source was lost, or is there again.
    pub(super) fn take_pressures(&mut self) -> bool {
        self.facts.pressures = self.evaluator.pressures();
        self.facts.companion.causes = self.evaluator.causes();
        let lost = self.evaluator.lost();
        let news = self.facts.lost != lost;
        if news {
            tell_lost(&self.facts.lost, &lost);
            self.facts.lost = lost;
        }
        news
    }
}
