//! The effective configuration, as a file.

use nodepulse_core::pressure::threshold::ThresholdValue;
use nodepulse_core::reading::Signal;
use nodepulse_core::units::Bytes;

use super::error::one_line;
use super::layers::Setting;
use super::table::key;
use super::{API_VERSION, KIND};

/// The configuration with defaults, and the source of each value. No key contains a secret.
#[derive(Debug, Clone, Default)]
pub struct Effective {
    top: Vec<(String, Shown)>,
}

#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// Not set, without a default.
    Unset,
    Text {
        text: String,
        from: String,
    },
    List(Vec<Shown>),
    Map(Vec<(String, Shown)>),
}

impl Shown {
    pub(super) fn text(text: impl Into<String>, from: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            from: from.into(),
        }
    }

    /// Adds the computation of a threshold to its source.
    fn compute(&mut self, capacity: Bytes) {
        let Self::Text { text, from } = self else {
            return;
        };
        let Ok(Some(value)) = ThresholdValue::parse(text) else {
            return;
        };
        if let Some(computation) = value.computation(capacity) {
            let amount = Bytes::from_bytes(value.amount(capacity.get()));
            *from = format!("{computation} = {amount}; {from}");
        }
    }
}

impl From<&Setting> for Shown {
    fn from(setting: &Setting) -> Self {
        Self::text(&setting.text, &setting.from)
    }
}

impl Effective {
    /// Returns an equivalent file, with the source of each value in a comment.
    pub fn to_yaml(&self) -> String {
        let lines = block(0, &self.top).join("\n");
        format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{lines}\n")
    }

    /// The configuration, with the computation of the thresholds that depend on the memory.
    pub fn with_memory(mut self, total: Bytes) -> Self {
        let names = [key::eviction_hard.spec.name, key::eviction_soft.spec.name];
        let maps = self.top.iter_mut();
        for (_, shown) in maps.filter(|(name, _)| names.contains(&name.as_str())) {
            let Shown::Map(entries) = shown else {
                continue;
            };
            for (signal, shown) in entries {
                if signal == Signal::MemoryAvailable.as_str() {
                    shown.compute(total);
                }
            }
        }
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        let of_name = self.top.iter_mut().filter(|(key, _)| key == name);
        of_name.for_each(|(_, shown)| *shown = Shown::Unset);
        self
    }

    pub(super) fn insert(&mut self, key: &str, shown: Shown) {
        let mut below = &mut self.top;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                below.push((part.to_owned(), shown));
                return;
            }
            let at = below.iter().position(|(name, _)| name == part);
            let at = at.unwrap_or_else(|| {
                below.push((part.to_owned(), Shown::Map(Vec::new())));
                below.len() - 1
            });
            let Some((_, Shown::Map(deeper))) = below.get_mut(at) else {
                return; // No key is both a value and a block.
            };
            below = deeper;
        }
    }
}

fn block(depth: usize, entries: &[(String, Shown)]) -> Vec<String> {
    let indent = "  ".repeat(depth);
    let mut lines = Vec::new();
    for (name, shown) in entries {
        let name = scalar(name);
        let (value, below) = match shown {
            Shown::Unset => {
                lines.push(format!("{indent}# {name} is not set"));
                continue;
            }
            Shown::Text { text, from } => (with_source(text, from), Vec::new()),
            Shown::List(items) if items.is_empty() => ("[]".to_owned(), Vec::new()),
            Shown::Map(below) if below.is_empty() => ("{}".to_owned(), Vec::new()),
            Shown::List(items) => {
                let items = items.iter().map(item);
                let items = items.map(|item| format!("{indent}- {item}"));
                (String::new(), items.collect())
            }
            Shown::Map(below) => (String::new(), block(depth + 1, below)),
        };
        lines.push(format!("{indent}{name}: {value}").trim_end().to_owned());
        lines.extend(below);
    }
    lines
}

