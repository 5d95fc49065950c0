//! The facts that the status is computed from, read once at start.

use std::collections::BTreeMap;

use nodepulse_core::node_status::{
    CompanionFacts, ConfiguredFacts, ContainerRuntime, Disks, Facts, NodeFact, Shutdown,
};
use nodepulse_core::reading::{AbsentSource, Stall};
use nodepulse_linux::host::addresses;
use tracing::warn;

use crate::config::Config;
use crate::queries::signals::SignalReader;

/// Reads facts that do not change until a reboot. Logs and leaves out those that are unreadable.
pub(super) fn gather(
    config: &Config,
    signals: &SignalReader,
    absent: BTreeMap<Stall, AbsentSource>,
) -> Facts {
    let root = signals.root();
    Facts {
        hostname: config.node_name.clone(),
        node_ips: config.node_ips.clone(),
        network: ok_or_log!(warn, addresses::network(root), "addresses not read")
            .unwrap_or_default(),
        // Read by the helper thread.
        machine: nodepulse_core::reading::Machine::default(),
        ephemeral_storage: None,
        volumes: None,
        allocation: config.allocation.clone(),
        kubernetes_version: config.kubernetes_version.clone(),
        api_server: None,
        runtime: config.runtime,
        container_runtime: (!config.runtime_sockets().is_empty()).then(ContainerRuntime::default),
        kubelet_port: config.kubelet_port,
        shutdown: Shutdown::NotAnnounced,
        pressures: BTreeMap::new(),
        lost: BTreeMap::new(),
        disks: Disks::default(),
        stalls: BTreeMap::new(),
        companion: CompanionFacts {
            checks: config.conditions.clone(),
            pods_cgroup: signals.pods_cgroup().to_owned(),
            frequent_oom: config.frequent_oom,
            stall_thresholds: config.psi.thresholds,
            absent,
            ..CompanionFacts::default()
        },
    }
}

/// Returns the settings that a reload can change.
pub(super) fn configured(config: &Config) -> NodeFact {
    NodeFact::Configured(Box::new(ConfiguredFacts {
        node_ips: config.node_ips.clone(),
        allocation: config.allocation.clone(),
        kubernetes_version: config.kubernetes_version.clone(),
        runtime: config.runtime,
        kubelet_port: config.kubelet_port,
        checks: config.conditions.clone(),
        frequent_oom: config.frequent_oom,
    }))
}
