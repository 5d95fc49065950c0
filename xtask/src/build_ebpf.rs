//! Builds agent-ebpf for the BPF target.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::repo::{Repo, run};
use crate::{files, setup};

pub const TARGET: &str = "bpfel-unknown-none";

/// Directory below the target directory, separate from other builds: build scripts of common crates
/// read `RUSTC_BOOTSTRAP`, so that a shared directory would be built again each time it changes.
const DIRECTORY: &str = "ebpf";

/// Directory of an object with [`TESTING`], so that the agent's build script cannot find it.
const TESTING_DIRECTORY: &str = "ebpf-testing";

/// The feature of agent-ebpf that adds the programs for tests and benchmarks.
pub const TESTING: &str = "testing";

#[derive(clap::Args)]
pub struct Args {
    /// Features of agent-ebpf, comma-separated: `log` adds log lines to the programs;
    /// `testing` adds programs for tests, in a separate directory.
    #[arg(long, default_value = "")]
    features: String,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    setup::all(&repo)?;
    let object = object(&repo, &args.features)?;
    println!("{}", described(&object)?);
    Ok(ExitCode::SUCCESS)
}

/// Builds the object and returns its path, which the agent's build script expects.
pub fn object(repo: &Repo, features: &str) -> Result<PathBuf> {
    eprintln!("build-ebpf: agent-ebpf for {TARGET}");
    run(&mut cargo(repo, "build", features)?)?;
    let built = repo.target_dir.join(directory(features)).join(TARGET);
    let object = built.join("release/agent-ebpf");
    eprintln!("build-ebpf: {}", described(&object)?);
    Ok(object)
}

fn directory(features: &str) -> &'static str {
    let mut each = features.split([',', ' ']);
    if each.any(|feature| feature == TESTING) {
        TESTING_DIRECTORY
    } else {
        DIRECTORY
    }
}

/// Returns `cargo <verb>` for agent-ebpf. No other command sets `RUSTC_BOOTSTRAP`.
pub fn cargo(repo: &Repo, verb: &str, features: &str) -> Result<Command> {
    let mut cargo = repo.cargo();
    cargo
        .current_dir(repo.root.join("agent-ebpf"))
        .args([verb, "--release", "--target", TARGET])
        .args(["-Z", "build-std=core", "--features", features])
        .arg("--target-dir")
        .arg(repo.target_dir.join(directory(features)))
        .env("RUSTC_BOOTSTRAP", "1")
        .env(
            "CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER",
            setup::bpf_linker(repo)?,
        )
        // Flags for this machine's processor are not valid for the BPF target.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(cargo)
}

/// Returns path, size and digest.
fn described(object: &Path) -> Result<String> {
    let bytes = files::read(object)?;
    let (path, size, digest) = (object.display(), bytes.len(), files::sha256(&bytes));
    Ok(format!("{path} {size} bytes sha256 {digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_for_tests_is_built_where_the_agent_does_not_find_it() {
        let rows = [
            ("", DIRECTORY),
            ("log", DIRECTORY),
            ("testing", TESTING_DIRECTORY),
            ("log,testing", TESTING_DIRECTORY),
            ("log testing", TESTING_DIRECTORY),
        ];
        for (features, expected) in rows {
            assert_eq!(directory(features), expected, "{features:?}");
        }
    }
}
