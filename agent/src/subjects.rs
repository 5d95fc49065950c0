//! PURE: what the agent observes, one subject each.
//!
//! A subject is a value. Everything that happens to it is one of its inputs, and everything that
//! follows is an [`Effect`]. It performs no I/O, reads no clock and writes no log. The loop in `app`
//! performs the effects and returns the answers as further inputs, so a run is a list of inputs that
//! can be recorded and replayed.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::clock::{BootNanos, Now, Stamp};
use crate::node_status::Disks;
use crate::pressure::Pressure;
use crate::pressure::pids::PidLevels;
use crate::reading::Stall;
use crate::record::Side;
use crate::units::DeviceNumber;

pub mod disks;
pub mod pids;
pub mod stalls;

pub use disks::{
    DiskDecision, DiskInput, DiskProbe, DiskQuery, DiskWatch, IoTrigger, Unwatched, WatchedDisk,
};
pub use pids::{PidInput, PidWatch};
pub use stalls::{StallDecision, StallInput, StallWatch};

/// Everything that can happen to a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// To the pids of the node.
    Pid(PidInput),
    /// To the disks of the node.
    Disk(DiskInput),
    /// To tasks that wait for memory or disks.
    Stall(StallInput),
}

/// Everything that can follow from an input. The loop performs effects in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Query the host. The answer is an input of the same subject.
    Query(Query),
    /// Write to a map of the BPF programs.
    Map(MapUpdate),
    /// Publish a fact to the node status.
    Fact(FactChange),
    /// Pass what was observed to the evaluation of pressure.
    Pressure(PressureInput),
    /// Log what was decided.
    Log(Decision),
}

/// A query to the host. Every query is answered, if necessary by the answer for a timeout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Query {
    /// About disks.
    Disk(DiskQuery),
    /// A pressure file.
    Stall(Stall),
}

/// A fact of the node status that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FactChange {
    /// The unhealthy disks.
    Disks(Disks),
    /// The pressure of every stall that is watched.
    Stalls(Vec<(Stall, Pressure)>),
}

/// What the evaluation of pressure is based on, besides samples of signals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PressureInput {
    /// The state of all disks.
    Disks {
        /// `None`: no source measures how quickly disks respond.
        known: Option<Disks>,
        /// A disk that was unhealthy is not watched any more.
        unwatched: Option<Unwatched>,
        /// When the kernel reported it, if it did.
        stamp: Option<Stamp>,
    },
}

/// A write to a map of the BPF programs. Without programs there is nothing to write to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum MapUpdate {
    /// The levels at which the fork probe reports; `None` turns it off.
    PidLevels(Option<PidLevels>),
    /// The fork probe reports the next crossing.
    EndPidState,
    /// Watch these disks by these limits. The answer names those that the kernel did not refuse,
    /// which without programs are all.
    WatchDisks(Vec<WatchedDisk>),
    /// Do not watch this disk any more.
    ForgetDisk(DeviceNumber),
    /// Nothing completes and nothing is in flight: the disk is not slow any more.
    EndDiskState(DeviceNumber),
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
    /// About a disk.
    Disk(DiskDecision),
    /// About a stall.
    Stall(StallDecision),
}

/// All subjects.
#[derive(Debug)]
pub struct Subjects {
    /// The pids of the node.
    pub pids: PidWatch,
    /// The disks of the node.
    pub disks: DiskWatch,
    /// Tasks that wait for memory or disks.
    pub stalls: StallWatch,
}

impl Subjects {
    /// Passes an input to its subject, and returns what follows from it.
    pub fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Pid(input) => self.pids.on(input, now),
            Input::Disk(input) => self.disks.on(input, now),
            Input::Stall(input) => self.stalls.on(input, now),
        }
    }

    /// The next moment at which one of them needs to be called although nothing happened.
    #[must_use]
    pub fn due(&self) -> Option<BootNanos> {
        let all = [self.pids.due(), self.disks.due(), self.stalls.due()];
        all.into_iter().flatten().min()
    }
}
