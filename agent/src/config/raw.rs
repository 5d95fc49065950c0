//! The text form: every value as written. Unknown keys are rejected.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::ConfigError;
use super::{API_VERSION, KIND};

/// The file, key by key. Values are checked later, together with flags and environment.
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
    pub(super) conditions: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "nodepulse_taints")]
    pub(super) taints: Option<BTreeMap<String, String>>,
    #[serde(rename = "nodeIP")]
    pub(super) node_ip: Option<String>,
    #[serde(rename = "providerID")]
    pub(super) provider_id: Option<String>,
    pub(super) max_pods: Option<String>,
    pub(super) pods_per_core: Option<String>,
    pub(super) port: Option<String>,
    pub(super) volume_limits: Option<BTreeMap<String, String>>,
    pub(super) system_reserved: Option<BTreeMap<String, String>>,
    pub(super) kube_reserved: Option<BTreeMap<String, String>>,
    #[serde(rename = "reservedSystemCPUs")]
    pub(super) reserved_system_cpus: Option<String>,
    pub(super) enable_controller_attach_detach: Option<String>,
    #[serde(rename = "diskIO")]
    pub(super) disk_io: Option<RawDiskIo>,
    pub(super) psi: Option<RawPsi>,
    pub(super) oom: Option<RawOom>,
    pub(super) runtime: Option<RawRuntime>,
    pub(super) allow_ready_without_runtime: Option<String>,
    pub(super) kubernetes_version: Option<String>,
    pub(super) kernel: Option<RawKernel>,
    pub(super) events: Option<RawEvents>,
    pub(super) serve: Option<RawServe>,
    pub(super) sandbox: Option<String>,
    pub(super) log: Option<RawLog>,
    // Keys of the kubelet's server.
    pub(super) address: Option<IgnoredAny>,
    pub(super) authentication: Option<IgnoredAny>,
    pub(super) authorization: Option<IgnoredAny>,
    pub(super) enable_contention_profiling: Option<IgnoredAny>,
    pub(super) enable_debug_flags_handler: Option<IgnoredAny>,
    pub(super) enable_debugging_handlers: Option<IgnoredAny>,
    pub(super) enable_profiling_handler: Option<IgnoredAny>,
    pub(super) enable_server: Option<IgnoredAny>,
    pub(super) enable_system_log_handler: Option<IgnoredAny>,
    pub(super) enable_system_log_query: Option<IgnoredAny>,
    pub(super) read_only_port: Option<IgnoredAny>,
    #[serde(rename = "serverTLSBootstrap")]
    pub(super) server_tls_bootstrap: Option<IgnoredAny>,
    pub(super) streaming_connection_idle_timeout: Option<IgnoredAny>,
    pub(super) tls_cert_file: Option<IgnoredAny>,
    pub(super) tls_cipher_suites: Option<IgnoredAny>,
    pub(super) tls_curve_preferences: Option<IgnoredAny>,
    pub(super) tls_min_version: Option<IgnoredAny>,
    pub(super) tls_private_key_file: Option<IgnoredAny>,
}

/// One entry of `registerWithTaints`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawTaint {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) effect: String,
}

impl RawTaint {
    /// The flag form: `key=value:effect`.
    pub(super) fn text(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}:{}", self.key, self.effect),
            None => format!("{}:{}", self.key, self.effect),
        }
    }
}

/// One entry of `taints`: an effect, optionally with key and value. Becomes `effect`, `key:effect`,
/// `=value:effect` or `key=value:effect`.
struct RawConditionTaint(String);

fn nodepulse_taints<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let taints: Option<BTreeMap<String, RawConditionTaint>> = Option::deserialize(deserializer)?;
    let text = |(type_, RawConditionTaint(text))| (type_, text);
    Ok(taints.map(|taints| taints.into_iter().map(text).collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TaintParts {
    effect: Option<String>,
    key: Option<String>,
    value: Option<String>,
}

impl<'de> Deserialize<'de> for RawConditionTaint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ConditionTaintVisitor)
    }
}

struct ConditionTaintVisitor;

