//! Decides if there are many OOM incidents in many pods: `FrequentOOMKills`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect};
use crate::clock::{BootNanos, Now};
use crate::node_status::FactChange;
use crate::pods::PodId;
use crate::pressure::frequent_kills::{FrequentOom, IncidentCounts, IncidentWindow};
use crate::pressure::{Exceeded, Pressure};

#[derive(Debug, Serialize, Deserialize)]
pub struct FrequentKills {
    window: IncidentWindow<PodId>,
    published: Pressure,
}

impl FrequentKills {
    pub const fn new(limits: FrequentOom, transition_period: Duration) -> Self {
        Self {
            window: IncidentWindow::new(limits, transition_period),
            published: Pressure::Unknown,
        }
    }

    pub(super) fn killed(&mut self, pod: PodId, at: BootNanos, now: Now) -> Vec<Effect> {
        self.window.record_incident(pod, at, now.boot);
        self.publish()
    }

    /// Must be called when time has passed, or the source of kills has changed.
    pub(super) fn update(&mut self, is_unavailable: bool, now: Now) -> Vec<Effect> {
        if is_unavailable {
            self.window.source_failed(now.boot);
        } else {
            self.window.source_read(now.boot);
        }
        self.window.advance(now.boot);
        self.publish()
    }

    /// Applies a condition that the API server has as True since an unknown time.
    pub(super) fn seed(&mut self, now: Now) -> Vec<Effect> {
        self.window.seed(now.boot);
        self.publish()
    }

    /// Continues a condition whose threshold was exceeded until `until`, before a restart. The time
    /// may be in the future.
    pub(super) fn restore(&mut self, until: BootNanos, now: Now) -> Vec<Effect> {
        // The threshold is exceeded until the oldest of the incidents is out of the window.
        let until = until.min(now.boot.plus(self.window.window()));
        self.window.restore(until, now.boot);
        self.publish()
    }

    pub(super) const fn configure(&mut self, limits: FrequentOom, transition_period: Duration) {
        self.window.configure(limits, transition_period);
    }

    pub fn exceeded(&self) -> Exceeded {
        self.window.exceeded()
    }

    /// Returns the next time at which the condition may become False without an input.
    pub fn due(&self) -> Option<BootNanos> {
        self.window.fall_at()
    }

    pub fn counts(&self, now: BootNanos) -> IncidentCounts {
        self.window.counts(now)
    }

    /// An incident extends the condition; only a change of its status is published.
    fn publish(&mut self) -> Vec<Effect> {
        let (from, to) = (self.published, self.window.pressure());
        if from == to {
            return Vec::new();
        }
        self.published = to;
        let mut effects = vec![Effect::Fact(FactChange::FrequentKills(to))];
        if std::mem::discriminant(&from) != std::mem::discriminant(&to) {
            effects.push(Effect::Log(Decision::FrequencyOfKills { from, to }));
            effects.push(Effect::Publish);
        }
        effects
    }
}
