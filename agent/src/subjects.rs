//! PURE: what the agent observes, one subject each.
//!
//! A subject is a value. Everything that happens to it is one of its inputs, and everything that
//! follows is an [`Effect`]. It performs no I/O, reads no clock and writes no log. The loop in `app`
//! performs the effects and returns the answers as further inputs, so a run is a list of inputs that
//! can be recorded and replayed.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::{BootNanos, Now, Stamp};
use crate::kube_event::{Finding, Incident};
use crate::pressure::oom::Grounds;
use crate::pressure::pids::PidLevels;
use crate::reading::Resource;
use crate::record::Side;
use crate::units::CgroupId;

pub mod kill_counters;
pub mod kills;
pub mod pids;

pub use kill_counters::{KillCounterInput, KillCounterSetup, KillCounters, KillSource};
pub use kills::{KillInput, Kills};
pub use pids::{PidInput, Pids};

/// Everything that can happen to a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// To the pids of the node.
    Pid(PidInput),
    /// To the examination of OOM kills.
    Kill(KillInput),
    /// To the kernel's counters of kills.
    KillCounter(KillCounterInput),
}

/// Everything that can follow from an input. The loop performs effects in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Write to a map of the BPF programs.
    Map(MapUpdate),
    /// Ask the host. The answer is an input of the same subject.
    Query(Query),
    /// Pass this on to another subject.
    Input(Box<Input>),
    /// Report these by Kubernetes Events.
    Report(Vec<Incident>),
    /// Set a pressure, whatever its thresholds say.
    ForcePressure {
        /// Of what.
        resource: Resource,
        /// On what grounds.
        why: Grounds,
        /// Since when.
        at: BootNanos,
        /// Of the record that was the cause.
        stamp: Stamp,
    },
    /// Count kills in pods for `FrequentOOMKills`.
    CountKills {
        /// How many.
        kills: u64,
        /// When.
        at: BootNanos,
    },
    /// Sample memory soon: it may be short.
    SampleSoon,
    /// Save how many kills of each cgroup are acknowledged.
    SaveKills(BTreeMap<CgroupId, u64>),
    /// Log what was decided.
    Log(Decision),
}

/// A question to the host. The loop answers at once, unless a query says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Query {
    /// The paths of these cgroups: [`KillInput::CgroupPaths`].
    CgroupPaths(Vec<CgroupId>),
    /// How often this cgroup and each above it hit its own limit: [`KillInput::LimitHits`].
    LimitHits(String),
    /// The cgroups that exist and have hit a limit: [`KillInput::LiveLimitHits`].
    LiveLimitHits,
    /// How much memory the node has left: [`KillInput::RemainingMemory`].
    RemainingMemory,
    /// The kills that the cgroup of all pods counted: [`KillCounterInput::PodsCounter`].
    PodsKillCounter,
    /// The kills in each pod, later: [`KillCounterInput::Counted`].
    KillCounters,
    /// The same, and what the previous agent saved, later: [`KillCounterInput::Recalled`].
    RecallKills,
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
    /// A process was OOM-killed.
    KillFound(Box<Finding>),
    /// Kills without a record are reported by number.
    KillsReportedByNumber {
        /// Path of the cgroup that counted them, escaped.
        cgroup: String,
        /// How many.
        kills: u64,
    },
    /// The kernel's log ended; the counters report kills from now on.
    KillLogEnded,
    /// The counters of kills cannot be read any more.
    KillCountersFailed,
    /// What the previous agent saved is of another boot.
    StateOfOtherBoot,
}

/// All subjects.
#[derive(Debug)]
pub struct Subjects {
    /// The pids of the node.
    pub pids: Pids,
    /// The examination of OOM kills.
    pub kills: Kills,
    /// The kernel's counters of kills.
    pub kill_counters: KillCounters,
}

impl Subjects {
    /// Nothing has happened yet. `page`: bytes in a page of memory.
    #[must_use]
    pub fn new(page: u64, counters: KillCounterSetup, now: BootNanos) -> Self {
        Self {
            pids: Pids::default(),
            kills: Kills::new(page),
            kill_counters: KillCounters::new(counters, now),
        }
    }

    /// Passes an input to its subject, and returns what follows from it.
    pub fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Pid(input) => self.pids.on(input, now),
            Input::Kill(input) => self.kills.on(input, now),
            Input::KillCounter(input) => self.kill_counters.on(input, now),
        }
    }

    /// The next moment at which one of them needs to be called although nothing happened.
    #[must_use]
    pub fn due(&self) -> Option<BootNanos> {
        let all = [self.pids.due(), self.kill_counters.due()];
        all.into_iter().flatten().min()
    }
}
