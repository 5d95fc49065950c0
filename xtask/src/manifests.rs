//! Generates the kustomize manifests from the Helm chart.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::files::write;
use crate::repo::{Repo, command, output};
use crate::setup::helm;

const CHART: &str = "deploy/helm/nodepulse";
const KUSTOMIZE: &str = "deploy/kustomize";

/// The folders of each template.
const WRITTEN: &[(&str, &[&str])] = &[
    ("admissionpolicy.yaml", &["base"]),
    ("config.yaml", &["base"]),
    ("daemonset.yaml", &["base"]),
    ("rbac.yaml", &["base"]),
    ("resourcequota.yaml", &["base"]),
    ("serviceaccount.yaml", &["base"]),
    ("networkpolicy.yaml", &["networkpolicy"]),
    ("alerts.yaml", &["monitoring"]),
    ("dashboard.yaml", &["monitoring"]),
    ("podmonitor.yaml", &["monitoring"]),
    ("cleanup-account.yaml", &["cleanup", "untaint"]),
    ("cleanup.yaml", &["cleanup"]),
    ("untaint.yaml", &["untaint"]),
    // Hooks, which only Helm runs.
    ("validation.yaml", &[]),
    ("tests/check.yaml", &[]),
];

/// The values that are rendered. A kustomization replaces the name of the image.
const VALUES: &[&str] = &[
    "image.repository=localhost/nodepulse",
    "networkPolicy.enabled=true",
    "podMonitor.enabled=true",
    "alerts.enabled=true",
    "dashboard.enabled=true",
];

/// Lines that are only true of objects that Helm manages.
const OF_HELM: &[&str] = &["helm.sh/", "app.kubernetes.io/managed-by:"];

const HEAD: &str = "# Generated from deploy/helm by `cargo xtask manifests`: change it there.\n";

#[derive(clap::Args)]
pub struct Args {
    /// Only print which files differ from the chart; exit 1 if any do
    #[arg(long)]
    check: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    helm::ensure(&repo)?;
    let mut stale = false;
    for (path, text) in files(&repo.root)? {
        let path = repo.root.join(KUSTOMIZE).join(path);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        if args.check {
            eprintln!("manifests: {} differs from the chart", path.display());
            stale = true;
        } else {
            write(&path, text)?;
            eprintln!("manifests: wrote {}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(stale)))
}

/// Returns every file below [`KUSTOMIZE`] that is generated from the chart, and its text.
fn files(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for (template, documents) in rendered(&render(root)?)? {
        let Some((_, folders)) = WRITTEN.iter().find(|(name, _)| *name == template) else {
            bail!("{template}: add it with its folders to WRITTEN");
        };
        let text = format!("{HEAD}{}", documents.join("---\n"));
        for folder in *folders {
            files.insert(format!("{folder}/{template}"), text.clone());
        }
    }
    Ok(files)
}

fn render(root: &Path) -> Result<String> {
    let mut helm = command(helm::program()?);
    helm.args(["template", "nodepulse"]).arg(root.join(CHART));
    helm.args(["--namespace", "nodepulse", "--set"]);
    output(helm.arg(VALUES.join(",")))
}

/// Returns the documents of each template. Helm sorts them by kind, and prints their template.
fn rendered(text: &str) -> Result<BTreeMap<&str, Vec<String>>> {
    const SOURCE: &str = "# Source: nodepulse/templates/";
    let mut templates: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for document in text.split("---\n").filter(|text| !text.trim().is_empty()) {
        let document = document
            .strip_prefix(SOURCE)
            .with_context(|| document.to_owned())?;
        let (template, document) = document.split_once('\n').context("an empty document")?;
        let document = without_helm(document);
        if !document.is_empty() {
            templates.entry(template).or_default().push(document);
        }
    }
    Ok(templates)
}

/// Removes the lines of [`OF_HELM`], blanks at ends of lines, and empty lines around the text.
fn without_helm(document: &str) -> String {
    let of_helm = |line: &&str| OF_HELM.iter().any(|key| line.trim_start().starts_with(key));
    let lines = document.trim().lines().map(str::trim_end);
    let mut lines = lines.filter(|line| !of_helm(line)).peekable();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        let below = lines.peek().map_or(0, |next| indent(next));
        if line.trim_start() == "annotations:" && below <= indent(line) {
            continue;
        }
        text += line;
        text.push('\n');
    }
    text
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests;
