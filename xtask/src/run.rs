//! Builds the agent as it is shipped, and becomes it.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::{MUSL_TARGET, Repo, run};
use crate::{build_ebpf, setup};

#[derive(clap::Args)]
pub struct Args {
    /// Handed to the agent, such as `check` or `run --dry-run`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = agent(&repo)?;
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "run: not root: the agent cannot load its programs. For all of it: sudo {} {}",
            agent.display(),
            args.args.join(" ")
        );
    }
    // Becomes the agent: signals and the exit code need no passing on.
    let err = Command::new(&agent).args(&args.args).exec();
    Err(err).with_context(|| format!("cannot start {}", agent.display()))
}

/// Sets up, builds object and agent, and says where the static binary is.
pub fn agent(repo: &Repo) -> Result<PathBuf> {
    setup::all(repo)?;
    build_ebpf::object(repo, "")?;
    eprintln!("build: nodepulse for {MUSL_TARGET}, release (a few minutes the first time)");
    let mut build = repo.cargo();
    build.args(["build", "--release", "--target", MUSL_TARGET]);
    build.args(["--package", "nodepulse", "--bin", "nodepulse"]);
    run(&mut build)?;
    Ok(repo.target_dir.join(MUSL_TARGET).join("release/nodepulse"))
}

/// Builds a program of the tests package, for development, and says where it is.
pub fn test_program(repo: &Repo, name: &str) -> Result<PathBuf> {
    eprintln!("build: {name} of nodepulse-tests");
    let mut build = repo.cargo();
    build.args(["build", "--package", "nodepulse-tests", "--bin", name]);
    run(&mut build)?;
    Ok(repo.target_dir.join("debug").join(name))
}
