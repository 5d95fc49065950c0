//! Whatever ends the agent, it stops in order: the last Events are sent, acknowledged kills are
//! written down, and the service manager is notified.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::Exact;

use nodepulse::AppError;
use nodepulse::testing::Notify;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::made_up::lease;
use nodepulse_tests::node::{Kill, Limit, Node, Running, in_memory, pass};
use nodepulse_tests::pod::Pod;
use nodepulse_tests::pod_kills::kills_in;
use nodepulse_tests::view::View;
use tempfile::{TempDir, tempdir};

const UID: &str = "00000000-0000-4000-8000-00000000000a";
const CGROUP: &str = "kubepods/burstable/pod00000000-0000-4000-8000-00000000000a";
const KILLS: u32 = 3;

/// A node with a pod, and a service manager that starts the agent.
struct Stage {
    api: Arc<ApiServer>,
    host: Arc<MadeUpHost>,
    manager: UnixDatagram,
    dir: TempDir,
}

impl Stage {
    fn new() -> Self {
        let dir = tempdir().unwrap();
        let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        manager.set_nonblocking(true).unwrap();
        let stage = Self {
            api: in_memory(),
            host: Arc::new(MadeUpHost::calm()),
            manager,
            dir,
        };
        pod().put(&stage.api);
        stage.host.container(CGROUP);
        stage
    }

    fn node(&self) -> Node {
        let address = self.dir.path().join("notify");
        let notify = Notify::connect(address.to_str().unwrap(), None).unwrap();
        let host = Arc::clone(&self.host);
        Node::named("worker-1").host(host).notify(notify)
    }

    /// An agent that has registered its Node and knows its pods.
    async fn settled(&self, node: Node) -> Running {
        let node = node.start(&self.api);
        View::of(&self.api, "worker-1").settled(SOON).await;
        pass(Duration::from_secs(5)).await;
        node
    }

    /// Processes of the pod are killed. The records are in the ring; the agent has not read them.
    async fn kill(&self, node: &Running) {
        self.host.oom(CGROUP, KILLS.into(), KILLS.into());
        self.host.pods_oom(0, KILLS.into());
        for pid in 1..=KILLS {
            let kill = Kill {
                victim: ("java", pid),
                cgroup: CGROUP,
                limit: Limit::Of(CGROUP),
                source: Exact,
            };
            node.kernel().oom_kill(kill).await;
        }
    }

    /// Nothing is missing after an end, nor is anything reported again by the next start.
    async fn assert_in_order(&self, way: &str) {
        assert_eq!(self.notified().last().unwrap(), "STOPPING=1", "{way}");
        assert_eq!(self.reported(), u64::from(KILLS), "{way}: the last Events");
        let node = Node::named("worker-1").host(Arc::clone(&self.host));
        let node = self.settled(node).await;
        pass(Duration::from_mins(1)).await;
        node.stop().await.unwrap();
        let reported = self.reported();
        assert_eq!(reported, u64::from(KILLS), "{way}: written down");
    }

    fn reported(&self) -> u64 {
        pod().events(&self.api).iter().map(kills_in).sum()
    }

    fn notified(&self) -> Vec<String> {
        let mut buf = [0; 256];
        let mut all = Vec::new();
        while let Ok(len) = self.manager.recv(&mut buf) {
            all.push(String::from_utf8_lossy(&buf[..len]).into_owned());
        }
        all
    }
}

fn pod() -> Pod {
    Pod::new("shop", "cart", UID)
}

#[tokio::test(start_paused = true)]
async fn the_agent_stops_in_order_if_a_ring_ends() {
    let stage = Stage::new();
    let mut node = stage.settled(stage.node()).await;
    stage.kill(&node).await;
    node.end_ring();
    let ended = node.ended().await;
    assert!(matches!(ended, Err(AppError::EndedEarly(_))), "{ended:?}");
    stage.assert_in_order("ring").await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_stops_in_order_if_its_alarm_fails() {
    let stage = Stage::new();
    let node = stage.node().alarms_fail_after(Duration::from_secs(6));
    let node = stage.settled(node).await;
    pass(Duration::from_millis(500)).await;
    stage.kill(&node).await;
    let ended = node.ended().await;
    assert!(matches!(ended, Err(AppError::Alarm(_))), "{ended:?}");
    stage.assert_in_order("alarm").await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_stops_in_order_if_a_task_panics() {
    let stage = Stage::new();
    let node = stage.settled(stage.node()).await;
    // An Event was tried at 2.25 s at the latest, and is tried again a second later. Before that,
    // the watches open a connection: the second time, 2.4 s after the first end.
    node.lose();
    stage.kill(&node).await;
    pass(Duration::from_millis(2300)).await;
    node.panic_at_next_connection();
    node.reach();
    let ended = node.ended().await;
    assert!(matches!(ended, Err(AppError::EndedEarly(_))), "{ended:?}");
    stage.assert_in_order("task").await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_stops_in_order_if_another_process_renews_the_lease() {
    let stage = Stage::new();
    let lease = lease("kubelet", "2026-01-01T00:00:00.000000Z");
    stage.api.put_object(lease);
    let node = stage.node().start(&stage.api);
    let ended = node.ended().await;
    assert!(matches!(ended, Err(AppError::OtherHolder(_))), "{ended:?}");
    assert_eq!(stage.notified(), ["STOPPING=1"]);
}
