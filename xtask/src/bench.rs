//! The cost of the agent. When idle: the shipped binary in either mode, against the test API server,
//! sampled from `/proc`.

use std::fs::{self, File};
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
mod flapping;
mod kernel;
mod kills;
mod report;
mod runs;
mod sample;
mod storm;

use api::Api;
use report::{Figures, Judged, Section};
use runs::{RUNS, Run};
use sample::Sample;

/// The programs are loaded and the Node is registered before the first sample.
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
    /// Measure the cost of the eBPF programs in the kernel
    Kernel(kernel::Args),
    /// Measure the time from a kill to the API server
    Kills(kills::Args),
    /// Measure how late conditions that flap are reported
    Flapping(flapping::Args),
    /// Measure what memory remains after a storm of kills
    Storm(storm::Args),
}

/// The cost of an idle agent.
#[derive(clap::Args)]
struct Idle {
    /// Duration of each run. CPU time has a resolution of 10 ms, so use at least a minute
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Only this mode
    #[arg(long, value_parser = ["companion", "node"])]
    mode: Option<String>,
    /// Write the figures to OVERHEAD.md, between its two `bench` comments
    #[arg(long, conflicts_with = "mode")]
    write: bool,
    /// Short runs, and only gates that do not depend on other load: memory, requests, connections
    #[arg(long, conflicts_with = "write")]
    gates: bool,
}

/// Duration of each run with `--gates`.
const SHORT: Duration = Duration::from_secs(30);

pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.what {
        Some(What::Kernel(args)) => kernel::main(args),
        Some(What::Kills(args)) => kills::main(args),
        Some(What::Flapping(args)) => flapping::main(args),
        Some(What::Storm(args)) => storm::main(args),
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

/// A short run of each mode, which fails only by figures that do not depend on other load: memory,
/// requests, connections, and wake-ups far above their gate. Returns the figures over their gates.
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

/// The measured agent and its API server.
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
        let mut running = RunningAgent::start(&self.agent, run, &api.kubeconfig, &self.dir, &log)?;
        running.idle(SETTLE)?;
        let first = Sample::take(running.child.id())?;
        let before = api.requests().len();
        eprintln!(
            "bench: {}: measuring for {} s",
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

/// The agent, which is killed if the benchmark fails.
struct RunningAgent {
    child: Child,
    log: PathBuf,
}

impl RunningAgent {
    fn start(agent: &Path, run: &Run, kubeconfig: &Path, dir: &Path, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(agent);
        command.args(run.arguments());
        if !run.is_alongside_a_kubelet() {
            let socket = std::path::absolute(api::runtime_socket(dir))?;
            command.env(
                "NODEPULSE_RUNTIME_ENDPOINT",
                format!("unix://{}", socket.display()),
            );
        }
        // What an earlier run counted would be reported, if the machine had kills since.
        let state = log.with_extension("state");
        if state.exists() {
            fs::remove_dir_all(&state)
                .with_context(|| format!("cannot remove {}", state.display()))?;
        }
        let child = command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--state-directory")
            .arg(state)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", agent.display()))?;
        let log = log.to_owned();
        Ok(Self { child, log })
    }

    /// Waits. An agent that ends meanwhile is an error.
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

impl Drop for RunningAgent {
    fn drop(&mut self) {
        // Both fail if it has ended and was waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The first line of the output of a program that describes the machine.
fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = command(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
