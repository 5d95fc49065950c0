//! Keys of a `KubeletConfiguration` that have the same meaning here.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::ConfigError;
use super::raw::{Head, RawConfig, RawTaint, SERVER_KEYS, check_head, refused};

type Texts = BTreeMap<String, String>;

/// The keys that the kubelet's format and nodepulse's share.
macro_rules! shared {
    ($($key:literal => $field:ident: $type:ty,)*) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct RawKubelet {
            #[serde(rename = "apiVersion")]
            api_version: Option<String>,
            kind: Option<String>,
            $(#[serde(rename = $key)] $field: Option<$type>,)*
        }

        /// The shared keys, and the head.
        pub(super) const SHARED: &[&str] = &["apiVersion", "kind", $($key,)*];

        impl From<RawKubelet> for RawConfig {
            fn from(kubelet: RawKubelet) -> Self {
                Self { $($field: kubelet.$field,)* ..Self::default() }
            }
        }
    };
}

shared! {
    "cgroupDriver" => cgroup_driver: String,
    "cgroupRoot" => cgroup_root: String,
    "enableControllerAttachDetach" => enable_controller_attach_detach: String,
    "enforceNodeAllocatable" => enforce_node_allocatable: Vec<String>,
    "evictionHard" => eviction_hard: Texts,
    "evictionMinimumReclaim" => eviction_minimum_reclaim: Texts,
    "evictionPressureTransitionPeriod" => eviction_pressure_transition_period: String,
    "evictionSoft" => eviction_soft: Texts,
    "evictionSoftGracePeriod" => eviction_soft_grace_period: Texts,
    "kubeReserved" => kube_reserved: Texts,
    "maxPods" => max_pods: String,
    "mergeDefaultEvictionSettings" => merge_default_eviction_settings: String,
    "nodeLeaseDurationSeconds" => node_lease_duration_seconds: String,
    "nodeStatusReportFrequency" => node_status_report_frequency: String,
    "nodeStatusUpdateFrequency" => node_status_update_frequency: String,
    "podsPerCore" => pods_per_core: String,
    "providerID" => provider_id: String,
    "registerNode" => register_node: String,
    "registerWithTaints" => register_with_taints: Vec<RawTaint>,
    "reservedSystemCPUs" => reserved_system_cpus: String,
    "systemReserved" => system_reserved: Texts,
}

/// The content of the file.
#[derive(Debug)]
pub(super) struct Kubelet {
    /// The shared keys.
    pub(super) raw: RawConfig,
    /// Keys of the kubelet's server.
    pub(super) server: Vec<String>,
    /// All other keys.
    pub(super) others: Vec<String>,
}

/// Extracts the shared keys from a file's text. `path` is for errors.
pub(super) fn parse(text: &str, path: &Path) -> Result<Kubelet, ConfigError> {
    const HEAD: Head = [
        ("kubelet.apiVersion", "kubelet.config.k8s.io/v1beta1"),
        ("kubelet.kind", "KubeletConfiguration"),
    ];

    let refused = |err| refused(&err, text, path);
    let mut kubelet: RawKubelet = serde_saphyr::from_str(text).map_err(refused)?;
    check_head(path, [&kubelet.api_version, &kubelet.kind], &HEAD)?;
    // A kubelet treats an empty value as unset.
    for text in [&mut kubelet.cgroup_root, &mut kubelet.cgroup_driver] {
        text.take_if(|text| text.is_empty());
    }
    #[expect(
        clippy::zero_sized_map_values,
        reason = "only the keys of the file's map are needed"
    )]
    let all: BTreeMap<String, IgnoredAny> = serde_saphyr::from_str(text).map_err(refused)?;
    let (server, others) = all
        .into_keys()
        .filter(|key| !SHARED.contains(&key.as_str()))
        // A kubelet listens on `port`; nodepulse only writes it to the Node.
        .partition(|key| key == "port" || SERVER_KEYS.contains(&key.as_str()));
    Ok(Kubelet {
        raw: kubelet.into(),
        server,
        others,
    })
}
