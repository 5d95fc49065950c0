//! Measures how long real kills take to the API server, as JSON, for `cargo xtask bench kills`, as
//! root.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nodepulse_tests::hostile::footprint::Footprint;
use nodepulse_tests::pod_kills::sinks::{Arrivals, Sinks, hide_the_journal};
use nodepulse_tests::pod_kills::{Cluster, Way, stop, ways};
use nodepulse_tests::provoke::Provoke;
use serde_json::{Value, json};

#[derive(Parser)]
struct Args {
    /// The agent's binary.
    #[arg(long)]
    agent: PathBuf,
    /// Pods; the first kill in each of them reads the names of its containers.
    #[arg(long, default_value_t = 60)]
    pods: usize,
    /// Kills in each pod: from the tenth on the messages of a pod are combined.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..10))]
    each: u8,
    /// Kills after which the time until their details were added is measured, one in two seconds.
    #[arg(long, default_value_t = 30)]
    details: usize,
    /// Instead of the times, measure the agent's memory before and after this many kills without a
    /// pause.
    #[arg(long)]
    storm: Option<usize>,
    /// Seconds from the end of the storm to the last measurement.
    #[arg(long, default_value_t = 300)]
    rest: u64,
}

/// Time in which sinks deliver the kill before.
const PAUSE: Duration = Duration::from_millis(100);

/// Time before the storm: the agent locks and releases memory ten seconds after its start, and its
/// helper threads end after a minute.
const SETTLE: Duration = Duration::from_secs(75);

fn main() -> ExitCode {
    let args = Args::parse();
    hide_the_journal().expect("a directory for the journal's socket");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let measured = async {
        match args.storm {
            Some(kills) => storm(&args, kills).await,
            None => measure(&args).await,
        }
    };
    match runtime.map(|runtime| runtime.block_on(measured)) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("kills: {err}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Value {
    let provoke = Provoke::next_to_this_program().expect("the path of this program");
    let cluster = Cluster::with("bench", args.pods, provoke).await;
    let sinks = Sinks::start().await.expect("receivers");
    let arguments = sinks.arguments();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let agent = cluster.agent_of(&args.agent, &arguments).await;
    let (_, bare) = cluster
        .kill_one_by_one(args.pods * usize::from(args.each), PAUSE)
        .await;
    let details = cluster.kill_for_details(args.details).await;
    let mut ways = ways(&stop(agent).await);
    ways.truncate(args.pods * usize::from(args.each));
    let (asking, knowing) = ways.split_at(args.pods.min(ways.len()));
    let arrivals: Vec<_> = sinks.arrivals(&cluster.api).into_iter().collect();
    json!({
        "sinks": delays(&arrivals),
        "bare": figures(bare),
        "knowing": { "first": figures(firsts(knowing)), "whole": figures(wholes(knowing)) },
        "details": figures(details),
        "asking": { "first": figures(firsts(asking)), "whole": figures(wholes(asking)) },
    })
}

/// Measures the agent's memory in KiB: idle, at the end of the storm, and after the rest.
async fn storm(args: &Args, kills: usize) -> Value {
    let provoke = Provoke::next_to_this_program().expect("the path of this program");
    let cluster = Cluster::with("storm", args.pods, provoke).await;
    let agent = cluster.agent(&args.agent).await;
    let memory = || {
        let found = Footprint::of(agent.id()).expect("the agent runs");
        json!({ "rss": found.rss_kib, "anonymous": found.anonymous_kib })
    };
    tokio::time::sleep(SETTLE).await;
    let idle = memory();
    let (killed, took) = cluster.kill(kills).await;
    let storm = memory();
    tokio::time::sleep(Duration::from_secs(args.rest)).await;
    let rest = memory();
    let counted: u64 = cluster.counted().values().sum();
    let reported: u64 = cluster.reported().values().sum();
    stop(agent).await;
    json!({
        "kills": killed.len(),
        "counted": counted,
        "reported": reported,
        "seconds": took.as_secs(),
        "idle": idle,
        "storm": storm,
        "rest": rest,
    })
}

/// Returns the delays since the kernel's timestamp.
fn delays(all: &[(u64, Arrivals)]) -> Value {
    let delays = |at: fn(&Arrivals) -> Option<u64>| {
        let nanos = all
            .iter()
            .filter_map(|(began, one)| at(one)?.checked_sub(*began));
        figures(nanos.map(Duration::from_nanos).collect())
    };
    json!({
        "event": delays(|one| one.event),
        "collector": delays(|one| one.first[0]),
        "webhook": delays(|one| one.first[1]),
        "settled": delays(|one| one.settled),
        "journal": delays(|one| one.journal),
    })
}

/// Returns the times until the requests were sent.
fn firsts(ways: &[Way]) -> Vec<Duration> {
    ways.iter().map(|way| way.read + way.sent).collect()
}

fn wholes(ways: &[Way]) -> Vec<Duration> {
    ways.iter().map(Way::whole).collect()
}

/// Returns median and 99th percentile, in milliseconds.
fn figures(mut all: Vec<Duration>) -> Value {
    all.sort_unstable();
    let last = all.len().saturating_sub(1);
    let at = |rank: usize| all.get(rank).map(|one| one.as_secs_f64() * 1e3);
    json!({ "count": all.len(), "p50": at(last / 2), "p99": at(last * 99 / 100) })
}
