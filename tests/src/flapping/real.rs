//! Measures the conditions of the real agent while thresholds of this machine are crossed
//! repeatedly.
//!
//! Four agents watch the same crossings: one of each resource alone, and one of all of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use nodepulse_core::backoff::Jitter;
use nodepulse_core::clock::BootNanos;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::resource::{Kind, Resource, nodefs, now};
use crate::SOON;
use crate::alarms::site::{NODE, cluster, status_path};
use crate::api_server::ApiServer;
use crate::process::Process;

/// Time between two crossings of one threshold.
const PERIOD: Duration = Duration::from_secs(20);
/// Maximum random delay of a crossing.
const SHIFT: Duration = Duration::from_secs(2);
/// Time for which each threshold is exceeded.
const LASTS: Duration = Duration::from_secs(3);
/// Minimum time between two patches of one agent that are not regular.
const SPACING: Duration = Duration::from_secs(1);
/// Time that exceeds any sample or regular computation.
const REST: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Run {
    pub agent: PathBuf,
    /// A directory on a disk.
    pub dir: PathBuf,
    /// Number of crossings of each threshold.
    pub crossings: u32,
    /// Determines the times of the crossings.
    pub seed: u64,
}

struct Crossed {
    kind: Kind,
    /// The times just before each crossing, and of its end.
    crossings: Vec<(BootNanos, BootNanos)>,
    /// Exists for as long as agents read it.
    _resource: Resource,
}

pub async fn measure(run: &Run) -> io::Result<Value> {
    let made = |kind: Kind| Resource::new(kind, &run.dir).map(|resource| (kind, resource));
    let resources: Vec<_> = Kind::ALL.into_iter().map(made).collect::<io::Result<_>>()?;
    let threshold = |(kind, resource): &(Kind, Resource)| (*kind, resource.threshold());
    let thresholds: Vec<_> = resources.iter().map(threshold).collect();

    let alone = thresholds.iter().map(std::slice::from_ref);
    let groups = alone.chain([thresholds.as_slice()]);
    let agents: Vec<_> = groups.map(|group| Watched::start(run, group)).collect();
    let agents = join_all(agents).await;
    // The first samples take less time.
    sleep(REST).await;
    let crossed = cross(resources, run).await?;
    sleep(REST).await;

    let (flapping, alone) = agents.split_last().expect("there are four agents");
    let rows = crossed.iter().zip(alone).map(|(crossed, alone)| {
        let alone = latencies(alone, crossed);
        let together = latencies(flapping, crossed);
        json!({
            "condition": crossed.kind.condition(),
            "crossings": crossed.crossings.len(),
            "alone": figures(alone.iter().map(|seen| seen.after)),
            "flapping": figures(together.iter().map(|seen| seen.after)),
            "apart": figures(together.iter().filter(|seen| !seen.spaced).map(|seen| seen.after)),
        })
    });
    let rows: Vec<Value> = rows.collect();
    for agent in agents {
        agent.stop().await?;
    }
    Ok(json!({ "seed": run.seed, "conditions": rows }))
}

struct Watched {
    agent: Process,
    api: ApiServer,
    _dir: tempfile::TempDir,
}

impl Watched {
    /// Starts an agent with these thresholds, and waits for the first status of the Node.
    async fn start(run: &Run, thresholds: &[(Kind, String)]) -> Self {
        let dir = tempfile::tempdir_in(&run.dir).expect("a temporary directory");
        let (api, kubeconfig) = cluster(dir.path()).await;
        let config = dir.path().join("config.yaml");
        fs::write(&config, configuration(&run.dir, thresholds)).expect("a configuration");
        let paths = [kubeconfig, config].map(|path| path.display().to_string());
        let [kubeconfig, config] = &paths;
        let arguments = [
            ["--mode", "companion"],
            ["--node-name", NODE],
            ["--kubeconfig", kubeconfig],
            ["--config", config],
        ];
        let arguments = [&["run"], arguments.as_flattened()].concat();
        let agent = Process::start_program(&run.agent, arguments);
        let first = |api: &ApiServer| (!statuses(api).is_empty()).then_some(());
        api.wait_for(SOON, "the first status", first).await;
        Self {
            agent,
            api,
            _dir: dir,
        }
    }

    async fn stop(self) -> io::Result<()> {
        self.agent.terminate();
        let ended = self.agent.ends(SOON).await;
        if ended.code == Some(0) {
            return Ok(());
        }
        let why = format!("an agent ended with {:?}: {:#?}", ended.code, ended.stderr);
        Err(io::Error::other(why))
    }
}

/// Returns a configuration with the thresholds, and all others out of reach.
fn configuration(dir: &Path, thresholds: &[(Kind, String)]) -> String {
    let of = |kind: Kind| {
        let given = thresholds.iter().find(|(other, _)| *other == kind);
        let value = given.map_or("1", |(_, threshold)| threshold);
        format!("  {}: \"{value}\"\n", kind.signal())
    };
    let hard: String = Kind::ALL.into_iter().map(of).collect();
    format!(
        "apiVersion: nodepulse.dev/v1alpha1\n\
         kind: NodepulseConfiguration\n\
         rootDirectory: {}\n\
         evictionPressureTransitionPeriod: 1s\n\
         evictionHard:\n{hard}  \
           nodefs.inodesFree: \"1\"\n  \
           imagefs.available: \"1\"\n  \
           imagefs.inodesFree: \"1\"\n",
        nodefs(dir).display()
    )
}

