//! Whether there are many OOM incidents in many pods: `FrequentOOMKills`.

use std::time::Duration;

use super::{Decision, Effect, FactChange};
use crate::clock::{BootNanos, Now};
use crate::pods::PodId;
use crate::pressure::kills::{FrequentOom, IncidentCounts, IncidentWindow};
use crate::pressure::{Exceeded, Pressure};

/// The frequency of OOM incidents in pods.
#[derive(Debug)]
pub struct FrequentKills {
    window: IncidentWindow<PodId>,
    /// As last published.
    published: Pressure,
}

impl FrequentKills {
    /// Without kills, and without a source.
    pub const fn new(limits: FrequentOom, transition_period: Duration) -> Self {
        Self {
            window: IncidentWindow::new(limits, transition_period),
            published: Pressure::Unknown,
        }
    }

    /// The kernel killed in `pod` at `at`.
    pub(super) fn killed(&mut self, pod: PodId, at: BootNanos, now: Now) -> Vec<Effect> {
        self.window.record_incident(pod, at, now.boot);
        self.publish()
    }

    /// Time has passed, or the source of kills changed.
    pub(super) fn update(&mut self, is_unavailable: bool, now: Now) -> Vec<Effect> {
        if is_unavailable {
            self.window.source_failed(now.boot);
        } else {
            self.window.source_read(now.boot);
        }
        self.window.advance(now.boot);
        self.publish()
    }

    /// The API server has the condition as True, and it is not known since when.
    pub(super) fn seed(&mut self, now: Now) -> Vec<Effect> {
        self.window.seed(now.boot);
        self.publish()
    }

    /// Before a restart, the threshold was exceeded until `until`, which may be in the future.
    pub(super) fn restore(&mut self, until: BootNanos, now: Now) -> Vec<Effect> {
        // It is exceeded until the oldest of the incidents is out of the window.
        let until = until.min(now.boot.plus(self.window.window()));
        self.window.restore(until, now.boot);
        self.publish()
    }

    /// Apply from now on.
    pub(super) const fn configure(&mut self, limits: FrequentOom, transition_period: Duration) {
        self.window.configure(limits, transition_period);
    }

    /// When the threshold was last exceeded.
    pub fn exceeded(&self) -> Exceeded {
        self.window.exceeded()
    }

    /// The next moment at which the condition may become False without an input.
    pub fn due(&self) -> Option<BootNanos> {
        self.window.fall_at()
    }

    /// The incidents of the window that ends at `now`.
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
