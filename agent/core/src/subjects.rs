//! PURE: what the agent observes, one subject each.
//!
//! A subject is a value. Everything that happens to it is one of its inputs, and everything that
//! follows is an [`Effect`]. It performs no I/O, reads no clock and writes no log. The loop in
//! `app` performs the effects and returns the answers as further inputs, so a run is a list of
//! inputs that can be recorded and replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{BootNanos, Stamp};
use crate::incident::{BootId, Incident};
use crate::kube_event::{Finding, NodeEvents};
use crate::node_status::FactChange;
use crate::node_status::ledger::LastChange;
use crate::pods::{Pod, PodId};
use crate::pressure::change::PressureChange;
use crate::pressure::frequent_kills::{FrequentOom, IncidentCounts};
use crate::pressure::pids::PidLevels;
use crate::pressure::sample::Sample;
use crate::pressure::{Policy, Pressure};
use crate::reading::{Ground, Resource, Signal, Stall};
use crate::record::Side;
use crate::settings::{DiskIo, Mode, OomNodeEvents};
use crate::units::{CgroupId, DeviceNumber};

pub mod certificate;
pub mod container_runtime;
pub mod disks;
mod dispatch;
pub mod frequent_kills;
pub mod incidents;
pub mod kill_counters;
pub mod kills;
pub mod largest_owners;
pub mod node_events;
pub mod pids;
pub mod pod_pids;
pub mod pods;
pub mod recording;
pub mod records;
pub mod saved_state;
pub mod signals;
pub mod stalls;
pub mod volumes;

pub use certificate::{
    CertificateInput, CertificateNotice, CertificateOperation, Rotation, RotationSetup,
};
pub use container_runtime::{
    RuntimeAnswer, RuntimeDecision, RuntimeInput, RuntimeList, RuntimeUse, RuntimeWatch,
};
pub use disks::{
    DiskDecision, DiskInput, DiskProbe, DiskQuery, DiskSetup, DiskWatch, IoTrigger, Unwatched,
    WatchedDisk,
};
pub use frequent_kills::FrequentKills;
pub use incidents::{IncidentInput, Incidents};
pub use kill_counters::{KillCounterInput, KillCounterSetup, KillCounters, KillSource};
pub use kills::{KillInput, Kills};
pub use largest_owners::LargestOwnersInput;
pub use node_events::{NodeEventChoice, NodeEventInput};
pub use pids::{PidInput, PidWatch};
pub use pod_pids::{Announced, PodPidInput, PodPids};
pub use pods::{KnownPods, PodInput};
pub use saved_state::{Previous, Saved, SavedState, StateInput};
pub use signals::{DirectSample, SignalInput, SignalSetup, Signals, StorageSample};
pub use stalls::{StallDecision, StallInput, StallSetup, StallWatch};
pub use volumes::{VolumeInput, Volumes};

/// Everything that can happen to a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The agent starts: what is needed before the first evaluation is read.
    Starting,
    /// The first evaluation, after the answers to [`Input::Starting`].
    Started,
    /// Time has passed. What is due by `soon` is done in the same wake-up.
    Tick {
        /// See [`ALIGN`](crate::clock::ALIGN).
        soon: BootNanos,
    },
    /// The configuration changed.
    Configured(Box<Settings>),
    /// Cgroups below the pods cgroup were created or removed, or reached a limit.
    CgroupsChanged,
    /// There was an OOM incident in a pod: one decision of the kernel, however many processes died.
    OomIncident { pod: PodId, at: BootNanos },
    /// The kernel reported the number of ids. Tasks are sampled first.
    PidsReported {
        /// On which side of the level the ids are, if they crossed it.
        side: Option<Side>,
        /// Ids in the initial pid namespace.
        ids: u32,
        /// Of the record.
        stamp: Stamp,
    },
    /// The same, after the sample.
    PidsCounted { side: Option<Side>, ids: u32 },
    /// Whether a source of kills is available may have changed.
    KillSourceChecked,
    /// To what is saved for the next start.
    State(StateInput),
    /// To the signals that are sampled.
    Signal(SignalInput),
    /// To the pids of the node.
    Pid(PidInput),
    /// To the disks of the node.
    Disk(DiskInput),
    /// To the container runtime.
    Runtime(RuntimeInput),
    /// To tasks that wait for memory or disks.
    Stall(StallInput),
    /// To the examination of OOM kills.
    Kill(KillInput),
    /// To the kernel's counters of kills.
    KillCounter(KillCounterInput),
    /// To the pods of the node.
    Pod(PodInput),
    /// To the incidents that become Events.
    Incident(IncidentInput),
    /// To the choice of who records OOM kills on the Node.
    NodeEvents(NodeEventInput),
    /// To the pids of pods.
    PodPid(PodPidInput),
    /// To the disks of volumes.
    Volume(VolumeInput),
    /// To the search for those who use most of a resource.
    LargestOwners(LargestOwnersInput),
    /// To the client certificate.
    Certificate(CertificateInput),
}

