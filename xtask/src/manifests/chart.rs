//! Renders a Helm chart like Helm, with the features that this chart uses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::template::{self, TemplateScope};
use super::yaml;

/// A chart in its directory.
pub struct Chart {
    directory: PathBuf,
    about: Value,
    values: Value,
}

impl Chart {
    pub fn load(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            yaml::parse(&text).with_context(|| path.display().to_string())
        };
        Ok(Self {
            directory: directory.to_owned(),
            about: read("Chart.yaml")?,
            values: read("values.yaml")?,
        })
    }

    /// What each template becomes in this namespace; those that become nothing are left out.
    ///
    /// `installed`: what of the cluster it can see, as kind and name; nothing for `helm template`.
    pub fn render(
        &self,
        namespace: &str,
        overrides: &Value,
        installed: &[(&str, &str)],
    ) -> Result<BTreeMap<String, String>> {
        let mut values = self.values.clone();
        merge(&mut values, overrides);
        // Helm's names: fields of Chart.yaml begin with a capital there.
        let chart = json!({
            "Name": self.about["name"],
            "Version": self.about["version"],
            "AppVersion": self.about["appVersion"],
        });
        let data = json!({
            "Values": values,
            "Chart": chart,
            "Release": {"Name": "nodepulse", "Namespace": namespace},
        });
        let file = |name: &str| {
            let path = self.directory.join(name);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let templates = self.templates()?;
        let (shared, templates): (Vec<_>, Vec<_>) = templates
            .into_iter()
            .partition(|(name, _)| name.starts_with('_'));
        let mut defined = BTreeMap::new();
        for (name, text) in shared {
            defined.extend(template::definitions(&text).context(name)?);
        }
        let scope = TemplateScope {
            data: &data,
            file: &file,
            defined: &defined,
            installed,
        };
        let mut rendered = BTreeMap::new();
        for (name, text) in templates {
            let text = template::render(&text, &scope).with_context(|| name.clone())?;
            let text = tidied(&text);
            if !text.is_empty() {
                rendered.insert(name, text);
            }
        }
        Ok(rendered)
    }

    /// Those that become objects, and what they share: NOTES.txt is for people.
    fn templates(&self) -> Result<BTreeMap<String, String>> {
        let directory = self.directory.join("templates");
        let mut templates = BTreeMap::new();
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match path.extension().and_then(|end| end.to_str()) {
                Some("yaml" | "tpl") => {
                    templates.insert(name.into_owned(), fs::read_to_string(&path)?)
                }
                Some("txt") => None,
                _ => bail!("{}: neither .yaml, .tpl nor .txt", path.display()),
            };
        }
        Ok(templates)
    }
}

/// As Helm merges: maps key by key, anything else is replaced.
fn merge(values: &mut Value, overrides: &Value) {
    match (values, overrides) {
        (Value::Object(values), Value::Object(overrides)) => {
            for (key, value) in overrides {
                merge(values.entry(key).or_insert(Value::Null), value);
            }
        }
        (value, over) => *value = over.clone(),
    }
}

/// Without blanks at the ends of lines, and without empty lines around it.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    let text = text.trim_matches('\n');
    if text.is_empty() {
        String::new()
    } else {
        format!("{text}\n")
    }
}
