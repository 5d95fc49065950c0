//! A file: the text of each key, as written. Unknown keys are rejected.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::ConfigError;
use super::spec::{Form, KeySpec, KubeletKey};
use super::table::{KEYS, SERVER_KEYS, key};
use super::{API_VERSION, KIND};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Nodepulse,
    /// A kubelet's configuration, of which the shared keys are read.
    Kubelet,
}

impl Format {
    /// The keys at the head of the file, and their values.
    pub(super) const fn head(self) -> [(&'static str, &'static str); 2] {
        let (version, kind) = match self {
            Self::Nodepulse => (API_VERSION, KIND),
            Self::Kubelet => ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"),
        };
        [("apiVersion", version), ("kind", kind)]
    }

    fn key(self, path: &str) -> Option<&'static KeySpec> {
        let known = KEYS.iter().copied().find(|spec| spec.name == path);
        known.filter(|spec| self == Self::Nodepulse || spec.kubelet != KubeletKey::No)
    }

    /// Returns `true` for a key of a kubelet's server. nodepulse only writes `port` to the Node.
    fn is_of_server(self, name: &str) -> bool {
        SERVER_KEYS.contains(&name) || self == Self::Kubelet && name == key::port.spec.name
    }
}

/// The value of a key, in the form of the flags except for lists and maps themselves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileValue {
    Text(String),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
}

/// Values are checked later, together with flags and environment.
#[derive(Debug, Default)]
pub(super) struct RawConfig {
    values: BTreeMap<&'static str, FileValue>,
    head: BTreeMap<String, String>,
    pub(super) server: Vec<String>,
    /// All other keys of a kubelet's file.
    pub(super) others: Vec<String>,
    /// The known keys next to one that is unknown, and the block that they are in.
    siblings: Vec<&'static str>,
    block: String,
}

impl RawConfig {
    /// Parses a file's text. `path` is for errors.
    pub(super) fn parse(text: &str, path: &Path, format: Format) -> Result<Self, ConfigError> {
        let mut raw = Self::default();
        let block = Block {
            format,
            prefix: String::new(),
            raw: &mut raw,
        };
        let parsed = serde_saphyr::with_deserializer_from_str(text, |file| block.deserialize(file));
        parsed.map_err(|err| refused(&err, &raw, text, path))?;
        for (key, want) in format.head() {
            let value = raw.head.get(key).map_or("", String::as_str);
            if value != want {
                return Err(ConfigError::head(key, path, value, want));
            }
        }
        Ok(raw)
    }

    pub(super) fn get(&self, spec: &KeySpec) -> Option<&FileValue> {
        self.values.get(spec.name)
    }
}

/// The file, or a block in it.
struct Block<'a> {
    format: Format,
    /// Name of the block with a dot; empty for the file.
    prefix: String,
    raw: &'a mut RawConfig,
}

impl<'de> DeserializeSeed<'de> for Block<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Block<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block of keys")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            self.entry(name, &mut map)?;
        }
        Ok(())
    }
}

impl Block<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, name: String, map: &mut A) -> Result<(), A::Error> {
        let path = format!("{}{name}", self.prefix);
        // A key within a block is written below it, not with a dot.
        let is_path = name.contains('.');
        if let Some(spec) = self.format.key(&path).filter(|_| !is_path) {
            if self.raw.values.contains_key(spec.name) {
                return Err(A::Error::duplicate_field(spec.name));
            }
            let value =
                FileValue::read(spec.form, map)?.filter(|value| is_set(spec, value, self.format));
            self.raw
                .values
                .extend(value.map(|value| (spec.name, value)));
            return Ok(());
        }
        let prefix = format!("{path}.");
        if self.format == Format::Nodepulse
            && !is_path
            && KEYS.iter().any(|spec| spec.name.starts_with(&prefix))
        {
            let (format, raw) = (self.format, &mut *self.raw);
            return map.next_value_seed(Block {
                format,
                prefix,
                raw,
            });
        }
        let is_in_block = !self.prefix.is_empty();
        if !is_in_block && self.format.head().iter().any(|(key, _)| *key == name) {
            let value: Option<String> = map.next_value()?;
            self.raw.head.extend(value.map(|value| (name, value)));
            return Ok(());
        }
        let ignored = if !is_in_block && self.format.is_of_server(&name) {
            &mut self.raw.server
        } else if self.format == Format::Kubelet {
            &mut self.raw.others
        } else {
            self.raw.siblings = self.known();
            self.raw.block.clone_from(&self.prefix);
            return Err(A::Error::unknown_field(&name, &[]));
        };
        map.next_value::<IgnoredAny>()?;
        ignored.push(name);
        Ok(())
    }

    fn known(&self) -> Vec<&'static str> {
        let below = KEYS
            .iter()
            .filter_map(|spec| spec.name.strip_prefix(&self.prefix));
        let names = below.filter_map(|rest| rest.split('.').next());
        if self.prefix.is_empty() {
            let head = self.format.head().map(|(key, _)| key);
            names.chain(head).chain(SERVER_KEYS).collect()
        } else {
            names.collect()
        }
    }
}