/// Crosses each threshold in a separate thread, once every [`PERIOD`].
async fn cross(resources: Vec<(Kind, Resource)>, run: &Run) -> io::Result<Vec<Crossed>> {
    let begin = now();
    let mut random = Jitter::seeded(run.seed);
    let threads = resources.into_iter().map(|(kind, resource)| {
        let phase = random.part(PERIOD);
        let moment = |n| begin.plus(PERIOD * n + phase + random.part(SHIFT));
        let moments: Vec<BootNanos> = (0..run.crossings).map(moment).collect();
        let crossings = spawn_blocking(move || {
            let mut earliest = begin;
            let one = |at: BootNanos| {
                wait_until(at.max(earliest));
                let (used, crossed) = resource.cross()?;
                earliest = crossed.plus(PERIOD - SHIFT);
                wait_until(crossed.plus(LASTS));
                drop(used);
                Ok((crossed, now()))
            };
            let crossings = moments.into_iter().map(one).collect::<io::Result<_>>()?;
            io::Result::Ok(Crossed {
                kind,
                crossings,
                _resource: resource,
            })
        });
        async move { crossings.await.map_err(io::Error::other)? }
    });
    let threads: Vec<_> = threads.collect();
    join_all(threads).await.into_iter().collect()
}

fn wait_until(at: BootNanos) {
    while now() < at {
        thread::park_timeout(at.since(now()));
    }
}

/// A crossing that the API server was informed of before its end.
struct Seen {
    /// Delay of the report.
    after: Duration,
    /// True if another condition became True in the second before, which delays the report.
    spaced: bool,
}

/// Returns the crossings that the API server was informed of before their end.
fn latencies(watched: &Watched, crossed: &Crossed) -> Vec<Seen> {
    let kind = crossed.kind;
    let statuses = statuses(&watched.api);
    let firsts = |type_: &str| first_trues(&statuses, type_);
    let these = firsts(kind.condition());
    let others: Vec<Duration> = Kind::ALL
        .into_iter()
        .filter(|other| *other != kind)
        .flat_map(|other| firsts(other.condition()))
        .collect();
    let seen = |&(crossed, over): &(BootNanos, BootNanos)| {
        let [crossed, over] = [crossed, over].map(|at| Duration::from_nanos(at.0));
        let found = these.iter().find(|at| (crossed..=over).contains(*at));
        let Some(&at) = found else {
            report_unseen(kind, crossed, &statuses);
            return None;
        };
        let before = crossed.saturating_sub(SPACING)..at;
        Some(Seen {
            after: at - crossed,
            spaced: others.iter().any(|other| before.contains(other)),
        })
    };
    crossed.crossings.iter().filter_map(seen).collect()
}

/// Prints the patches around a crossing.
fn report_unseen(kind: Kind, crossed: Duration, statuses: &[(Value, Duration)]) {
    eprintln!("{} at {crossed:.3?} was not seen:", kind.condition());
    let around = crossed.saturating_sub(PERIOD)..crossed + PERIOD;
    for (conditions, at) in statuses.iter().filter(|(_, at)| around.contains(at)) {
        let conditions = conditions.as_array().into_iter().flatten();
        let types = conditions
            .filter(|c| c["status"] == "True")
            .map(|c| &c["type"]);
        let types: Vec<String> = types.map(Value::to_string).collect();
        eprintln!("  {at:.3?}: True: {}", types.join(" "));
    }
}

/// Returns the conditions of the accepted status patches, and when each was answered.
fn statuses(api: &ApiServer) -> Vec<(Value, Duration)> {
    let path = status_path();
    let accepted = api.requests_where(|r| r.path == path && r.status == Some(200));
    let of = |request: crate::api_server::Recorded| {
        let conditions = request.body?.pointer_mut("/status/conditions")?.take();
        Some((conditions, request.answered_at?))
    };
    accepted.into_iter().filter_map(of).collect()
}

/// Returns when the condition became True.
fn first_trues(statuses: &[(Value, Duration)], type_: &str) -> Vec<Duration> {
    let is_true = |conditions: &Value| {
        let mut conditions = conditions.as_array().into_iter().flatten();
        conditions.any(|c| c["type"] == type_ && c["status"] == "True")
    };
    let pairs = statuses.iter().zip(statuses.iter().skip(1));
    let first = pairs.filter(|((before, _), (after, _))| !is_true(before) && is_true(after));
    first.map(|(_, (_, at))| *at).collect()
}

/// Returns the number, and the median and the maximum in milliseconds.
fn figures(all: impl Iterator<Item = Duration>) -> Value {
    let mut all: Vec<f64> = all.map(|one| one.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len().saturating_sub(1) / 2);
    json!({ "count": all.len(), "median": median, "max": all.last() })
}
