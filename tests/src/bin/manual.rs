//! `cargo xtask manual` runs this: writes `nodepulse_tests::manual` into the repository.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use nodepulse_tests::manual::files;

/// Writes the generated files.
#[derive(Parser)]
struct Arguments {
    /// The root of the repository.
    #[arg(long)]
    dir: PathBuf,
}

fn main() -> Result<()> {
    let dir = Arguments::parse().dir;
    let files = files(&dir).context("generate the files")?;
    for (path, text) in files {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
