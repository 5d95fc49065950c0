//! Watches tasks that wait for memory or disks: triggers report that a stall begins, and the
//! pressure files are read while one is in effect.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, DiskInput, Effect, Input, Query, SignalInput, pass_on};
use crate::clock::{BootNanos, Now};
use crate::node_status::FactChange;
use crate::pressure::oom::RemainingMemory;
use crate::pressure::shortage::{ShortageEvidence, ShortageReading, Withheld};
use crate::pressure::stall::{StallBoard, StallChange, StallReading, StallSample, StallThresholds};
use crate::pressure::{Exceeded, Pressure};
use crate::reading::{Ground, Stall, StallKind, StallOf};

mod shortage;
#[cfg(test)]
mod tests;

use shortage::ShortageWatch;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StallInput {
    /// A trigger fired.
    Reported(Stall),
    /// The answer to [`Query::Stall`].
    Sampled {
        stall: Stall,
        /// `None` if not read.
        sample: Option<StallSample>,
    },
    /// The answer to [`super::BlockingQuery::Shortage`].
    ShortageRead {
        evidence: ShortageEvidence,
        /// The memory that is left; `None` if not read.
        memory: Option<RemainingMemory>,
    },
    Tick {
        /// Files that are due by then are read in this wake-up.
        soon: BootNanos,
    },
    /// The condition is True at the API server, but has no time in the state file.
    Stored(Stall),
    /// The threshold was last exceeded at `at`, before a restart.
    Restored { stall: Stall, at: BootNanos },
    Configured {
        /// `evictionPressureTransitionPeriod`.
        transition_period: Duration,
        watched: BTreeSet<Stall>,
    },
}

impl StallInput {
    /// Creates an answer to which the loop adds the memory that is left.
    pub const fn shortage_read(evidence: ShortageEvidence) -> Self {
        Self::ShortageRead {
            evidence,
            memory: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StallDecision {
    Reported(Stall),
    Changed {
        change: StallChange,
        sample: Option<StallSample>,
    },
    /// Tasks of the node wait for memory long enough, but the condition does not become True.
    Withheld(Withheld),
}

#[derive(Debug, Clone, PartialEq)]
pub struct StallSetup {
    /// `psi.memory` and `psi.io`.
    pub thresholds: StallThresholds,
    /// `evictionPressureTransitionPeriod`.
    pub transition_period: Duration,
    /// Each watched stall, with true if a trigger reports it.
    pub watched: Vec<(Stall, bool)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct StallWatch {
    board: StallBoard,
    shortage: ShortageWatch,
}

impl StallWatch {
    /// All files are due at once.
    pub fn new(setup: StallSetup) -> Self {
        Self {
            board: StallBoard::new(setup.thresholds, setup.transition_period, setup.watched),
            shortage: ShortageWatch::default(),
        }
    }

    pub fn on(&mut self, input: StallInput, now: Now) -> Vec<Effect> {
        match input {
            StallInput::Reported(stall) => self.reported(stall),
            StallInput::Sampled { stall, sample } => self.sampled(stall, sample, now.boot),
            StallInput::ShortageRead { evidence, memory } => {
                let threshold = self.board.threshold(Stall::NODE_MEMORY);
                self.shortage.read(evidence, memory, threshold, now.boot);
                // The answer must be judged by the current averages.
                let watched = self.board.watches(Stall::NODE_MEMORY);
                let again = watched.then_some(Effect::Query(Query::Stall(Stall::NODE_MEMORY)));
                again.into_iter().collect()
            }
            StallInput::Tick { soon } => {
                let due = self.board.due(soon);
                due.map(|stall| Effect::Query(Query::Stall(stall)))
                    .collect()
            }
            StallInput::Stored(stall) => {
                self.board.seed(stall, now.boot);
                vec![self.fact()]
            }
            StallInput::Restored { stall, at } => {
                self.board.restore(stall, at);
                vec![self.fact()]
            }
            StallInput::Configured {
                transition_period,
                watched,
            } => {
                self.board.set_transition_period(transition_period);
                let added = self.board.watch(&watched).into_iter();
                let queries = added.map(|stall| Effect::Query(Query::Stall(stall)));
                [self.fact()].into_iter().chain(queries).collect()
            }
        }
    }

    /// Returns the time at which to read a file although no trigger fired; `None` while all stalls
    /// are calm.
    pub fn due(&self) -> Option<BootNanos> {
        self.board.wake_at()
    }

    pub fn exceeded(&self, stall: Stall) -> Exceeded {
        self.board.exceeded(stall)
    }

    pub fn readings(&self) -> Vec<StallReading> {
        self.board.readings().collect()
    }

    /// Returns the last observation of the node's memory while tasks waited for it.
    pub const fn shortage(&self) -> Option<&ShortageReading> {
        self.shortage.last()
    }

    fn sampled(
        &mut self,
        stall: Stall,
        sample: Option<StallSample>,
        now: BootNanos,
    ) -> Vec<Effect> {
        let is_of_memory = stall == Stall::NODE_MEMORY;
        let may_begin = !is_of_memory || self.shortage.is_confirmed();
        let change = self.board.apply_sample(stall, sample, may_begin, now);
        let mut effects = Vec::new();
        effects.extend(change.map(|change| log(StallDecision::Changed { change, sample })));
        let begins = change.filter(|of| matches!(of.to, Pressure::UnderPressure { .. }));
        effects.extend(begins.zip(sample).map(|of| self.details(of)));
        if is_of_memory {
            effects.extend(self.shortage.sampled(self.board.begin(stall)));
        }
        effects.extend([self.fact(), Effect::Publish]);
        effects
    }

    /// Returns the averages of a stall that begins, and the units that wait for memory, for the
    /// Event of its condition.
    fn details(&self, (change, sample): (StallChange, StallSample)) -> Effect {
        let mut text = format!(
            "over 10 s {:.0}%, over a minute {:.0}%",
            sample.avg10, sample.avg60
        );
        if change.stall == Stall::NODE_MEMORY {
            text.push_str(&self.shortage.stalled_units());
        }
        Effect::ConditionDetails {
            of: Ground::Stall(change.stall),
            details: Some(text),
        }
    }

    /// Handles a trigger. A stall can be the first sign of a shortage or of a disk that does not
    /// respond, and the trigger may exist only for that.
    fn reported(&mut self, stall: Stall) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.board.watches(stall) {
            effects.push(log(StallDecision::Reported(stall)));
            effects.push(Effect::Query(Query::Stall(stall)));
            if stall == Stall::NODE_MEMORY && self.board.exceeded(stall) != Exceeded::Now {
                effects.extend(self.shortage.query());
            }
        }
        effects.push(pass_on(Input::Signal(match stall.kind {
            StallKind::Memory => SignalInput::MemoryMayBeShort,
            StallKind::Io => SignalInput::StorageRequested,
        })));
        // The pods' tasks are among the node's, which has a trigger.
        if stall == Stall::new(StallOf::Node, StallKind::Io) {
            effects.push(pass_on(Input::Disk(DiskInput::IoStalled)));
        }
        effects
    }

    fn fact(&self) -> Effect {
        let states = self.board.pressures().into_iter().collect();
        Effect::Fact(FactChange::Stalls(states))
    }
}

fn log(decision: StallDecision) -> Effect {
    Effect::Log(Decision::Stall(decision))
}
