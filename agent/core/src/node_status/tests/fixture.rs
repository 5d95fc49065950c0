//! A ready node without pressure, on which the tests of this module are based.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::nodepulse_condition::NodepulseCondition;
use super::setters::{SETTERS, SetterError, Setters};
use super::{
    Allocation, CompanionFacts, Condition, Disks, Facts, NodeStatus, Runtime, Shutdown, Status,
    StoredNode,
};
use crate::clock::{BootNanos, Now};
use crate::pressure::Pressure;
use crate::pressure::frequent_kills::FrequentOom;
use crate::pressure::stall::StallThresholds;
use crate::pressure::threshold::ThresholdValue;
use crate::reading::{HugePages, InterfaceAddress, Machine, Network, Resource};
use crate::units::Bytes;

/// Returns a time two minutes after boot, and some milliseconds into a second.
pub fn now() -> Now {
    Now {
        boot: BootNanos(120_000_000_000),
        wall: wall(1_800_000_000) + Duration::from_millis(678),
    }
}

/// Computes the status of a Node that is stored like this, and returns the setters that failed,
/// too.
pub fn compute(
    setters: Setters,
    facts: &Facts,
    stored: &StoredNode,
    now: Now,
) -> (NodeStatus, Vec<(&'static str, SetterError)>) {
    let (status, failed) = super::setters::compute(setters, facts, &stored.capacity);
    (status.stamped(stored, now), failed)
}

/// Computes the status of a Node of which nothing is stored.
pub fn status_of(facts: &Facts) -> NodeStatus {
    compute(SETTERS, facts, &StoredNode::default(), now()).0
}

/// Converts seconds since the epoch.
pub fn wall(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns an address of an interface that is up.
pub fn on(interface: &str, ip: &str) -> InterfaceAddress {
    InterfaceAddress {
        interface: interface.to_owned(),
        up: true,
        loopback: false,
        point_to_point: false,
        ip: ip.parse().unwrap(),
    }
}

pub fn ips(of: &[&str]) -> Vec<IpAddr> {
    of.iter().map(|ip| ip.parse().unwrap()).collect()
}

/// Returns a condition as the API server has it, changed and computed at second 1,000,000,000.
pub fn stored(type_: &str, status: Status, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: wall(1_000_000_000),
        last_heartbeat_time: wall(1_000_000_000),
    }
}

/// Computes the condition `type_` from these facts, if `before` is the only stored one.
pub fn condition(type_: &str, facts: &Facts, before: Option<Condition>) -> Condition {
    let stored = StoredNode {
        conditions: before.into_iter().collect(),
        ..StoredNode::default()
    };
    let (status, _) = compute(SETTERS, facts, &stored, now());
    let mut all = status.conditions.into_iter();
    all.find(|condition| condition.type_ == type_).unwrap()
}

/// Returns facts about 8 CPUs, 16 GiB with 64 huge pages of 2 MiB, 100 GB of disk, no pressure, and
/// no need for a runtime.
pub fn facts() -> Facts {
    Facts {
        hostname: "worker-1".to_owned(),
        node_ips: Vec::new(),
        network: Network {
            addresses: vec![on("eth0", "192.0.2.7")],
            default_v4: Some(vec!["eth0".to_owned()]),
            default_v6: Vec::new(),
            resolved: Vec::new(),
            is_resolving: false,
        },
        machine: Machine {
            machine_id: "machine".to_owned(),
            system_uuid: "system".to_owned(),
            boot_id: "boot".to_owned(),
            kernel_version: "6.12.0".to_owned(),
            os_image: "Debian GNU/Linux 13 (trixie)".to_owned(),
            cpus: 8,
            memory: Bytes::from_kib(16 << 20),
            swap: Bytes::default(),
            huge_pages: vec![HugePages {
                page_size: Bytes::from_kib(2048),
                pages: 64,
            }],
        },
        ephemeral_storage: Some(Bytes::from_bytes(100_000_000_000)),
        volumes: None,
        allocation: Allocation {
            max_pods: 110,
            pods_per_core: 0,
            volume_limits: BTreeMap::new(),
            reserved: BTreeMap::new(),
            memory_threshold: Some(ThresholdValue::Quantity(100 << 20)),
            nodefs_threshold: None,
        },
        kubernetes_version: Some("v1.36.1".to_owned()),
        api_server: None,
        runtime: Runtime::NotNeeded,
        container_runtime: None,
        kubelet_port: None,
        pressures: Resource::ALL
            .into_iter()
            .map(|resource| (resource, Pressure::Normal))
            .collect(),
        lost: BTreeMap::new(),
        disks: Disks::default(),
        stalls: BTreeMap::new(),
        shutdown: Shutdown::NotAnnounced,
        companion: CompanionFacts {
            checks: NodepulseCondition::ALL.into(),
            kills: Pressure::Normal,
            pods_cgroup: "/kubepods".to_owned(),
            frequent_oom: FrequentOom {
                incidents: 5,
                pods: 3,
                window: Duration::from_mins(10),
            },
            stall_thresholds: StallThresholds {
                memory: 15.0,
                io: 40.0,
            },
            ..CompanionFacts::default()
        },
    }
}
