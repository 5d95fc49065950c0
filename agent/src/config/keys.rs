//! One key: the layer that sets it, its check, and its effective value.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::effective::{Effective, Shown};
use super::error::ConfigError;
use super::layers::{InFile, Layers, Overrides, Preset, Setting};

/// A key whose value is one text.
pub(super) struct Key<'a> {
    /// Name in messages.
    pub(super) name: &'static str,
    pub(super) flag: Option<&'a String>,
    pub(super) file: InFile<String>,
}

/// A [`Key`] at the top level of the file, in a block, or without a flag.
macro_rules! key {
    ($keys:expr, $name:expr, $field:ident) => {
        $crate::config::keys::Key {
            name: $name,
            flag: $keys.flags.$field.as_ref(),
            file: |raw| raw.$field.as_ref(),
        }
    };
    ($keys:expr, $name:expr, $flag:ident, $block:ident.$field:ident) => {
        $crate::config::keys::Key {
            name: $name,
            flag: $keys.flags.$flag.as_ref(),
            file: |raw| raw.$block.as_ref()?.$field.as_ref(),
        }
    };
    ($name:expr, $block:ident$(.$field:ident)+) => {
        $crate::config::keys::Key {
            name: $name,
            flag: None,
            file: |raw| raw.$block.as_ref()$(.and_then(|below| below.$field.as_ref()))+,
        }
    };
}
pub(super) use key;

/// All layers of one load, and the effective configuration.
pub(super) struct Keys<'a> {
    pub(super) layers: Layers<'a>,
    pub(super) flags: &'a Overrides,
    effective: RefCell<Effective>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(layers: Layers<'a>, flags: &'a Overrides) -> Self {
        Self {
            layers,
            flags,
            effective: RefCell::default(),
        }
    }

    pub(super) fn into_effective(self) -> Effective {
        self.effective.into_inner()
    }

    /// The checked value, if any layer sets it.
    pub(super) fn optional<T>(
        &self,
        key: &Key<'_>,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let setting = self.layers.setting(key.name, key.flag, key.file);
        let value = setting.as_ref().map(|s| s.parsed(check)).transpose()?;
        self.insert(key.name, setting.as_ref().map_or(Shown::Unset, Shown::from));
        Ok(value)
    }

    /// The checked value, or the default if no layer sets it.
    pub(super) fn value<T>(
        &self,
        key: &Key<'_>,
        preset: &Preset,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let setting = self.layers.setting(key.name, key.flag, key.file);
        let setting = setting.unwrap_or_else(|| Setting::preset(key.name, preset));
        let value = setting.parsed(check)?;
        self.insert(key.name, Shown::from(&setting));
        Ok(value)
    }

    /// The checked value, or the default if no layer sets it or the value means "unset".
    pub(super) fn unless_unset<T>(
        &self,
        key: &Key<'_>,
        preset: &Preset,
        check: impl Fn(&str) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, ConfigError> {
        let given = self.layers.setting(key.name, key.flag, key.file);
        let value = given.as_ref().map(|s| s.parsed(&check)).transpose()?;
        if let (Some(value), Some(given)) = (value.flatten(), given) {
            self.insert(key.name, Shown::from(&given));
            return Ok(Some(value));
        }
        let preset = Setting::preset(key.name, preset);
        self.insert(key.name, Shown::from(&preset));
        preset.parsed(check)
    }

    /// A map of texts: see [`Layers::map`].
    pub(super) fn map(
        &self,
        name: &str,
        separator: char,
        flag: Option<&String>,
        file: InFile<BTreeMap<String, String>>,
    ) -> Result<BTreeMap<String, Setting>, ConfigError> {
        let map = self.layers.map(name, separator, flag, file)?;
        let map = map.unwrap_or_default();
        self.insert_map(name, &map);
        Ok(map)
    }

    /// A list of texts, or the default if no layer sets it: see [`Layers::list`].
    pub(super) fn list(
        &self,
        name: &str,
        flag: Option<&String>,
        file: fn(&super::raw::RawConfig) -> Option<Vec<String>>,
        preset: &[Preset],
    ) -> Vec<Setting> {
        let list = self.layers.list(name, flag, file).unwrap_or_else(|| {
            let preset = preset.iter();
            preset.map(|one| Setting::preset(name, one)).collect()
        });
        self.insert(name, Shown::List(list.iter().map(Shown::from).collect()));
        list
    }

    pub(super) fn insert_map(&self, name: &str, map: &BTreeMap<String, Setting>) {
        let entries = map.iter().map(|(name, s)| (name.clone(), Shown::from(s)));
        self.insert(name, Shown::Map(entries.collect()));
    }

    pub(super) fn insert(&self, name: &str, shown: Shown) {
        self.effective.borrow_mut().insert(name, shown);
    }
}
