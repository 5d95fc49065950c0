//! Real kills in made-up pods on this kernel: each is told of the right Pod, container and limit.
//!
//! Always compiled; run with the feature `kernel`, as root.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use nodepulse::api::credentials::Source;
use nodepulse::api::{Client, Place};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::pod::Pod;
use nodepulse_tests::process::Process;
use nodepulse_tests::provoke::cgroup::CgroupTree;
use nodepulse_tests::provoke::{Crowd, Provoke};
use nodepulse_tests::view::{View, gaps};
use serde_json::{Value, json};
use tokio::time::Instant;

const MIB: u64 = 1 << 20;
/// Enough for the program itself, and soon full.
const LIMIT: u64 = 8 * MIB;
/// Who provokes kills at the same time.
const WORKERS: usize = 4;

/// Which limit is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Container,
    Pod,
}

/// Pods on this kernel and at an API server, and an agent that looks after both.
struct Cluster {
    api: ApiServer,
    /// The first process of each container: it lives on while others are killed. It goes before its
    /// cgroup does.
    _mains: Vec<Crowd>,
    tree: CgroupTree,
    pods: Vec<(Pod, At)>,
    provoke: Provoke,
    dir: tempfile::TempDir,
}

fn uid(pod: usize) -> String {
    format!("{pod:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")
}

/// The cgroup of a container, below the pods' root.
fn cgroup(pod: usize, container: usize) -> String {
    let id = format!("{pod:032x}{container:032x}");
    format!("kubepods/burstable/pod{}/{id}", uid(pod))
}

impl Cluster {
    /// With so many pods of two containers: `web`, where kills are provoked, and `proxy`.
    async fn with(name: &str, pods: usize) -> (Self, Process) {
        let api = ApiServer::start().await;
        let provoke = Provoke::new(env!("CARGO_BIN_EXE_provoke"));
        let mut tree =
            CgroupTree::new(&format!("nodepulse-{name}-{}", std::process::id())).unwrap();
        let (mut made, mut mains) = (Vec::new(), Vec::new());
        for n in 0..pods {
            let at = if n % 2 == 0 { At::Container } else { At::Pod };
            for container in 0..2 {
                tree.add(cgroup(n, container)).unwrap();
            }
            let limited = match at {
                At::Container => cgroup(n, 0),
                At::Pod => format!("kubepods/burstable/pod{}", uid(n)),
            };
            tree.limit(limited, LIMIT).unwrap();
            mains.push(provoke.stay_in(&tree.dir(cgroup(n, 0))).unwrap());
            let id = |container| cgroup(n, container).rsplit('/').next().unwrap().to_owned();
            let pod = Pod::new("shop", &format!("cart-{n}"), &uid(n))
                .container("web", &id(0))
                .container("proxy", &id(1));
            pod.put(&api);
            made.push((pod, at));
        }
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
        let agent = Process::start([
            "run",
            "--mode",
            "node",
            "--node-name",
            "worker-1",
            "--node-ip",
            "0.0.0.0",
            "--allow-ready-without-runtime",
            "--kubeconfig",
            &kubeconfig.display().to_string(),
            "--cgroup-root",
            &tree.path(""),
        ]);
        View::of(&api, "worker-1").settled(SOON).await;
        let cluster = Self {
            api,
            tree,
            pods: made,
            provoke,
            _mains: mains,
            dir,
        };
        (cluster, agent)
    }

