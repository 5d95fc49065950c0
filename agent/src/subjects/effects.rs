//! What follows from the inputs of subjects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Input;
use super::disks::{DiskDecision, DiskQuery, WatchedDisk};
use super::saved_times::Saved;
use super::stalls::StallDecision;
#[cfg(doc)]
use super::{
    IncidentInput, KillCounterInput, KillInput, PodPidInput, SignalInput, StallInput, StateInput,
};
use crate::clock::Stamp;
use crate::kube_event::{Draft, Finding};
use crate::node_status::{Disks, Facts};
use crate::pods::Pod;
use crate::pressure::change::PressureChange;
use crate::pressure::pids::PidLevels;
use crate::pressure::sample::Sample;
use crate::pressure::{Cause, Pressure};
use crate::reading::{Resource, Signal, Stall};
use crate::record::Side;
use crate::units::{Bytes, CgroupId, DeviceNumber};

/// Everything that can follow from an input. The loop performs effects in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Query the host. The answer is an input of the same subject.
    Query(Query),
    /// Write to a map of the BPF programs.
    Map(MapUpdate),
    /// Publish a fact to the node status.
    Fact(FactChange),
    /// Pass this on to another subject.
    Input(Box<Input>),
    /// Record a Kubernetes Event.
    Event(Draft),
    /// Compute the status from the facts. `at_once`: a condition of node mode may have changed, so
    /// the status is written without waiting for the next period. In companion mode, a changed
    /// condition is always written at once.
    Publish {
        /// See above.
        at_once: bool,
    },
    /// A kernel record is the cause of the next write of a resource's condition.
    Caused {
        /// Which resource.
        resource: Resource,
        /// Of the record.
        stamp: Stamp,
    },
    /// Write the state file.
    Save(Saved),
    /// Log what was decided.
    Log(Decision),
}

/// A query to the host. Every query is answered, if necessary by the answer for a timeout; at once,
/// unless a query documents otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Query {
    /// About disks, later.
    Disk(DiskQuery),
    /// Memory and pids: [`SignalInput::Sampled`]. The stamp is that of the record behind it.
    Signals(Option<Stamp>),
    /// The root directory's file system, later: [`SignalInput::StorageSampled`].
    Storage,
    /// All cgroups, at start: [`KillInput::CgroupsRead`].
    AllCgroups,
    /// The cgroups of pods: [`KillInput::CgroupsSeen`].
    PodCgroups,
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
    /// The same, and what the previous agent saved, later: [`StateInput::Recalled`].
    Recall,
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
    /// The state of every resource.
    Pressures {
        /// Its pressure.
        pressures: BTreeMap<Resource, Pressure>,
        /// Why it is under pressure.
        causes: BTreeMap<Resource, Cause>,
        /// Signals that are lost, by resource.
        lost: BTreeMap<Resource, Vec<Signal>>,
    },
    /// The root directory's file system; what is `None` stays as it is.
    Storage {
        /// Its size.
        capacity: Option<Bytes>,
        /// The volumes in use.
        volumes: Option<Vec<String>>,
    },
    /// Whether processes of pods are OOM-killed often.
    FrequentKills(Pressure),
    /// Path of the pods cgroup.
    PodsCgroup(String),
}

impl FactChange {
    /// Sets the fact.
    pub fn apply(self, facts: &mut Facts) {
        match self {
            Self::Disks(disks) => facts.disks = disks,
            Self::Stalls(stalls) => facts.stalls = stalls.into_iter().collect(),
            Self::Pressures {
                pressures,
                causes,
                lost,
            } => {
                facts.pressures = pressures;
                facts.companion.causes = causes;
                facts.lost = lost;
            }
            Self::Storage { capacity, volumes } => {
                facts.ephemeral_storage = capacity.or(facts.ephemeral_storage);
                if volumes.is_some() {
                    facts.volumes = volumes;
                }
            }
            Self::FrequentKills(pressure) => facts.companion.kills = pressure,
            Self::PodsCgroup(path) => facts.companion.pods_cgroup = path,
        }
    }
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
    /// Signals were sampled; for metrics and `explain`.
    Sampled(Vec<Sample>),
    /// The state of a resource changed.
    PressureChanged(PressureChange),
    /// Sources of signals were lost, or are available again.
    SourcesLost {
        /// Lost signals by resource, until now.
        before: BTreeMap<Resource, Vec<Signal>>,
        /// From now on.
        now: BTreeMap<Resource, Vec<Signal>>,
    },
    /// The frequency of kills in pods changed.
    FrequencyOfKills {
        /// The previous state.
        from: Pressure,
        /// The new state.
        to: Pressure,
    },
    /// The pods cgroup has this path, since it was created or another one is used.
    PodsCgroupFound(String),
}
