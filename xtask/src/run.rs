//! Builds the agent as it is shipped, and executes it.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::{ARM64_TARGET, MUSL_TARGET, Repo, run};
use crate::{build_ebpf, setup};

#[derive(clap::Args)]
pub struct Args {
    /// Arguments of the agent, such as `check` or `run --dry-run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = agent(&repo)?;
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "run: not root: the agent cannot load its eBPF programs; for all functions: sudo {} {}",
            agent.display(),
            args.args.join(" ")
        );
    }
    // `exec` passes signals and the exit code through.
    let err = Command::new(&agent).args(&args.args).exec();
    Err(err).with_context(|| format!("cannot start {}", agent.display()))
}

/// Sets up, builds object and agent, and returns the path of the static binary.
pub fn agent(repo: &Repo) -> Result<PathBuf> {
    agent_for(repo, MUSL_TARGET)
}

/// Builds the agent for another target.
pub fn agent_for(repo: &Repo, target: &str) -> Result<PathBuf> {
    setup::RELEASE.announce(repo)?;
    setup::all(repo)?;
    build_ebpf::object(repo, "")?;
    release(repo, target, "nodepulse", "nodepulse")
}

/// Builds the shipped program `name` of `package`. The eBPF object must already be built.
pub fn release(repo: &Repo, target: &str, package: &str, name: &str) -> Result<PathBuf> {
    eprintln!("build: {name} for {target}, release");
    let mut build = cargo_for(repo, "build", target)?;
    build.args(["--release", "--package", package, "--bin", name]);
    build.env("CARGO_ENCODED_RUSTFLAGS", remapped_paths(repo)?);
    run(&mut build)?;
    Ok(repo.target_dir.join(target).join("release").join(name))
}

/// Returns compiler flags, after those of the environment, that remove this machine's paths from
/// the binary. `.cargo/config.toml` cannot name these paths.
fn remapped_paths(repo: &Repo) -> Result<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let encoded = variable("CARGO_ENCODED_RUSTFLAGS");
    let plain = || {
        variable("RUSTFLAGS").map(|flags| flags.split_whitespace().collect::<Vec<_>>().join("\x1f"))
    };
    let home = variable("HOME").context("HOME is not set")?;
    let of_home = |name: &str, directory: &str| {
        variable(name).unwrap_or_else(|| format!("{home}/{directory}"))
    };
    let root = repo.root.display().to_string();
    let target = repo.target_dir.display().to_string();
    // The last matching prefix applies.
    let prefixes = [
        (of_home("RUSTUP_HOME", ".rustup"), "rustup"),
        (of_home("CARGO_HOME", ".cargo"), "cargo"),
        (root, "nodepulse"),
        (target, "target"),
    ];
    let flags = prefixes.map(|(from, to)| format!("--remap-path-prefix={from}=/{to}"));
    let flags = encoded.or_else(plain).into_iter().chain(flags);
    Ok(flags.collect::<Vec<_>>().join("\x1f"))
}

/// Returns `cargo <verb>` for a target, with the cross compiler for arm64.
pub fn cargo_for(repo: &Repo, verb: &str, target: &str) -> Result<Command> {
    let mut cargo = repo.cargo();
    cargo.args([verb, "--target", target]);
    if target == ARM64_TARGET {
        setup::arm64(repo)?;
        cargo.env("CC_aarch64_unknown_linux_musl", setup::ARM64_COMPILER);
        cargo.env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER",
            setup::ARM64_COMPILER,
        );
    }
    Ok(cargo)
}

/// Builds a program of the tests package for development, and returns its path.
pub fn test_program(repo: &Repo, name: &str) -> Result<PathBuf> {
    eprintln!("build: {name} of nodepulse-tests");
    let mut build = repo.cargo();
    build.args(["build", "--package", "nodepulse-tests", "--bin", name]);
    run(&mut build)?;
    Ok(repo.target_dir.join("debug").join(name))
}
