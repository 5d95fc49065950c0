//! Generates the kustomize manifests from the Helm chart.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::repo;

mod chart;
mod template;
mod yaml;

use chart::Chart;

const CHART: &str = "deploy/helm/nodepulse";
const KUSTOMIZE: &str = "deploy/kustomize";

/// The folder of each template.
const WRITTEN: &[(&str, &str)] = &[
    ("admissionpolicy.yaml", "base"),
    ("config.yaml", "base"),
    ("daemonset.yaml", "base"),
    ("networkpolicy.yaml", "base"),
    ("rbac.yaml", "base"),
    ("resourcequota.yaml", "base"),
    ("serviceaccount.yaml", "base"),
    ("alerts.yaml", "monitoring"),
    ("dashboard.yaml", "monitoring"),
    ("podmonitor.yaml", "monitoring"),
    ("cleanup-account.yaml", "cleanup"),
    ("cleanup-account.yaml", "untaint"),
    ("cleanup.yaml", "cleanup"),
    ("untaint.yaml", "untaint"),
];

const HEAD: &str = "# Generated from deploy/helm by `cargo xtask manifests`: change it there.\n";

#[derive(clap::Args)]
pub struct Args {
    /// Only print which files differ from the chart; exit 1 if any do
    #[arg(long)]
    check: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let mut stale = false;
    for (path, text) in files(&root)? {
        let path = root.join(KUSTOMIZE).join(path);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        if args.check {
            eprintln!("manifests: {} differs from the chart", path.display());
            stale = true;
        } else {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("manifests: wrote {}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(stale)))
}

/// Every file below [`KUSTOMIZE`] that comes from the chart, and its text.
fn files(root: &Path) -> Result<BTreeMap<String, String>> {
    let on = json!({"enabled": true});
    let all = json!({"podMonitor": &on, "alerts": &on, "dashboard": &on});
    let chart = Chart::load(&root.join(CHART))?;
    let rendered = chart.render("nodepulse", &all, &[])?;
    let mut files = BTreeMap::new();
    for (template, text) in rendered {
        let places = WRITTEN.iter().filter(|(name, _)| *name == template);
        let before = files.len();
        for (_, folder) in places {
            files.insert(format!("{folder}/{template}"), format!("{HEAD}{text}"));
        }
        if files.len() == before {
            bail!("{template}: add it with its folder to WRITTEN");
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
