//! Writes manual pages, the reference of the configuration keys and their JSON Schema;
//! a test fails if they are outdated.

use std::process::ExitCode;

use anyhow::Result;

use crate::repo::{Repo, run};

#[derive(clap::Args)]
pub struct Args {}

pub fn main(_: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let mut manual = repo.cargo();
    manual.args(["run", "-p", "nodepulse-tests", "--bin", "manual"]);
    manual.args(["--", "--dir"]);
    run(manual.arg(&repo.root))?;
    Ok(ExitCode::SUCCESS)
}
