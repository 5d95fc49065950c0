//! What the node says of itself: our own types, not the API's, and what fills them.
//!
//! Setters say what should be true ([`setters`]); [`transition`] and [`report`] compare that with
//! what the API server has. Nothing here does I/O, reads a clock or logs.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::SystemTime;

use self::nodepulse_condition::NodepulseCondition;
use self::setters::go_runtime;
use self::transition::{ComputedCondition, SameStatus, stamp};
use crate::clock::Now;
use crate::pressure::threshold::ThresholdValue;
use crate::pressure::{Cause, Pressure};
use crate::reading::{Machine, Network, Resource, Signal, Stall};
use crate::units::Bytes;
use crate::units::quantity::Quantity;

pub mod budget;
pub mod capacity;
pub mod ledger;
pub mod nodepulse_condition;
pub mod report;
pub mod setters;
pub mod transition;

#[cfg(test)]
mod sample;

/// The stable label that carries the operating system.
pub const LABEL_OS: &str = "kubernetes.io/os";

/// The stable label that carries the architecture, in Go's names.
pub const LABEL_ARCH: &str = "kubernetes.io/arch";

/// Says to the attach-detach controller that it may attach volumes to this node.
pub const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// `status` of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`: the source is blind.
    Unknown,
}

impl Status {
    /// As the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// From the API's spelling; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown]
            .into_iter()
            .find(|s| s.as_str() == text)
    }
}

/// One entry of `status.conditions`, as it should be or as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `type`.
    pub type_: String,
    /// `status`.
    pub status: Status,
    /// CamelCase token.
    pub reason: String,
    /// For people. Holds nothing that changes from one heartbeat to the next.
    pub message: String,
    /// When `status` last changed, in whole seconds.
    pub last_transition_time: SystemTime,
    /// When it was last computed, in whole seconds.
    pub last_heartbeat_time: SystemTime,
}

/// One entry of `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `InternalIP`.
    InternalIp(IpAddr),
    /// `Hostname`.
    Hostname(String),
}

/// `status.nodeInfo`, as far as it is ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// `machineID`.
    pub machine_id: String,
    /// `systemUUID`.
    pub system_uuid: String,
    /// `bootID`.
    pub boot_id: String,
    /// `kernelVersion`.
    pub kernel_version: String,
    /// `osImage`.
    pub os_image: String,
    /// `containerRuntimeVersion`; empty where there is no runtime.
    pub container_runtime_version: String,
    /// `kubeletVersion`.
    pub kubelet_version: String,
    /// `operatingSystem`: `linux`.
    pub operating_system: String,
    /// `architecture`, in Go's names: `amd64`, `arm64`.
    pub architecture: String,
    /// `swap.capacity` in bytes; `None` leaves the field unset.
    pub swap_capacity: Option<i64>,
}

/// The status that should be true now.
///
/// `None` says that this part could not be computed: what is stored stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// `addresses`, the whole list in order.
    pub addresses: Option<Vec<Address>>,
    /// `capacity`, the keys that are ours. Keys of others stay.
    pub capacity: BTreeMap<String, Quantity>,
    /// `allocatable`, the keys that are ours.
    pub allocatable: BTreeMap<String, Quantity>,
    /// `nodeInfo`.
    pub node_info: NodeInfo,
    /// `daemonEndpoints.kubeletEndpoint.Port`; left out unless set, since nothing listens there.
    pub kubelet_port: Option<u16>,
    /// Our own conditions, in the order in which a new Node gets them. Those of others stay.
    pub conditions: Vec<Condition>,
    /// `volumesInUse`, sorted.
    pub volumes_in_use: Option<Vec<String>>,
    /// Types of the conditions whose stored reason and message stay while their status does:
    /// [`SameStatus::KeepsText`]. Empty once the conditions have times.
    pub kept_texts: BTreeSet<String>,
}

impl NodeStatus {
    /// Appends a condition, which gets its times in [`NodeStatus::stamped`].
    pub fn push(&mut self, condition: ComputedCondition<'_>, same: SameStatus) {
        if same == SameStatus::KeepsText {
            self.kept_texts.insert(condition.type_.to_owned());
        }
        self.conditions.push(Condition {
            type_: condition.type_.to_owned(),
            status: condition.status,
            reason: condition.reason.to_owned(),
            message: condition.message.to_owned(),
            last_transition_time: SystemTime::UNIX_EPOCH,
            last_heartbeat_time: SystemTime::UNIX_EPOCH,
        });
    }

