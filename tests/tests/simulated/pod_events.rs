//! What happens in a pod is an Event on that Pod, and on the Node only if the pod is not known.

/// What a container is called.
mod containers;
/// Pods that are deleted, or not known yet.
mod deleted;
/// What is added to the Event of a kill.
mod details;
/// Which object an Event is about.
mod kills;
/// Names from links to container logs.
mod links;
/// The watch on pods.
mod watch;

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::Exact;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Kill, Limit, Node, Running, pass};
use nodepulse_tests::pod::{CONTAINER, ID, POD, Pod, UID};
use nodepulse_tests::view::{EVENTS, View};
use serde_json::Value;

const OTHER_ID: &str = "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c";
const WATCHED: &str = "/api/v1/pods";

/// More than a read from the API server takes, and less than anything that is waited for.
const AT_ONCE: Duration = Duration::from_millis(5);

fn cart() -> Pod {
    Pod::new("shop", "cart-0", UID)
        .container("web", ID)
        .container("proxy", OTHER_ID)
}

fn host() -> Arc<MadeUpHost> {
    let host = MadeUpHost::calm();
    host.container(CONTAINER);
    Arc::new(host)
}

fn kill<'a>(pid: u32, limit: Limit<'a>) -> Kill<'a> {
    Kill {
        victim: ("stress", pid),
        cgroup: CONTAINER,
        limit,
        source: Exact,
    }
}

/// Metrics name pods.
const PER_POD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                       serve: {perPodMetrics: true}\n";

/// A node whose watch on pods is settled.
async fn started(api: &Arc<ApiServer>, node: Node) -> Running {
    let node = node.start(api);
    View::of(api, "worker-1").settled(SOON).await;
    pass(Duration::from_secs(3)).await;
    node
}

/// Waits for this many Events about the pod; returns them, and how long after `from` that was.
async fn reported(
    api: &ApiServer,
    pod: &Pod,
    count: usize,
    from: Duration,
) -> (Vec<Value>, Duration) {
    api.wait_for(SOON, "events of the pod", |api| {
        let events = pod.events(api);
        (events.len() == count).then(|| (events, api.now() - from))
    })
    .await
}

/// Messages of Events on the Node that are about kills.
fn of_node(api: &ApiServer) -> Vec<(String, String)> {
    let mut reported: Vec<_> = api
        .list(EVENTS)
        .into_iter()
        .filter(|event| event["involvedObject"]["kind"] == "Node")
        .map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            (text("reason"), text("message"))
        })
        .filter(|(reason, _)| reason.contains("OOM") || reason == "PIDLimitReached")
        .collect();
    reported.sort();
    reported
}

fn message(event: &Value) -> &str {
    event["message"].as_str().unwrap_or_default()
}