    /// So many kills, each in the next pod. Gives pid of the victim and number of the pod, and how
    /// long it took.
    async fn kill(&self, kills: usize) -> (Vec<(u32, usize)>, Duration) {
        let count = self.pods.len();
        let jobs: Vec<(usize, PathBuf)> = (0..kills)
            .map(|n| (n % count, self.tree.dir(cgroup(n % count, 0))))
            .rev()
            .collect();
        let provoke = self.provoke.clone();
        let began = Instant::now();
        let done = tokio::task::spawn_blocking(move || {
            let (jobs, done) = (Mutex::new(jobs), Mutex::new(Vec::new()));
            std::thread::scope(|scope| {
                for _ in 0..WORKERS {
                    scope.spawn(|| {
                        loop {
                            let Some((pod, dir)) = jobs.lock().unwrap().pop() else {
                                return;
                            };
                            let (pid, status) = provoke.eat_in(&dir, 64 * MIB).unwrap();
                            assert!(!status.success(), "it was killed");
                            done.lock().unwrap().push((pid, pod));
                        }
                    });
                }
            });
            done.into_inner().unwrap()
        });
        (done.await.unwrap(), began.elapsed())
    }

    /// Kills that Events tell of, by pod.
    fn accounted(&self) -> BTreeMap<usize, u64> {
        let pods = self.pods.iter().enumerate();
        pods.map(|(n, (pod, _))| {
            let events = pod.events(&self.api);
            (n, events.iter().map(kills_in).sum())
        })
        .collect()
    }

    /// A client like the agent's.
    async fn client(&self) -> Client {
        let kubeconfig = self.api.node_kubeconfig(self.dir.path(), "worker-1");
        let client = Client::from_credentials(Source::Kubeconfig(&kubeconfig), SOON);
        client.await.unwrap()
    }
}

/// What a create of an Event alone takes.
async fn bare_create(client: &Client, n: usize) -> Duration {
    let name = format!("bare.{n}");
    let place = Place::new_event("shop", &name);
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": name, "namespace": "shop" },
        "involvedObject": { "kind": "Pod", "namespace": "shop", "name": "bare" },
        "reason": "Bare", "message": "x".repeat(250), "type": "Normal",
    });
    let began = Instant::now();
    client.create(&place, &event).await.unwrap();
    began.elapsed()
}

/// Asks the agent to stop; what was held back by the limit is told then. Gives its log.
async fn stop(agent: Process) -> Vec<String> {
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr.join("\n"));
    ended.stderr
}

/// The same once the agent has read of all these kills.
async fn stop_after(agent: Process, kills: &[(u32, usize)]) {
    for (pid, _) in kills {
        agent.says(&format!("victim={pid} "), SOON).await;
    }
    stop(agent).await;
}

/// Of each kill, in the order in which they were told: from the kernel until it was read, until the
/// request went out, and until the answer came.
fn ways(log: &[String]) -> Vec<[Duration; 3]> {
    let at = |line: &str, key: &str| -> Option<u64> {
        let (_, rest) = line.split_once(key)?;
        rest.split(' ').next()?.parse().ok()
    };
    let told = |line: &&String| line.contains("event reported") && line.contains("OOMKilled");
    log.iter()
        .filter(told)
        .filter_map(|line| {
            let keys = ["kernel_ns=", "read_ns=", "sent_ns=", "acked_ns="];
            let [kernel, read, sent, acked] = keys.map(|key| at(line, key));
            let part = |from: Option<u64>, to: Option<u64>| {
                Some(Duration::from_nanos(to?.saturating_sub(from?)))
            };
            Some([part(kernel, read)?, part(read, sent)?, part(sent, acked)?])
        })
        .collect()
}

/// Kills that one Event stands for: it counts alike ones, and a group is one of them.
fn kills_in(event: &Value) -> u64 {
    let message = event["message"].as_str().unwrap_or_default();
    let group = message.split_once("Killed ").and_then(|(_, rest)| {
        let (count, _) = rest.split_once(" processes together")?;
        count.parse::<u64>().ok()
    });
    let count = event["count"].as_u64().unwrap_or_default();
    group.map_or(count, |group| count - 1 + group)
}

fn median(durations: impl Iterator<Item = Duration>) -> Duration {
    let mut sorted: Vec<_> = durations.collect();
    sorted.sort();
    sorted[sorted.len() / 2]
}

