//! OOM kills on the Node are recorded by node-problem-detector, or by this agent.

use std::time::{Duration, UNIX_EPOCH};

use nodepulse_kube::convert;

use nodepulse_tests::node::{Limit, pass};
use serde_json::json;

use super::Sim;

/// node-problem-detector's period.
const PERIOD: Duration = Duration::from_mins(5);

impl Sim {
    /// node-problem-detector's kernel monitor renews its condition.
    fn monitor(&self) {
        let mut node = self.view().node().unwrap();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.retain(|condition| condition["type"] != "KernelDeadlock");
        let now = convert::time(UNIX_EPOCH + self.api.wall());
        conditions.push(json!({
            "type": "KernelDeadlock",
            "status": "False",
            "reason": "KernelHasNoDeadlock",
            "lastHeartbeatTime": now,
            "lastTransitionTime": "2025-12-01T00:00:00Z",
        }));
        self.api.put_object(node);
    }

    /// Whether a kill of the whole node is recorded on the Node.
    async fn records_kill(&self) -> bool {
        let recorded = || {
            let counts = self.view().event_counts();
            counts.get("OOMKilling").copied().unwrap_or_default()
        };
        let before = recorded();
        self.kill(Limit::Machine).await;
        pass(Duration::from_secs(15)).await;
        recorded() > before
    }
}

#[tokio::test(start_paused = true)]
async fn kills_on_the_node_are_recorded_unless_node_problem_detector_runs() {
    let sim = Sim::start().await;
    assert!(sim.records_kill().await, "there is none");
    for n in 0..4 {
        sim.monitor();
        pass(PERIOD).await;
        assert!(!sim.records_kill().await, "it runs: {n}");
    }
    // It ends; its condition remains.
    pass(PERIOD * 3).await;
    assert!(sim.records_kill().await, "its condition is stale");
    sim.monitor();
    pass(PERIOD).await;
    assert!(!sim.records_kill().await, "it is back");
    for (setting, expected) in [("true", true), ("false", false), ("auto", false)] {
        let set = || Some(setting.to_owned());
        sim.node.reload(|now| now.oom_node_events = set()).await;
        pass(Duration::from_secs(1)).await;
        sim.monitor();
        assert_eq!(sim.records_kill().await, expected, "{setting}");
    }
    let requests = sim.api.requests_where(|request| request.method == "GET");
    let of_nodes = requests
        .iter()
        .filter(|request| request.path.contains("nodes"));
    assert_eq!(of_nodes.count(), 1, "the Node is read once");
}
