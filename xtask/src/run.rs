//! Builds the agent as it is shipped, and executes it.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::repo::{ARM64_TARGET, MUSL_TARGET, Repo, on_path, run};
use crate::{build_ebpf, setup};

/// Compiles ring, and links.
const ARM64_COMPILER: &str = "aarch64-linux-gnu-gcc";

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
    // `exec`, so that signals and the exit code are the agent's.
    let err = Command::new(&agent).args(&args.args).exec();
    Err(err).with_context(|| format!("cannot start {}", agent.display()))
}

/// Sets up, builds object and agent, and returns the path of the static binary.
pub fn agent(repo: &Repo) -> Result<PathBuf> {
    agent_for(repo, MUSL_TARGET)
}

/// The same for another target.
pub fn agent_for(repo: &Repo, target: &str) -> Result<PathBuf> {
    setup::RELEASE.announce(repo)?;
    setup::all(repo)?;
    build_ebpf::object(repo, "")?;
    eprintln!("build: nodepulse for {target}, release");
    let mut build = repo.cargo();
    build.args(["build", "--release", "--target", target]);
    build.args(["--package", "nodepulse", "--bin", "nodepulse"]);
    if target == ARM64_TARGET {
        if on_path(ARM64_COMPILER).is_none() {
            bail!("{ARM64_COMPILER} is missing: on Debian, apt-get install gcc-aarch64-linux-gnu");
        }
        build.env("CC_aarch64_unknown_linux_musl", ARM64_COMPILER);
        build.env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER",
            ARM64_COMPILER,
        );
    }
    run(&mut build)?;
    Ok(repo.target_dir.join(target).join("release/nodepulse"))
}

/// Builds a program of the tests package, for development, and returns its path.
pub fn test_program(repo: &Repo, name: &str) -> Result<PathBuf> {
    eprintln!("build: {name} of nodepulse-tests");
    let mut build = repo.cargo();
    build.args(["build", "--package", "nodepulse-tests", "--bin", name]);
    run(&mut build)?;
    Ok(repo.target_dir.join("debug").join(name))
}
