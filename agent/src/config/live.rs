//! Which keys a running agent takes over, and which wait for its next start.

use super::Config;

/// The keys in which two configurations differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigChanges {
    /// Those that are in force now.
    pub applied: Vec<&'static str>,
    /// Those that need a restart: what they decide is done before rights are given up, or once.
    pub pending_restart: Vec<&'static str>,
}

/// Takes `new` apart field by field, so that a field without a place here does not compile.
macro_rules! fields {
    (
        taken { $($taken:ident: $taken_key:literal,)* }
        waiting { $($waiting:ident: $waiting_key:literal,)* }
    ) => {
        impl Config {
            /// Takes over of `new` what a running agent can, and says what changed.
            pub fn apply(&mut self, new: Self) -> ConfigChanges {
                let Self { $($taken,)* $($waiting,)* } = new;
                let mut changes = ConfigChanges::default();
                $(
                    if self.$taken != $taken {
                        self.$taken = $taken;
                        changes.applied.push($taken_key);
                    }
                )*
                $(
                    if self.$waiting != $waiting {
                        changes.pending_restart.push($waiting_key);
                    }
                )*
                changes
            }
        }
    };
}

fields! {
    taken {
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
    waiting {
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
    fn what_can_change_does_and_the_rest_is_named() {
        let before = config("evictionPressureTransitionPeriod: 5m\n");
        //  the file, what changes at once, what waits
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
            // The defaults of a mode are not what this is about.
            changes.applied.retain(|key| !key.contains("evictionHard"));
            assert_eq!(changes.applied, taken, "{file}");
            assert_eq!(changes.pending_restart, waiting, "{file}");
            assert_eq!(running.mode, before.mode, "{file}");
            assert_eq!(running.sandbox, before.sandbox, "{file}");
        }
        let mut running = before.clone();
        let changes = running.apply(config("evictionHard: {memory.available: 7Gi}\n"));
        assert_eq!(changes.pending_restart, [""; 0]);
        assert_eq!(changes.applied.len(), 2, "what reserves memory follows");
        assert_ne!(running.policy, before.policy);
        assert_eq!(running.apply(running.clone()), ConfigChanges::default());
    }
}
