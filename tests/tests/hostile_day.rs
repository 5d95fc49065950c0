//! One agent on a day on which everything around it misbehaves at random, for ten hours of simulated
//! time. `hostile_machine` does the same for minutes of real time, with real files and kills.
//!
//! What must be true in the end: every kill that the kernel counted was reported, the Lease was
//! never late while the server answered, requests stayed under a ceiling, and nothing grew.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse::record::{ScopeSource, Side};
use nodepulse_tests::days::{Draws, Stage};
use nodepulse_tests::host_root::PODS;
use nodepulse_tests::hostile::{Spells, busiest};
use nodepulse_tests::node::{Kill, Limit, in_memory, pass};
use nodepulse_tests::pod::Pod;
use nodepulse_tests::pod_kills::kills_in;
use nodepulse_tests::view::View;
use serde_json::json;

const DAY: Duration = Duration::from_hours(10);
/// Long enough for the end of transition periods, suppressed Events, and their retries.
const AFTERWARDS: Duration = Duration::from_mins(40);
/// The most requests in any second, and on average in any minute.
const CEILING: [(Duration, usize); 2] = [
    (Duration::from_secs(1), 40),
    (Duration::from_mins(1), 60 * 6),
];

/// `NODEPULSE_HOSTILE_SEED`: another seed is another day.
fn seed() -> u64 {
    let seed = std::env::var_os("NODEPULSE_HOSTILE_SEED").and_then(|seed| seed.into_string().ok());
    let seed = seed.map_or(20, |seed| seed.parse().expect("a number"));
    println!("NODEPULSE_HOSTILE_SEED={seed}");
    seed
}

/// Pods with one container each, and how often the kernel has killed in them.
struct Pods {
    pods: Vec<(Pod, String)>,
    killed: BTreeMap<usize, u64>,
}

impl Pods {
    fn new(stage: &Stage, count: usize) -> Self {
        let pods = (0..count).map(|n| {
            let uid = format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11");
            let id = format!("{n:064x}");
            let cgroup = format!("{PODS}/burstable/pod{uid}/{id}");
            stage.host.container(&cgroup);
            let pod = Pod::new("shop", &format!("cart-{n}"), &uid).container("web", &id);
            pod.put(&stage.api);
            (pod, cgroup)
        });
        Self {
            pods: pods.collect(),
            killed: BTreeMap::new(),
        }
    }

    /// The kernel kills in the pod, and counts it in every cgroup above.
    async fn kill(&mut self, stage: &Stage, n: usize, pid: u32) {
        let (_, cgroup) = &self.pods[n];
        let killed = self.killed.entry(n).or_default();
        *killed += 1;
        let pod = cgroup.rsplit_once('/').unwrap().0;
        stage.host.oom(cgroup, *killed, *killed);
        stage.host.oom(pod, 0, *killed);
        stage.host.pods_oom(0, self.killed.values().sum());
        let kill = Kill {
            victim: ("stress", pid),
            cgroup,
            limit: Limit::Of(cgroup),
            source: ScopeSource::Exact,
        };
        stage.node.kernel().oom_kill(kill).await;
    }

