//! The text form: every value as it was written, and no key that we do not know.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::error::ConfigError;
use super::{API_VERSION, KIND};

/// The file, key by key. All values are checked elsewhere, together with flags and environment.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawConfig {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) node_name: Option<String>,
    pub(super) kubeconfig: Option<String>,
    pub(super) host_root: Option<String>,
    pub(super) root_directory: Option<String>,
    pub(super) state_directory: Option<String>,
    pub(super) cgroup_root: Option<String>,
    pub(super) cgroup_driver: Option<String>,
    pub(super) enforce_node_allocatable: Option<Vec<String>>,
    pub(super) eviction_hard: Option<BTreeMap<String, String>>,
    pub(super) eviction_soft: Option<BTreeMap<String, String>>,
    pub(super) eviction_soft_grace_period: Option<BTreeMap<String, String>>,
    pub(super) eviction_minimum_reclaim: Option<BTreeMap<String, String>>,
    pub(super) merge_default_eviction_settings: Option<String>,
    pub(super) eviction_pressure_transition_period: Option<String>,
    pub(super) node_status_update_frequency: Option<String>,
    pub(super) node_status_report_frequency: Option<String>,
    pub(super) node_lease_duration_seconds: Option<String>,
    pub(super) take_over: Option<String>,
    pub(super) register_node: Option<String>,
    pub(super) register_with_taints: Option<Vec<RawTaint>>,
    pub(super) node_labels: Option<BTreeMap<String, String>>,
    #[serde(rename = "nodeIP")]
    pub(super) node_ip: Option<String>,
    #[serde(rename = "providerID")]
    pub(super) provider_id: Option<String>,
    pub(super) max_pods: Option<String>,
    pub(super) pods_per_core: Option<String>,
    pub(super) system_reserved: Option<BTreeMap<String, String>>,
    pub(super) kube_reserved: Option<BTreeMap<String, String>>,
    #[serde(rename = "diskIO")]
    pub(super) disk_io: Option<RawDiskIo>,
    pub(super) psi: Option<RawPsi>,
    pub(super) runtime: Option<RawRuntime>,
    pub(super) allow_ready_without_runtime: Option<String>,
    pub(super) kubernetes_version: Option<String>,
    pub(super) kernel: Option<RawKernel>,
    pub(super) serve: Option<RawServe>,
    pub(super) sandbox: Option<String>,
    pub(super) log: Option<RawLog>,
}

/// One entry of `registerWithTaints`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawTaint {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) effect: String,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawDiskIo {
    pub(super) solid_state: Option<RawDisk>,
    pub(super) rotational: Option<RawDisk>,
    pub(super) devices: Option<BTreeMap<String, RawDisk>>,
    pub(super) window: Option<String>,
    pub(super) raises_disk_pressure: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawDisk {
    pub(super) slow: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawPsi {
    pub(super) enabled: Option<String>,
    pub(super) threshold: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawRuntime {
    pub(super) endpoint: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawKernel {
    pub(super) tier: Option<String>,
    pub(super) probes: Option<Vec<String>>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawServe {
    pub(super) address: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawLog {
    pub(super) level: Option<String>,
    pub(super) format: Option<String>,
}

impl RawConfig {
    /// Parses a file's text. `path` is for the errors.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let raw: Self = serde_saphyr::from_str(text).map_err(|err| refused(&err, text, path))?;
        let head = [
            ("apiVersion", &raw.api_version, API_VERSION),
            ("kind", &raw.kind, KIND),
        ];
        for (key, got, want) in head {
            let got = got.as_deref().unwrap_or_default();
            if got != want {
                let origin = format!("{key} in {}", path.display());
                let why = format!("is not {want}");
                return Err(ConfigError::value(key, &origin, got, &why));
            }
        }
        Ok(raw)
    }
}

fn refused(err: &serde_saphyr::Error, text: &str, path: &Path) -> ConfigError {
    let err = err.without_snippet();
    let line = err.location().map_or(0, |location| location.line());
    if let serde_saphyr::Error::SerdeUnknownField {
        field, expected, ..
    } = err
    {
        return ConfigError::unknown_key(path, line, field, expected);
    }
    let at = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let there = text.lines().nth(at).unwrap_or_default();
    if let serde_saphyr::Error::DuplicateMappingKey { .. } = err {
        return ConfigError::syntax(path, line, there, "the key stands there already");
    }
    let why = err.to_string();
    let why = why.lines().next().unwrap_or_default();
    // The parser says again where it is.
    let why = why.split_once(" at line ").map_or(why, |(why, _)| why);
    ConfigError::syntax(path, line, there, why)
}
