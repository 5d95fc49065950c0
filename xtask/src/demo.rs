//! Demonstrates the agent: builds it and the demo, and executes the demo.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::{self, Repo};
use crate::{build_ebpf, run, setup};

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON, and nothing else, on standard output
    #[arg(long)]
    json: bool,
    /// Use the release build of the agent, for measurements; the additional build takes some minutes
    #[arg(long)]
    release: bool,
    /// Kubeconfig of a cluster to use instead of the embedded API server. Its user must be allowed to
    /// create and delete Nodes, as an administrator is. The Node `nodepulse-demo` is removed afterwards.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write a picture of the output to this file, such as docs/demo.svg, and the recorded steps next to it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    setup::DEMO.announce(&repo)?;
    setup::development(&repo)?;
    build_ebpf::object(&repo, "")?;
    build(&repo)?;
    let program = |name: &str| repo.target_dir.join("debug").join(name);
    let agent = if args.release {
        run::agent(&repo)?
    } else {
        program("nodepulse")
    };
    let program = program("demo");
    let mut demo = Command::new(&program);
    demo.arg("--agent").arg(&agent);
    if args.json {
        demo.arg("--json");
    }
    if let Some(kubeconfig) = &args.kubeconfig {
        demo.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(svg) = &args.svg {
        demo.arg("--svg").arg(svg);
    }
    let err = demo.exec();
    Err(err).with_context(|| format!("cannot start {}", program.display()))
}

/// The agent, the demo and its helper, which the demo finds next to itself: for one target, in one
/// profile and with one set of features, that of the tests, so that each crate is compiled once.
fn build(repo: &Repo) -> Result<()> {
    eprintln!("build: nodepulse, demo and provoke, for development");
    let mut build = repo.cargo();
    build.args(["build", "--workspace", "--exclude", "agent-ebpf"]);
    for name in ["nodepulse", "demo", "provoke"] {
        build.args(["--bin", name]);
    }
    repo::run(&mut build)
}