/// One entry of a list. Lists are not nested.
fn item(shown: &Shown) -> String {
    match shown {
        Shown::Text { text, from } => with_source(text, from),
        Shown::Map(entries) => {
            let entry = |(name, shown): &(String, Shown)| match shown {
                Shown::Text { text, .. } => Some(format!("{}: {}", scalar(name), scalar(text))),
                Shown::Unset | Shown::List(_) | Shown::Map(_) => None,
            };
            let entries: Vec<String> = entries.iter().filter_map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Shown::Unset | Shown::List(_) => String::new(),
    }
}

fn with_source(text: &str, from: &str) -> String {
    format!("{}  # {}", scalar(text), one_line(from))
}

/// Formats a scalar, quoted unless it can only be parsed as this string.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_' | '%');
    let first = |c: char| c.is_ascii_alphanumeric() || c == '/';
    let other_meaning = ["null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    let lower = text.to_lowercase();
    if text.starts_with(first) && text.chars().all(plain) && !other_meaning.contains(&&*lower) {
        return text.to_owned();
    }
    let quoted = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        ' '..='~' => c.to_string(),
        _ if u32::from(c) <= 0xffff => format!("\\u{:04x}", u32::from(c)),
        _ => format!("\\U{:08x}", u32::from(c)),
    });
    format!("\"{}\"", quoted.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::raw::{FileValue, Format, RawConfig};
    use super::super::table::key;
    use super::*;

    #[test]
    fn any_text_is_parsed_back_unchanged() {
        #[rustfmt::skip]
        let texts = [
            "", "~", "null", "NULL", "true", "off", "1e3", "0x1f", "0o7", "1_000", ".5", "5.", "-1",
            "- a", "a: b", "a #b", "#", "a\nb", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "'", "\"",
            "\\", "%a", "@a", "`a", "2026-01-01", "12:30:45", " a ", "nan", ".inf", "---", "...",
            "<<", "?", "\u{feff}",
        ];
        let all = (0..0x3000).chain(0x1_f600..0x1_f610);
        let all: Vec<char> = all.filter_map(char::from_u32).collect();
        let all = all.chunks(64).map(String::from_iter);
        for text in texts.into_iter().map(str::to_owned).chain(all) {
            let text = text.as_str();
            let mut effective = Effective::default();
            effective.insert("providerID", Shown::text(text, "a\n# b\u{202e}"));
            effective.insert(
                "nodeLabels",
                Shown::Map(vec![(text.to_owned(), Shown::text(text, ""))]),
            );
            effective.insert(
                "enforceNodeAllocatable",
                Shown::List(vec![Shown::text(text, "")]),
            );
            let yaml = effective.to_yaml();
            let raw = RawConfig::parse(&yaml, Path::new("f"), Format::Nodepulse)
                .unwrap_or_else(|e| panic!("{text:?}: {e}"));
            let of = |spec| raw.get(spec).unwrap();
            let text = text.to_owned();
            assert_eq!(
                of(&key::provider_id.spec),
                &FileValue::Text(text.clone()),
                "{yaml}"
            );
            let entry = (text.clone(), text.clone());
            assert_eq!(of(&key::node_labels.spec), &FileValue::Map([entry].into()));
            let list = FileValue::List(vec![text]);
            assert_eq!(of(&key::enforce_node_allocatable.spec), &list);
        }
    }

    #[test]
    fn thresholds_on_memory_are_printed_with_their_computation() {
        //  threshold, its comment
        let rows = [
            ("min(5%,2Gi)", "min(5% of 512.0Gi, 2.0Gi) = 2.0Gi; a"),
            ("5%", "5% of 512.0Gi = 25.6Gi; a"),
            ("1Gi", "a"),
            ("0%", "a"),
        ];
        for (text, comment) in rows {
            let mut effective = Effective::default();
            for key in ["evictionHard", "evictionSoft"] {
                let entry = |signal: &str| (signal.to_owned(), Shown::text(text, "a"));
                let entries = vec![entry("memory.available"), entry("nodefs.available")];
                effective.insert(key, Shown::Map(entries));
            }
            let yaml = effective
                .with_memory(Bytes::from_bytes(512 << 30))
                .to_yaml();
            let value = scalar(text);
            let memory = format!("  memory.available: {value}  # {comment}\n");
            assert_eq!(yaml.matches(&memory).count(), 2, "{yaml}");
            let nodefs = format!("  nodefs.available: {value}  # a\n");
            assert_eq!(yaml.matches(&nodefs).count(), 2, "{yaml}");
        }
    }

    #[test]
    fn dotted_keys_are_blocks_and_unset_keys_are_comments() {
        let mut effective = Effective::default();
        effective.insert("log.level", Shown::text("debug", "--log-level"));
        effective.insert("maxPods", Shown::text("5", "/f.yaml"));
        effective.insert("log.format", Shown::Unset);
        let key = |key: &str, text: &str| (key.to_owned(), Shown::text(text, ""));
        let taint = Shown::Map(vec![key("key", "a"), key("effect", "No: x")]);
        effective.insert("registerWithTaints", Shown::List(vec![taint]));
        effective.insert("nodeLabels", Shown::Map(Vec::new()));
        let expected = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
            log:\n  level: debug  # --log-level\n  # format is not set\n\
            maxPods: 5  # /f.yaml\n\
            registerWithTaints:\n- {key: a, effect: \"No: x\"}\n\
            nodeLabels: {}\n";
        assert_eq!(effective.to_yaml(), expected);
    }
}
