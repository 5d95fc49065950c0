//! Which keys a running agent applies, and which require a restart.

use super::Config;

/// The keys in which two configurations differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigChanges {
    /// Keys that are in effect now.
    pub applied: Vec<&'static str>,
    /// Keys that require a restart, because they are used only at start-up.
    pub pending_restart: Vec<&'static str>,
}

/// Destructures `new`, so that a field that is missing here does not compile.
macro_rules! fields {
    (
        applied { $($applied:ident: $applied_key:literal,)* }
        pending { $($pending:ident: $pending_key:literal,)* }
    ) => {
        impl Config {
            /// Applies the values of `new` that a running agent can apply, and returns the changed
            /// keys.
            pub fn apply(&mut self, new: Self) -> ConfigChanges {
                let Self { $($applied,)* $($pending,)* } = new;
                let mut changes = ConfigChanges::default();
                $(
                    if self.$applied != $applied {
                        self.$applied = $applied;
                        changes.applied.push($applied_key);
                    }
                )*
                $(
                    if self.$pending != $pending {
                        changes.pending_restart.push($pending_key);
                    }
                )*
                changes
            }
        }
    };
}

fields! {
    applied {
    policy: "evictionHard, evictionSoft, evictionMinimumReclaim, \
             evictionPressureTransitionPeriod or diskIO.raisesDiskPressure",
    allocation: "maxPods, podsPerCore, systemReserved, kubeReserved or evictionHard",
    node_ips: "nodeIP",
    disk_io: "diskIO",
    kubelet_port: "port",
    kubelet_version: "kubernetesVersion",
    runtime: "allowReadyWithoutRuntime",
    conditions: "conditions",
    oom_node_events: "oom.nodeEvents",
    serve: "serve.address",
    per_pod_metrics: "serve.perPodMetrics",
    log_level: "log.level",
    log_format: "log.format",
    }
    pending {
    mode: "mode",
    node_name: "nodeName",
    kubeconfig: "kubeconfig",
    host_root: "hostRoot",
    root_directory: "rootDirectory",
    state_directory: "stateDirectory",
    pods_cgroups: "cgroupRoot or cgroupDriver",
    status_update_frequency: "nodeStatusUpdateFrequency",
    status_report_frequency: "nodeStatusReportFrequency",
    lease_duration: "nodeLeaseDurationSeconds",
    take_over: "takeOver",
    register_node: "registerNode",
    taints: "registerWithTaints",
    nodepulse_taints: "taints",
    node_labels: "nodeLabels",
    attach_detach: "enableControllerAttachDetach",
    provider_id: "providerID",
    psi: "psi",
    event_queue: "events.queue",
    tier: "kernel.tier",
    probes: "kernel.probes",
    sandbox: "sandbox",
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::config::Overrides;

    fn config(file: &str) -> Config {
        let head = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";
        let read = |_: &Path| Ok::<_, io::Error>(format!("{head}{file}"));
        let overrides = Overrides::default();
        Config::load(&overrides, &|_| None, &read, "worker-1").unwrap()
    }

    #[test]
    fn keys_are_applied_or_reported_as_pending() {
        let before = config("evictionPressureTransitionPeriod: 5m\n");
        //  the file, applied keys, pending keys
        let rows: [(&str, &[&str], &[&str]); 5] = [
            ("evictionPressureTransitionPeriod: 5m\n", &[], &[]),
            ("evictionPressureTransitionPeriod: 300s\n", &[], &[]),
            ("log: {level: debug}\n", &["log.level"], &[]),
            (
                "mode: node\nkernel: {tier: files}\n",
                &[],
                &["mode", "kernel.tier"],
            ),
            (
                "sandbox: off\nserve: {address: 127.0.0.1:1}\n",
                &["serve.address"],
                &["sandbox"],
            ),
        ];
        for (file, taken, waiting) in rows {
            let mut running = before.clone();
            let mut changes = running.apply(config(file));
            // Ignore the defaults that depend on the mode.
            changes.applied.retain(|key| !key.contains("evictionHard"));
            assert_eq!(changes.applied, taken, "{file}");
            assert_eq!(changes.pending_restart, waiting, "{file}");
            assert_eq!(running.mode, before.mode, "{file}");
            assert_eq!(running.sandbox, before.sandbox, "{file}");
        }
        let mut running = before.clone();
        let changes = running.apply(config("evictionHard: {memory.available: 7Gi}\n"));
        assert_eq!(changes.pending_restart, [""; 0]);
        assert_eq!(changes.applied.len(), 2, "reservations depend on it");
        assert_ne!(running.policy, before.policy);
        assert_eq!(running.apply(running.clone()), ConfigChanges::default());
    }
}
