//! The lines again, in short stories, on days when the API server is late or fails.

use std::time::Duration;

use nodepulse_core::record::ScopeSource;

use nodepulse_tests::days::{NAME, Stage, end_alike};
use nodepulse_tests::host_root::PODS;
use nodepulse_tests::node::{Kill, Limit, in_memory, pass};
use nodepulse_tests::view::NODES;
use serde_json::json;

/// For what a bad day can delay: a hung request costs ten seconds, and a sync has five tries.
const PATIENCE: Duration = Duration::from_mins(3);

#[tokio::test(start_paused = true)]
async fn a_node_is_created_and_kept() {
    let open = || {
        Stage::open(|node| {
            node.config(|overrides| {
                overrides.node_labels = Some("example.com/rack=7".to_owned());
                overrides.register_with_taints = Some("edge:NoSchedule".to_owned());
            })
        })
    };
    end_alike(open, |stage, _| async move {
        stage.view().settled(PATIENCE).await;
        pass(Duration::from_mins(3)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_left_by_another_agent_is_adopted() {
    let open = || {
        let api = in_memory();
        api.put_object(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": NAME,
                "labels": {"kubernetes.io/arch": "s390x", "example.com/of": "others"},
                "annotations": {"example.com/of": "others"},
            },
            "spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}]},
            "status": {
                "capacity": {"hugepages-64Ki": "0", "example.com/dongle": "4"},
                "addresses": [
                    {"type": "InternalIP", "address": "198.51.100.7"},
                    {"type": "InternalIP", "address": "198.51.100.8"},
                ],
                "conditions": [
                    {"type": "KernelDeadlock", "status": "False"},
                    {"type": "Ready", "status": "Unknown"},
                ],
            },
        }));
        Stage::at(&api, |node| node)
    };
    end_alike(open, |stage, _| async move {
        stage.view().becomes("Ready", "True", PATIENCE).await;
        stage.view().settled(PATIENCE).await;
        pass(Duration::from_mins(1)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_changes_while_other_clients_write() {
    let open = || Stage::open(|node| node);
    end_alike(open, |stage, soon| async move {
        let view = stage.view();
        view.settled(PATIENCE).await;
        stage.node.kernel().crowd().await;
        view.becomes("PIDPressure", "True", soon).await;
        let mut node = view.node().unwrap();
        node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9");
        node["status"]["conditions"][0]["status"] = json!("Unknown");
        node["status"]["addresses"] = json!([]);
        stage.api.put_object(node);
        stage.host.tasks(200);
        view.becomes("PIDPressure", "False", TRANSITION + soon)
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_created_again_is_maintained() {
    let open = || Stage::open(|node| node);
    end_alike(open, |stage, _| async move {
        let view = stage.view();
        view.settled(PATIENCE).await;
        pass(Duration::from_secs(33)).await;
        stage.api.delete_object(&view.path()).unwrap();
        stage.api.delete_object(&view.lease_path());
        pass(Duration::from_secs(33)).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}});
        stage.api.put_object(node);
        view.becomes("Ready", "True", PATIENCE).await;
        view.settled(PATIENCE).await;
        assert_eq!(stage.api.list(NODES).len(), 1);
    })
    .await;
}

/// A transition period.
const TRANSITION: Duration = Duration::from_mins(5);

#[tokio::test(start_paused = true)]
async fn pressure_begins_ends_and_begins_again() {
    end_alike(
        || Stage::open(|node| node),
        |stage, soon| async move {
            let view = stage.view();
            view.settled(PATIENCE).await;
            stage.node.kernel().crowd().await;
            view.becomes("PIDPressure", "True", soon).await;
            stage.host.tasks(200);
            let longest = TRANSITION + soon;
            view.becomes("PIDPressure", "False", longest).await;
            stage.node.kernel().crowd().await;
            view.becomes("PIDPressure", "True", soon).await;
            pass(Duration::from_mins(1)).await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_other_clients_write_and_delete() {
    end_alike(
        || Stage::open(|node| node),
        |stage, _| async move {
            let view = stage.view();
            view.settled(PATIENCE).await;
            let mut lease = view.lease().unwrap();
            lease["metadata"]["annotations"] = json!({"example.com/of": "others"});
            stage.api.put_object(lease);
            pass(PATIENCE).await;
            stage.api.delete_object(&view.lease_path()).unwrap();
            pass(PATIENCE).await;
            let mut lease = view.lease().unwrap();
            lease["metadata"]["labels"] = json!({"of": "others"});
            stage.api.put_object(lease);
            pass(PATIENCE).await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_the_limit_of_all_pods_sets_the_condition_for_the_transition_period() {
    end_alike(
        || Stage::open(|node| node),
        |stage, soon| async move {
            let view = stage.view();
            view.settled(PATIENCE).await;
            stage.host.pods_oom(1, 1);
            let kill = Kill {
                victim: ("stress", 4321),
                cgroup: "kubepods/burstable/pod1/ctr",
                limit: Limit::Of(PODS),
                source: ScopeSource::Inferred,
            };
            stage.node.kernel().oom_kill(kill).await;
            view.becomes("MemoryPressure", "True", soon).await;
            let longest = TRANSITION + soon;
            view.becomes("MemoryPressure", "False", longest).await;
        },
    )
    .await;
}
