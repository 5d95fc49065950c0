//! The status that the node should have, in types independent of the API, and its computation.
//!
//! Setters compute the whole status ([`setters`]); [`stamp`](mod@stamp), [`transition`] and
//! [`report`] compare it with what the API server has. Nothing here does I/O, reads a clock or
//! logs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use self::setters::go_runtime;
use serde::{Deserialize, Serialize};

use self::stamp::{ComputedCondition, SameStatus, stamp};
use crate::clock::Now;
use crate::pressure::threshold::ThresholdValue;
use crate::reading::container_runtime::{NodeImage, RuntimeHandler, RuntimeStatus, RuntimeVersion};
use crate::units::quantity::Quantity;

pub mod capacity;
mod facts;
pub mod largest_images;
pub mod ledger;
pub mod nodepulse_condition;
pub mod release;
pub mod report;
pub mod setters;
pub mod stamp;
pub mod transition;
pub mod urgent;

#[cfg(test)]
#[path = "node_status/tests/fixture.rs"]
mod fixture;

pub use crate::pressure::sample::Disks;
pub use facts::{CompanionFacts, ConfiguredFacts, FactChange, Facts, NodeFact};

/// The stable label that carries the operating system.
pub const LABEL_OS: &str = "kubernetes.io/os";

/// The stable label that carries the architecture, in Go's names.
pub const LABEL_ARCH: &str = "kubernetes.io/arch";

/// Allows the attach-detach controller to attach volumes to this node.
pub const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    True,
    False,
    /// The source is unavailable.
    Unknown,
}

impl Status {
    pub const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// Returns the API's spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Parses the API's spelling; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }
}

/// One entry of `status.conditions`, as it should be or as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub type_: String,
    pub status: Status,
    /// A CamelCase token.
    pub reason: String,
    /// Text for people, without anything that changes from one heartbeat to the next.
    pub message: String,
    /// Time of the last change of `status`, in whole seconds.
    pub last_transition_time: SystemTime,
    /// Time of the last computation, in whole seconds.
    pub last_heartbeat_time: SystemTime,
}

/// One entry of `status.addresses`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    InternalIp(IpAddr),
    Hostname(String),
}

/// The fields of `status.nodeInfo` that nodepulse writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// `containerRuntimeVersion`; empty without a runtime. `None` if the runtime has not answered
    /// yet, so that the stored version stays.
    pub container_runtime_version: Option<String>,
    pub kubelet_version: String,
    /// `operatingSystem`: `linux`.
    pub operating_system: String,
    /// `architecture`, in Go's names: `amd64`, `arm64`.
    pub architecture: String,
    /// `swap.capacity` in bytes; `None` leaves the field unset.
    pub swap_capacity: Option<i64>,
}

/// The status as it should be now.
///
/// `None` means that the part could not be computed: the stored value stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// `addresses`, the whole list in order.
    pub addresses: Option<Vec<Address>>,
    /// `capacity`, only the keys that nodepulse writes.
    pub capacity: BTreeMap<String, Quantity>,
    /// `allocatable`, only the keys that nodepulse writes.
    pub allocatable: BTreeMap<String, Quantity>,
    pub node_info: NodeInfo,
    /// `daemonEndpoints.kubeletEndpoint.Port`; omitted unless configured, because nothing listens
    /// there.
    pub kubelet_port: Option<u16>,
    /// The conditions that nodepulse writes, in the order in which a new Node gets them.
    pub conditions: Vec<Condition>,
    /// `volumesInUse`, sorted.
    pub volumes_in_use: Option<Vec<String>>,
    /// `images`, the largest first.
    pub images: Option<Arc<Vec<NodeImage>>>,
    /// `runtimeHandlers`, by name.
    pub runtime_handlers: Option<Vec<RuntimeHandler>>,
    /// `features.supplementalGroupsPolicy`.
    pub supplemental_groups_policy: Option<bool>,
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

    /// Returns the status with the times of its conditions at `now`, given the stored conditions.
    #[must_use]
    pub fn stamped(&self, stored: &StoredNode, now: Now) -> Self {
        let one = |condition: &Condition| {
            let same = if self.kept_texts.contains(&condition.type_) {
                SameStatus::KeepsText
            } else {
                SameStatus::ReplacesText
            };
            stamp(condition, same, stored, now)
        };
        Self {
            conditions: self.conditions.iter().map(one).collect(),
            kept_texts: BTreeSet::new(),
            ..self.clone()
        }
    }
}