/// Everything that can follow from an input. The loop performs effects in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Query the host. The answer is an input of the same subject, at once.
    Query(Query),
    /// Query what can wait for a disk or a server. The answer is an input of the same subject,
    /// later.
    BlockingQuery(BlockingQuery),
    /// Read the containers of this pod at the API server: [`PodInput::Containers`], later.
    ReadContainers(Pod),
    /// Write to a map of the BPF programs.
    Map(MapUpdate),
    /// Publish a fact to the node status.
    Fact(FactChange),
    /// Pass this on to another subject.
    Input(Box<Input>),
    /// Add this to the incident of the next change of a condition to True.
    ConditionDetails {
        /// What the condition depends on.
        of: Ground,
        /// `None`: they are being read.
        details: Option<String>,
    },
    /// Hand on a revision of an incident.
    Incident(Box<Incident>),
    /// Who records Events on the Node from now on.
    NodeEvents(NodeEvents),
    /// Compute the status from the facts, now. A condition that became True is written at once.
    Publish,
    /// A kernel record is the cause of the next write of a resource's condition.
    Caused {
        resource: Resource,
        /// Of the record.
        stamp: Stamp,
    },
    /// Write the state file.
    Save(Saved),
    /// Perform an operation on the client certificate, later. Its result is a
    /// [`CertificateInput`].
    Certificate(CertificateOperation),
    /// Log what was decided.
    Log(Decision),
}

/// A query to the host that is answered at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Query {
    /// The judged requests of these disks, by the completion probe: [`DiskInput::LatencyRead`].
    JudgedLatency(Vec<DeviceNumber>),
    /// Memory and pids: [`SignalInput::Sampled`]. The stamp is that of the record behind it.
    Signals(Option<Stamp>),
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
    /// Forks that were refused in the cgroups of pods: [`PodPidInput::Counted`].
    RefusedForks,
    /// The limits on tasks of this cgroup and those above it: [`PodPidInput::PidLimits`].
    PidLimits(String),
}

/// A query that is answered by another thread or task, if necessary by the answer for a timeout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum BlockingQuery {
    /// About disks.
    Disk(DiskQuery),
    /// The state of the container runtime: [`RuntimeInput::Checked`].
    RuntimeStatus,
    /// Its images: [`RuntimeInput::Listed`].
    RuntimeImages,
    /// Which pods and cgroups use this disk, and which wait for it, a second later:
    /// [`DiskInput::IoWaitRead`].
    IoWait(DeviceNumber),
    /// The pods that use this disk by a volume: [`VolumeInput::Read`].
    VolumesOnDisk(DeviceNumber),
    /// Space and inodes of nodefs and imagefs, and the volumes below the root directory:
    /// [`SignalInput::StorageSampled`].
    Storage,
    /// Whether the node is short of memory, ten seconds later or more:
    /// [`StallInput::ShortageRead`].
    Shortage,
    /// The kills in each pod: [`KillCounterInput::Counted`].
    KillCounters,
    /// The same, and what the previous agent saved: [`StateInput::Recalled`].
    Recall,
    /// Who used the memory before a kill: [`IncidentInput::DetailsRead`].
    KillDetails(incidents::DetailsOf),
    /// The links to the logs of the containers with these ids: [`IncidentInput::Links`].
    ContainerLinks(BTreeSet<Box<str>>),
    /// Who uses most pids or memory: [`LargestOwnersInput::TasksCounted`] or
    /// [`LargestOwnersInput::MemoryRead`].
    LargestOwners(Resource),
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
    /// Judged requests of a watched disk are slow from this latency on.
    DiskLimit {
        device: DeviceNumber,
        limit: Duration,
    },
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
    /// About the container runtime.
    Runtime(RuntimeDecision),
    /// About a stall.
    Stall(StallDecision),
    /// A process was OOM-killed.
    KillFound(Box<Finding>),
    /// node-problem-detector began or ceased to record OOM kills on the Node.
    NodeEventsBy {
        /// It does now, and this agent does not.
        recorded_by_monitor: bool,
    },
    /// The kernel's log ended; the counters report kills from now on.
    KillLogEnded,
    /// The counters of kills cannot be read any more.
    KillCountersFailed,
    /// What the previous agent saved is of another boot.
    StateOfOtherBoot,
    /// Kills in a pod of this node are reported; for its metric.
    PodKilled {
        namespace: Box<str>,
        name: Box<str>,
        kills: u64,
    },
    /// A pod is removed, and so is its metric.
    PodRemoved { namespace: Box<str>, name: Box<str> },
    /// The API server does not permit reading pods, so containers are named by their ids.
    ContainersForbidden,
    /// The pods and units that use most of a resource that became short.
    LargestOwners {
        resource: Resource,
        /// As the Event names them.
        owners: String,
    },
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
    FrequencyOfKills { from: Pressure, to: Pressure },
    /// The pods cgroup has this path, since it was created or another one is used.
    PodsCgroupFound(String),
    /// About the client certificate.
    Certificate(CertificateNotice),
}