#[cfg_attr(feature = "kernel", tokio::test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
async fn a_hundred_kills_in_twenty_pods_are_told_of_the_right_container_and_limit() {
    let (cluster, agent) = Cluster::with("pods", 20).await;
    // One after the other, as in life: the way of each is measured.
    let client = cluster.client().await;
    let (mut kills, mut bare) = (Vec::new(), Vec::new());
    for n in 0..100 {
        let pod = n % 20;
        let (dir, provoke) = (cluster.tree.dir(cgroup(pod, 0)), cluster.provoke.clone());
        let killed = tokio::task::spawn_blocking(move || provoke.eat_in(&dir, 64 * MIB));
        let (pid, _) = killed.await.unwrap().unwrap();
        kills.push((pid, pod));
        let (pod, _) = &cluster.pods[pod];
        let naming = format!("Killed process {pid} (");
        let told = |api: &ApiServer| {
            let events = pod.events(api).into_iter();
            events
                .map(|event| event["message"].to_string())
                .find(|m| m.contains(&naming))
        };
        cluster.api.wait_for(SOON, &naming, told).await;
        bare.push(bare_create(&client, n).await);
    }
    for (pid, pod) in kills {
        let (pod, at) = &cluster.pods[pod];
        let naming = format!("Killed process {pid} (provoke) of uid 0 in container web: ");
        let limit = match at {
            At::Container => "the container was at the memory limit (",
            At::Pod => "the pod was at the memory limit (",
        };
        let events = pod.events(&cluster.api);
        let event = events
            .iter()
            .find(|event| {
                event["message"]
                    .as_str()
                    .is_some_and(|m| m.starts_with(&naming))
            })
            .unwrap_or_else(|| panic!("{naming}: {events:#?}"));
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(limit), "{limit}: {message}");
        assert!(
            message.contains(" of 8.0Mi); the process had anon "),
            "{message}"
        );
        assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{web}");
    }
    let ways = ways(&stop(agent).await);
    assert_eq!(ways.len(), 100);
    // The first kill in a pod is the one that asks for the name of its container.
    let (asking, knowing) = ways.split_at(20);
    for (what, ways) in [
        ("with the question for the name", asking),
        ("name known", knowing),
    ] {
        let parts = [0, 1, 2].map(|part| median(ways.iter().map(|way| way[part])));
        let whole = median(ways.iter().map(|way| way.iter().sum()));
        println!("{what}: {whole:?} (read, sent, acknowledged after {parts:?})");
    }
    println!("bare create: {:?}", median(bare.into_iter()));
}

#[cfg_attr(feature = "kernel", tokio::test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
async fn every_kill_of_a_burst_is_accounted_for() {
    let (cluster, agent) = Cluster::with("burst", 3).await;
    let (kills, took) = cluster.kill(60).await;
    println!("60 kills in {took:?}");
    assert_eq!(kills.len(), 60);
    stop_after(agent, &kills).await;
    let expected = (0..3).map(|pod| (pod, 20)).collect();
    assert_eq!(cluster.accounted(), expected);
}

#[cfg_attr(feature = "kernel", tokio::test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
async fn a_thousand_kills_are_accounted_for_and_the_lease_is_never_late() {
    let (cluster, agent) = Cluster::with("storm", 20).await;
    let (kills, took) = cluster.kill(1000).await;
    println!("1000 kills in {took:?}");
    assert_eq!(kills.len(), 1000);
    stop_after(agent, &kills).await;
    let expected = (0..20).map(|pod| (pod, 50)).collect();
    assert_eq!(cluster.accounted(), expected);
    let renewals = View::of(&cluster.api, "worker-1").renewals();
    for gap in gaps(&renewals) {
        // Due every ten seconds; it holds for forty. The kills starve the machine for seconds.
        assert!(gap < Duration::from_secs(20), "{gap:?}");
    }
}
