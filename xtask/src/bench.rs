//! Measures the cost of the agent. When idle: the shipped binary in either mode, against the test
//! API server, sampled from `/proc`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::repo::{Repo, command, output, shown};
use crate::{files, run};

mod api;
mod flapping;
mod kernel;
mod kills;
mod report;
mod runs;
mod sample;
mod storm;

use api::Api;
use report::Figures;
use runs::{RUNS, Run};
use sample::Sample;

/// The programs are loaded and the Node is registered before the first sample.
const SETTLE: Duration = Duration::from_secs(10);

/// Name of the Node, and of the identity that registers it.
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
        return Ok(judged(&gates(&repo)?));
    }
    let wanted = |run: &&Run| args.mode.as_ref().is_none_or(|mode| mode == run.mode);
    let bench = Bench::build(&repo)?;
    let (mut tables, mut over) = (Vec::new(), Vec::new());
    for run in RUNS.iter().filter(wanted) {
        let figures = bench.measure(run, Duration::from_secs(args.seconds))?;
        let table = report::table(&figures);
        println!("{table}");
        tables.push(table);
        over.extend(figures.over(false));
    }
    if args.write {
        write(&repo, "bench", &report::method(), &tables.join("\n"))?;
    }
    Ok(judged(&over))
}

fn judged(over: &[String]) -> ExitCode {
    for what in over {
        eprintln!("bench: over budget: {what}");
    }
    ExitCode::from(u8::from(!over.is_empty()))
}

/// Replaces a section of OVERHEAD.md.
fn write(repo: &Repo, section: &str, method: &str, table: &str) -> Result<()> {
    let comments = ["begin", "end"].map(|which| format!("<!-- {section}:{which} -->"));
    let text = format!("{method}\n\n{}", table.trim_end());
    let file = repo.root.join("OVERHEAD.md");
    files::write_between(&file, comments.each_ref().map(String::as_str), &text)
}

fn require_root() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "creating cgroups, mounting file systems and loading eBPF programs requires root"
    );
    Ok(())
}

/// Returns the given agent, or builds that of this repository. Fails without root.
fn agent(repo: &Repo, given: Option<&Path>) -> Result<PathBuf> {
    require_root()?;
    given.map_or_else(|| run::agent(repo), |agent| Ok(agent.to_owned()))
}

/// Runs a program that prints JSON.
fn measured(program: &mut Command) -> Result<Value> {
    let printed = output(program)?;
    serde_json::from_str(&printed).with_context(|| format!("no JSON from `{}`", shown(program)))
}

/// A measured number, by JSON pointer; `NAN` if it is missing.
fn figure(measured: &Value, at: &str) -> f64 {
    let figure = measured.pointer(at).and_then(Value::as_f64);
    figure.unwrap_or(f64::NAN)
}

/// Compares a figure with its gate. A missing figure exceeds every gate.
fn exceeds(figure: f64, gate: Option<f64>) -> bool {
    gate.is_some_and(|gate| figure.is_nan() || gate.is_nan() || figure > gate)
}

fn gate(gate: Option<f64>, digits: usize) -> String {
    gate.map_or("-".to_owned(), |gate| format!("{gate:.digits$}"))
}

/// Formats a table in Markdown. All columns but the first are numbers.
fn markdown(head: &str, rows: impl IntoIterator<Item = String>) -> String {
    let numbers = head.matches('|').count() - 2;
    let head = format!("{head}\n| --- |{}\n", " ---: |".repeat(numbers));
    rows.into_iter().fold(head, |text, row| text + &row + "\n")
}

/// Runs each mode for a short time, and checks only figures that do not depend on other load:
/// memory, requests, connections, and wake-ups far above their gate. Returns the figures over their
/// gates.
pub fn gates(repo: &Repo) -> Result<Vec<String>> {
    let bench = Bench::build(repo)?;
    let mut over = Vec::new();
    for run in &RUNS {
        let figures = bench.measure(run, SHORT)?;
        println!("{}", report::table(&figures));
        over.extend(figures.over(true));
    }
    Ok(over)
}

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
        let samples = (&first, &last);
        let requests = requests.split_at(before);
        Ok(Figures::between(
            run,
            samples,
            during,
            requests,
            binary_bytes,
        ))
    }
}

/// Kills the agent on drop, if the benchmark fails.
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
        // The agent would report kills that the machine has had since an earlier run.
        let state = log.with_extension("state");
        files::remove_dir(&state)?;
        let child = command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--state-directory")
            .arg(&state)
            .arg("--history-directory")
            .arg(state.join("history"))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", agent.display()))?;
        let log = log.to_owned();
        Ok(Self { child, log })
    }

    /// Waits. Fails if the agent ends meanwhile.
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

/// Returns the first line that a program prints; the programs describe the machine.
fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = command(program).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
