//! The description of a configuration key.

use std::fmt;

use clap::builder::PossibleValue;

const PREFIX: &str = "NODEPULSE_";

/// Everything about a key except its type.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    /// Name in the file; a dot separates a block from its keys: `log.level`.
    pub name: &'static str,
    pub form: Form,
    /// Value if no layer sets the key.
    pub preset: Preset,
    /// A valid value, in the flow form of YAML.
    pub example: &'static str,
    pub reload: Reload,
    pub flag: Flag,
    /// Another name of the flag: the kubelet's.
    pub alias: Option<&'static str>,
    /// Heading of the flag in help; empty without a flag.
    pub heading: &'static str,
    /// `true` if the short help shows the flag.
    pub common: bool,
    /// A second environment variable, below the one of [`KeySpec::variable`].
    pub other_variable: Option<&'static str>,
    pub kubelet: KubeletKey,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// Further sentences, for the documentation. May be empty.
    pub details: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub enum Form {
    One(Scalar),
    /// A list, separated by commas in flags and variables.
    List(Scalar),
    /// A map, `name=value,…` in flags and variables, with another separator for thresholds.
    Map {
        names: Names,
        /// Character between name and value.
        separator: char,
        value: Scalar,
    },
    /// A list of `{key, value, effect}`, `key=value:effect,…` in flags and variables.
    Taints,
    /// A map of conditions to an effect or `{effect, key, value}`.
    ConditionTaints,
    /// A map of disks to `{slow}`.
    Disks,
    /// A list of URLs or `{url, headersFile, kinds}`, in flags and variables
    /// `url kinds=kind+… headersFile=file,…`. The scalar is that of a kind.
    Webhooks(Scalar),
}

#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Kind of the named things.
    pub of: &'static str,
    /// The valid names; none if the names are free.
    pub known: fn() -> Vec<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub struct Scalar {
    pub name: &'static str,
    pub json: Json,
}

#[derive(Debug, Clone, Copy)]
pub enum Json {
    Boolean,
    Integer {
        min: u32,
        max: u32,
    },
    Text {
        /// Types that YAML may read it as.
        types: &'static [&'static str],
        /// Pattern of a string; empty for any.
        pattern: &'static str,
    },
    /// A text such as `1m30s`; YAML reads the zero that needs no unit as an integer.
    Duration {
        zero: bool,
    },
    Values(fn() -> Vec<PossibleValue>),
}

/// The default and its origin.
#[derive(Debug, Clone, Copy)]
pub enum Preset {
    None,
    Text {
        text: &'static str,
        from: &'static str,
    },
    List {
        texts: &'static [&'static str],
        from: &'static str,
    },
    /// A map that depends on the mode.
    Signals {
        node: &'static [SignalPreset],
        companion: &'static [SignalPreset],
    },
    /// A value that is determined as described.
    Derived(&'static str),
}

/// Signal, threshold, and origin of the default.
pub type SignalPreset = (&'static str, &'static str, &'static str);

/// Effect of a new value on a running agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// The agent applies the value.
    Live,
    /// The agent logs that a restart is needed.
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    None,
    /// A flag without a value, which means `true`.
    Switch,
    /// A flag with a value of this name.
    Value(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeletKey {
    /// A `KubeletConfiguration` does not have the key.
    No,
    /// A `KubeletConfiguration` has the key, with the same meaning.
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

pub(super) fn variable(key: &str) -> String {
    let words = join_words(key, '_').to_uppercase();
    format!("{PREFIX}{words}")
}

/// Writes `diskIO.raisesDiskPressure` as `disk-io-raises-disk-pressure`.
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

    pub(super) const fn key(self, name: &'static str, help: &'static str) -> Key<T> {
        let form = Form::One(self.scalar);
        Key::new(form, self.parse, name, help)
    }

    pub(super) const fn list(self, name: &'static str, help: &'static str) -> Key<T> {
        let form = Form::List(self.scalar);
        Key::new(form, self.parse, name, help)
    }

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

    /// Sets the default and its origin. It is the example too, unless another one follows.
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

    /// Sets another separator in flags and variables.
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
