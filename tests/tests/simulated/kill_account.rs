//! Events report every kill that the kernel counts in the pods, whatever happens to the agent,
//! to its records and to the API server.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::Exact;
use nodepulse_linux::kernel::counters::ProbeCounters;

use agent_common::{DropReason, OomKill};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Kill, Limit, Node, Running, in_memory, pass};
use nodepulse_tests::pod::Pod;
use nodepulse_tests::pod_kills::kills_in;
use nodepulse_tests::view::{EVENTS, View};
use serde_json::Value;

const UIDS: [&str; 3] = [
    "00000000-0000-4000-8000-00000000000a",
    "00000000-0000-4000-8000-00000000000b",
    "00000000-0000-4000-8000-00000000000c",
];

/// Part of the id of each container.
const ID: &str = "3b";

/// A host whose kernel counts, an API server, and pods that both know.
struct World {
    api: Arc<ApiServer>,
    host: Arc<MadeUpHost>,
    counted: [u32; 3],
}

impl World {
    fn new() -> Self {
        let world = Self {
            api: in_memory(),
            host: Arc::new(MadeUpHost::calm()),
            counted: [0; 3],
        };
        for n in 0..UIDS.len() {
            pod(n).put(&world.api);
            world.host.container(&cgroup(n)).container(&container(n));
        }
        world
    }

    async fn start(&self) -> Running {
        self.start_with("").await
    }

    async fn start_with(&self, settings: &str) -> Running {
        let file = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n{settings}\n"
        );
        let node = Node::named("worker-1").host(Arc::clone(&self.host));
        let node = node.file(&file).start(&self.api);
        View::of(&self.api, "worker-1").settled(SOON).await;
        pass(Duration::from_secs(5)).await;
        node
    }

    /// The number of kills that the kernel counts in a pod.
    fn count(&mut self, pod: usize, kills: u32) {
        self.counted[pod] += kills;
        let counted = u64::from(self.counted[pod]);
        self.host.oom(&cgroup(pod), counted, counted);
        let all: u32 = self.counted.iter().sum();
        self.host.pods_oom(0, all.into());
    }

    /// One kill, counted and with a record.
    async fn kill(&mut self, node: &Running, pod: usize) {
        self.count(pod, 1);
        let kill = Kill {
            victim: ("stress", self.counted[pod]),
            cgroup: &cgroup(pod),
            limit: Limit::Of(&cgroup(pod)),
            source: Exact,
        };
        node.kernel().oom_kill(kill).await;
        pass(Duration::from_millis(20)).await;
    }

    /// A container is killed as a whole. The kernel counts and records one process after the other.
    async fn kill_group(&mut self, node: &Running, pod: usize, processes: u32) {
        let container = container(pod);
        let dir = self.host.path().join("sys/fs/cgroup").join(&container);
        let id = dir.metadata().unwrap().ino();
        for pid in 1..=processes {
            self.count(pod, 1);
            let kill = Kill {
                victim: ("stress", pid),
                cgroup: &container,
                limit: Limit::Of(&container),
                source: Exact,
            };
            let group = |record: &mut OomKill| (record.trigger_tgid, record.cg_group) = (1, id);
            node.kernel().oom_kill_with(kill, group).await;
            pass(Duration::from_millis(20)).await;
        }
    }

    /// Kills that Events report, and kills that the kernel counted, by pod; Events on the Node are
    /// those of none.
    fn account(&self) -> ([u64; 3], [u64; 3], u64) {
        let of = |events: Vec<Value>| events.iter().map(kills_in).sum();
        let reported = [0, 1, 2].map(|n| of(pod(n).events(&self.api)));
        let mut of_node = self.api.list(EVENTS);
        of_node.retain(|event| event["reason"].to_string().contains("OOM"));
        (reported, self.counted.map(u64::from), of(of_node))
    }

    fn assert_all_reported(&self, when: &str) {
        let (reported, counted, of_node) = self.account();
        let messages = View::of(&self.api, "worker-1").counted_kills();
        assert_eq!((reported, of_node), (counted, 0), "{when}: {messages:?}");
    }
}

