//! The facts of companion mode that the evaluator does not compute, and the publication of changed
//! facts.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::App;
use crate::clock::{BootNanos, Now};
use crate::config::{Config, Mode};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::setters::SetterError;
use crate::node_status::{CompanionFacts, StoredNode};
use crate::pressure::Exceeded;
use crate::pressure::kills::KillWindow;
use crate::queries::signals::Observe;
use crate::reading::{Resource, Signal};
use crate::subjects::{Input, KillCounterInput, StallInput};

type LostSources = BTreeMap<Resource, Vec<Signal>>;

/// Logs one line for each resource whose condition becomes Unknown, or is known again.
fn log_lost_sources(before: &LostSources, now: &LostSources) {
    let names = |signals: &[Signal]| {
        let names: Vec<_> = signals.iter().map(|signal| signal.as_str()).collect();
        names.join(", ")
    };
    for (resource, signals) in now {
        if before.get(resource) != Some(signals) {
            let (resource, signals) = (resource.as_str(), names(signals));
            warn!(resource, %signals, "source lost; the condition is Unknown");
        }
    }
    for resource in before.keys().filter(|resource| !now.contains_key(resource)) {
        info!(resource = resource.as_str(), "source is available again");
    }
}

pub(super) fn log_failed(failed: &[(&'static str, SetterError)]) {
    for (setter, err) in failed {
        let err = err as &dyn std::error::Error;
        debug!(setter, err, "setter failed");
    }
}

/// The inputs of companion mode's conditions that the evaluator does not compute.
pub(super) struct CompanionConditions {
    kills: KillWindow,
}

/// The facts that come from the configuration.
pub(super) fn facts(config: &Config, observe: &Observe) -> CompanionFacts {
    CompanionFacts {
        checks: config.conditions.clone(),
        pods_cgroup: observe.pods_cgroup().to_owned(),
        stall_threshold: config.psi.threshold,
        ..CompanionFacts::default()
    }
}

impl CompanionConditions {
    /// `None` in node mode, which reports the kubelet's conditions.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let period = config.policy.transition_period;
        (config.mode == Mode::Companion).then(|| Self {
            kills: KillWindow::new(period),
        })
    }

    /// Applies from now on.
    pub(super) const fn set_transition_period(&mut self, period: Duration) {
        self.kills.set_transition_period(period);
    }

    /// When frequent kills last exceeded the threshold.
    pub(super) fn exceeded(&self) -> Exceeded {
        self.kills.exceeded()
    }

    /// The next moment at which a condition may become False without an event.
    pub(super) fn fall_at(&self) -> Option<BootNanos> {
        self.kills.fall_at()
    }
}

impl App {
    /// Publishes changed facts. `edge`: a condition of node mode may have changed too.
    pub(super) fn facts_changed(&mut self, edge: bool, now: Now) {
        self.update_ledger(now);
        let edge = edge && self.config.mode == Mode::Node;
        if let Some(reporting) = self.reporting.as_mut().filter(|_| edge) {
            reporting.edge(now.boot);
        }
    }

    /// Updates the ledger from the facts, and metrics and reporting from the ledger.
    pub(super) fn update_ledger(&mut self, now: Now) {
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
        // In node mode, only changes that the evaluator reports cause an extra request.
        if update.conditions && self.config.mode == Mode::Companion {
            reporting.edge(now.boot);
        }
    }

    /// Finds the pods cgroup if it was created after the start of the agent.
    pub(super) fn update_pods_cgroup(&mut self) {
        let (known, now) = (
            &mut self.facts.companion.pods_cgroup,
            self.observe.pods_cgroup(),
        );
        if known != now {
            info!(cgroup = now, "pods cgroup found");
            now.clone_into(known);
        }
    }

    /// Records that `count` processes of pods were killed.
    pub(super) fn pods_killed(&mut self, count: u64, at: BootNanos, now: Now) {
        self.with_kills(now, |kills| kills.record_kills(at, count, now.boot));
    }

    /// Updates `FrequentOOMKills`: it ends after the transition period, and is Unknown once no source of
    /// kills is available.
    pub(super) fn check_kill_source(&mut self, now: Now) {
        let unavailable = self.subjects.kill_counters.is_unavailable();
        self.with_kills(now, |kills| {
            if unavailable {
                kills.source_failed(now.boot);
            } else {
                kills.source_read(now.boot);
            }
            kills.advance(now.boot);
        });
    }

    /// The kernel log has ended: from now on the cgroups' counters are the source of kills.
    pub(super) fn log_ended(&mut self, now: Now) {
        self.feed(Input::KillCounter(KillCounterInput::LogEnded), now);
        self.check_kill_source(now);
    }

    /// Applies `change` to the recent kills, and publishes the result.
    pub(super) fn with_kills(&mut self, now: Now, change: impl FnOnce(&mut KillWindow)) {
        let Some(companion) = &mut self.companion else {
            return;
        };
        change(&mut companion.kills);
        let (from, to) = (self.facts.companion.kills, companion.kills.pressure());
        if from == to {
            return;
        }
        self.facts.companion.kills = to;
        if std::mem::discriminant(&from) != std::mem::discriminant(&to) {
            info!(%from, %to, "frequency of kills changed");
            self.facts_changed(false, now);
        }
    }

    /// Seeds nodepulse's conditions: see [`ExceededTimes::adopted_from`].
    ///
    /// [`ExceededTimes::adopted_from`]: super::exceeded::ExceededTimes::adopted_from
    pub(super) fn seed_companion_conditions(&mut self, stored: &StoredNode, now: Now) {
        for condition in self.exceeded.adopted_from(stored) {
            match NodepulseCondition::parse(&condition.type_) {
                Some(NodepulseCondition::FrequentOomKills) => {
                    self.with_kills(now, |kills| kills.seed(now.boot));
                }
                Some(condition) => {
                    if let Some(resource) = condition.resource() {
                        self.evaluator.seed(resource, now.boot);
                    }
                    if let Some(stall) = condition.stall() {
                        self.feed(Input::Stall(StallInput::Stored(stall)), now);
                    }
                }
                None => {}
            }
        }
        self.update_pressures();
    }

    /// Copies the results of the evaluator to the facts. `true` if a source was lost or is available
    /// again.
    pub(super) fn update_pressures(&mut self) -> bool {
        self.facts.pressures = self.evaluator.pressures();
        self.facts.companion.causes = self.evaluator.causes();
        let lost = self.evaluator.lost();
        let changed = self.facts.lost != lost;
        if changed {
            log_lost_sources(&self.facts.lost, &lost);
            self.facts.lost = lost;
        }
        changed
    }
}
