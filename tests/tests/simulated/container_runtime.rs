//! The container runtime in node mode.

/// A real containerd.
mod containerd;
/// What a broken runtime does.
mod faults;
/// What the status of the Node has of a runtime that answers.
mod reported;
/// What can be at the path of the socket.
mod sockets;

use std::time::Duration;

use nodepulse_tests::cri_server::CriServer;
use nodepulse_tests::days::Stage;
use nodepulse_tests::node::Node;
use serde_json::Value;

/// The longest time from an answer of the runtime to a patch that is not urgent: until the next
/// check, then until the next regular computation.
const REGULAR: Duration = Duration::from_secs(21);
/// How long an answer of the runtime counts, then until the next regular computation.
const DOWN: Duration = Duration::from_secs(41);
const NEVER_CHECKED: &str =
    "[container runtime status check may not have completed yet, network state unknown]";

/// A node with this runtime, which Ready requires.
fn stage(runtime: &CriServer) -> Stage {
    stage_with(runtime, |node| node)
}

fn stage_with(runtime: &CriServer, configure: impl FnOnce(Node) -> Node) -> Stage {
    Stage::open(|node| configure(node.runtime(runtime)))
}

/// Waits until Ready has this status; returns its message.
async fn ready(stage: &Stage, status: &str, deadline: Duration) -> String {
    let (condition, _) = stage.view().becomes("Ready", status, deadline).await;
    text(&condition["message"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The status of the Node.
fn status(stage: &Stage) -> Value {
    stage.view().node().unwrap()["status"].clone()
}