fn pod(n: usize) -> Pod {
    Pod::new("shop", &format!("cart-{n}"), UIDS[n]).container("web", &ID.repeat(32))
}

fn cgroup(pod: usize) -> String {
    format!("kubepods/burstable/pod{}", UIDS[pod])
}

/// The cgroup of its container.
fn container(pod: usize) -> String {
    format!("{}/{}", cgroup(pod), ID.repeat(32))
}

#[tokio::test(start_paused = true)]
async fn kills_whose_events_were_not_acknowledged_are_reported_by_the_next_start() {
    let mut world = World::new();
    let node = world.start().await;
    world.kill(&node, 0).await;
    pass(Duration::from_secs(30)).await;
    node.lose();
    for n in 0..10 {
        world.kill(&node, n % 2).await;
    }
    // Long enough for anything that is written down when a kill is seen.
    pass(Duration::from_mins(2)).await;
    node.kill();
    world.count(2, 3);
    let node = world.start().await;
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("the server was away");
    // And what was acknowledged by number is not reported again.
    node.kill();
    let node = world.start().await;
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("started once more");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_storm_with_ten_sigkills_is_reported_once() {
    const KILLS: u32 = 5_000;
    const SIGKILLS: u32 = 10;
    let mut world = World::new();
    let mut node = world.start().await;
    for n in 1..=KILLS {
        let pod = usize::try_from(n % 3).unwrap();
        world.count(pod, 1);
        let kill = Kill {
            victim: ("stress", n),
            cgroup: &cgroup(pod),
            limit: Limit::Of(&cgroup(pod)),
            source: Exact,
        };
        node.kernel().oom_kill(kill).await;
        // 4 s from one SIGKILL to the next.
        pass(Duration::from_millis(8)).await;
        if n % (KILLS / SIGKILLS) == 0 {
            node.kill();
            node = Node::named("worker-1")
                .host(Arc::clone(&world.host))
                .start(&world.api);
        }
    }
    pass(Duration::from_mins(30)).await;
    let (reported, counted, of_node) = world.account();
    assert_eq!(counted.iter().sum::<u64>(), u64::from(KILLS));
    let all = reported.iter().sum::<u64>() + of_node;
    assert!((5_000..=5_200).contains(&all), "{reported:?}, {of_node}");
    for (reported, counted) in reported.iter().zip(counted) {
        assert!(counted <= reported + of_node, "{reported} of {counted}");
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_suppressed_by_a_rate_limit_are_reported_by_the_next_start() {
    let mut world = World::new();
    let node = world.start().await;
    for _ in 0..60 {
        world.kill(&node, 0).await;
    }
    pass(Duration::from_mins(1)).await;
    let (reported, ..) = world.account();
    assert!(reported[0] < 60, "the limit keeps some back: {reported:?}");
    node.kill();
    let node = world.start().await;
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("killed while a rate limit was in effect");

    for _ in 0..60 {
        world.kill(&node, 1).await;
    }
    node.stop().await.unwrap();
    world.assert_all_reported("stopped while a rate limit was in effect");
    let node = world.start().await;
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("and started again");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_without_a_record_are_reported_by_number() {
    let mut world = World::new();
    let node = world.start().await;
    // A storm that exceeds the capacity of the ring.
    for _ in 0..5 {
        world.kill(&node, 0).await;
    }
    world.count(0, 444);
    world.count(1, 7);
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("with others that had records");

    // Only the counter of the ring reports these.
    world.count(2, 3);
    node.counted(ProbeCounters {
        losses: vec![(DropReason::CritFull, 3)],
        ..ProbeCounters::default()
    });
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("no record at all");

    // The counters are read before the record is.
    world.kill(&node, 0).await;
    world.count(1, 1);
    pass(Duration::from_secs(15)).await;
    let late = Kill {
        victim: ("stress", 77),
        cgroup: &cgroup(1),
        limit: Limit::Of(&cgroup(1)),
        source: Exact,
    };
    let counted_at = u64::try_from(world.api.now().as_nanos()).unwrap();
    pass(Duration::from_secs(30)).await;
    let hour = 3_600_000_000_000;
    let at = hour + counted_at - 14_000_000_000;
    node.kernel()
        .oom_kill_with(late, |record| record.header.time = at)
        .await;
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("a record that came after its kill was reported by number");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_whose_events_are_dropped_or_fail_are_reported_later() {
    let mut world = World::new();
    let node = world.start_with("events: {queue: 1}").await;
    node.lose();
    for n in 0..12 {
        world.kill(&node, n % 3).await;
    }
    pass(Duration::from_mins(1)).await;
    node.reach();
    pass(Duration::from_mins(20)).await;
    world.assert_all_reported("the queue was full");

    let failing = Fault::when(|r| r.path.contains("/events"), Effect::Status(500));
    world.api.faults().push(failing.always());
    world.kill(&node, 1).await;
    pass(Duration::from_mins(10)).await;
    world.api.faults().clear();
    pass(Duration::from_mins(20)).await;
    world.assert_all_reported("the server failed for longer than one Event is tried");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_whose_events_are_rejected_are_not_reported_forever() {
    let mut world = World::new();
    let node = world.start().await;
    let refused = Fault::when(|r| r.path.contains("/events"), Effect::Status(403));
    world.api.faults().push(refused.always());
    world.kill(&node, 0).await;
    let tries = || {
        let requests = world.api.requests().into_iter();
        requests.filter(|r| r.path.contains("/events")).count()
    };
    pass(Duration::from_mins(1)).await;
    let first = tries();
    pass(Duration::from_mins(30)).await;
    assert_eq!(tries(), first, "no further request");
    world.api.faults().clear();
    node.stop().await.unwrap();
    let node = world.start().await;
    pass(Duration::from_mins(1)).await;
    let (reported, ..) = world.account();
    assert_eq!(reported, [0; 3], "what the server refused is final");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_kill_is_one_event_with_the_number_of_processes() {
    let mut world = World::new();
    let messages = |world: &World, pod_number: usize| -> Vec<String> {
        let events = pod(pod_number).events(&world.api).into_iter();
        let text = |event: Value| event["message"].as_str().unwrap().to_owned();
        events.map(text).collect()
    };
    let node = world.start().await;
    let killed = world.api.now();
    world.kill_group(&node, 0, 1).await;
    let first = messages(&world, 0);
    assert_eq!(first.len(), 1, "at once: {killed:?}");
    pass(Duration::from_secs(5)).await;

    world.kill_group(&node, 1, 30).await;
    pass(Duration::from_secs(5)).await;
    world.assert_all_reported("the API server answers");
    let all = messages(&world, 1);
    assert!(
        all.len() == 1 && all[0].contains("(at least 30 processes together)"),
        "{all:?}"
    );
    let writes = world
        .api
        .requests_where(|of| of.path.contains("/namespaces/shop/events"));
    assert!(writes.len() <= 6, "{}", writes.len());

    node.lose();
    world.kill_group(&node, 2, 4).await;
    pass(Duration::from_mins(2)).await;
    node.reach();
    pass(Duration::from_mins(2)).await;
    world.assert_all_reported("after an outage");
    let all = messages(&world, 2);
    assert!(
        all.len() == 1 && all[0].contains("(at least 4 processes together)"),
        "{all:?}"
    );

    // The agent ends before it has reported the second process. The kernel has counted the first
    // one twice.
    world.kill_group(&node, 0, 2).await;
    let counted = world.counted[0] + 1;
    world.host.oom(&cgroup(0), counted.into(), counted.into());
    let all: u32 = world.counted.iter().sum();
    world.host.pods_oom(0, (all + 1).into());
    // The first is saved, and the second is not due.
    pass(Duration::from_millis(150)).await;
    node.kill();
    let node = world.start().await;
    pass(Duration::from_mins(1)).await;
    world.assert_all_reported("killed in between");
    node.stop().await.unwrap();
}
