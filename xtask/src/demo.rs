//! Demonstrates the agent: builds it and the demo, and executes the demo.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::Repo;
use crate::run;

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON, and nothing else, on standard output
    #[arg(long)]
    json: bool,
    /// Kubeconfig of a cluster to use instead of the embedded API server. Its user must be allowed to create and
    /// delete Nodes, as an administrator is. The Node `nodepulse-demo` is removed afterwards.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = run::agent(&repo)?;
    // The demo expects it in its directory.
    run::test_program(&repo, "provoke")?;
    let program = run::test_program(&repo, "demo")?;
    let mut demo = Command::new(&program);
    demo.arg("--agent").arg(&agent);
    if args.json {
        demo.arg("--json");
    }
    if let Some(kubeconfig) = &args.kubeconfig {
        demo.arg("--kubeconfig").arg(kubeconfig);
    }
    let err = demo.exec();
    Err(err).with_context(|| format!("cannot start {}", program.display()))
}
