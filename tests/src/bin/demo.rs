//! `cargo xtask demo` runs this: see `nodepulse_tests::demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use nodepulse_tests::demo::{self, DemoMachine, Options};
use nodepulse_tests::provoke::Provoke;

/// Demonstrates the agent with real kernel events
#[derive(Parser)]
struct Arguments {
    /// Path of the agent's binary
    #[arg(long)]
    agent: PathBuf,
    /// Kubeconfig of the API server to use instead of the embedded one
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write a picture of the output to this file, and the recorded steps next to it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("demo: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let options = Options {
        agent: arguments.agent.clone(),
        provoke: Provoke::next_to_this_program()?,
        kubeconfig: arguments.kubeconfig.clone(),
    };
    if let Some(missing) = DemoMachine::detect().missing() {
        eprintln!(
            "demo: {missing}; reading files instead, and skipping the steps that need kernel events\n"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime.block_on(demo::run(options, |step| {
        if !arguments.json {
            println!("{step}");
        }
    }))?;
    if arguments.json {
        println!("{:#}", report.json());
    } else {
        println!("{}", report.summary());
    }
    if let Some(file) = &arguments.svg {
        demo::picture::write(&report, file)?;
    }
    Ok(report.succeeded())
}