impl<'de> Visitor<'de> for ConditionTaintVisitor {
    type Value = RawConditionTaint;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an effect such as NoSchedule, or {effect: …, key: …, value: …}")
    }

    fn visit_str<E>(self, text: &str) -> Result<RawConditionTaint, E> {
        Ok(RawConditionTaint(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawConditionTaint, A::Error> {
        let parts = TaintParts::deserialize(MapAccessDeserializer::new(map))?;
        let effect = parts.effect.unwrap_or_default();
        let value = parts.value.map(|value| format!("={value}"));
        let name = [parts.key, value].into_iter().flatten().collect::<String>();
        let text = if name.is_empty() {
            effect
        } else {
            format!("{name}:{effect}")
        };
        Ok(RawConditionTaint(text))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawDiskIo {
    pub(super) solid_state: Option<RawDisk>,
    pub(super) rotational: Option<RawDisk>,
    pub(super) devices: Option<BTreeMap<String, RawDisk>>,
    pub(super) window: Option<String>,
    pub(super) raises_disk_pressure: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawDisk {
    pub(super) slow: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawPsi {
    pub(super) enabled: Option<String>,
    pub(super) threshold: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawOom {
    pub(super) node_events: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawRuntime {
    pub(super) endpoint: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawKernel {
    pub(super) tier: Option<String>,
    pub(super) probes: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawEvents {
    pub(super) queue: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawServe {
    pub(super) address: Option<String>,
    pub(super) per_pod_metrics: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct RawLog {
    pub(super) level: Option<String>,
    pub(super) format: Option<String>,
}

/// Keys of the kubelet's server on port 10250, which nodepulse does not have. They are accepted
/// without effect, so that a file can be shared.
pub(super) const SERVER_KEYS: [&str; 18] = [
    "address",
    "authentication",
    "authorization",
    "enableContentionProfiling",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "readOnlyPort",
    "serverTLSBootstrap",
    "streamingConnectionIdleTimeout",
    "tlsCertFile",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "tlsPrivateKeyFile",
];

/// The head of a file: keys, as in the examples of errors, and their values.
pub(super) type Head = [(&'static str, &'static str); 2];

const HEAD: Head = [("apiVersion", API_VERSION), ("kind", KIND)];

impl RawConfig {
    /// Parses a file's text. `path` is for errors.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let raw: Self = serde_saphyr::from_str(text).map_err(|err| refused(&err, text, path))?;
        check_head(path, [&raw.api_version, &raw.kind], &HEAD)?;
        Ok(raw)
    }

    /// The [`SERVER_KEYS`] in this file.
    pub(super) fn server_keys(&self) -> Vec<String> {
        let values = [
            &self.address,
            &self.authentication,
            &self.authorization,
            &self.enable_contention_profiling,
            &self.enable_debug_flags_handler,
            &self.enable_debugging_handlers,
            &self.enable_profiling_handler,
            &self.enable_server,
            &self.enable_system_log_handler,
            &self.enable_system_log_query,
            &self.read_only_port,
            &self.server_tls_bootstrap,
            &self.streaming_connection_idle_timeout,
            &self.tls_cert_file,
            &self.tls_cipher_suites,
            &self.tls_curve_preferences,
            &self.tls_min_version,
            &self.tls_private_key_file,
        ];
        let keys = SERVER_KEYS.iter().zip(values);
        let keys = keys.filter(|(_, value)| value.is_some());
        keys.map(|(key, _)| (*key).to_owned()).collect()
    }
}

/// Checks `apiVersion` and `kind`.
pub(super) fn check_head(
    path: &Path,
    got: [&Option<String>; 2],
    head: &Head,
) -> Result<(), ConfigError> {
    for ((key, want), got) in head.iter().zip(got) {
        let got = got.as_deref().unwrap_or_default();
        if got != *want {
            let name = key.rsplit('.').next().unwrap_or_default();
            let origin = format!("{name} in {}", path.display());
            return Err(ConfigError::value(
                key,
                &origin,
                got,
                &format!("is not {want}"),
            ));
        }
    }
    Ok(())
}

pub(super) fn refused(err: &serde_saphyr::Error, text: &str, path: &Path) -> ConfigError {
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
        return ConfigError::syntax(path, line, there, "the key is repeated");
    }
    let why = err.to_string();
    let why = why.lines().next().unwrap_or_default();
    // The parser repeats the position.
    let why = why.split_once(" at line ").map_or(why, |(why, _)| why);
    ConfigError::syntax(path, line, there, why)
}
