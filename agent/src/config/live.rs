//! Keys that a running agent applies, and keys that require a restart.

use super::Config;
use super::spec::{KeySpec, Reload};
use super::table::key;

/// The keys in which two configurations differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigChanges {
    /// Keys that are in effect now.
    pub applied: Vec<String>,
    /// Keys that require a restart, because they are used only at start-up.
    pub pending_restart: Vec<String>,
}

/// Each field of the configuration with the keys that determine it. Destructures `new`, so that a
/// field that is missing here does not compile.
macro_rules! fields {
    ($($field:ident: [$first:ident $(, $key:ident)*],)*) => {
        impl Config {
            /// Applies the values of `new` that a running agent can apply, and returns the changed
            /// keys.
            pub fn apply(&mut self, new: Self) -> ConfigChanges {
                let Self { $($field,)* } = new;
                let mut changes = ConfigChanges::default();
                $(
                    if self.$field != $field {
                        let names = joined(&[key::$first.spec.name, $(key::$key.spec.name),*]);
                        match key::$first.spec.reload {
                            Reload::Live => {
                                self.$field = $field;
                                changes.applied.push(names);
                            }
                            Reload::Restart => changes.pending_restart.push(names),
                        }
                    }
                )*
                changes
            }
        }

        // The keys of a field have one class.
        $(const _: () = assert!(true $(&& alike(&key::$first.spec, &key::$key.spec))*);)*

        /// Every key of [`fields`].
        #[cfg(test)]
        const MENTIONED: &[&KeySpec] = &[$(&key::$first.spec, $(&key::$key.spec,)*)*];
    };
}

fields! {
    policy: [
        eviction_hard, eviction_soft, eviction_soft_grace_period, eviction_minimum_reclaim,
        merge_default_eviction_settings, eviction_pressure_transition_period,
        enforce_node_allocatable, disk_io_raises_disk_pressure
    ],
    allocation: [
        max_pods, pods_per_core, volume_limits, system_reserved, kube_reserved,
        reserved_system_cpus, eviction_hard
    ],
    node_ips: [node_ip],
    disk_io: [
        disk_io_solid_state_slow, disk_io_rotational_slow, disk_io_devices, disk_io_window,
        disk_io_slow_for, disk_io_min_stall, disk_io_stalled_after
    ],
    kubelet_port: [port],
    kubernetes_version: [kubernetes_version],
    runtime: [allow_ready_without_runtime],
    conditions: [conditions],
    oom_node_events: [oom_node_events],
    oom_name_pods: [oom_name_pods],
    frequent_oom: [oom_frequent_incidents, oom_frequent_pods, oom_frequent_window],
    serve: [serve_address],
    per_pod_metrics: [serve_per_pod_metrics],
    log_level: [log_level],
    log_format: [log_format],
    mode: [mode],
    node_name: [node_name],
    kubeconfig: [kubeconfig],
    certificate: [bootstrap_kubeconfig, cert_dir],
    host_root: [host_root],
    root_directory: [root_directory],
    imagefs_directory: [imagefs_directory],
    runtime_endpoint: [runtime_endpoint],
    max_images: [node_status_max_images],
    state_directory: [state_directory],
    history_directory: [history_directory],
    journald: [sinks_journald],
    sinks: [
        sinks_otlp_endpoint, sinks_otlp_headers_file, sinks_webhooks, sinks_ca_file
    ],
    black_box_sync: [black_box_sync],
    pods_cgroups: [cgroup_root, cgroup_driver],
    status_update_frequency: [node_status_update_frequency],
    status_report_frequency: [node_status_report_frequency],
    lease_duration: [node_lease_duration_seconds],
    take_over: [take_over],
    register_node: [register_node],
    taints: [register_with_taints],
    nodepulse_taints: [taints],
    node_labels: [node_labels],
    attach_detach: [enable_controller_attach_detach],
    provider_id: [provider_id],
    psi: [psi_enabled, psi_memory, psi_io],
    event_queue: [events_queue],
    tier: [kernel_tier],
    probes: [kernel_probes],
    sandbox: [sandbox],
}

const fn alike(a: &KeySpec, b: &KeySpec) -> bool {
    matches!(
        (a.reload, b.reload),
        (Reload::Live, Reload::Live) | (Reload::Restart, Reload::Restart)
    )
}

/// Joins names as in `a, b or c`.
fn joined(names: &[&str]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::config::{KEYS, Overrides};

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
        #[rustfmt::skip]
        let rows: [(&str, &[&str], &[&str]); 5] = [
            ("evictionPressureTransitionPeriod: 5m\n", &[], &[]),
            ("evictionPressureTransitionPeriod: 300s\n", &[], &[]),
            ("log: {level: debug}\n", &["log.level"], &[]),
            ("mode: node\nkernel: {tier: files}\n", &[], &["mode", "kernel.tier"]),
            ("sandbox: off\nserve: {address: 127.0.0.1:1}\n", &["serve.address"], &["sandbox"]),
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

    #[test]
    fn every_key_has_a_field_of_the_configuration() {
        for spec in KEYS {
            let found = MENTIONED.iter().any(|one| one.name == spec.name);
            assert!(found, "{}: no change of it would be reported", spec.name);
        }
    }
}