/// The condition of node-problem-detector's kernel monitor.
pub const KERNEL_MONITOR: &str = "KernelDeadlock";

/// The Node as the API server last returned it, reduced to what decisions need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredNode {
    pub uid: String,
    /// `status.conditions`, including those of other writers.
    pub conditions: Vec<Condition>,
    /// `status.nodeInfo.bootID`; empty on a new Node.
    pub boot_id: String,
    pub capacity: BTreeMap<String, Quantity>,
    pub unschedulable: bool,
}

impl StoredNode {
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.type_ == type_)
    }

    /// Returns the types of the stored conditions that are True, and the time of the last report.
    pub fn true_conditions(&self) -> Vec<(String, SystemTime)> {
        let is_true = self.conditions.iter().filter(|c| c.status == Status::True);
        is_true
            .map(|c| (c.type_.clone(), c.last_heartbeat_time))
            .collect()
    }
}

/// The content of a new Node, in addition to its status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registration {
    /// `metadata.name`: a DNS-1123 subdomain of at most 63 characters, because it is also a label.
    pub name: String,
    /// `metadata.labels`, including the five defaults.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    pub provider_id: Option<String>,
}

/// The component that attaches volumes to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachDetach {
    /// The controller of the control plane: the kubelet's default.
    Controller,
    /// The node itself, so the annotation is omitted.
    Node,
}

impl Registration {
    /// Adds the kubelet's five default labels, which `labels` override.
    ///
    /// `name` must be valid for the API server. An empty `provider_id` means none.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The need for a container runtime of a node that is Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Runtime {
    /// Without a container runtime that is ready, Ready is False.
    #[default]
    Required,
    /// `--allow-ready-without-runtime` is set.
    NotNeeded,
}

/// The known state of the container runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContainerRuntime {
    pub checked: RuntimeCheck,
    /// The last answer, which may be old.
    pub status: Option<RuntimeStatus>,
    /// The name, and the version while the runtime answers; `None` before its first answer.
    pub version: Option<RuntimeVersion>,
    /// The handlers as of the last answer by which the runtime was ready.
    pub handlers: Option<Vec<RuntimeHandler>>,
    /// The feature as of the same answer.
    pub supplemental_groups_policy: Option<bool>,
    /// The reported images; `None` before they were listed.
    pub images: Option<Arc<Vec<NodeImage>>>,
}

/// The result of the checks of the container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RuntimeCheck {
    /// The runtime has not been ready yet.
    #[default]
    Never,
    /// The runtime was ready within the last 30 seconds.
    Recently,
    /// The runtime was ready before that.
    Stale,
}

impl Runtime {
    /// Returns the taint of a new Node that keeps pods off a Ready node that cannot run them.
    pub fn taint(self) -> Option<Taint> {
        match self {
            Self::Required => None,
            Self::NotNeeded => Some(Taint {
                key: concat!(domain!(), "/no-runtime").to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shutdown {
    #[default]
    NotAnnounced,
    /// logind sent `PrepareForShutdown(true)`: Ready is False until it sends `false`.
    Announced,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allocation {
    pub max_pods: u32,
    /// Zero means no such limit.
    pub pods_per_core: u32,
    /// The number of volumes that each CSI driver can attach, by the driver's name. Only old
    /// schedulers read it; newer ones read `CSINode`.
    pub volume_limits: BTreeMap<String, u32>,
    /// systemReserved plus kubeReserved, by key: `cpu`, `memory`, `ephemeral-storage`, …
    pub reserved: BTreeMap<String, Quantity>,
    /// The hard `memory.available` threshold, which reserves memory.
    pub memory_threshold: Option<ThresholdValue>,
    /// The hard `nodefs.available` threshold, which reserves ephemeral storage.
    pub nodefs_threshold: Option<ThresholdValue>,
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
    fn a_new_node_has_the_default_labels_and_the_requested_ones() {
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
        assert_eq!(Runtime::Required.taint(), None);
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
