//! One key: the layer that sets it, its check, and its effective value.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::WEBHOOK_NAMES;
use super::effective::{Effective, Shown};
use super::error::ConfigError;
use super::layers::{Layers, Setting};
use super::spec::{Form, Key, KeySpec, Preset};

/// All layers of one load, and the effective configuration.
pub(super) struct Keys<'a> {
    pub(super) layers: Layers<'a>,
    effective: RefCell<Effective>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(layers: Layers<'a>) -> Self {
        Self {
            layers,
            effective: RefCell::default(),
        }
    }

    pub(super) fn into_effective(self) -> Effective {
        self.effective.into_inner()
    }

    /// Returns the checked value, if any layer sets it.
    pub(super) fn optional<T>(&self, key: &Key<T>) -> Result<Option<T>, ConfigError> {
        let setting = self.layers.setting(&key.spec);
        let value = setting.as_ref().map(|s| s.parsed(key.parse)).transpose()?;
        let shown = setting.as_ref().map_or(Shown::Unset, Shown::from);
        self.insert(&key.spec, shown);
        Ok(value)
    }

    /// Returns the checked value, or the default if no layer sets it.
    pub(super) fn value<T>(&self, key: &Key<T>) -> Result<T, ConfigError> {
        self.checked(key, Ok)
    }

    /// Like [`Self::value`], with another check that depends on other keys.
    pub(super) fn checked<T>(
        &self,
        key: &Key<T>,
        check: impl FnOnce(T) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let setting = self.layers.setting(&key.spec);
        let setting = setting.unwrap_or_else(|| preset(&key.spec));
        let value = setting.parsed(|text| (key.parse)(text).and_then(check))?;
        self.insert(&key.spec, Shown::from(&setting));
        Ok(value)
    }

    /// Returns the checked value, or the default if no layer sets it or the value means "unset".
    pub(super) fn unless_unset<T>(&self, key: &Key<Option<T>>) -> Result<Option<T>, ConfigError> {
        if let Some((value, setting)) = self.given(key)? {
            self.insert(&key.spec, Shown::from(&setting));
            return Ok(Some(value));
        }
        let preset = preset(&key.spec);
        self.insert(&key.spec, Shown::from(&preset));
        preset.parsed(key.parse)
    }

    /// Returns the checked value with its source, if a layer sets it and it does not mean "unset".
    pub(super) fn given<T>(
        &self,
        key: &Key<Option<T>>,
    ) -> Result<Option<(T, Setting)>, ConfigError> {
        let Some(setting) = self.layers.setting(&key.spec) else {
            return Ok(None);
        };
        let value = setting.parsed(key.parse)?;
        Ok(value.map(|value| (value, setting)))
    }

    /// A map of texts: see [`Layers::map`].
    pub(super) fn map<T>(&self, key: &Key<T>) -> Result<BTreeMap<String, Setting>, ConfigError> {
        let map = self.layers.map(&key.spec)?.unwrap_or_default();
        self.insert_map(&key.spec, &map);
        Ok(map)
    }

    /// A list of checked values, or the default if no layer sets it: see [`Layers::list`].
    pub(super) fn list<T>(&self, key: &Key<T>) -> Result<Vec<T>, ConfigError> {
        let list = self.layers.list(&key.spec).unwrap_or_else(|| {
            let Preset::List { texts, from } = key.spec.preset else {
                return Vec::new();
            };
            let texts = texts.iter();
            texts
                .map(|text| Setting::preset(key.spec.name, text, from))
                .collect()
        });
        if let Form::Webhooks(_) = key.spec.form
            && let Some(excess) = list.get(WEBHOOK_NAMES.len())
        {
            return Err(excess.refused(format!("is one of more than {}", WEBHOOK_NAMES.len())));
        }
        let shown = list.iter().map(Shown::from).collect();
        self.insert(&key.spec, Shown::List(shown));
        list.iter().map(|one| one.parsed(key.parse)).collect()
    }

    pub(super) fn insert_map(&self, spec: &KeySpec, map: &BTreeMap<String, Setting>) {
        let entries = map.iter().map(|(name, s)| (name.clone(), Shown::from(s)));
        self.insert(spec, Shown::Map(entries.collect()));
    }

    pub(super) fn insert(&self, spec: &KeySpec, shown: Shown) {
        self.effective.borrow_mut().insert(spec.name, shown);
    }
}

fn preset(spec: &KeySpec) -> Setting {
    match spec.preset {
        Preset::Text { text, from } => Setting::preset(spec.name, text, from),
        _ => Setting::preset(spec.name, "", ""),
    }
}
