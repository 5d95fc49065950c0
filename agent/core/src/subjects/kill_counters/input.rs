//! What can happen to the counters of kills.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::incident::Position;
use crate::kube_event::{Finding, ReportedKills};
use crate::pods::PodId;
use crate::units::CgroupId;

/// What reports kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillSource {
    /// A BPF program: victim, cgroup and limit.
    Program,
    /// The kernel's log.
    Log,
    /// The counters of the cgroups: how many, and in which pod.
    Counters,
}

impl KillSource {
    /// As in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Program => "Program",
            Self::Log => "Log",
            Self::Counters => "Counters",
        }
    }

    /// The agent's tier, with this source of kills and that of the attached programs.
    pub fn tier(self, programs: &'static str) -> &'static str {
        match (self, programs) {
            (Self::Log, "files") => "kmsg",
            _ => programs,
        }
    }
}

/// Everything that can happen to the counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum KillCounterInput {
    /// Kills of which records came, together.
    Found(Vec<Finding>),
    /// Records were lost.
    RecordsLost,
    /// The kernel's log reports no more kills.
    LogEnded,
    /// Kills that were reported will survive this process: their incidents are recorded in the
    /// history, or without one delivered.
    Recorded {
        kills: ReportedKills,
        /// The last revision with any of them.
        until: Position,
    },
    /// Memory was sampled.
    Sampled,
    /// To [`super::super::Query::PodsKillCounter`].
    PodsCounter(PodsCounter),
    /// To [`super::super::BlockingQuery::Recall`]. `counted` is `None` if the counters could not be
    /// read.
    Recalled {
        /// What the previous agent saved.
        previous: PreviousAgent,
        /// The counters at start.
        counted: Option<CountedKills>,
    },
    /// To [`super::super::BlockingQuery::KillCounters`]; `None`: they could not be read.
    Counted(Option<CountedKills>),
    /// What was to be saved is saved, or cannot be.
    Saved,
    /// Time has passed.
    Due,
    /// The agent stops: what is missing is reported now.
    Stopping,
    /// The agent stops: what is acknowledged is saved now.
    Stopped,
}

/// What the agent before this one saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreviousAgent {
    /// Nothing, or nothing that can be used.
    Unknown,
    /// What is saved is of another boot.
    OtherBoot,
    /// It could not count kills.
    Uncounted,
    Acknowledged(AcknowledgedKills),
}

/// The kills that are reported, so that the next start does not report them again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AcknowledgedKills {
    pub cgroups: BTreeMap<CgroupId, u64>,
    /// Those in pods whose counter was not read yet, so that their cgroup is not known.
    #[serde(with = "crate::pairs", default)]
    pub pods: BTreeMap<PodId, u64>,
    /// They are in the history up to here.
    #[serde(default)]
    pub until: Position,
    /// Further ones, which the history has after that. They are not saved.
    #[serde(default)]
    pub later: ReportedKills,
}

impl FromIterator<(CgroupId, u64)> for AcknowledgedKills {
    fn from_iter<I: IntoIterator<Item = (CgroupId, u64)>>(cgroups: I) -> Self {
        Self {
            cgroups: cgroups.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Kills since their cgroups were created, as the kernel counted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedKills {
    /// Path of the cgroup of all pods.
    pub pods: String,
    /// For that cgroup, and for that of each pod. Empty: there are no pods.
    pub cgroups: Vec<CgroupKills>,
    /// All kills since the node was started. `None`: it is not known how many of them were in pods.
    #[serde(default)]
    pub node: Option<u64>,
}

/// Kills in one cgroup and below it since it was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupKills {
    /// Its id.
    pub id: CgroupId,
    /// Its path.
    pub cgroup: String,
    /// How many.
    pub kills: u64,
}

/// The counter of the cgroup of all pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodsCounter {
    /// What it counted. `None`: it does not count what is below it.
    Counted(Option<u64>),
    /// The cgroup does not exist.
    NoPods,
    /// It could not be read.
    Failed,
}

/// What is known about the counters before they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillCounterSetup {
    /// What reports kills.
    pub source: KillSource,
    /// How the cgroups count. `None`: no hierarchy counts memory.
    pub counting: Option<Counting>,
    /// Whether this boot can be distinguished from others, so that anything is saved.
    pub boot_known: bool,
}

/// How cgroups count kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counting {
    /// Version 1: each cgroup for itself.
    Flat,
    /// Version 2: each cgroup with everything below it.
    Nested,
}
