//! Measures `nodepulse-simulate` against a server that stores nothing, as a table and a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodepulse_tests::api_server::{ListedPods, NullServer};
use nodepulse_tests::hostile::footprint::Footprint;
use tokio::process::Command;
use tokio::time::sleep;

#[derive(Parser)]
struct Args {
    /// The binary of nodepulse-simulate
    #[arg(long, default_value = "target/release/nodepulse-simulate")]
    simulate: PathBuf,
    /// Nodes, and pods on each: one run for each NODES or NODES:PODS
    #[arg(default_values = ["1", "1000", "2500", "5000", "10000", "1000:100"])]
    runs: Vec<String>,
    /// Duration of each run
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Writes a picture of the runs without pods
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Debug)]
struct Figures {
    nodes: u32,
    pods: u32,
    /// Seconds until the last node was registered, and the last pod was running.
    registered: f64,
    running: f64,
    /// Peak and anonymous memory in MiB.
    memory: f64,
    anonymous: f64,
    /// CPU seconds per second once all is registered.
    cpu: f64,
    /// The latest Lease in milliseconds.
    lateness: f64,
    requests: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("simulate_cost: {err:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    let mut all = Vec::new();
    for run in &args.runs {
        let (nodes, pods) = run.split_once(':').unwrap_or((run, "0"));
        let figures = measure(args, nodes.parse()?, pods.parse()?).await?;
        all.push(figures);
    }
    println!("{}", table(&all));
    if let Some(path) = &args.svg {
        let alone: Vec<_> = all.iter().filter(|figures| figures.pods == 0).collect();
        fs::write(path, picture(&alone)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

async fn measure(args: &Args, nodes: u32, pods: u32) -> Result<Figures> {
    let server = NullServer::start(ListedPods {
        prefix: "simulated".to_owned(),
        nodes,
        count: pods,
    });
    let server = server.await?;
    let dir = tempfile::tempdir()?;
    let kubeconfig = server.kubeconfig(&dir.path().join("kubeconfig"));
    let child = Command::new(&args.simulate)
        .args(["--nodes", &nodes.to_string(), "--start-after", "0"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let child = child.with_context(|| {
        format!(
            "{}: build it with `cargo build --release -p nodepulse-simulate`",
            args.simulate.display()
        )
    })?;
    let id = child.id().context("it has ended")?;
    // The first third is for registration.
    let third = Duration::from_secs(args.seconds) / 3;
    sleep(third).await;
    let before = cpu(id)?;
    sleep(third * 2).await;
    let cpu = (cpu(id)? - before) / (third * 2).as_secs_f64();
    let anonymous = Footprint::of(id)?.anonymous_kib as f64 / 1024.0;
    let counts = server.counts();
    kill(Pid::from_raw(i32::try_from(id)?), Signal::SIGTERM)?;
    let output = child.wait_with_output().await?;
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "it failed: {summary}");
    let number = |before: &str| {
        let rest = summary.split(before).nth(1).unwrap_or_default();
        let number = rest.split_whitespace().next().unwrap_or_default();
        number
            .parse::<f64>()
            .with_context(|| format!("no {before:?} in {summary}"))
    };
    let last = |request: &str| {
        counts
            .get(request)
            .map_or(0.0, |counted| counted.last.as_secs_f64())
    };
    Ok(Figures {
        nodes,
        pods: nodes * pods,
        registered: last("POST nodes"),
        running: last("PATCH pods/status"),
        memory: number(", at most ")? / 1024.0,
        anonymous,
        cpu,
        lateness: number("latest Lease ")?,
        requests: counts.values().map(|counted| counted.requests).sum(),
    })
}

/// Returns CPU seconds so far.
fn cpu(id: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    // utime and stime, in ticks of 10 ms.
    let ticks: u32 = fields
        .get(11..13)
        .context("no times")?
        .iter()
        .map(|text| text.parse().unwrap_or(0))
        .sum();
    Ok(f64::from(ticks) / 100.0)
}

fn table(all: &[Figures]) -> String {
    let mut table = "| nodes | pods | requests | all registered | all running | peak memory | anonymous | CPU | latest Lease |\n\
                     |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for of in all {
        writeln!(
            table,
            "| {} | {} | {} | {:.1} s | {:.1} s | {:.0} MiB | {:.1} MiB | {:.0} % | {:.0} ms |",
            of.nodes,
            of.pods,
            of.requests,
            of.registered,
            of.running,
            of.memory,
            of.anonymous,
            of.cpu * 100.0,
            of.lateness
        )
        .expect("a String");
    }
    table
}

/// Draws memory, CPU and lateness by the number of nodes, each from 0 to its maximum.
fn picture(all: &[&Figures]) -> String {
    const WIDTH: f64 = 560.0;
    const HEIGHT: f64 = 240.0;
    type Line = (&'static str, &'static str, fn(&Figures) -> f64);
    let lines: [Line; 3] = [
        ("anonymous memory, MiB", "#1f77b4", |of| of.anonymous),
        ("CPU, % of one", "#d62728", |of| of.cpu * 100.0),
        ("latest Lease, ms", "#2ca02c", |of| of.lateness),
    ];
    let most =
        |of: &dyn Fn(&Figures) -> f64| all.iter().map(|figures| of(figures)).fold(1.0, f64::max);
    let nodes = most(&|of| f64::from(of.nodes));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <path d=\"M50 20 V{} H{}\" stroke=\"black\" fill=\"none\"/>\n",
        WIDTH + 80.0,
        HEIGHT + 120.0,
        HEIGHT + 20.0,
        WIDTH + 50.0
    );
    for of in all {
        let x = 50.0 + f64::from(of.nodes) / nodes * WIDTH;
        writeln!(
            svg,
            "<text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT + 38.0,
            of.nodes
        )
        .expect("a String");
    }
    for (index, (name, color, of)) in lines.into_iter().enumerate() {
        let most = most(&of);
        let points: Vec<_> = all
            .iter()
            .map(|figures| {
                let x = 50.0 + f64::from(figures.nodes) / nodes * WIDTH;
                let y = 20.0 + HEIGHT * (1.0 - of(figures) / most);
                format!("{x:.0},{y:.0}")
            })
            .collect();
        let y = HEIGHT + 60.0 + 18.0 * f64::from(u8::try_from(index).unwrap_or(0));
        writeln!(
            svg,
            "<polyline points=\"{}\" stroke=\"{color}\" fill=\"none\" stroke-width=\"2\"/>\n\
             <text x=\"50\" y=\"{y}\" fill=\"{color}\">{name}: 0 to {most:.1}, by nodes</text>",
            points.join(" ")
        )
        .expect("a String");
    }
    svg + "</svg>\n"
}
