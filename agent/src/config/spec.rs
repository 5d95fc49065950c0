//! The description of a configuration key.

use std::fmt;

use clap::builder::PossibleValue;

/// Prefix of the environment variables.
const PREFIX: &str = "NODEPULSE_";

/// Everything about a key except its type.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// Name in the file; a dot separates a block from its keys: `log.level`.
    pub name: &'static str,
    /// Form of the value.
    pub form: Form,
    /// Value if no layer sets the key.
    pub preset: Preset,
    /// A valid value, in the flow form of YAML.
    pub example: &'static str,
    /// What a running agent does with a new value.
    pub reload: Reload,
    /// The flag, named like the key.
    pub flag: Flag,
    /// Another name of the flag: the kubelet's.
    pub alias: Option<&'static str>,
    /// Heading of the flag in help; empty without a flag.
    pub heading: &'static str,
    /// Whether the short help shows the flag.
    pub common: bool,
    /// A second environment variable, below the one of [`KeySpec::variable`].
    pub other_variable: Option<&'static str>,
    /// Whether a `KubeletConfiguration` has the key.
    pub kubelet: KubeletKey,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// Further sentences, for the documentation. May be empty.
    pub details: &'static str,
}

/// Form of a value.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// One value.
    One(Scalar),
    /// A list, separated by commas in flags and variables.
    List(Scalar),
    /// A map, `name=value,…` in flags and variables, with another separator for thresholds.
    Map {
        /// The names.
        names: Names,
        /// Between name and value.
        separator: char,
        /// The values.
        value: Scalar,
    },
    /// A list of `{key, value, effect}`, `key=value:effect,…` in flags and variables.
    Taints,
    /// A map of conditions to an effect or `{effect, key, value}`.
    ConditionTaints,
    /// A map of disks to `{slow}`.
    Disks,
}

/// The names in a map.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// What they are the names of.
    pub of: &'static str,
    /// The valid names; none if the names are free.
    pub known: fn() -> Vec<&'static str>,
}

/// One value of a certain type.
#[derive(Debug, Clone, Copy)]
pub struct Scalar {
    /// Name of the type.
    pub name: &'static str,
    /// Its JSON Schema.
    pub json: Json,
}

/// The JSON Schema of a [`Scalar`].
#[derive(Debug, Clone, Copy)]
pub enum Json {
    /// `true` or `false`.
    Boolean,
    /// An integer in a range.
    Integer {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
    /// A text.
    Text {
        /// Types that YAML may read it as.
        types: &'static [&'static str],
        /// Pattern of a string; empty for any.
        pattern: &'static str,
    },
    /// A text such as `1m30s`; YAML reads the zero that needs no unit as an integer.
    Duration {
        /// Whether zero is valid.
        zero: bool,
    },
    /// One of a closed set.
    Values(fn() -> Vec<PossibleValue>),
}

/// The default and its origin.
#[derive(Debug, Clone, Copy)]
pub enum Preset {
    /// None.
    None,
    /// This text.
    Text {
        /// As in the file.
        text: &'static str,
        /// Why.
        from: &'static str,
    },
    /// These elements.
    List {
        /// As in the file.
        texts: &'static [&'static str],
        /// Why.
        from: &'static str,
    },
    /// A map that depends on the mode.
    Signals {
        /// In node mode.
        node: &'static [SignalPreset],
        /// In companion mode.
        companion: &'static [SignalPreset],
    },
    /// Determined as described.
    Derived(&'static str),
}

/// Signal, threshold, and why.
pub type SignalPreset = (&'static str, &'static str, &'static str);

/// What a running agent does with a new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It applies the value.
    Live,
    /// It logs that a restart is needed.
    Restart,
}

/// Flag of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// There is none.
    None,
    /// Without a value, which means `true`.
    Switch,
    /// With a value of this name.
    Value(&'static str),
}

/// Whether a `KubeletConfiguration` has the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeletKey {
    /// It has not.
    No,
    /// It has, with the same meaning.
    Shared,
    /// The same, but an empty value there means that the key is not set.
    EmptyIsUnset,
}

impl KeySpec {
    /// The flag without dashes, whether there is one or not: `max-pods` for `maxPods`.
    pub fn flag_name(&self) -> String {
        join_words(self.name, '-')
    }

