//! One agent, as it is shipped, on this machine while everything around it misbehaves at random:
//! the API server, files, a credential plugin, connections, kills.
//!
//! Runs as root, by `cargo xtask test hostile`.
//! `NODEPULSE_HOSTILE_PROGRAM` names the agent, `NODEPULSE_HOSTILE_SECONDS` is the duration, and
//! another `NODEPULSE_HOSTILE_SEED` is another day.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nodepulse_tests::api_server::{ApiServer, Identity, Recorded};
use nodepulse_tests::days::Draws;
use nodepulse_tests::hostile::attackers::{self, Victim};
use nodepulse_tests::hostile::footprint::Footprint;
use nodepulse_tests::hostile::{Spells, busiest};
use nodepulse_tests::pod_kills::{Cluster, stop};
use nodepulse_tests::process::Process;
use nodepulse_tests::view::View;
use nodepulse_tests::{SOON, eventually};
use tokio::time::{Instant, sleep};

use super::provoke;

const TOKEN: &str = "hostile";
const PODS: usize = 6;
/// Maximum number of Events and of other requests in any second and in any minute. Each of up to 80
/// kills at once is reported at once.
const CEILINGS: [(Duration, usize, usize); 2] = [
    (Duration::from_secs(1), 100, 20),
    (Duration::from_mins(1), 500, 60),
];
/// Maximum change of memory, in KiB.
const MEMORY: u64 = 1024;
/// Maximum change of threads: helper threads may be idle or ended at both times.
const THREADS: u64 = 2;
/// Duration of the first attacks, before memory is compared.
const FIRST: Duration = Duration::from_secs(60);
/// Time after which the retries of attacks have ended.
const QUIET: Duration = Duration::from_secs(45);

const CONFIG: &str = "apiVersion: nodepulse.dev/v1alpha1
kind: NodepulseConfiguration
maxPods: 77
";

fn setting(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok()
}

fn number(name: &str, default: u64) -> u64 {
    let number = setting(name).map_or(default, |text| text.parse().expect("a number"));
    println!("{name}={number}");
    number
}

/// Writes a kubeconfig whose user runs the plugin.
fn kubeconfig(api: &ApiServer, dir: &Path) -> PathBuf {
    api.allow_token(TOKEN, Identity::node("worker-1"));
    let plugin = attackers::plugin(dir, TOKEN);
    let path = dir.join("kubeconfig");
    api.token_kubeconfig(&path, "TOKEN");
    let text = fs::read_to_string(&path).unwrap();
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [{}]}}",
        plugin.display()
    );
    fs::write(&path, text.replace("token: TOKEN", &exec)).unwrap();
    path
}

struct Target {
    cluster: Cluster,
    agent: Process,
    serving: String,
    dir: tempfile::TempDir,
    victims: Vec<Victim>,
}

impl Target {
    async fn start(program: &Path) -> Self {
        let cluster = Cluster::with("hostile", PODS, provoke()).await;
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(&cluster.api, dir.path());
        let victims = vec![
            Victim {
                path: dir.path().join("config.yaml"),
                content: CONFIG.to_owned(),
            },
            Victim {
                content: fs::read_to_string(&kubeconfig).unwrap(),
                path: kubeconfig,
            },
        ];
        victims.iter().for_each(Victim::restore);
        let agent = cluster.agent_with(
            program,
            &[
                "--kubeconfig",
                &victims[1].path.display().to_string(),
                "--config",
                &victims[0].path.display().to_string(),
                "--serve-address",
                "127.0.0.1:0",
            ],
        );
        View::of(&cluster.api, "worker-1").settled(SOON).await;
        let serving = agent.address().await;
        Self {
            cluster,
            agent,
            serving,
            dir,
            victims,
        }
    }

    /// Measures the agent while it runs no credential plugin: a token ends after twenty seconds, so
    /// that one may be running, with its pipe, at any moment. Those of the attacks must have ended.
    async fn footprint(&self) -> Footprint {
        eventually("agent without a child", || {
            let footprint = Footprint::of(self.agent.id())
                .unwrap_or_else(|err| panic!("{err}\n{}", self.agent.lines_with("").join("\n")));
            match footprint.descendants {
                0 => Ok(footprint),
                _ => Err(footprint),
            }
        })
        .await
    }

