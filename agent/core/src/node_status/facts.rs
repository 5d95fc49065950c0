//! The facts that the status is computed from, and their only writer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::nodepulse_condition::NodepulseCondition;
use super::release::Release;
use super::{Allocation, ContainerRuntime, Disks, Runtime, Shutdown};
use crate::pressure::frequent_kills::FrequentOom;
use crate::pressure::stall::StallThresholds;
use crate::pressure::{Cause, Pressure};
use crate::reading::{AbsentSource, Machine, Network, Resource, Signal, Stall};
use crate::units::Bytes;

/// The input of the setters: observations and configuration. By default, nothing is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// The host name: trimmed, lower case.
    pub hostname: String,
    /// `--node-ip`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// Interfaces, routes and DNS answers.
    pub network: Network,
    pub machine: Machine,
    /// Size of the file system of the root directory; `None` while it cannot be read.
    pub ephemeral_storage: Option<Bytes>,
    /// Mounted volumes that the control plane must not detach, sorted; `None` while they are
    /// unknown, or if the control plane attaches none.
    pub volumes: Option<Vec<String>>,
    /// `maxPods`, `podsPerCore` and the reservations.
    pub allocation: Allocation,
    /// `kubernetesVersion`, a semantic version with a leading `v`; `None` for what the API server
    /// permits.
    pub kubernetes_version: Option<String>,
    /// The release of the API server; `None` while it is unknown.
    pub api_server: Option<Release>,
    pub runtime: Runtime,
    /// The state of the container runtime; `None` if none is configured.
    pub container_runtime: Option<ContainerRuntime>,
    /// `daemonEndpoints.kubeletEndpoint.Port`.
    pub kubelet_port: Option<u16>,
    pub pressures: BTreeMap<Resource, Pressure>,
    /// Resources whose state is unknown because a source is lost, each with its lost signals.
    pub lost: BTreeMap<Resource, Vec<Signal>>,
    pub disks: Disks,
    /// Empty if monitoring is off.
    pub stalls: BTreeMap<Stall, Pressure>,
    pub shutdown: Shutdown,
    /// Facts for companion mode's conditions only.
    pub companion: CompanionFacts,
}

/// Facts that only companion mode's conditions are computed from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompanionFacts {
    /// `conditions`: the conditions that companion mode writes.
    pub checks: BTreeSet<NodepulseCondition>,
    pub causes: BTreeMap<Resource, Cause>,
    /// The frequency of OOM kills in pods; unknown without a source of kills.
    pub kills: Pressure,
    /// The limits from which OOM kills are frequent.
    pub frequent_oom: FrequentOom,
    pub pods_cgroup: String,
    /// `psi.memory` and `psi.io`.
    pub stall_thresholds: StallThresholds,
    /// Stalls that cannot be measured on this node.
    pub absent: BTreeMap<Stall, AbsentSource>,
}

impl CompanionFacts {
    /// Returns true if the condition is on, and its source can exist on this node.
    pub fn writes(&self, condition: NodepulseCondition) -> bool {
        self.checks.contains(&condition) && self.absent_source(condition).is_none()
    }

    /// Returns the conditions that are on, but omitted because their source cannot exist on this
    /// node.
    pub fn omitted(&self) -> BTreeMap<NodepulseCondition, AbsentSource> {
        let checks = self.checks.iter();
        checks
            .filter_map(|condition| Some((*condition, self.absent_source(*condition)?)))
            .collect()
    }

    fn absent_source(&self, condition: NodepulseCondition) -> Option<AbsentSource> {
        self.absent.get(&condition.stall()?).copied()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FactChange {
    Disks(Disks),
    /// The pressure of every stall that is watched.
    Stalls(Vec<(Stall, Pressure)>),
    Pressures {
        pressures: BTreeMap<Resource, Pressure>,
        /// Why it is under pressure.
        causes: BTreeMap<Resource, Cause>,
        /// Signals that are lost, by resource.
        lost: BTreeMap<Resource, Vec<Signal>>,
    },
    /// The root directory's file system; what is `None` stays as it is.
    Storage {
        capacity: Option<Bytes>,
        volumes: Option<Vec<String>>,
    },
    /// What is known of the container runtime.
    ContainerRuntime(Box<ContainerRuntime>),
    /// Whether processes of pods are OOM-killed often.
    FrequentKills(Pressure),
    PodsCgroup(String),
}

/// A fact that no subject decides.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeFact {
    Machine(Box<Machine>),
    /// Interfaces and routes. The addresses from DNS stay.
    Interfaces(Network),
    /// The name of the node is looked up in DNS.
    Resolving,
    /// The addresses of that name.
    Resolved(Vec<IpAddr>),
    ApiServer(Option<Release>),
    Shutdown(Shutdown),
    /// The settings that a reload can change.
    Configured(Box<ConfiguredFacts>),
}

/// See [`NodeFact::Configured`]. Each field is that of [`Facts`] or [`CompanionFacts`].
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredFacts {
    pub node_ips: Vec<IpAddr>,
    pub allocation: Allocation,
    pub kubernetes_version: Option<String>,
    pub runtime: Runtime,
    pub kubelet_port: Option<u16>,
    pub checks: BTreeSet<NodepulseCondition>,
    pub frequent_oom: FrequentOom,
}

impl Facts {
    pub fn apply(&mut self, change: FactChange) {
        match change {
            FactChange::Disks(disks) => self.disks = disks,
            FactChange::Stalls(stalls) => self.stalls = stalls.into_iter().collect(),
            FactChange::Pressures {
                pressures,
                causes,
                lost,
            } => {
                self.pressures = pressures;
                self.companion.causes = causes;
                self.lost = lost;
            }
            FactChange::Storage { capacity, volumes } => {
                self.ephemeral_storage = capacity.or(self.ephemeral_storage);
                if volumes.is_some() {
                    self.volumes = volumes;
                }
            }
            FactChange::ContainerRuntime(runtime) => self.container_runtime = Some(*runtime),
            FactChange::FrequentKills(pressure) => self.companion.kills = pressure,
            FactChange::PodsCgroup(path) => self.companion.pods_cgroup = path,
        }
    }

    pub fn set(&mut self, fact: NodeFact) {
        match fact {
            NodeFact::Machine(machine) => self.machine = *machine,
            NodeFact::Interfaces(network) => {
                self.network = Network {
                    resolved: std::mem::take(&mut self.network.resolved),
                    is_resolving: self.network.is_resolving,
                    ..network
                };
            }
            NodeFact::Resolving => self.network.is_resolving = true,
            NodeFact::Resolved(addresses) => {
                self.network.resolved = addresses;
                self.network.is_resolving = false;
            }
            NodeFact::ApiServer(release) => self.api_server = release,
            NodeFact::Shutdown(shutdown) => self.shutdown = shutdown,
            NodeFact::Configured(configured) => {
                let ConfiguredFacts {
                    node_ips,
                    allocation,
                    kubernetes_version,
                    runtime,
                    kubelet_port,
                    checks,
                    frequent_oom,
                } = *configured;
                self.node_ips = node_ips;
                self.allocation = allocation;
                self.kubernetes_version = kubernetes_version;
                self.runtime = runtime;
                self.kubelet_port = kubelet_port;
                self.companion.checks = checks;
                self.companion.frequent_oom = frequent_oom;
            }
        }
    }
}
