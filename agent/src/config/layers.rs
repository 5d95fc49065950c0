//! Sources of a setting: flag, else environment, else files in the order of precedence.
//! [`super::keys`] adds the defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::ConfigError;
use super::raw::RawConfig;
use crate::pressure::threshold::split_list;

/// Prefix of the environment variables.
const PREFIX: &str = "NODEPULSE_";

/// Values of the flags; `None` if not set. Lists and maps are in the flag form:
/// `memory.available<1Gi,pid.available<5%` for thresholds, `key=value,…` for other maps,
/// `key=value:effect,…` for taints, and `type=effect,…` for taints of conditions.
///
/// The flag of a key is its name in kebab case: `--max-pods`, `--node-ip`, `--log-level`.
#[derive(Debug, Clone, Default)]
#[expect(
    missing_docs,
    reason = "each field is the configuration key of its name"
)]
pub struct Overrides {
    /// `--config`: the file, which must exist.
    pub config: Option<PathBuf>,
    /// Files of [`super::drop_in_directory`], sorted by name. Each overrides those before it and
    /// the file.
    pub drop_ins: Vec<PathBuf>,
    /// `--kubelet-config`: a `KubeletConfiguration`, overridden by the other files.
    pub kubelet_config: Option<PathBuf>,
    pub mode: Option<String>,
    pub node_name: Option<String>,
    pub kubeconfig: Option<String>,
    pub host_root: Option<String>,
    pub root_directory: Option<String>,
    pub state_directory: Option<String>,
    pub cgroup_root: Option<String>,
    pub cgroup_driver: Option<String>,
    pub enforce_node_allocatable: Option<String>,
    pub eviction_hard: Option<String>,
    pub eviction_soft: Option<String>,
    pub eviction_soft_grace_period: Option<String>,
    pub eviction_minimum_reclaim: Option<String>,
    pub merge_default_eviction_settings: Option<String>,
    pub eviction_pressure_transition_period: Option<String>,
    pub node_status_update_frequency: Option<String>,
    pub node_status_report_frequency: Option<String>,
    pub node_lease_duration_seconds: Option<String>,
    pub take_over: Option<String>,
    pub register_node: Option<String>,
    pub register_with_taints: Option<String>,
    pub conditions: Option<String>,
    pub taints: Option<String>,
    pub node_labels: Option<String>,
    pub node_ip: Option<String>,
    pub provider_id: Option<String>,
    pub max_pods: Option<String>,
    pub pods_per_core: Option<String>,
    pub port: Option<String>,
    pub volume_limits: Option<String>,
    pub system_reserved: Option<String>,
    pub kube_reserved: Option<String>,
    pub reserved_system_cpus: Option<String>,
    pub enable_controller_attach_detach: Option<String>,
    pub runtime_endpoint: Option<String>,
    pub allow_ready_without_runtime: Option<String>,
    pub kubernetes_version: Option<String>,
    pub kernel_tier: Option<String>,
    pub serve_address: Option<String>,
    pub sandbox: Option<String>,
    pub log_level: Option<String>,
    pub log_format: Option<String>,
}

/// One value as written, and its source.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    key: String,
    /// For errors.
    origin: String,
    /// The source: a flag, a variable, a file.
    pub(super) from: String,
    /// The text as written.
    pub(super) text: String,
}

impl Setting {
    /// An error for this value.
    pub(super) fn refused(&self, why: impl AsRef<str>) -> ConfigError {
        ConfigError::value(&self.key, &self.origin, &self.text, why.as_ref())
    }

    /// This value, parsed.
    pub(super) fn parsed<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        parse(&self.text).map_err(|why| self.refused(why))
    }

    /// The host name, if no layer sets the key.
    pub(super) fn of_host(key: &str, hostname: &str) -> Self {
        Self {
            key: key.to_owned(),
            origin: format!("{key} from the host name"),
            from: "the host name".to_owned(),
            text: hostname.to_owned(),
        }
    }

    /// The default, if no layer sets the key.
    pub(super) fn preset(key: &str, preset: &Preset) -> Self {
        Self {
            key: key.to_owned(),
            origin: format!("the default of {key}"),
            from: format!("default: {}", preset.from),
            text: preset.text.to_owned(),
        }
    }

    fn part(&self, name: &str, text: &str) -> Self {
        Self {
            key: format!("{}.{name}", self.key),
            origin: format!("{} ({name})", self.origin),
            from: self.from.clone(),
            text: text.to_owned(),
        }
    }
}

/// A default and its origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preset {
    pub(super) text: &'static str,
    pub(super) from: &'static str,
}

/// Accessor of a value in a file.
pub(super) type InFile<T> = for<'r> fn(&'r RawConfig) -> Option<&'r T>;

/// One file.
#[derive(Debug)]
pub(super) struct FileLayer {
    pub(super) path: PathBuf,
    pub(super) raw: RawConfig,
}

impl FileLayer {
    fn setting(&self, key: &str, text: &str) -> Setting {
        let path = self.path.display();
        Setting {
            key: key.to_owned(),
            origin: format!("{key} in {path}"),
            from: path.to_string(),
            text: text.to_owned(),
        }
    }
}

