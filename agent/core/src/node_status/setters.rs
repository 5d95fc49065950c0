//! Computation of the status, part by part.
//!
//! A setter reads the facts and what the API server has, and writes its part of a new
//! [`NodeStatus`]: the whole part, never a difference. It may not read what a later setter writes.
//! If it fails, its part keeps the stored value; the other setters still run, and the caller logs
//! the error.
//!
//! To add a setter, add a function of type [`Setter`] in a file under `setters/`, and a line in
//! [`SETTERS`], or in [`COMPANION`] for one of nodepulse's conditions;
//! `examples/custom_condition.rs` does so in an external crate. The order is the kubelet's, in
//! which a new Node gets its conditions: `Ready` is the last of them, because control planes have
//! relied on that, and needs the capacity.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Facts, NodeStatus};
use crate::pressure::Pressure;
use crate::reading::{Resource, Signal};
use crate::units::quantity::Quantity;

pub mod address;
pub mod container_runtime;
pub mod disk_failing;
pub mod disk_io;
pub mod endpoints;
pub mod go_runtime;
pub mod machine;
pub mod nodepulse;
pub mod pressure;
pub mod ready;
pub mod version;
pub mod volumes;

/// `reason` of every condition whose source is unavailable.
const UNAVAILABLE: &str = "SourceUnavailable";

/// The input of a setter.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub facts: &'a Facts,
    /// `status.capacity` as the API server has it.
    pub stored_capacity: &'a BTreeMap<String, Quantity>,
}

impl Context<'_> {
    /// Returns the state of one resource; unknown if there is none.
    fn pressure(&self, resource: Resource) -> Pressure {
        let pressures = &self.facts.pressures;
        pressures
            .get(&resource)
            .copied()
            .unwrap_or(Pressure::Unknown)
    }

    /// Returns the lost signals because of which a resource is unknown, empty if it was never
    /// sampled; `None` if its state is known.
    fn lost(&self, resource: Resource) -> Option<&[Signal]> {
        let lost = self.facts.lost.get(&resource).map(Vec::as_slice);
        lost.or_else(|| (self.pressure(resource) == Pressure::Unknown).then_some(&[]))
    }
}

/// Writes one part of the status.
pub type Setter = fn(&Context<'_>, &mut NodeStatus) -> Result<(), SetterError>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetterError {
    /// An address given by `--node-ip` cannot be this node's address.
    #[error("node IP {ip} {why}; set --node-ip to an address of one of this node's interfaces")]
    NodeIp { ip: IpAddr, why: address::Unusable },

    /// Neither the name, nor DNS, nor the routes provide an address.
    #[error(
        "can't get ip address of node {node}. error: {why}; set --node-ip to an address of one of \
         this node's interfaces"
    )]
    NoAddress {
        node: String,
        why: address::NotFound,
    },
}

/// Returns the resource of one of node mode's conditions; `None` for Ready and for conditions of
/// other writers.
pub fn resource(type_: &str) -> Option<Resource> {
    Resource::ALL
        .into_iter()
        .find(|resource| condition_type(*resource) == Some(type_))
}

/// Returns node mode's condition about a resource, if there is one.
pub const fn condition_type(resource: Resource) -> Option<&'static str> {
    match resource {
        Resource::Memory => Some("MemoryPressure"),
        Resource::Disk => Some("DiskPressure"),
        Resource::Pids => Some("PIDPressure"),
        Resource::DiskIo => Some(disk_io::TYPE),
        Resource::DiskFailing => Some(disk_failing::TYPE),
        Resource::PodsPids => None,
    }
}

/// Names the sources of a resource that cannot be read: `lost`, or the main source if none was ever
/// sampled.
fn cannot_be_read(resource: Resource, lost: &[Signal], context: &Context<'_>) -> String {
    let all = match resource {
        Resource::Memory => Signal::MemoryAvailable,
        Resource::Disk => Signal::NodefsAvailable,
        Resource::Pids => Signal::PidAvailable,
        Resource::PodsPids => Signal::AllocatablePidAvailable,
        Resource::DiskIo | Resource::DiskFailing => {
            return disk_io::cannot_be_read(&context.facts.disks);
        }
    };
    // Slow disks may raise `DiskPressure` too.
    if lost.is_empty() && context.facts.lost.contains_key(&resource) {
        return disk_io::cannot_be_read(&context.facts.disks);
    }
    let lost = if lost.is_empty() { &[all] } else { lost };
    let names = lost
        .iter()
        .map(|signal| signal_name(*signal, &context.facts.companion.pods_cgroup));
    format!("{} cannot be read", names.collect::<Vec<_>>().join(" and "))
}

/// Returns the name that users know; a derived signal is that of the pods cgroup.
fn signal_name(signal: Signal, pods_cgroup: &str) -> String {
    match signal {
        Signal::AllocatableMemoryAvailable => {
            format!("memory.available of the pods cgroup {pods_cgroup}")
        }
        Signal::AllocatablePidAvailable => {
            format!("pid.available of the pods cgroup {pods_cgroup}")
        }
        Signal::MemoryAvailable
        | Signal::NodefsAvailable
        | Signal::NodefsInodesFree
        | Signal::ImagefsAvailable
        | Signal::ImagefsInodesFree
        | Signal::PidAvailable => signal.as_str().to_owned(),
    }
}

/// Setters with their names, in order. A program that embeds the agent can pass its own list.
pub type Setters = &'static [(&'static str, Setter)];