fn is_set(spec: &KeySpec, value: &FileValue, format: Format) -> bool {
    let is_empty = matches!(value, FileValue::Text(text) if text.is_empty());
    !(is_empty && format == Format::Kubelet && spec.kubelet == KubeletKey::EmptyIsUnset)
}

impl FileValue {
    /// Reads a value of this form; `None` for null.
    fn read<'de, A: MapAccess<'de>>(form: Form, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(match form {
            Form::One(_) => map.next_value::<Option<String>>()?.map(Self::Text),
            Form::List(_) => map.next_value::<Option<Vec<String>>>()?.map(Self::List),
            Form::Map { .. } => map.next_value::<Option<BTreeMap<_, _>>>()?.map(Self::Map),
            Form::Taints => {
                let taints: Option<Vec<RawTaint>> = map.next_value()?;
                taints.map(|taints| Self::List(taints.into_iter().map(RawTaint::text).collect()))
            }
            Form::ConditionTaints => {
                let taints: Option<BTreeMap<String, TextOr<RawTaint>>> = map.next_value()?;
                let text = |(type_, TextOr(text, _))| (type_, text);
                taints.map(|taints| Self::Map(taints.into_iter().map(text).collect()))
            }
            Form::Disks => {
                let disks: Option<BTreeMap<String, RawDisk>> = map.next_value()?;
                let slow = |(name, disk): (String, RawDisk)| (name, disk.slow.unwrap_or_default());
                disks.map(|disks| Self::Map(disks.into_iter().map(slow).collect()))
            }
            Form::Webhooks(_) => {
                let webhooks: Option<Vec<TextOr<RawWebhook>>> = map.next_value()?;
                let text = |TextOr(text, _)| text;
                webhooks.map(|all| Self::List(all.into_iter().map(text).collect()))
            }
        })
    }
}

/// An entry of `registerWithTaints`, or a block of `taints`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawTaint {
    key: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

impl RawTaint {
    /// Returns `key=value`, and the effect.
    fn parts(self) -> (String, String) {
        let value = self.value.map(|value| format!("={value}"));
        let name = [self.key, value].into_iter().flatten().collect();
        (name, self.effect.unwrap_or_default())
    }

    /// The flag form: `key=value:effect`.
    fn text(self) -> String {
        let (name, effect) = self.parts();
        format!("{name}:{effect}")
    }
}

/// The flag form of `taints`: `effect`, `key:effect`, `=value:effect` or `key=value:effect`.
impl From<RawTaint> for String {
    fn from(taint: RawTaint) -> Self {
        match taint.parts() {
            (name, effect) if name.is_empty() => effect,
            (name, effect) => format!("{name}:{effect}"),
        }
    }
}

/// An entry of `diskIO.devices`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDisk {
    slow: Option<String>,
}

/// An entry of `sinks.webhooks`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct RawWebhook {
    url: Option<String>,
    headers_file: Option<String>,
    kinds: Option<Vec<String>>,
}

/// The flag form: see `checks::webhook`.
impl From<RawWebhook> for String {
    fn from(webhook: RawWebhook) -> Self {
        let kinds = webhook.kinds.filter(|kinds| !kinds.is_empty());
        let kinds = kinds.map(|kinds| format!(" kinds={}", kinds.join("+")));
        let file = webhook.headers_file;
        let file = file.map(|file| format!(" headersFile={file}"));
        [webhook.url, kinds, file].into_iter().flatten().collect()
    }
}

/// An entry in the flag form, or a block with the same meaning.
struct TextOr<T>(String, PhantomData<T>);

impl<'de, T: Deserialize<'de> + Into<String>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Into<String>> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a block of keys")
    }

    fn visit_str<E>(self, text: &str) -> Result<TextOr<T>, E> {
        Ok(TextOr(text.to_owned(), PhantomData))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextOr<T>, A::Error> {
        let block = T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(TextOr(block.into(), PhantomData))
    }
}

/// The error of the parser, in one line. `raw` has the known keys if one is unknown.
fn refused(err: &serde_saphyr::Error, raw: &RawConfig, text: &str, path: &Path) -> ConfigError {
    let err = err.without_snippet();
    let line = err.location().map_or(0, |location| location.line());
    if let serde_saphyr::Error::SerdeUnknownField {
        field, expected, ..
    } = err
    {
        let known = if expected.is_empty() {
            &raw.siblings[..]
        } else {
            expected
        };
        return ConfigError::unknown_key((path, line), &raw.block, field, known);
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
