//! A watch on this Node, so that changes by other clients are known without requests.

#![forbid(unsafe_code)]

use serde_json::Value;
use tokio::sync::mpsc;
use tracing::debug;

use super::object_watch::{ChangeType, Pace, Watch, WatchEnd, WatchTarget, version};
use super::{Client, Endpoint, Generation};

#[derive(Debug)]
pub enum NodeEvent {
    Stored(Value),
    Deleted,
}

/// Watches the Node `name` from `version` on, until the receiver is dropped.
///
/// A watch that breaks, is rejected, or has a version that the server has dropped, starts again
/// with a read. It follows the client to a new connection.
pub async fn watch(client: Client, name: String, version: String, events: mpsc::Sender<NodeEvent>) {
    if client.is_dry_run() {
        return events.closed().await;
    }
    let listener = events.clone();
    let subject = WatchTarget {
        resource: "nodes",
        path: "/api/v1/nodes",
        selector: format!("fieldSelector=metadata.name%3D{name}"),
        accept: "application/json",
        bookmarks: true,
    };
    let mut node = WatchedNode {
        name,
        subject,
        pace: Pace::new(client.jitter()),
        events,
    };
    tokio::select! {
        () = listener.closed() => {}
        () = node.run(&client, version) => {}
    }
}

struct WatchedNode {
    name: String,
    subject: WatchTarget,
    pace: Pace,
    events: mpsc::Sender<NodeEvent>,
}

impl WatchedNode {
    async fn run(&mut self, client: &Client, version: String) {
        let mut generations = client.generations();
        let mut version = Some(version);
        loop {
            if version.is_none() {
                version = self.read(client).await;
            }
            if let Some(from) = version.take() {
                let generation = generations.borrow_and_update().clone();
                version = tokio::select! {
                    last = self.stream(&generation, &from) => last,
                    // The old connection is dead: it will deliver nothing more.
                    _ = generations.changed() => Some(from),
                };
            }
            self.pace.pause(client).await;
        }
    }

    async fn read(&self, client: &Client) -> Option<String> {
        let node = match client.get(&Endpoint::node(&self.name)).await {
            Ok(node) => node,
            Err(err) => {
                debug!(err = err.as_dyn(), "cannot read the node before its watch");
                return None;
            }
        };
        let version = version(&node)?;
        self.events.send(NodeEvent::Stored(node)).await.ok()?;
        Some(version)
    }

    /// Runs one watch. Returns the version from which to continue after a regular end, `None` after
    /// any other.
    async fn stream(&mut self, generation: &Generation, from: &str) -> Option<String> {
        let timeout = self.pace.begin();
        let watch = Watch::open(generation, &self.subject, from, timeout).await;
        let mut watch = watch.ok()?;
        let mut version = from.to_owned();
        loop {
            let event = match watch.next().await {
                Ok(event) => event,
                Err(WatchEnd::Regular) => return Some(version),
                Err(
                    WatchEnd::Expired | WatchEnd::Refused | WatchEnd::Failed | WatchEnd::Broken,
                ) => return None,
            };
            self.pace.received();
            version = event.version;
            let change = match event.change {
                ChangeType::Added | ChangeType::Modified => NodeEvent::Stored(event.object),
                ChangeType::Deleted => NodeEvent::Deleted,
                ChangeType::Bookmark => continue,
            };
            self.events.send(change).await.ok()?;
        }
    }
}
