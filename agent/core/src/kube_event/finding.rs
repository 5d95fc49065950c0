//! The facts that are known about one OOM kill.

use serde::{Deserialize, Serialize};

use super::{ContainerLabel, KillOwner};
use crate::clock::Stamp;
use crate::pods::is_within;
use crate::pods::{CgroupKind, Owner, PodRef};
use crate::pressure::oom::{Grounds, KillVerdict};
use crate::reading::oom::{Consequence, LimitOwner, OomScope};
use crate::units::{Bytes, Pid};

/// The cause of a kill. Kills with one cause are one incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cause {
    /// Counts the causes since the start.
    pub number: u64,
    /// No earlier kill has this cause.
    pub is_first: bool,
}

/// The facts that are known about one OOM kill. All text is escaped. Unknown facts are `None`,
/// never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub stamp: Stamp,
    pub cause: Cause,
    pub victim: Pid,
    /// Name of the victim.
    pub comm: String,
    /// User id of the victim on the host.
    pub uid: Option<u32>,
    /// User id of the victim in its user namespace.
    #[serde(default)]
    pub uid_in_namespace: Option<u32>,
    /// Path of the victim's memory cgroup, or the last names of the path if the cgroup was removed.
    pub cgroup: Option<String>,
    /// The pod to which that cgroup belongs.
    pub owner: VictimOwner,
    /// The owner of that cgroup, if it is outside of pods and its path is known. Contains unescaped
    /// text.
    pub unit: Option<Owner>,
    /// The kernel's counter that includes the kill.
    pub counter: KillOwner,
    /// The memory that ran out, by the record.
    pub scope: OomScope<Limiting>,
    /// Resident memory of the victim: anonymous, file, shared.
    pub resident: Option<[Bytes; 3]>,
    /// The process that requested the memory.
    pub trigger: Option<String>,
    /// The container of that process, if it is another container of the victim's pod.
    #[serde(default)]
    pub trigger_container: Option<ContainerLabel>,
    /// The effect on the victim's container; `None` if unknown, or if the victim was in none.
    pub consequence: Option<Consequence>,
    /// Path of the cgroup whose processes were all killed together: a container, a part of one, a
    /// service of systemd, or one above these.
    #[serde(default)]
    pub group: Option<String>,
    pub verdict: KillVerdict,
}

/// The cgroup that was at its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limiting {
    pub owner: LimitOwner,
    /// `None` if the log did not name it.
    pub path: Option<String>,
    /// The kind and the path of an ancestor that may have been at its limit instead, since both had
    /// exactly as little room left.
    pub tied: Option<(LimitOwner, String)>,
    /// The usage and the limit.
    pub usage: Option<(Bytes, Bytes)>,
    /// The owner of that limit, if it is outside of pods and its path is known. Contains unescaped
    /// text.
    #[serde(default)]
    pub unit: Option<Owner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VictimOwner {
    Pod(PodRef),
    /// The last names of the cgroup claim a pod, but a tenant may have chosen them.
    UnknownPod,
    NoPod,
}

impl VictimOwner {
    pub fn of(place: CgroupKind) -> Self {
        PodRef::of(place).map_or(Self::NoPod, Self::Pod)
    }

    /// Returns the counter that includes a kill in the cgroup at `path`, where `pods` is the cgroup
    /// of all pods. A kill in an unknown pod is in the counter of all pods.
    pub fn counter(&self, path: Option<&str>, pods: &str) -> KillOwner {
        let is_of_pods = |path: &str| !pods.is_empty() && is_within(path, pods);
        match self {
            Self::Pod(at) => KillOwner::Pod(at.pod.clone()),
            Self::UnknownPod => KillOwner::Pods,
            Self::NoPod if path.is_some_and(is_of_pods) => KillOwner::Pods,
            Self::NoPod => KillOwner::NoPod,
        }
    }
}

/// The recorder of Events on the Node for kills outside pods, and for kills because the node is out
/// of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEvents {
    /// This agent, in a kubelet's words.
    Kubelet,
    /// This agent, alongside a kubelet.
    Companion,
    /// Another program, such as node-problem-detector.
    Off,
}

impl Finding {
    /// Returns true if no cgroup's limit was the cause, as far as is known.
    pub fn is_global(&self) -> bool {
        let why = Grounds::ConfirmedGlobal;
        self.scope == OomScope::Global || self.verdict == KillVerdict::NodePressure { why }
    }

    pub fn limiting(&self) -> Option<&str> {
        self.scope.as_ref().memcg()?.path.as_deref()
    }

    /// Returns the memory that the victim had. Pages that it shares are counted in other processes,
    /// too.
    pub fn resident_sum(&self) -> Option<Bytes> {
        Some(self.resident?.into_iter().sum())
    }

    /// Returns true for the first victim of a group, which the kernel usually counts twice.
    pub fn is_first_of_group(&self) -> bool {
        self.cause.is_first && self.group.is_some()
    }

    /// Returns true if both kills have one cause, as far as is known. A cgroup that was killed as
    /// a whole has nothing left that could be killed again for the same process.
    pub fn has_the_cause_of(&self, other: &Self) -> bool {
        let one_group = self.group.is_some() && self.group == other.group;
        let one_limit = || {
            !self.is_global()
                && !other.is_global()
                && self.limiting().is_some()
                && self.trigger.is_some()
                && self.limiting() == other.limiting()
        };
        self.owner == other.owner
            && self.counter == other.counter
            && self.trigger == other.trigger
            && (one_group || one_limit())
    }
}
