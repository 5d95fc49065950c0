//! When what was acknowledged is saved.

use super::{AT_ONCE, Baseline, KillCounters, Saving};
use crate::clock::BootNanos;
use crate::subjects::{Effect, Input, StateInput, pass_on};

impl KillCounters {
    pub(super) fn save_if_many(&mut self, now: BootNanos) -> Vec<Effect> {
        if self.unsaved < AT_ONCE {
            return Vec::new();
        }
        self.save_if_due(now)
    }

    pub(super) fn save_if_due(&mut self, now: BootNanos) -> Vec<Effect> {
        match self.due() {
            Some(at) if at <= now => self.save(now),
            Some(_) | None => Vec::new(),
        }
    }

    pub(super) fn save(&mut self, now: BootNanos) -> Vec<Effect> {
        if self.baseline == Baseline::Unknown || self.saving == Saving::Impossible {
            return Vec::new();
        }
        (self.saving, self.saved_at, self.unsaved) = (Saving::Writing, now, 0);
        let acknowledged = StateInput::Acknowledged(self.ledger.acknowledged());
        vec![pass_on(Input::State(acknowledged))]
    }
}
