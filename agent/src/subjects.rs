//! PURE: what the agent observes, one subject each.
//!
//! A subject is a value. Everything that happens to it is one of its inputs, and everything that
//! follows is an [`Effect`]. It performs no I/O, reads no clock and writes no log. The loop in `app`
//! performs the effects and returns the answers as further inputs, so a run is a list of inputs that
//! can be recorded and replayed.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::clock::{BootNanos, Now};
use crate::pressure::pids::PidLevels;
use crate::record::Side;

pub mod pids;

pub use pids::{PidInput, Pids};

/// Everything that can happen to a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// To the pids of the node.
    Pid(PidInput),
}

/// Everything that can follow from an input. The loop performs effects in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Write to a map of the BPF programs.
    Map(MapUpdate),
    /// Log what was decided.
    Log(Decision),
}

/// A write to a map of the BPF programs. Without programs there is nothing to write to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum MapUpdate {
    /// The levels at which the fork probe reports; `None` turns it off.
    PidLevels(Option<PidLevels>),
    /// The fork probe reports the next crossing.
    EndPidState,
}

/// A decision of a subject, to be logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    /// The kernel reported that the number of pids crossed its level.
    PidLevelCrossed {
        /// Over or under it.
        side: Side,
        /// Ids that the kernel counted.
        ids: u32,
        /// Tasks just after that; `None`: not read.
        tasks: Option<u64>,
    },
}

/// All subjects.
#[derive(Debug, Default)]
pub struct Subjects {
    /// The pids of the node.
    pub pids: Pids,
}

impl Subjects {
    /// Passes an input to its subject, and returns what follows from it.
    pub fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Pid(input) => self.pids.on(input, now),
        }
    }

    /// The next moment at which one of them needs to be called although nothing happened.
    #[must_use]
    pub fn due(&self) -> Option<BootNanos> {
        self.pids.due()
    }
}
