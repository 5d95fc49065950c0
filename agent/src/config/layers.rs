//! Sources of a setting: flag, else environment, else files in the order of precedence.
//! [`super::keys`] adds the defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nodepulse_core::pressure::threshold::split_list;

use super::error::ConfigError;
use super::raw::{FileValue, RawConfig};
use super::spec::{Form, KeySpec};
use super::table::Overrides;

/// One value as written, and its source.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    key: String,
    /// The source as named in errors.
    origin: String,
    /// The source: a flag, a variable, a file.
    pub(super) from: String,
    pub(super) text: String,
}

impl Setting {
    fn new(
        key: impl Into<String>,
        origin: String,
        from: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            origin,
            from: from.into(),
            text: text.into(),
        }
    }

    pub(super) fn refused(&self, why: impl AsRef<str>) -> ConfigError {
        ConfigError::value(&self.key, &self.origin, &self.text, why.as_ref())
    }

    pub(super) fn parsed<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        parse(&self.text).map_err(|why| self.refused(why))
    }

    /// Returns the host name, if no layer sets the key.
    pub(super) fn of_host(key: &str, hostname: &str) -> Self {
        let origin = format!("{key} from the host name");
        Self::new(key, origin, "the host name", hostname)
    }

    /// Returns the default, if no layer sets the key.
    pub(super) fn preset(key: &str, text: &str, from: &str) -> Self {
        let origin = format!("the default of {key}");
        Self::new(key, origin, format!("default: {from}"), text)
    }

    fn part(&self, name: &str, text: &str) -> Self {
        let key = format!("{}.{name}", self.key);
        let origin = format!("{} ({name})", self.origin);
        Self::new(key, origin, &self.from, text)
    }
}

#[derive(Debug)]
pub(super) struct FileLayer {
    pub(super) path: PathBuf,
    pub(super) raw: RawConfig,
}

impl FileLayer {
    fn setting(&self, key: &str, text: &str) -> Setting {
        let path = self.path.display();
        Setting::new(key, format!("{key} in {path}"), path.to_string(), text)
    }
}

pub(super) struct Layers<'a> {
    pub(super) flags: &'a Overrides,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Highest precedence first.
    pub(super) files: &'a [FileLayer],
}

impl Layers<'_> {
    /// One value: from the flag, else the environment, else the first file that sets it.
    pub(super) fn setting(&self, spec: &KeySpec) -> Option<Setting> {
        self.above_files(spec).or_else(|| {
            self.files
                .iter()
                .find_map(|layer| match layer.raw.get(spec)? {
                    FileValue::Text(text) => Some(layer.setting(spec.name, text)),
                    FileValue::List(_) | FileValue::Map(_) => None,
                })
        })
    }

    /// A map: from the flag or environment in the flag form, else from the files, merged by entry.
    pub(super) fn map(
        &self,
        spec: &KeySpec,
    ) -> Result<Option<BTreeMap<String, Setting>>, ConfigError> {
        let separator = match spec.form {
            Form::Map { separator, .. } => separator,
            _ => '=',
        };
        if let Some(setting) = self.above_files(spec) {
            let pairs = split_list(&setting.text, separator)
                .map_err(|err| setting.refused(err.to_string()))?;
            let named =
                |(name, text): &(&str, &str)| ((*name).to_owned(), setting.part(name, text));
            return Ok(Some(pairs.iter().map(named).collect()));
        }
        let below = match spec.form {
            Form::Disks => ".slow",
            _ => "",
        };
        let mut merged: Option<BTreeMap<String, Setting>> = None;
        for layer in self.files.iter().rev() {
            if let Some(FileValue::Map(map)) = layer.raw.get(spec) {
                let named = map.iter().map(|(name, text)| {
                    let key = format!("{}.{name}{below}", spec.name);
                    (name.clone(), layer.setting(&key, text))
                });
                merged.get_or_insert_default().extend(named);
            }
        }
        Ok(merged)
    }

    /// A list: from the flag or environment, comma-separated, else from the first file with it.
    pub(super) fn list(&self, spec: &KeySpec) -> Option<Vec<Setting>> {
        if let Some(setting) = self.above_files(spec) {
            let parts = setting.text.split(',').map(str::trim);
            let parts = parts.filter(|part| !part.is_empty());
            let named = |part: &str| Setting {
                text: part.to_owned(),
                ..setting.clone()
            };
            return Some(parts.map(named).collect());
        }
        self.files
            .iter()
            .find_map(|layer| match layer.raw.get(spec)? {
                FileValue::List(texts) => {
                    let texts = texts.iter().enumerate();
                    let named =
                        texts.map(|(n, text)| layer.setting(&format!("{}[{n}]", spec.name), text));
                    Some(named.collect())
                }
                FileValue::Text(_) | FileValue::Map(_) => None,
            })
    }

    /// Returns the value of the flag, else of the first variable that is neither unset nor empty. A
    /// manifest can omit a value with an empty one.
    fn above_files(&self, spec: &KeySpec) -> Option<Setting> {
        let set = |from: String, text: &str| Setting::new(spec.name, from.clone(), from, text);
        if let Some(text) = self.flags.get(spec) {
            return Some(set(format!("--{}", spec.flag_name()), text));
        }
        let other = spec.other_variable.map(str::to_owned);
        [spec.variable()]
            .into_iter()
            .chain(other)
            .find_map(|variable| {
                let text = (self.env)(&variable).filter(|text| !text.is_empty())?;
                Some(set(variable, &text))
            })
    }
}
