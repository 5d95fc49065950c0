//! Builds agent-ebpf for the BPF target.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::{Repo, command, output, run};
use crate::setup;

const TARGET: &str = "bpfel-unknown-none";

/// Below the target directory, and apart from all other builds: build scripts of common crates ask
/// for `RUSTC_BOOTSTRAP`, and a shared directory would be built anew each time it changes.
const DIRECTORY: &str = "ebpf";

#[derive(clap::Args)]
pub struct Args {
    /// Features of agent-ebpf, comma-separated: `log` adds log lines to the programs.
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

/// Builds it and says where it is: where the agent's build script looks for it.
pub fn object(repo: &Repo, features: &str) -> Result<PathBuf> {
    eprintln!("build-ebpf: agent-ebpf for {TARGET}");
    let mut build = cargo(repo, "build")?;
    if !features.is_empty() {
        build.args(["--features", features]);
    }
    run(&mut build)?;
    let built = repo.target_dir.join(DIRECTORY).join(TARGET);
    let object = built.join("release/agent-ebpf");
    eprintln!("build-ebpf: {}", described(&object)?);
    Ok(object)
}

/// `cargo <verb>` of agent-ebpf. No other command gets `RUSTC_BOOTSTRAP`.
pub fn cargo(repo: &Repo, verb: &str) -> Result<Command> {
    let mut cargo = repo.cargo();
    cargo
        .current_dir(repo.root.join("agent-ebpf"))
        .args([
            verb,
            "--release",
            "--target",
            TARGET,
            "-Z",
            "build-std=core",
        ])
        .arg("--target-dir")
        .arg(repo.target_dir.join(DIRECTORY))
        .env("RUSTC_BOOTSTRAP", "1")
        .env(
            "CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER",
            setup::bpf_linker(repo)?,
        )
        // Flags meant for this machine's processor do not fit the kernel's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(cargo)
}

/// Path, size and, where `sha256sum` is there, digest.
fn described(object: &Path) -> Result<String> {
    let size = std::fs::metadata(object)
        .with_context(|| format!("the build left no {}", object.display()))?
        .len();
    let sum = output(command("sha256sum").arg(object)).unwrap_or_default();
    let digest = sum.split_whitespace().next().unwrap_or("unknown");
    Ok(format!("{} {size} bytes sha256 {digest}", object.display()))
}