    /// The same with the times of its conditions at `now`, given what is stored.
    #[must_use]
    pub fn stamped(&self, stored: &StoredNode, now: Now) -> Self {
        let one = |condition: &Condition| {
            let same = if self.kept_texts.contains(&condition.type_) {
                SameStatus::KeepsText
            } else {
                SameStatus::ReplacesText
            };
            let computed = ComputedCondition {
                type_: &condition.type_,
                status: condition.status,
                reason: &condition.reason,
                message: &condition.message,
            };
            stamp(computed, same, stored, now)
        };
        Self {
            conditions: self.conditions.iter().map(one).collect(),
            kept_texts: BTreeSet::new(),
            ..self.clone()
        }
    }
}

/// What the API server last said of our Node, as far as deciding needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredNode {
    /// `metadata.uid`.
    pub uid: String,
    /// `status.conditions`, those of others included.
    pub conditions: Vec<Condition>,
    /// `status.nodeInfo.bootID`; empty on a new Node.
    pub boot_id: String,
    /// `status.capacity`.
    pub capacity: BTreeMap<String, Quantity>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
}

impl StoredNode {
    /// The stored condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.type_ == type_)
    }
}

/// What a new Node is created with, beside its status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registration {
    /// `metadata.name`: a DNS-1123 subdomain of at most 63 characters, since it is also a label.
    pub name: String,
    /// `metadata.labels`, the five defaults included.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
}

/// Who attaches volumes to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachDetach {
    /// The controller of the control plane: the kubelet's default.
    Controller,
    /// The node itself; the annotation is then left out.
    Node,
}

impl Registration {
    /// With the kubelet's five default labels, over which `labels` win.
    ///
    /// `name` must already be what the API server accepts. An empty `provider_id` is none.
    #[must_use]
    pub fn new(
        name: String,
        labels: BTreeMap<String, String>,
        taints: Vec<Taint>,
        provider_id: Option<String>,
        attach_detach: AttachDetach,
    ) -> Self {
        let mut all: BTreeMap<String, String> = [
            ("kubernetes.io/hostname", name.as_str()),
            (LABEL_OS, go_runtime::OPERATING_SYSTEM),
            (LABEL_ARCH, go_runtime::architecture()),
            ("beta.kubernetes.io/os", go_runtime::OPERATING_SYSTEM),
            ("beta.kubernetes.io/arch", go_runtime::architecture()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        all.extend(labels);
        let annotations = match attach_detach {
            AttachDetach::Controller => {
                BTreeMap::from([(ATTACH_DETACH.to_owned(), "true".to_owned())])
            }
            AttachDetach::Node => BTreeMap::new(),
        };
        Self {
            name,
            labels: all,
            annotations,
            taints,
            provider_id: provider_id.filter(|id| !id.is_empty()),
        }
    }
}

/// One entry of `spec.taints`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// `key`.
    pub key: String,
    /// `value`; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Everything that the setters are computed from: what was observed, and what was configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The host name: trimmed, lower case.
    pub hostname: String,
    /// `--node-ip`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// Interfaces, routes and names.
    pub network: Network,
    /// What the machine is.
    pub machine: Machine,
    /// Size of the file system of the root directory; `None` while it cannot be read.
    pub ephemeral_storage: Option<Bytes>,
    /// Volumes that are mounted here and that the control plane must not detach, sorted; `None`
    /// while they are not known, and where it attaches none.
    pub volumes: Option<Vec<String>>,
    /// `maxPods`, `podsPerCore` and the reservations.
    pub allocation: Allocation,
    /// `kubeletVersion`, a semantic version with a leading `v`.
    pub kubelet_version: String,
    /// What is known of the container runtime.
    pub runtime: Runtime,
    /// `daemonEndpoints.kubeletEndpoint.Port`.
    pub kubelet_port: Option<u16>,
    /// The state of every resource.
    pub pressures: BTreeMap<Resource, Pressure>,
    /// The resources of which nothing can be said because a source is lost, each with the signals
    /// that are.
    pub lost: BTreeMap<Resource, Vec<Signal>>,
    /// The disks that are not well now, by name.
    pub disks: Disks,
    /// The state of every stall that is watched; none where that is off.
    pub stalls: BTreeMap<Stall, Pressure>,
    /// Whether the machine is going down.
    pub shutdown: Shutdown,
    /// What conditions of our own say beside that.
    pub companion: CompanionFacts,
}

/// What only conditions of our own are computed from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompanionFacts {
    /// `conditions`: those that companion mode writes.
    pub checks: BTreeSet<NodepulseCondition>,
    /// Why each resource that is under pressure is so.
    pub causes: BTreeMap<Resource, Cause>,
    /// Whether processes of pods are killed often; unread where nothing tells of kills.
    pub kills: Pressure,
    /// Path of the pods cgroup.
    pub pods_cgroup: String,
    /// `psi.threshold`, in percent.
    pub stall_threshold: f32,
}