    /// Kills that Events report, by pod.
    fn reported(&self, stage: &Stage) -> BTreeMap<usize, u64> {
        let pods = self.pods.iter().enumerate();
        let counts = pods.map(|(n, (pod, _))| {
            let events = pod.events(&stage.api);
            (n, events.iter().map(kills_in).sum())
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Another client writes to the Node, or deletes it and creates it again.
async fn interfere(stage: &Stage, spells: &mut Spells, draws: &Draws) {
    let Some(mut node) = stage.view().node() else {
        return;
    };
    match draws.below(5) {
        0 => node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9"),
        1 => node["status"]["conditions"][0]["status"] = json!("Unknown"),
        2 => node["status"]["addresses"] = json!([]),
        3 => node["spec"]["unschedulable"] = json!(draws.below(2) == 0),
        _ => {
            // A Lease without a Node to own it is not created, as a kubelet does not.
            let deleted = async {
                stage.api.delete_object(&stage.view().path());
                stage.api.delete_object(&stage.view().lease_path());
                pass(Duration::from_secs(draws.below(60))).await;
                let node =
                    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}});
                stage.api.put_object(node);
            };
            return spells.during(&stage.api, deleted).await;
        }
    }
    stage.api.put_object(node);
}

/// A file of the node that cannot be read, or not as what it should be, for a while.
async fn garbage(stage: &Stage, draws: &Draws) {
    const FILES: [&str; 4] = [
        "proc/meminfo",
        "proc/loadavg",
        "sys/fs/cgroup/memory.stat",
        "sys/fs/cgroup/kubepods/memory.events",
    ];
    let file = FILES[usize::try_from(draws.below(4)).unwrap()];
    let before = std::fs::read(stage.host.path().join(file)).unwrap();
    match draws.below(3) {
        0 => stage.host.remove(file),
        1 => stage.host.write(file, vec![b'9'; 1 << 20]),
        _ => stage.host.write(file, b"\xff\0 -1 18446744073709551616\n"),
    };
    pass(Duration::from_secs(draws.below(120))).await;
    stage.host.write(file, before);
}

/// The configuration has this threshold in addition to those for the disk of the test machine.
async fn reload(stage: &Stage, threshold: &str) {
    let all = format!("nodefs.available<0%,nodefs.inodesFree<0%{threshold}");
    stage.node.reload(|now| now.eviction_hard = Some(all)).await;
}

/// What happens next, until it is over.
async fn act(stage: &Stage, pods: &mut Pods, spells: &mut Spells, draws: &Draws) {
    match draws.below(10) {
        0 => {
            let time = Duration::from_secs(20 + draws.below(100));
            spells.rage(&stage.api, draws, 30, time).await;
        }
        1 => {
            let time = Duration::from_secs(5 + draws.below(60));
            spells.silence(&stage.api, time).await;
        }
        2..5 => {
            let n = usize::try_from(draws.below(pods.pods.len() as u64)).unwrap();
            for pid in 0..=u32::try_from(draws.below(60)).unwrap() {
                pods.kill(stage, n, 1000 + pid).await;
                pass(Duration::from_millis(draws.below(30))).await;
            }
        }
        5 => {
            stage.host.tasks(9_600);
            stage.node.kernel().pid_crossing(Side::Over, 9_600).await;
            pass(Duration::from_secs(draws.below(30))).await;
            stage.host.tasks(200);
        }
        6 => interfere(stage, spells, draws).await,
        7 => garbage(stage, draws).await,
        8 => {
            let thresholds = [",pid.available<lots", ",pid.available<10%", "", ",\0"];
            reload(stage, thresholds[usize::try_from(draws.below(4)).unwrap()]).await;
        }
        _ => {
            let mut silent = Vec::new();
            for _ in 0..draws.below(60) {
                silent.push(stage.node.visit().await);
            }
            pass(Duration::from_secs(1)).await;
            assert_eq!(stage.node.get("/livez").await.code, Some(200));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_ten_hours_of_faults_every_kill_was_reported_and_all_is_as_before() {
    let stage = Stage::at(&in_memory(), |node| node.seed(7));
    let mut pods = Pods::new(&stage, 12);
    let view = View::of(&stage.api, "worker-1");
    view.settled(Duration::from_mins(1)).await;
    let (draws, mut spells) = (Draws::new(seed()), Spells::default());
    while stage.api.now() < DAY {
        pass(Duration::from_secs(5 + draws.below(60))).await;
        act(&stage, &mut pods, &mut spells, &draws).await;
    }
    reload(&stage, "").await;
    pass(AFTERWARDS).await;

    assert_eq!(pods.reported(&stage), pods.killed);
    assert_eq!(spells.late(&view.renewals(), stage.api.now()), [""; 0]);
    let requests = stage.api.requests();
    for (window, ceiling) in CEILING {
        let most = busiest(&requests, window);
        assert!(most <= ceiling, "{most} requests within {window:?}");
    }
    for (type_, status) in [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("PIDPressure", "False"),
        ("DiskPressure", "False"),
        ("DiskIOPressure", "False"),
    ] {
        assert_eq!(view.status(type_), status, "{type_}");
    }
    println!("{} requests, {:?}", requests.len(), pods.killed);
    stage.node.stop().await.expect("it ends well");
}