    /// Kills in bursts; during some of them the agent is stopped. Returns when.
    async fn kills(&self, draws: Draws, end: Instant) -> Spells {
        let mut stops = Spells::default();
        while Instant::now() < end {
            let kills = usize::try_from(1 + draws.below(80)).unwrap();
            if draws.below(4) == 0 {
                let time = Duration::from_millis(500 + draws.below(3_000));
                let stopped = attackers::stopped(self.agent.id(), time);
                let stopped = stops.during(&self.cluster.api, stopped);
                tokio::join!(stopped, self.cluster.kill(kills));
            } else {
                self.cluster.kill(kills).await;
            }
            sleep(Duration::from_secs(1 + draws.below(20))).await;
        }
        stops
    }

    /// Attacks in all ways for `time`, and then waits. Returns when the server failed, probes that
    /// failed, and when the agent was stopped.
    async fn attacked(
        &self,
        draws: &Draws,
        time: Duration,
    ) -> (Spells, Vec<(Duration, String)>, Spells) {
        let end = Instant::now() + time;
        let fork = || Draws::new(draws.next());
        let (spells, failed, stops, ..) = tokio::join!(
            self.server(fork(), end),
            attackers::probes(self.serving.clone(), || self.cluster.api.now(), end),
            self.kills(fork(), end),
            attackers::half_open(self.serving.clone(), 500, end),
            attackers::files(&self.victims, self.agent.id(), fork(), end),
            attackers::credentials(self.dir.path(), fork(), end),
        );
        sleep(QUIET).await;
        (spells, failed, stops)
    }

    /// Makes the API server fail by turns.
    async fn server(&self, draws: Draws, end: Instant) -> Spells {
        let (api, mut spells) = (&self.cluster.api, Spells::default());
        while Instant::now() < end {
            sleep(Duration::from_secs(25 + draws.below(30))).await;
            let time = Duration::from_secs(5 + draws.below(25));
            match draws.below(3) {
                0 => spells.silence(api, time).await,
                _ => spells.rage(api, &draws, 30, time).await,
            }
        }
        spells
    }
}

#[tokio::test]
async fn whatever_its_machine_does_it_reports_every_kill_and_does_not_grow() {
    let program = setting("NODEPULSE_HOSTILE_PROGRAM");
    let program = PathBuf::from(program.expect("run `cargo xtask test hostile`"));
    let draws = Draws::new(number("NODEPULSE_HOSTILE_SEED", 20));
    let time = Duration::from_secs(number("NODEPULSE_HOSTILE_SECONDS", 60));
    let target = Target::start(&program).await;
    let fresh = target.footprint().await;
    // After each attack once, buffers and helper threads exist.
    let (mut spells, mut failed, mut stops) = target.attacked(&draws, FIRST).await;
    let before = target.footprint().await;
    let then = target.attacked(&draws, time).await;
    spells.extend(then.0);
    failed.extend(then.1);
    stops.extend(then.2);
    let after = target.footprint().await;
    println!("fresh  {fresh:?}\nbefore {before:?}\nafter  {after:?}");
    // A stopped process answers nothing.
    failed.retain(|(began, _)| !stops.covers(*began, Duration::from_secs(1)));
    assert_eq!(failed, [], "probes of /livez");
    spells.extend(stops);
    let Target { cluster, agent, .. } = target;
    let (api, now) = (&cluster.api, cluster.api.now());
    let renewals = View::of(api, "worker-1").renewals();
    assert_eq!(spells.late(&renewals, now), [""; 0]);
    let is_event = |request: &Recorded| request.path.contains("/events");
    let (events, others): (Vec<_>, Vec<_>) = api.requests().into_iter().partition(is_event);
    let most = CEILINGS.map(|(window, ..)| (busiest(&events, window), busiest(&others, window)));
    println!("at most, Events and other requests, in a second and in a minute: {most:?}");
    for ((window, events, others), most) in CEILINGS.into_iter().zip(most) {
        assert!(most.0 <= events, "{} Events within {window:?}", most.0);
        assert!(
            most.1 <= others,
            "{} other requests within {window:?}",
            most.1
        );
    }
    let log = stop(agent).await;
    assert_eq!(cluster.reported(), cluster.counted(), "{}", log.join("\n"));
    assert!(after.threads <= before.threads + THREADS);
    assert_eq!(after.descriptors, before.descriptors);
    let grown = |before: u64, after: u64| after.saturating_sub(before) > MEMORY;
    assert!(!grown(before.anonymous_kib, after.anonymous_kib));
    assert!(!grown(before.rss_kib, after.rss_kib));
}