    /// The environment variable: `NODEPULSE_MAX_PODS` for `maxPods`.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    /// An example as in the file: `log: {level: info}` for `log.level`.
    pub fn example(&self) -> String {
        let mut parts = self.name.rsplit('.');
        let last = parts.next().unwrap_or_default();
        let innermost = format!("{last}: {}", self.example);
        parts.fold(innermost, |below, block| format!("{block}: {{{below}}}"))
    }
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    let words = join_words(key, '_').to_uppercase();
    format!("{PREFIX}{words}")
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

/// A key and the check of its value: of one element or entry, if there are several.
pub(crate) struct Key<T> {
    pub(crate) spec: KeySpec,
    pub(super) parse: fn(&str) -> Result<T, String>,
}

/// The name.
impl<T> fmt::Display for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec.name)
    }
}

/// A type of values, and their check.
pub(super) struct Type<T> {
    pub(super) scalar: Scalar,
    pub(super) parse: fn(&str) -> Result<T, String>,
}

impl<T> Type<T> {
    /// A type of texts, which YAML may read as `types`.
    pub(super) const fn text(
        types: &'static [&'static str],
        name: &'static str,
        pattern: &'static str,
        parse: fn(&str) -> Result<T, String>,
    ) -> Self {
        let json = Json::Text { types, pattern };
        let scalar = Scalar { name, json };
        Self { scalar, parse }
    }

    /// A key with one value.
    pub(super) const fn key(self, name: &'static str, help: &'static str) -> Key<T> {
        let form = Form::One(self.scalar);
        Key::new(form, self.parse, name, help)
    }

    /// A key with a list.
    pub(super) const fn list(self, name: &'static str, help: &'static str) -> Key<T> {
        let form = Form::List(self.scalar);
        Key::new(form, self.parse, name, help)
    }

    /// A key with a map of `names`.
    pub(super) const fn map(self, names: Names, name: &'static str, help: &'static str) -> Key<T> {
        let form = Form::Map {
            names,
            separator: '=',
            value: self.scalar,
        };
        Key::new(form, self.parse, name, help)
    }
}

/// Methods that set a field of the description.
macro_rules! setters {
    ($($name:ident($($arg:ident: $type:ty)?) $field:ident = $value:expr;)*) => {
        $(
            pub(super) const fn $name(mut self $(, $arg: $type)?) -> Self {
                self.spec.$field = $value;
                self
            }
        )*
    };
}

impl<T> Key<T> {
    /// A key without default, flag or counterpart in a kubelet, which needs a restart.
    pub(super) const fn new(
        form: Form,
        parse: fn(&str) -> Result<T, String>,
        name: &'static str,
        help: &'static str,
    ) -> Self {
        let spec = KeySpec {
            name,
            form,
            preset: Preset::None,
            example: "",
            reload: Reload::Restart,
            flag: Flag::None,
            alias: None,
            heading: "",
            common: false,
            other_variable: None,
            kubelet: KubeletKey::No,
            help,
            details: "",
        };
        Self { spec, parse }
    }

    /// The default and its origin. It is the example too, unless another one follows.
    pub(super) const fn default(mut self, text: &'static str, from: &'static str) -> Self {
        self.spec.preset = Preset::Text { text, from };
        self.spec.example = text;
        self
    }

    setters! {
        details(details: &'static str) details = details;
        preset(preset: Preset) preset = preset;
        example(example: &'static str) example = example;
        flag(value_name: &'static str) flag = Flag::Value(value_name);
        switch() flag = Flag::Switch;
        heading(heading: &'static str) heading = heading;
        common() common = true;
        alias(alias: &'static str) alias = Some(alias);
        other_variable(variable: &'static str) other_variable = Some(variable);
        live() reload = Reload::Live;
        kubelet() kubelet = KubeletKey::Shared;
        kubelet_empty_is_unset() kubelet = KubeletKey::EmptyIsUnset;
    }

    /// With another separator in flags and variables.
    pub(super) const fn separator(mut self, between: char) -> Self {
        if let Form::Map { separator, .. } = &mut self.spec.form {
            *separator = between;
        }
        self
    }
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