pub const SETTERS: Setters = &[
    ("NodeAddress", address::set),
    ("MachineInfo", machine::set),
    ("VersionInfo", version::set),
    ("DaemonEndpoints", endpoints::set),
    ("Images", container_runtime::images),
    ("GoRuntime", go_runtime::set),
    ("RuntimeHandlers", container_runtime::handlers),
    ("NodeFeatures", container_runtime::features),
    ("VolumeLimits", volumes::limits),
    ("MemoryPressure", pressure::memory),
    ("DiskPressure", pressure::disk),
    ("PIDPressure", pressure::pids),
    ("DiskIOPressure", disk_io::set),
    ("DiskFailing", disk_failing::set),
    ("Ready", ready::set),
    ("VolumesInUse", volumes::in_use),
];

/// Companion mode's setters: nodepulse's conditions only.
pub const COMPANION: Setters = &[
    ("MemoryLow", nodepulse::memory),
    ("PIDsLow", nodepulse::pids),
    ("DiskSpaceLow", nodepulse::disk_space),
    ("DiskIOPressure", nodepulse::disk_io),
    ("DiskFailing", nodepulse::disk_failing),
    ("FrequentOOMKills", nodepulse::kills),
    ("MemoryStallPressure", nodepulse::memory_stall),
    ("DiskStallPressure", nodepulse::disk_stall),
    ("PodsMemoryStallPressure", nodepulse::pods_memory_stall),
    ("PodsDiskStallPressure", nodepulse::pods_disk_stall),
];

/// Runs the setters, and returns the status and those that failed. The conditions have no times yet
/// ([`NodeStatus::stamped`]). Only the ledger ([`super::ledger`]) computes a status.
pub(super) fn compute(
    setters: Setters,
    facts: &Facts,
    stored_capacity: &BTreeMap<String, Quantity>,
) -> (NodeStatus, Vec<(&'static str, SetterError)>) {
    let context = Context {
        facts,
        stored_capacity,
    };
    let mut status = NodeStatus::default();
    let failed = setters
        .iter()
        .filter_map(|(name, set)| Some((*name, set(&context, &mut status).err()?)))
        .collect();
    (status, failed)
}

#[cfg(test)]
mod tests {
    use super::SETTERS;
    use crate::node_status::StoredNode;
    use crate::node_status::fixture::{compute, facts, ips, now, status_of, stored, wall};
    use crate::node_status::{Address, Status};

    #[test]
    fn a_node_without_problems_has_this_status() {
        let (status, failed) = compute(SETTERS, &facts(), &StoredNode::default(), now());

        assert_eq!(failed, []);
        assert_eq!(
            status.addresses.unwrap(),
            [
                Address::InternalIp("192.0.2.7".parse().unwrap()),
                Address::Hostname("worker-1".to_owned())
            ]
        );
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (&*c.type_, c.status))
            .collect();
        assert_eq!(
            conditions,
            [
                ("MemoryPressure", Status::False),
                ("DiskPressure", Status::False),
                ("PIDPressure", Status::False),
                ("DiskIOPressure", Status::False),
                ("DiskFailing", Status::False),
                ("Ready", Status::True),
            ],
            "in the order in which a new Node gets them"
        );
    }

    #[test]
    fn what_was_read_is_reported() {
        let info = status_of(&facts()).node_info;
        let identifiers = [&info.machine_id, &info.system_uuid, &info.boot_id];
        assert_eq!(identifiers, ["machine", "system", "boot"]);
        let versions = [&info.kernel_version, &info.os_image, &info.kubelet_version];
        let expected = [
            "6.12.0",
            "Debian GNU/Linux 13 (trixie)",
            "v1.36.1+nodepulse.0.1.0",
        ];
        assert_eq!(versions, expected);
        let go = [&*info.operating_system, &info.architecture];
        assert_eq!(go, ["linux", super::go_runtime::architecture()]);

        let volumes = || vec!["kubernetes.io/csi/d^v".to_owned()];
        for (port, volumes) in [
            (None, None),
            (Some(10_250), Some(volumes())),
            (Some(1), Some(vec![])),
        ] {
            let mut facts = facts();
            facts.kubelet_port = port;
            facts.volumes.clone_from(&volumes);
            let status = status_of(&facts);
            assert_eq!(
                (status.kubelet_port, status.volumes_in_use),
                (port, volumes)
            );
        }
    }

    #[test]
    fn every_condition_has_the_heartbeat_of_this_computation() {
        let stored = StoredNode {
            conditions: vec![
                stored("MemoryPressure", Status::False, "r", "m"),
                stored("Ready", Status::True, "r", "m"),
                stored("KernelDeadlock", Status::False, "theirs", "theirs"),
            ],
            ..StoredNode::default()
        };
        let (status, _) = compute(SETTERS, &facts(), &stored, now());

        assert_eq!(
            status.conditions.len(),
            6,
            "conditions of other writers are not included"
        );
        for condition in &status.conditions {
            assert_eq!(
                condition.last_heartbeat_time,
                wall(1_800_000_000),
                "{}: whole seconds",
                condition.type_
            );
        }
    }

    #[test]
    fn a_failed_setter_keeps_its_part_and_does_not_stop_the_others() {
        let mut facts = facts();
        facts.node_ips = ips(&["198.51.100.1"]);
        let (status, failed) = compute(SETTERS, &facts, &StoredNode::default(), now());

        assert_eq!(
            failed.iter().map(|(name, err)| (*name, err.to_string())).collect::<Vec<_>>(),
            [(
                "NodeAddress",
                "node IP 198.51.100.1 is on none of the interfaces; set --node-ip to an address of \
                 one of this node's interfaces"
                    .to_owned()
            )]
        );
        assert_eq!(status.addresses, None);
        assert_eq!(status.node_info.boot_id, "boot");
        assert_eq!(status.conditions.len(), 6);
    }
}
