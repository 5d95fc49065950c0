//! What the node says of itself: our own types, not the API's, and what fills them.
//!
//! Setters say what should be true ([`setters`]); [`transition`] and [`report`] compare that with
//! what the API server has. Nothing here does I/O, reads a clock or logs.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::pressure::Pressure;
use crate::pressure::threshold::ThresholdValue;
use crate::reading::{Machine, Network, Resource};
use crate::units::Bytes;
use crate::units::quantity::Quantity;

pub mod report;
pub mod setters;
pub mod transition;

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
    /// The disks that are slow or stalled now, by name.
    pub disks: Disks,
}

/// Whether containers can run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// None is configured, and Ready is False for it.
    Missing,
    /// None is configured, and `--allow-ready-without-runtime` says that this is meant.
    NotNeeded,
}

/// What of the capacity is handed out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allocation {
    /// `maxPods`.
    pub max_pods: u32,
    /// `podsPerCore`; zero means no such limit.
    pub pods_per_core: u32,
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
}
