//! `cleanup --stale` removes what agents that no longer exist left behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use nodepulse_core::clock::{BootNanos, Now};
use nodepulse_io::clock::Clock;
use nodepulse_kube::stale::{AgentState, StaleOutcome, StaleRule, clean};
use nodepulse_kube::{Client, convert, transport};

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
use nodepulse_tests::node::{in_memory, pass};
use serde_json::{Value, json};

use super::MEMORY_TAINT;

const AFTER: Duration = Duration::from_mins(30);
const OTHER_TAINT: &str = "dedicated";

/// A Node on which agent and kubelet renewed their conditions so long ago.
fn put(api: &ApiServer, name: &str, agent: Option<Duration>, kubelet: Duration) -> Value {
    let condition = |type_: &str, ago: Duration| {
        let renewed = convert::time(UNIX_EPOCH + api.wall() - ago);
        json!({
            "type": type_,
            "status": "True",
            "lastHeartbeatTime": renewed,
            "lastTransitionTime": renewed,
        })
    };
    let mut conditions = vec![
        condition("Ready", kubelet),
        condition("KernelDeadlock", kubelet),
    ];
    let mut taints = vec![json!({ "key": OTHER_TAINT, "value": "db", "effect": "NoSchedule" })];
    if let Some(ago) = agent {
        conditions.push(condition("MemoryLow", ago));
        conditions.push(condition("PIDsLow", ago));
        taints.push(json!({ "key": MEMORY_TAINT, "effect": "NoSchedule" }));
    }
    api.put_object(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": { "a": "b" } },
        "spec": { "podCIDR": "10.0.0.0/24", "taints": taints },
        "status": { "conditions": conditions, "capacity": { "cpu": "2" } },
    }))
}

fn stored(api: &ApiServer, name: &str) -> Value {
    api.object(&format!("/api/v1/nodes/{name}")).unwrap()
}

/// The types of the conditions and the keys of the taints.
fn left(api: &ApiServer, name: &str) -> (usize, usize) {
    let node = stored(api, name);
    let count = |at: &str| node.pointer(at).unwrap().as_array().unwrap().len();
    (count("/status/conditions"), count("/spec/taints"))
}

/// Runs the cleanup, and returns the outcome for each Node.
async fn cleaned(api: &Arc<ApiServer>) -> BTreeMap<String, StaleOutcome> {
    let server = Arc::clone(api);
    let dial = move || std::future::ready(Ok(server.dial()));
    let config = kube::Config::new("http://in-memory".parse().unwrap());
    let client = Client::new(config, transport::in_memory(dial), SOON).unwrap();
    let clock = Clock::runtime(Now {
        boot: BootNanos(0),
        wall: UNIX_EPOCH + api.wall(),
    });
    let rule = StaleRule {
        after: AFTER,
        taints: Vec::new(),
    };
    let mut outcomes = BTreeMap::new();
    let record = |name: &str, outcome| {
        let before = outcomes.insert(name.to_owned(), outcome);
        assert!(before.is_none(), "{name} is reported once");
    };
    clean(&client, &rule, clock, record).await.unwrap();
    outcomes
}

#[tokio::test(start_paused = true)]
async fn only_nodes_whose_agent_is_gone_are_cleaned_in_a_cluster_of_many() {
    let api = in_memory();
    let hour = Duration::from_hours(1);
    let mut unchanged = BTreeMap::new();
    // Several pages.
    for n in 0..130 {
        let name = format!("worker-{n}");
        let (agent, kubelet) = match n % 5 {
            0 => (Some(hour), Duration::ZERO),
            1 => (Some(Duration::from_mins(4)), Duration::ZERO),
            2 => (Some(hour), hour),
            3 => (Some(Duration::from_mins(28)), Duration::ZERO),
            _ => (None, Duration::ZERO),
        };
        let node = put(&api, &name, agent, kubelet);
        if n % 5 > 0 {
            unchanged.insert(name, node);
        }
    }
    let outcomes = cleaned(&api).await;
    assert_eq!(outcomes.len(), 130);
    for n in 0..130 {
        let name = format!("worker-{n}");
        let outcome = &outcomes[&name];
        let is_expected = match (n % 5, outcome) {
            (0, StaleOutcome::Cleaned(removed)) => (removed.conditions, removed.taints) == (2, 1),
            (1 | 3, StaleOutcome::Left(state)) => *state == AgentState::Running,
            (2, StaleOutcome::Left(state)) => *state == AgentState::KubeletSilent,
            (4, StaleOutcome::Left(state)) => *state == AgentState::NothingLeft,
            _ => false,
        };
        assert!(is_expected, "{name}: {outcome:?}");
        if n % 5 == 0 {
            assert_eq!(left(&api, &name), (2, 1), "{name}");
        }
    }
    for (name, node) in unchanged {
        assert_eq!(stored(&api, &name), node);
    }
    let requests = api.requests();
    let lists = requests
        .iter()
        .filter(|r| r.path == "/api/v1/nodes")
        .count();
    assert_eq!(lists, 3, "pages of 50");
    let writes = requests.iter().filter(|r| r.method != "GET");
    let methods: Vec<_> = writes.map(|r| r.method.as_str()).collect();
    assert_eq!(
        methods,
        vec!["PATCH"; 26 * 2],
        "no Node and no Lease is removed"
    );
    assert_eq!(requests.len(), 3 + 26 * 3);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_back_keeps_its_conditions() {
    let ago = Duration::from_hours(1);
    // Before the second reading; after the taints; after the conditions were read.
    let rows = [
        ("/api/v1/nodes/worker-1", "GET", 2),
        ("/api/v1/nodes/worker-1", "PATCH", 2),
        ("/api/v1/nodes/worker-1/status", "PATCH", 1),
    ];
    for (path, method, taints) in rows {
        let api = in_memory();
        put(&api, "worker-1", Some(ago), Duration::ZERO);
        let slow = Effect::Latency(Duration::from_secs(2));
        api.faults().push(Fault::on(method, path, slow));
        let server = Arc::clone(&api);
        let cleanup = tokio::spawn(async move { cleaned(&server).await });
        // The minute before the second reading.
        pass(Duration::from_secs(61)).await;
        let mut node = stored(&api, "worker-1");
        let renewed = convert::time(UNIX_EPOCH + api.wall());
        for condition in node["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastHeartbeatTime"] = json!(renewed);
        }
        api.put_object(node);
        let outcomes = cleanup.await.unwrap();
        let outcome = &outcomes["worker-1"];
        let is_left = matches!(outcome, StaleOutcome::Left(AgentState::Running));
        assert!(is_left, "{method} {path}: {outcome:?}");
        assert_eq!(left(&api, "worker-1"), (4, taints), "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_does_not_prevent_the_others() {
    let api = in_memory();
    for name in ["worker-1", "worker-2"] {
        put(&api, name, Some(Duration::from_hours(1)), Duration::ZERO);
    }
    let refused = Fault::on("PATCH", "/api/v1/nodes/worker-1", Effect::Status(403));
    api.faults().push(refused.always());
    let outcomes = cleaned(&api).await;
    assert!(matches!(outcomes["worker-1"], StaleOutcome::Failed(_)));
    assert_eq!(left(&api, "worker-1"), (4, 2), "still as before");
    assert!(matches!(outcomes["worker-2"], StaleOutcome::Cleaned(_)));
    // The next run cleans it.
    api.faults().clear();
    let outcomes = cleaned(&api).await;
    assert!(matches!(outcomes["worker-1"], StaleOutcome::Cleaned(_)));
}
