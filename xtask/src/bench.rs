//! What the agent costs. When nothing happens: the shipped binary in either mode, against an API
//! server of our own, sampled from `/proc`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::repo::{Repo, command};
use crate::run;

mod api;
mod kernel;
mod kills;
mod report;
mod runs;
mod sample;

use api::Api;
use report::{Figures, Judged, Section};
use runs::{RUNS, Run};
use sample::Sample;

/// Start-up is not idling: the programs are loaded and the Node is registered before we look.
const SETTLE: Duration = Duration::from_secs(10);

/// Name of the Node, and of the identity that it registers with.
const NODE: &str = "bench";

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    idle: Idle,
}

#[derive(clap::Subcommand)]
enum What {
    /// What the probes cost in the kernel.
    Kernel(kernel::Args),
    /// How long kills take to the API server.
    Kills(kills::Args),
}

/// What an idle agent costs.
#[derive(clap::Args)]
struct Idle {
    /// How long to watch. CPU time comes in ticks of 10 ms: less than a minute says little.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Only this mode.
    #[arg(long, value_parser = ["companion", "node"])]
    mode: Option<String>,
    /// Put the figures into OVERHEAD.md, between its two `bench` comments.
    #[arg(long, conflicts_with = "mode")]
    write: bool,
    /// Short runs, and only gates that a busy machine can judge: memory, requests, connections.
    #[arg(long, conflicts_with = "write")]
    gates: bool,
}

/// How long each run takes where only what does not depend on the machine is judged.
const SHORT: Duration = Duration::from_secs(30);

pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.what {
        Some(What::Kernel(args)) => kernel::main(args),
        Some(What::Kills(args)) => kills::main(args),
        None => idle(&args.idle),
    }
}

fn idle(args: &Idle) -> Result<ExitCode> {
    let repo = Repo::find()?;
    if args.gates {
        let over = gates(&repo)?;
        return Ok(judged(&over));
    }
    let wanted = |run: &&Run| args.mode.as_ref().is_none_or(|mode| mode == run.mode);
    let bench = Bench::build(&repo)?;
    let mut figures = Vec::new();
    for run in RUNS.iter().filter(wanted) {
        let measured = bench.measure(run, Duration::from_secs(args.seconds))?;
        println!("{}", report::table(&measured));
        figures.push(measured);
    }
    if args.write {
        let tables: Vec<String> = figures.iter().map(report::table).collect();
        let section = format!("{}\n\n{}", report::method(), tables.join("\n"));
        Section("bench").write(&repo.root.join("OVERHEAD.md"), &section)?;
    }
    let over = figures.iter().flat_map(|one| one.over(Judged::Everything));
    let over: Vec<String> = over.collect();
    Ok(judged(&over))
}

fn judged(over: &[String]) -> ExitCode {
    for what in over {
        eprintln!("bench: over budget: {what}");
    }
    ExitCode::from(u8::from(!over.is_empty()))
}

/// A short look at each mode, which fails only by figures that a busy machine does not move: memory,
/// requests, connections, and wake-ups by far. Gives what is over its gate.
pub fn gates(repo: &Repo) -> Result<Vec<String>> {
    let bench = Bench::build(repo)?;
    let mut over = Vec::new();
    for run in &RUNS {
        let figures = bench.measure(run, SHORT)?;
        println!("{}", report::table(&figures));
        over.extend(figures.over(Judged::OnAnyMachine));
    }
    Ok(over)
}

/// What is measured, and against what.
struct Bench {
    agent: PathBuf,
    testapi: PathBuf,
    dir: PathBuf,
}

impl Bench {
    fn build(repo: &Repo) -> Result<Self> {
        Ok(Self {
            agent: run::agent(repo)?,
            testapi: run::test_program(repo, "testapi")?,
            dir: repo.target_dir.join("bench"),
        })
    }

    fn measure(&self, run: &Run, during: Duration) -> Result<Figures> {
        let api = Api::start(&self.testapi, &self.dir, run)?;
        let log = self.dir.join(format!("{}-{}.log", run.mode, run.pods));
        let mut running = Running::start(&self.agent, run, &api.kubeconfig, &log)?;
        running.idle(SETTLE)?;
        let first = Sample::take(running.child.id())?;
        let before = api.requests().len();
        eprintln!(
            "bench: {}: watching for {} s",
            run.title(),
            during.as_secs()
        );
        running.idle(during)?;
        let last = Sample::take(running.child.id())?;
        let requests = api.requests();
        running.stop()?;
        let binary_bytes = std::fs::metadata(&self.agent)?.len();
        let traffic = report::Traffic::new(&requests, before);
        Ok(Figures::between(
            run,
            (&first, &last),
            during,
            &traffic,
            binary_bytes,
        ))
    }
}

/// The agent; killed when we fail before its time.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(agent: &Path, run: &Run, kubeconfig: &Path, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(agent)
            .args(run.arguments())
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--state-directory")
            .arg(log.with_extension("state"))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", agent.display()))?;
        let log = log.to_owned();
        Ok(Self { child, log })
    }

    /// Lets it be. An agent that ends meanwhile is an error.
    fn idle(&mut self, during: Duration) -> Result<()> {
        sleep(during);
        if let Some(status) = self.child.try_wait()? {
            bail!("the agent ended with {status}: see {}", self.log.display());
        }
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            Signal::SIGTERM,
        )?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!(
                "asked to stop, the agent ended with {status}: see {}",
                self.log.display()
            );
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended and was waited for, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The first line of what a small program prints; for machine facts in the report.
fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = command(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
