//! Measures the cost of the probes on this machine, as JSON, for `cargo xtask bench kernel`, as
//! root.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nodepulse_tests::cost::{Effort, measure};

#[derive(Parser)]
struct Args {
    /// A directory on a disk, in which a file can be created.
    #[arg(long)]
    dir: PathBuf,
    /// Turns with and without.
    #[arg(long, default_value_t = 61)]
    pairs: u32,
    /// Threads started in one turn.
    #[arg(long, default_value_t = 4000)]
    forks: u32,
    /// Blocks read in one turn.
    #[arg(long, default_value_t = 1000)]
    reads: u32,
}

fn main() -> ExitCode {
    let Args {
        dir,
        pairs,
        forks,
        reads,
    } = Args::parse();
    let effort = Effort {
        pairs,
        forks,
        reads,
    };
    let json = measure(&dir, effort).and_then(|costs| Ok(serde_json::to_string(&costs)?));
    match json {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("cost: {err}");
            ExitCode::FAILURE
        }
    }
}
