//! Runs workloads, each with a new agent and a new API server.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt as _;
use nodepulse_core::clock::BootNanos;
use nodepulse_io::clock::Clock;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::observed::{self, Alarm, IoPressure};
use super::record::{Outcome, Verdict};
use super::{Control, Expected, Pace, Prepared, Site, Workload, site};
use crate::SOON;
use crate::api_server::ApiServer;
use crate::process::Process;
use crate::provoke::Provoke;
use crate::provoke::disk::disk_of;

/// Time for which conditions are observed after a load, for records and samples that are still in
/// transit.
const SETTLE: Duration = Duration::from_secs(2);
/// Time to wait for a late condition, so that the record contains the delay.
const PATIENCE: Duration = Duration::from_secs(15);

pub struct Runner {
    pub provoke: Provoke,
    /// A directory on a disk of the node.
    pub parent: PathBuf,
    pub pace: Pace,
    /// Time limit for the agent to start and to end.
    pub soon: Duration,
}

impl Runner {
    /// Creates a runner for this machine.
    pub fn here(pace: Pace) -> io::Result<Self> {
        let parent = std::env::temp_dir();
        if disk_of(&parent).is_none() {
            let parent = parent.display();
            let why = format!("{parent} is not on a disk: set TMPDIR to a directory on one");
            return Err(io::Error::other(why));
        }
        Ok(Self {
            provoke: Provoke::next_to_this_program()?,
            parent,
            pace,
            soon: SOON,
        })
    }

    /// Runs one workload, and undoes its changes also after a failure.
    pub async fn run(&self, workload: &Workload) -> Outcome {
        let site = Site::new(&self.parent, self.provoke.clone(), self.pace);
        let prepared = site.and_then(|site| Ok(((workload.set_up)(&site)?, site)));
        let (prepared, site) = match prepared {
            Ok(ready) => ready,
            Err(err) if err.kind() == io::ErrorKind::Unsupported => {
                return Outcome::without_run(workload, Verdict::Skipped(err.to_string()));
            }
            Err(err) => {
                let why = format!("cannot be set up: {err}");
                return Outcome::without_run(workload, Verdict::Failed(why));
            }
        };
        // Helpers panic at their timeout.
        let run = AssertUnwindSafe(self.observe(workload, prepared, Arc::new(site)));
        run.catch_unwind().await.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            let why = text.unwrap_or_else(|| "a panic without a message".to_owned());
            Outcome::without_run(workload, Verdict::Failed(why))
        })
    }

    async fn observe(&self, workload: &Workload, prepared: Prepared, site: Arc<Site>) -> Outcome {
        let (api, kubeconfig) = site::cluster(site.directory()).await;
        let (agent, address) = self.agent(&api, &site, &prepared, kubeconfig).await;
        if let Some(alarm) = observed::alarms(&api).first() {
            let why = format!(
                "{} is True before the load: this node is not healthy",
                alarm.condition
            );
            return Outcome::without_run(workload, Verdict::Failed(why));
        }
        let pressure = IoPressure::start();
        let ends_within = prepared.ends_within;
        let run = RunningLoad::start(prepared, Arc::clone(&site));
        let ended = run.observed(&api, workload.expected).await;

        let alarms = observed::alarms(&api);
        let slow_windows = observed::slow_windows(&address).await;
        let latency = latency(&api, workload.expected, ended.began);
        let mut verdict = Outcome::judge(workload.expected, &alarms, latency);
        let mut detail = String::new();
        match ended.load {
            Ok(text) => detail = text,
            Err(err) => verdict = Verdict::Failed(format!("the load failed: {err}")),
        }
        if verdict == Verdict::Ok {
            match self.event(&api, &address, workload.expected).await {
                Ok(message) => detail = format!("{} {message}", detail.trim()),
                Err(why) => verdict = Verdict::Failed(why),
            }
        }
        if let (Verdict::Ok, Some(within)) = (&verdict, ends_within) {
            match end(&api, workload.expected, within).await {
                Some(after) => detail = format!("{detail}; False {after:.0?} after its end"),
                None => verdict = Verdict::Failed(format!("still True {within:?} after its end")),
            }
        }
        if verdict != Verdict::Ok {
            eprintln!("{}", agent.lines_with("").join("\n"));
        }
        agent.terminate();
        let code = agent.ends(self.soon).await.code;
        drop(site);
        if verdict == Verdict::Ok && code != Some(0) {
            verdict = Verdict::Failed(format!("the agent ended with {code:?}"));
        }
        Outcome {
            name: workload.name.clone(),
            expected: workload.expected,
            took: ended.took,
            io_pressure: pressure.end(),
            slow_windows,
            alarms,
            detail: detail.trim().to_owned(),
            latency,
            verdict,
        }
    }

    /// Starts an agent, waits for its first status, and returns the address of its metrics.
    async fn agent(
        &self,
        api: &ApiServer,
        site: &Site,
        prepared: &Prepared,
        kubeconfig: PathBuf,
    ) -> (Process, String) {
        let config = site::configuration(site, prepared);
        let config = config.expect("the configuration is written");
        let paths = [kubeconfig, config].map(|path| path.display().to_string());
        let [kubeconfig, config] = paths;
        let arguments = [
            ["--mode", "companion"],
            ["--node-name", site::NODE],
            ["--kubeconfig", &kubeconfig],
            ["--config", &config],
            // The test environment turns the server off, and a flag overrides that.
            ["--serve-address", "127.0.0.1:0"],
        ];
        let agent = Process::start([&["run"], arguments.as_flattened()].concat());
        let line = agent.wait_for_line("serving", self.soon).await;
        let words = line.split_whitespace();
        let address = words
            .filter_map(|word| word.strip_prefix("address="))
            .next();
        let address = address.expect("the log names the address").to_owned();
        // Without the programs, it would not observe most of what must not set a condition.
        agent.wait_for_line("programs=\"btf\"", self.soon).await;
        let path = site::status_path();
        let first = |api: &ApiServer| {
            let answered = api.requests_where(|r| r.path == path && r.status == Some(200));
            (!answered.is_empty()).then_some(())
        };
        api.wait_for(self.soon, "the first status", first).await;
        (agent, address)
    }

    /// Waits for the Event of the condition, which names the culprit, or takes that of the pod.
    /// Returns its message.
    async fn event(
        &self,
        api: &ApiServer,
        address: &str,
        expected: Expected,
    ) -> Result<String, String> {
        let (reason, culprit) = match expected {
            Expected::NoAlarm => return Ok(String::new()),
            Expected::Alarm {
                reason, culprit, ..
            } => (reason, culprit),
            Expected::PodEvent { reason, pod, .. } => {
                let event = observed::pod_event(api, pod, reason);
                let message = event.map(|(_, message)| message).unwrap_or_default();
                let unhealthy = observed::unhealthy(address).await.join(", ");
                if unhealthy.is_empty() {
                    return Err("no disk is unhealthy by the metrics".to_owned());
                }
                return Ok(format!("{message} ({unhealthy})"));
            }
        };
        let named = |api: &ApiServer| {
            let message = observed::event_message(api, reason)?;
            let is_named = culprit.is_none_or(|culprit| message.contains(culprit));
            is_named.then_some(message)
        };
        let found = wait(api, self.soon, named).await;
        found.ok_or_else(|| {
            let message = observed::event_message(api, reason);
            let message = message.unwrap_or_else(|| "there is none".to_owned());
            let culprit = culprit.unwrap_or_default();
            format!("the Event {reason} does not name {culprit:?}: {message}")
        })
    }
}