/// The environment and the files; flags are passed with each key.
pub(super) struct Layers<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Highest precedence first.
    pub(super) files: &'a [FileLayer],
}

impl Layers<'_> {
    /// One value: from the flag, else the environment, else the first file that sets it.
    ///
    /// An empty environment variable is ignored, so that a manifest can omit the value.
    pub(super) fn setting(
        &self,
        key: &str,
        flag: Option<&String>,
        file: InFile<String>,
    ) -> Option<Setting> {
        self.above_files(key, flag).or_else(|| {
            let mut layers = self.files.iter();
            layers.find_map(|layer| Some(layer.setting(key, file(&layer.raw)?)))
        })
    }

    /// A map: from the flag or the environment in the flag form, else from the files, merged by
    /// key.
    pub(super) fn map(
        &self,
        key: &str,
        separator: char,
        flag: Option<&String>,
        file: InFile<BTreeMap<String, String>>,
    ) -> Result<Option<BTreeMap<String, Setting>>, ConfigError> {
        if let Some(setting) = self.above_files(key, flag) {
            let pairs = split_list(&setting.text, separator)
                .map_err(|err| setting.refused(err.to_string()))?;
            let named =
                |(name, text): &(&str, &str)| ((*name).to_owned(), setting.part(name, text));
            return Ok(Some(pairs.iter().map(named).collect()));
        }
        Ok(self.merged(key, file, |text| ("", text)))
    }

    /// A map from the files, merged by key. `value` returns the text of an entry, and its path
    /// below the entry's key.
    pub(super) fn merged<T>(
        &self,
        key: &str,
        file: InFile<BTreeMap<String, T>>,
        value: for<'r> fn(&'r T) -> (&'static str, &'r str),
    ) -> Option<BTreeMap<String, Setting>> {
        let mut merged: Option<BTreeMap<String, Setting>> = None;
        for layer in self.files.iter().rev() {
            let Some(map) = file(&layer.raw) else {
                continue;
            };
            let named = map.iter().map(|(name, entry)| {
                let (below, text) = value(entry);
                let setting = layer.setting(&format!("{key}.{name}{below}"), text);
                (name.clone(), setting)
            });
            merged.get_or_insert_default().extend(named);
        }
        merged
    }

    /// A list: from the flag or the environment, comma-separated, else from the first file that
    /// sets it.
    pub(super) fn list(
        &self,
        key: &str,
        flag: Option<&String>,
        file: fn(&RawConfig) -> Option<Vec<String>>,
    ) -> Option<Vec<Setting>> {
        if let Some(setting) = self.above_files(key, flag) {
            let parts = setting.text.split(',').map(str::trim);
            let parts = parts.filter(|part| !part.is_empty());
            let named = |part: &str| Setting {
                text: part.to_owned(),
                ..setting.clone()
            };
            return Some(parts.map(named).collect());
        }
        let mut layers = self.files.iter();
        let (layer, texts) = layers.find_map(|layer| Some((layer, file(&layer.raw)?)))?;
        let named = |(n, text): (usize, &String)| layer.setting(&format!("{key}[{n}]"), text);
        Some(texts.iter().enumerate().map(named).collect())
    }

    fn above_files(&self, key: &str, flag: Option<&String>) -> Option<Setting> {
        if let Some(text) = flag {
            let flag = format!("--{}", join_words(key, '-'));
            return Some(Setting {
                key: key.to_owned(),
                origin: flag.clone(),
                from: flag,
                text: text.clone(),
            });
        }
        self.variable(key, &variable_of(key))
    }

    /// An environment variable that is neither unset nor empty.
    pub(super) fn variable(&self, key: &str, variable: &str) -> Option<Setting> {
        (self.env)(variable)
            .filter(|text| !text.is_empty())
            .map(|text| Setting {
                key: key.to_owned(),
                origin: variable.to_owned(),
                from: variable.to_owned(),
                text,
            })
    }
}

/// The environment variable of a key: `NODEPULSE_MAX_PODS` for `maxPods`.
pub(super) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", join_words(key, '_').to_uppercase())
}

/// `diskIO.raisesDiskPressure` as `disk-io-raises-disk-pressure`.
fn join_words(key: &str, between: char) -> String {
    let mut words = String::new();
    let mut before = between;
    for c in key.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            words.push(between);
        }
        if c == '.' {
            words.push(between);
        } else {
            words.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_flags_and_variables() {
        let rows = [
            ("mode", "mode"),
            ("maxPods", "max-pods"),
            ("nodeIP", "node-ip"),
            ("providerID", "provider-id"),
            ("log.level", "log-level"),
            ("diskIO.window", "disk-io-window"),
            ("diskIO.raisesDiskPressure", "disk-io-raises-disk-pressure"),
            ("diskIO.solidState.slow", "disk-io-solid-state-slow"),
            ("podsPerCore", "pods-per-core"),
        ];
        for (key, expected) in rows {
            assert_eq!(join_words(key, '-'), expected);
        }
    }
}
