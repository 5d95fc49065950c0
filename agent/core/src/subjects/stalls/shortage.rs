//! Decides if the node is short of memory while its tasks wait for it: only then the condition of
//! this stall becomes True.

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::oom::RemainingMemory;
use crate::pressure::shortage::{
    ShortageEvidence, ShortageReading, ShortageVerdict, UnitStalls, Withheld,
};
use crate::pressure::stall::Begin;
use crate::subjects::{BlockingQuery, Effect};

use super::{StallDecision, log};

/// The observation of a shortage. It is repeated without a pause from the trigger on, until the
/// stall is over or in effect.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ShortageWatch {
    queried: bool,
    last: Option<ShortageReading>,
    /// The last answer is about this stall.
    applies: bool,
    /// The reason that was logged for this stall.
    logged: Option<Withheld>,
}

impl ShortageWatch {
    pub(super) const fn last(&self) -> Option<&ShortageReading> {
        self.last.as_ref()
    }

    /// Returns true if the stall is known to be one of the node.
    pub(super) fn is_confirmed(&self) -> bool {
        self.verdict() == Some(ShortageVerdict::Short)
    }

    /// Returns `None` if nothing is known of this stall yet.
    fn verdict(&self) -> Option<ShortageVerdict> {
        let last = self.last.as_ref().filter(|_| self.applies);
        last.map(|last| last.verdict)
    }

    /// Begins an observation unless one runs.
    pub(super) fn query(&mut self) -> Option<Effect> {
        let begins = !std::mem::replace(&mut self.queried, true);
        begins.then_some(Effect::BlockingQuery(BlockingQuery::Shortage))
    }

    pub(super) fn read(
        &mut self,
        evidence: ShortageEvidence,
        memory: Option<RemainingMemory>,
        threshold: f32,
        at: BootNanos,
    ) {
        self.queried = false;
        self.applies = true;
        let verdict = evidence.judge(memory, threshold);
        self.last = Some(ShortageReading {
            evidence,
            verdict,
            at,
        });
    }

    /// Takes the distance of the stall from its begin after a sample.
    pub(super) fn sampled(&mut self, begin: Begin) -> Vec<Effect> {
        let mut effects = Vec::new();
        match begin {
            Begin::Calm => {
                self.applies = false;
                self.logged = None;
            }
            Begin::Near => effects.extend(self.query()),
            Begin::Reached => {
                effects.extend(self.withheld());
                effects.extend(self.query());
            }
        }
        effects
    }

    /// Logs each reason once for each stall.
    fn withheld(&mut self) -> Option<Effect> {
        let Some(ShortageVerdict::Withheld(why)) = self.verdict() else {
            return None;
        };
        let is_new = self.logged.replace(why) != Some(why);
        is_new.then(|| log(StallDecision::Withheld(why)))
    }

    /// Returns the units that wait most, for an Event. Empty if they are not known.
    pub(super) fn stalled_units(&self) -> String {
        let last = self.last.as_ref().filter(|_| self.applies);
        let units = last.map_or(&[][..], |last| UnitStalls::units(&last.evidence.units));
        let units: Vec<String> = units.iter().map(ToString::to_string).collect();
        if units.is_empty() {
            String::new()
        } else {
            format!("; waiting most: {}", units.join(", "))
        }
    }
}