/// A load in a separate thread, since the API server runs in this one.
struct RunningLoad {
    start: BootNanos,
    load: JoinHandle<io::Result<String>>,
    began: mpsc::Receiver<BootNanos>,
    /// Dropped when the condition was observed.
    notice: mpsc::Sender<()>,
}

struct EndedLoad {
    load: io::Result<String>,
    took: Duration,
    began: Option<BootNanos>,
}

impl RunningLoad {
    fn start(prepared: Prepared, site: Arc<Site>) -> Self {
        let (send_began, began) = mpsc::channel();
        let (notice, noticed) = mpsc::channel();
        let control = Control {
            site,
            began: send_began,
            noticed,
        };
        let load = tokio::task::spawn_blocking(move || (prepared.load)(&control));
        Self {
            start: Clock::kernel().now().boot,
            load,
            began,
            notice,
        }
    }

    /// Waits for the end of the load, and for the condition.
    async fn observed(self, api: &ApiServer, expected: Expected) -> EndedLoad {
        let Self {
            start,
            mut load,
            began,
            notice,
        } = self;
        let joined = |ended: Result<io::Result<String>, _>| ended.map_err(io::Error::other)?;
        let passed = || Clock::kernel().now().boot.since(start);
        let (load, took) = match expected {
            Expected::NoAlarm => {
                let load = (joined(load.await), passed());
                let any = |api: &ApiServer| observed::alarms(api).pop();
                // `None` if no condition is True.
                let _alarm: Option<Alarm> = wait(api, SETTLE, any).await;
                load
            }
            Expected::Alarm { within, .. } | Expected::PodEvent { within, .. } => {
                let happened = wait(api, within + PATIENCE, |api| happened(api, expected));
                tokio::pin!(happened);
                let ended = tokio::select! {
                    _ = &mut happened => None,
                    ended = &mut load => Some(joined(ended)),
                };
                if let Some(Ok(_)) = ended {
                    happened.await;
                }
                drop(notice);
                let load = match ended {
                    Some(ended) => ended,
                    None => joined(load.await),
                };
                (load, passed())
            }
        };
        EndedLoad {
            load,
            took,
            began: began.try_recv().ok(),
        }
    }
}

/// Waits until a request matches, or for this long.
async fn wait<T>(
    api: &ApiServer,
    time: Duration,
    shown: impl FnMut(&ApiServer) -> Option<T>,
) -> Option<T> {
    let shown = api.wait_for(time * 2, "what the caller waits for", shown);
    timeout(time, shown).await.ok()
}

/// Waits until the condition is False again, and returns how long that took.
async fn end(api: &ApiServer, expected: Expected, within: Duration) -> Option<Duration> {
    let Expected::Alarm { condition, .. } = expected else {
        return None;
    };
    let start = api.now();
    let is_over = |api: &ApiServer| observed::is_false(api, condition).then_some(());
    wait(api, within, is_over).await?;
    Some(api.now().saturating_sub(start))
}

/// Returns when the expected condition was True, or the Event of the pod arrived.
fn happened(api: &ApiServer, expected: Expected) -> Option<Duration> {
    match expected {
        Expected::NoAlarm => None,
        Expected::Alarm { condition, .. } => {
            let mut alarms = observed::alarms(api).into_iter();
            let alarm = alarms.find(|alarm| alarm.condition == condition)?;
            Some(alarm.at)
        }
        Expected::PodEvent { pod, reason, .. } => {
            let (at, _) = observed::pod_event(api, pod, reason)?;
            Some(at)
        }
    }
}

/// Returns the time from the fault to the condition or the Event.
fn latency(api: &ApiServer, expected: Expected, began: Option<BootNanos>) -> Option<Duration> {
    let at = happened(api, expected)?;
    Some(at.saturating_sub(Duration::from_nanos(began?.0)))
}
