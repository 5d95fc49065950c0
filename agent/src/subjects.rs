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
use crate::kube_event::{Draft, Finding, NodeEvents};
use crate::node_status::Disks;
use crate::pods::Pod;
use crate::pressure::Pressure;
use crate::pressure::oom::Grounds;
use crate::pressure::pids::PidLevels;
use crate::reading::{Resource, Stall};
use crate::record::Side;
use crate::units::{CgroupId, DeviceNumber};

pub mod disks;
pub mod incidents;
pub mod kill_counters;
pub mod kills;
pub mod pids;
pub mod pod_pids;
pub mod stalls;

pub use disks::{
    DiskDecision, DiskInput, DiskProbe, DiskQuery, DiskSetup, DiskWatch, IoTrigger, Unwatched,
    WatchedDisk,
};
pub use incidents::{IncidentInput, Incidents};
pub use kill_counters::{KillCounterInput, KillCounterSetup, KillCounters, KillSource};
pub use kills::{KillInput, Kills};
pub use pids::{PidInput, PidWatch};
pub use pod_pids::{Announced, PodPidInput, PodPids};
pub use stalls::{StallDecision, StallInput, StallSetup, StallWatch};

/// Everything that can happen to a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// To the pids of the node.
    Pid(PidInput),
    /// To the disks of the node.
    Disk(DiskInput),
    /// To tasks that wait for memory or disks.
    Stall(StallInput),
    /// To the examination of OOM kills.
    Kill(KillInput),
    /// To the kernel's counters of kills.
    KillCounter(KillCounterInput),
    /// To the incidents that become Events.
    Incident(IncidentInput),
    /// To the pids of pods.
    PodPid(PodPidInput),
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
    /// Pass this on to another subject.
    Input(Box<Input>),
    /// Record a Kubernetes Event.
    Event(Draft),
    /// Set a pressure, regardless of its thresholds.
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

/// A query to the host. Every query is answered, if necessary by the answer for a timeout; at once,
/// unless a query documents otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Query {
    /// About disks, later.
    Disk(DiskQuery),
    /// A pressure file: [`StallInput::Sampled`].
    Stall(Stall),
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
    /// The containers of this pod, later: [`IncidentInput::Containers`].
    Containers(Pod),
    /// Forks that were refused in the cgroups of pods: [`PodPidInput::Counted`].
    RefusedForks,
    /// The limits on tasks of this cgroup and those above it: [`PodPidInput::PidLimits`].
    PidLimits(String),
    /// The tasks of each pod: [`PodPidInput::TasksCounted`].
    PodTasks,
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
    /// Kills in a pod of this node are reported; for its metric.
    PodKilled {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
        /// How many.
        kills: u64,
    },
    /// A pod is removed, and so is its metric.
    PodRemoved {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// The API server does not permit reading pods, so containers are named by their ids.
    ContainersForbidden,
    /// Forks were refused.
    ForksRefused {
        /// Path of the cgroup that counted them, escaped.
        cgroup: String,
        /// How many.
        forks: u64,
        /// Which limit refused them.
        limit: String,
    },
    /// The pods with most tasks, by uid.
    LargestPods(Vec<(String, u64)>),
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
    /// The examination of OOM kills.
    pub kills: Kills,
    /// The kernel's counters of kills.
    pub kill_counters: KillCounters,
    /// The incidents that become Events.
    pub incidents: Incidents,
    /// The pids of pods.
    pub pod_pids: PodPids,
}

/// Everything that the subjects need at start. With it and the inputs, a run can be replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// When the agent started.
    pub started: BootNanos,
    /// The properties of the node.
    pub node: NodeSetup,
    /// How disks are watched.
    pub disks: DiskSetup,
    /// How stalls are watched.
    pub stalls: StallSetup,
}

/// What the subjects need to know of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSetup {
    /// Bytes in a page of memory.
    pub page: u64,
    /// How kills are counted.
    pub counters: KillCounterSetup,
    /// Who records Events on the Node.
    pub node_events: NodeEvents,
    /// Whether the kernel announces refused forks.
    pub refused_forks: Announced,
}

impl Subjects {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let Setup {
            started,
            node,
            disks,
            stalls,
        } = setup;
        Self {
            pids: PidWatch::default(),
            disks: DiskWatch::new(disks.clone(), *started),
            stalls: StallWatch::new(stalls.clone()),
            kills: Kills::new(node.page),
            kill_counters: KillCounters::new(node.counters, *started),
            incidents: Incidents::new(node.node_events),
            pod_pids: PodPids::new(node.refused_forks, *started),
        }
    }

    /// Passes an input to its subject, and returns what follows from it.
    pub fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Pid(input) => self.pids.on(input, now),
            Input::Disk(input) => self.disks.on(input, now),
            Input::Stall(input) => self.stalls.on(input, now),
            Input::Kill(input) => self.kills.on(input, now),
            Input::KillCounter(input) => self.kill_counters.on(input, now),
            Input::Incident(input) => self.incidents.on(input, now),
            Input::PodPid(input) => self.pod_pids.on(input, now),
        }
    }

    /// The next moment at which one of them needs to be called although nothing happened.
    #[must_use]
    pub fn due(&self) -> Option<BootNanos> {
        let all = [
            self.pids.due(),
            self.disks.due(),
            self.stalls.due(),
            self.kill_counters.due(),
            self.incidents.due(),
        ];
        all.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
