//! What is known about one OOM kill.

use serde::{Deserialize, Serialize};

use super::{ContainerLabel, KillOwner};
use crate::clock::Stamp;
use crate::pods::{CgroupKind, Owner, PodRef};
use crate::pressure::oom::{Grounds, KillVerdict};
use crate::reading::oom::{Consequence, LimitOwner, OomScope};
use crate::units::{Bytes, Pid};

/// What is known about one OOM kill. All text in it is escaped. What is unknown is `None`, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// When the kernel recorded it, and when the agent read the record.
    pub stamp: Stamp,
    /// Process id of the victim.
    pub victim: Pid,
    /// Name of the victim.
    pub comm: String,
    /// User id of the victim, on the host.
    pub uid: Option<u32>,
    /// The same in its user namespace.
    #[serde(default)]
    pub uid_in_namespace: Option<u32>,
    /// Path of its memory cgroup, or the last names of the path if the cgroup was removed.
    pub cgroup: Option<String>,
    /// Which pod that cgroup belongs to.
    pub owner: VictimOwner,
    /// Who uses that cgroup, if it is outside of pods and its path is known. It contains unescaped text.
    pub unit: Option<Owner>,
    /// Which of the kernel's counters includes it. `None`: no counter of pods.
    pub counter: Option<KillOwner>,
    /// Whose memory ran out, by the record.
    pub scope: OomScope<Limiting>,
    /// Resident memory of the victim: anonymous, file, shared.
    pub resident: Option<[Bytes; 3]>,
    /// The process that requested the memory.
    pub trigger: Option<String>,
    /// The container of that process, if it is another one of the victim's pod.
    #[serde(default)]
    pub trigger_container: Option<ContainerLabel>,
    /// What it means for the victim's container. `None`: unknown, or the victim was in none.
    pub consequence: Option<Consequence>,
    /// Path of the cgroup whose processes were all killed, if that is the container or one above it.
    #[serde(default)]
    pub group: Option<String>,
    /// What it means for the node.
    pub verdict: KillVerdict,
}

/// The cgroup that was at its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limiting {
    /// What it is for.
    pub owner: LimitOwner,
    /// Its path. `None`: the log did not name it.
    pub path: Option<String>,
    /// An ancestor that may have been at its limit instead, since both had exactly as little room
    /// left: what it is for, and its path.
    pub tied: Option<(LimitOwner, String)>,
    /// Its usage and its limit.
    pub usage: Option<(Bytes, Bytes)>,
    /// The owner of that limit, if it is outside of pods and its path is known. It contains unescaped
    /// text.
    #[serde(default)]
    pub unit: Option<Owner>,
}

/// The pod of a victim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VictimOwner {
    /// This pod.
    Pod(PodRef),
    /// Some pod. The last names of the cgroup claim which, but a tenant may have chosen them.
    UnknownPod,
    /// No pod.
    NoPod,
}

impl VictimOwner {
    /// By the place of the victim's cgroup.
    pub fn of(place: CgroupKind) -> Self {
        PodRef::of(place).map_or(Self::NoPod, Self::Pod)
    }

    /// The counter that includes a kill in the cgroup at `path`, where `pods` is the cgroup of all
    /// pods. A kill in an unknown pod is in the counter of all pods.
    pub fn counter(&self, path: Option<&str>, pods: &str) -> Option<KillOwner> {
        let below = |path: &str| {
            let rest = path.strip_prefix(pods)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(KillOwner::Pods)
        };
        match self {
            Self::Pod(at) => Some(KillOwner::Pod(at.pod.clone())),
            Self::UnknownPod => Some(KillOwner::Pods),
            Self::NoPod => (path.filter(|_| !pods.is_empty()))
                .and_then(below)
                .or(Some(KillOwner::NoPod)),
        }
    }
}

/// Who records Events on the Node for kills outside pods, and for kills because the node is out of
/// memory.
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
    /// Whether no cgroup's limit was the cause, as far as is known.
    pub fn is_global(&self) -> bool {
        let why = Grounds::ConfirmedGlobal;
        self.scope == OomScope::Global || self.verdict == KillVerdict::NodePressure { why }
    }

    /// Path of the cgroup that was at its limit.
    pub fn limiting(&self) -> Option<&str> {
        self.scope.as_ref().memcg()?.path.as_deref()
    }

    /// Memory that the victim had. Pages that it shares are counted in others, too.
    pub fn resident_sum(&self) -> Option<Bytes> {
        Some(self.resident?.into_iter().sum())
    }

    /// Whether the kernel killed the whole container of the victim.
    pub fn is_of_group(&self) -> bool {
        self.consequence == Some(Consequence::WholeContainer)
    }

    /// Whether both kills have one cause, as far as is known. A container that was killed as a whole has
    /// nothing left that could be killed again for the same process.
    pub fn has_the_cause_of(&self, other: &Self) -> bool {
        let one_group = self.is_of_group() && other.is_of_group();
        let one_limit = || {
            !self.is_global()
                && !other.is_global()
                && self.limiting().is_some()
                && self.trigger.is_some()
                && self.limiting() == other.limiting()
        };
        self.owner == other.owner && self.trigger == other.trigger && (one_group || one_limit())
    }
}