/// Whether containers can run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// None is configured, and Ready is False for it.
    Missing,
    /// None is configured, and `--allow-ready-without-runtime` says that this is meant.
    NotNeeded,
}

impl Runtime {
    /// What a new Node is tainted with, so that no pod is sent to a Ready node that cannot run it.
    #[must_use]
    pub fn taint(self) -> Option<Taint> {
        match self {
            Self::Missing => None,
            Self::NotNeeded => Some(Taint {
                key: concat!(domain!(), "/no-runtime").to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }),
        }
    }
}

/// Whether the machine has said that it is going down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shutdown {
    /// No word of it, or it was cancelled.
    #[default]
    NotAnnounced,
    /// logind sent `PrepareForShutdown(true)`: Ready is False until it sends `false`.
    Announced,
}

/// What of the capacity is handed out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allocation {
    /// `maxPods`.
    pub max_pods: u32,
    /// `podsPerCore`; zero means no such limit.
    pub pods_per_core: u32,
    /// How many volumes of each CSI driver can be attached, by the driver's name. Nobody but
    /// schedulers of old reads it: newer ones look at `CSINode`.
    pub volume_limits: BTreeMap<String, u32>,
    /// systemReserved and kubeReserved, added up by key: `cpu`, `memory`, `ephemeral-storage`, …
    pub reserved: BTreeMap<String, Quantity>,
    /// The hard `memory.available` threshold, which reserves memory.
    pub memory_threshold: Option<ThresholdValue>,
    /// The hard `nodefs.available` threshold, which reserves ephemeral storage.
    pub nodefs_threshold: Option<ThresholdValue>,
}

/// The disks behind `DiskIOPressure`, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disks {
    /// Slow: they answer, but late.
    pub slow: Vec<String>,
    /// Stalled: requests in flight, and none completes.
    pub stalled: Vec<String>,
    /// Failing: they answer with errors.
    pub failing: Vec<String>,
    /// Their I/O statistics are off, so nothing is known of them.
    pub unwatched: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_new_node_carries_the_default_labels_and_what_was_asked_for() {
        let arch = go_runtime::architecture();
        let taint = Taint {
            key: "edge".to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        };
        let registration = Registration::new(
            "worker-1".to_owned(),
            labels(&[("kubernetes.io/hostname", "other"), ("rack", "7")]),
            vec![taint.clone()],
            Some(String::new()),
            AttachDetach::Controller,
        );

        let expected = [
            ("beta.kubernetes.io/arch", arch),
            ("beta.kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", arch),
            ("kubernetes.io/hostname", "other"),
            ("kubernetes.io/os", "linux"),
            ("rack", "7"),
        ];
        assert_eq!(registration.labels, labels(&expected), "given labels win");
        assert_eq!(
            registration.annotations,
            labels(&[(
                "volumes.kubernetes.io/controller-managed-attach-detach",
                "true"
            )])
        );
        assert_eq!(registration.taints, [taint]);
        assert_eq!(registration.provider_id, None, "an empty id is none");
    }

    #[test]
    fn without_the_controller_there_is_no_annotation() {
        let registration = Registration::new(
            "worker-1".to_owned(),
            BTreeMap::new(),
            Vec::new(),
            Some("metal://7".to_owned()),
            AttachDetach::Node,
        );
        assert_eq!(registration.annotations, BTreeMap::new());
        assert_eq!(registration.provider_id.as_deref(), Some("metal://7"));
        assert_eq!(
            registration.labels.get("kubernetes.io/hostname").unwrap(),
            "worker-1"
        );
    }

    #[test]
    fn a_node_that_is_ready_without_a_runtime_is_created_with_a_taint() {
        assert_eq!(Runtime::Missing.taint(), None);
        let taint = Runtime::NotNeeded.taint().unwrap();
        assert_eq!(
            (
                taint.key.as_str(),
                taint.value.as_str(),
                taint.effect.as_str()
            ),
            ("nodepulse.dev/no-runtime", "", "NoSchedule")
        );
    }
}
