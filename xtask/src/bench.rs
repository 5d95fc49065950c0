//! What the agent costs. When nothing happens: the shipped binary in node mode, against an API
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
mod report;
mod sample;

use api::Api;
use report::{Figures, Section};
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
}

/// What an idle agent costs.
#[derive(clap::Args)]
struct Idle {
    /// How long to watch. CPU time comes in ticks of 10 ms: less than a minute says little.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Put the figures into OVERHEAD.md, between its two `bench` comments.
    #[arg(long)]
    write: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    match &args.what {
        Some(What::Kernel(args)) => kernel::main(args),
        None => idle(&args.idle),
    }
}

fn idle(args: &Idle) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let agent = run::agent(&repo)?;
    let api = Api::start(
        &run::test_program(&repo, "testapi")?,
        &repo.target_dir.join("bench"),
    )?;
    let figures = measure(&repo, &agent, &api, Duration::from_secs(args.seconds))?;
    print!("{}", report::table(&figures));
    if args.write {
        let section = format!("{}\n\n{}", report::method(), report::table(&figures));
        Section("bench").write(&repo.root.join("OVERHEAD.md"), &section)?;
    }
    let over = report::over_budget(&figures);
    for what in &over {
        eprintln!("bench: over budget: {what}");
    }
    Ok(ExitCode::from(u8::from(!over.is_empty())))
}

fn measure(repo: &Repo, agent: &Path, api: &Api, during: Duration) -> Result<Figures> {
    let log = repo.target_dir.join("bench-agent.log");
    let mut running = Running::start(agent, &api.kubeconfig, &log)?;
    running.idle(SETTLE)?;
    let first = Sample::take(running.child.id())?;
    let requests = api.requests();
    eprintln!("bench: watching for {} s", during.as_secs());
    running.idle(during)?;
    let last = Sample::take(running.child.id())?;
    let requests = api.requests() - requests;
    running.stop()?;
    let binary_bytes = std::fs::metadata(agent)?.len();
    Ok(Figures::between(
        &first,
        &last,
        during,
        requests,
        binary_bytes,
    ))
}

/// The agent; killed when we fail before its time.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(agent: &Path, kubeconfig: &Path, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(agent)
            .args(["run", "--mode", "node", "--take-over", "--node-name", NODE])
            .args(["--allow-ready-without-runtime", "--kubeconfig"])
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
