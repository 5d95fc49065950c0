//! A watch on our own Node, so that what others write to it is known without asking.

#![forbid(unsafe_code)]

use serde_json::Value;
use tokio::sync::mpsc;
use tracing::debug;

use super::backoff::Jitter;
use super::object_watch::{ChangeType, Pace, Watch, WatchEnd, WatchTarget, version};
use super::{Client, Endpoint, Generation};

/// What happened to the Node.
#[derive(Debug)]
pub enum NodeEvent {
    /// As stored now.
    Stored(Value),
    /// It is gone.
    Deleted,
}

/// Watches the Node `name` from the state in `version` on, until nobody listens.
///
/// A watch that breaks, is refused, or whose past the server has forgotten, starts anew with a read.
/// On a new connection it moves there.
pub async fn watch(
    client: Client,
    name: String,
    version: String,
    jitter: Jitter,
    events: mpsc::Sender<NodeEvent>,
) {
    if client.is_dry_run() {
        return events.closed().await;
    }
    let listener = events.clone();
    let subject = WatchTarget {
        resource: "nodes",
        path: "/api/v1/nodes",
        fields: format!("metadata.name%3D{name}"),
        accept: "application/json",
    };
    let mut node = WatchedNode {
        name,
        subject,
        pace: Pace::new(jitter),
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
                    // The old connection is dead: nothing will come over it any more.
                    _ = generations.changed() => Some(from),
                };
            }
            self.pace.pause().await;
        }
    }

    /// Reads the Node and passes it on. Gives the version to watch from.
    async fn read(&self, client: &Client) -> Option<String> {
        let node = match client.get(&Endpoint::node(&self.name)).await {
            Ok(node) => node,
            Err(err) => {
                debug!(err = err.as_dyn(), "node not read for its watch");
                return None;
            }
        };
        let version = version(&node)?;
        self.events.send(NodeEvent::Stored(node)).await.ok()?;
        Some(version)
    }

    /// One watch. Gives the version to go on from after a regular end, `None` after any other.
    async fn stream(&mut self, generation: &Generation, from: &str) -> Option<String> {
        let timeout = self.pace.begin();
        let watch = Watch::open(generation, &self.subject, from, timeout).await;
        let mut watch = watch.ok()?;
        let mut version = from.to_owned();
        loop {
            let news = match watch.next().await {
                Ok(news) => news,
                Err(WatchEnd::Regular) => return Some(version),
                Err(WatchEnd::Expired | WatchEnd::Refused | WatchEnd::Broken) => return None,
            };
            self.pace.brought();
            version = news.version;
            let told = match news.change {
                ChangeType::Added | ChangeType::Modified => NodeEvent::Stored(news.object),
                ChangeType::Deleted => NodeEvent::Deleted,
                ChangeType::Bookmark => continue,
            };
            self.events.send(told).await.ok()?;
        }
    }
}
