//! Measures how long conditions that flap take to the API server, as JSON, for `cargo xtask bench
//! flapping`, as root.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nodepulse_tests::flapping::real::{Run, measure};

#[derive(Parser)]
struct Args {
    /// The agent's binary.
    #[arg(long)]
    agent: PathBuf,
    /// Crossings of each threshold, 20 s apart.
    #[arg(long, default_value_t = 20)]
    crossings: u32,
    /// Decides the moments of the crossings.
    #[arg(long)]
    seed: u64,
    /// A directory on a disk.
    #[arg(long)]
    dir: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let measured = runtime.and_then(|runtime| {
        let dir = tempfile::tempdir_in(&args.dir)?;
        let run = Run {
            agent: args.agent,
            dir: dir.path().to_owned(),
            crossings: args.crossings,
            seed: args.seed,
        };
        runtime.block_on(measure(&run))
    });
    match measured {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("flapping: {err}");
            ExitCode::FAILURE
        }
    }
}
