//! `cargo xtask demo` runs this: see `nodepulse_tests::demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use nodepulse_tests::demo::{self, Machine, Options};
use nodepulse_tests::provoke::Provoke;

/// Shows the main job on real kernel events.
#[derive(Parser)]
struct Arguments {
    /// The agent's binary.
    #[arg(long)]
    agent: PathBuf,
    /// Names the API server to use instead of an embedded one.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print what was seen as JSON.
    #[arg(long)]
    json: bool,
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
    if let Some(missing) = Machine::detect().missing() {
        eprintln!("demo: {missing}; the slower line runs, and what it cannot do is skipped\n");
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
    Ok(report.succeeded())
}
