//! Shows the agent at work: builds it and the demo, and becomes the demo.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::Repo;
use crate::run;

#[derive(clap::Args)]
pub struct Args {
    /// JSON on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = run::agent(&repo)?;
    // The demo finds it beside itself.
    run::test_program(&repo, "provoke")?;
    let program = run::test_program(&repo, "demo")?;
    let mut demo = Command::new(&program);
    demo.arg("--agent").arg(&agent);
    if args.json {
        demo.arg("--json");
    }
    let err = demo.exec();
    Err(err).with_context(|| format!("cannot start {}", program.display()))
}
