//! Runs the suite of false alarms for `cargo xtask test alarms`, as root. Prints the results like
//! libtest, and the record of the run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nodepulse_tests::alarms::record::{Outcome, Verdict, table};
use nodepulse_tests::alarms::runner::Runner;
use nodepulse_tests::alarms::{Pace, workloads};

/// Runs real workloads, and checks which conditions they set
#[derive(Parser)]
struct Args {
    /// All workloads, and each for long enough that a slow disk would be reported
    #[arg(long)]
    all: bool,
    /// Only the workloads whose names contain one of these
    names: Vec<String>,
    /// Also write the record to this file
    #[arg(long)]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // A panic is the failure of one workload, which is reported.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcomes = runtime.and_then(|runtime| runtime.block_on(run(&args)));
    match outcomes {
        Ok(outcomes) => report(&args, &outcomes),
        Err(err) => {
            eprintln!("alarms: {err}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> std::io::Result<Vec<Outcome>> {
    let pace = if args.all { Pace::FULL } else { Pace::SHORT };
    let runner = Runner::here(pace)?;
    let is_chosen =
        |name: &str| args.names.is_empty() || args.names.iter().any(|chosen| name.contains(chosen));
    let mut outcomes = Vec::new();
    for workload in workloads(pace) {
        if is_chosen(&workload.name) {
            let outcome = runner.run(&workload).await;
            println!("{}", outcome.line());
            if let Verdict::Failed(why) = &outcome.verdict {
                eprintln!("{}: {why}", workload.name);
            }
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn report(args: &Args, outcomes: &[Outcome]) -> ExitCode {
    let table = table(outcomes);
    println!("\n{table}");
    println!("failures:");
    for outcome in outcomes {
        if matches!(outcome.verdict, Verdict::Failed(_)) {
            println!("    {}", outcome.name);
        }
    }
    println!();
    let count = |is: fn(&Verdict) -> bool| outcomes.iter().filter(|o| is(&o.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    println!(
        "test result: {}. {} passed; {failed} failed; {} ignored; 0 measured; 0 filtered out",
        if failed == 0 { "ok" } else { "FAILED" },
        count(|verdict| matches!(verdict, Verdict::Ok)),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
    );
    if let Some(path) = &args.record
        && let Err(err) = std::fs::write(path, &table)
    {
        eprintln!("alarms: cannot write {}: {err}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::from(failed > 0))
}