/// The settings that apply without a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Thresholds and transition period.
    pub policy: Policy,
    /// How disks are judged.
    pub disk_io: DiskIo,
    /// `oom.nodeEvents`.
    pub node_events: OomNodeEvents,
    /// From when on OOM kills are frequent.
    pub frequent_oom: FrequentOom,
    /// The stalls to watch.
    pub stalls: BTreeSet<Stall>,
}

/// All subjects.
#[derive(Debug, Serialize, Deserialize)]
pub struct Subjects {
    mode: Mode,
    /// The sampled signals, and the pressure of each resource.
    pub signals: Signals,
    /// The pids of the node.
    pub pids: PidWatch,
    /// The disks of the node.
    pub disks: DiskWatch,
    /// The container runtime.
    pub runtime: RuntimeWatch,
    /// Tasks that wait for memory or disks.
    pub stalls: StallWatch,
    /// The examination of OOM kills.
    pub kills: Kills,
    /// The kernel's counters of kills.
    pub kill_counters: KillCounters,
    /// Whether pods are OOM-killed often. `None` in node mode, which has no such condition.
    pub frequent_kills: Option<FrequentKills>,
    /// The pods of the node.
    pub pods: KnownPods,
    /// The incidents that become Events.
    pub incidents: Incidents,
    /// Who records OOM kills on the Node.
    node_events: NodeEventChoice,
    /// The volumes of pods.
    pub volumes: Volumes,
    /// The pids of pods.
    pub pod_pids: PodPids,
    /// What is saved for the next start.
    pub saved: SavedState,
    /// The client certificate; `None` if the agent does not request it.
    pub certificate: Option<Rotation>,
}

impl Subjects {
    /// Recent OOM incidents in pods, if they are counted.
    pub fn oom_incidents(&self, now: BootNanos) -> Option<IncidentCounts> {
        self.frequent_kills.as_ref().map(|kills| kills.counts(now))
    }
}

/// Everything that the subjects need at start.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// When the agent started.
    pub started: BootNanos,
    /// Identifies this boot, or this start if that cannot be known.
    pub boot: BootId,
    /// The last changes of conditions that the history has, by type.
    pub conditions: BTreeMap<String, LastChange>,
    /// There is an API server, which knows the pods.
    pub has_server: bool,
    /// The properties of the node.
    pub node: NodeSetup,
    /// How signals are sampled and evaluated.
    pub signals: SignalSetup,
    /// How disks are watched.
    pub disks: DiskSetup,
    /// How stalls are watched.
    pub stalls: StallSetup,
    /// Whether a container runtime is queried.
    pub runtime: RuntimeUse,
    /// The client certificate; `None` if the agent does not request it.
    pub certificate: Option<RotationSetup>,
}

/// What the subjects need to know of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSetup {
    /// Which conditions are written.
    pub mode: Mode,
    /// Bytes in a page of memory.
    pub page: u64,
    /// How kills are counted.
    pub counters: KillCounterSetup,
    /// `oom.nodeEvents`.
    pub node_events: OomNodeEvents,
    /// From when on OOM kills are frequent.
    pub frequent_oom: FrequentOom,
    /// Whether the kernel announces refused forks.
    pub refused_forks: Announced,
}

fn pass_on(input: Input) -> Effect {
    Effect::Input(Box::new(input))
}
