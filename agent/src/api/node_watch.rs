//! A watch on our own Node, so that what others write to it is known without asking.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tracing::debug;

use super::backoff::{Backoff, Jitter};
use super::convert::text;
use super::object_watch::{Change, End, Subject, TIMEOUT, Watch};
use super::{Client, Generation, Place};

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
/// A watch that breaks, or whose past the server has forgotten, starts anew with a read. On a new
/// connection it moves there.
pub async fn watch(
    client: Client,
    name: String,
    version: String,
    mut jitter: Jitter,
    events: mpsc::Sender<NodeEvent>,
) {
    if client.is_on_paper() {
        return events.closed().await;
    }
    let mut generations = client.generations();
    let mut backoff = Backoff::LEASE;
    let mut version = Some(version);
    let subject = Subject {
        resource: "nodes",
        path: "/api/v1/nodes",
        fields: format!("metadata.name%3D{name}"),
        accept: "application/json",
    };
    while !events.is_closed() {
        let Some(from) = version.take() else {
            // A server that ends has many such watches: not all are to come back at once.
            tokio::time::sleep(jitter.stretch(backoff.advance(), 1.0)).await;
            version = read(&client, &name, &events).await;
            continue;
        };
        let timeout = jitter.stretch(TIMEOUT, 1.0);
        let generation = generations.borrow_and_update().clone();
        version = tokio::select! {
            last = stream(&generation, &subject, &from, timeout, &events) => last,
            // The old connection is dead: nothing will come over it any more.
            _ = generations.changed() => Some(from),
        };
        if version.is_some() {
            backoff.reset();
        }
    }
}

/// Reads the Node and passes it on. Gives the version to watch from.
async fn read(client: &Client, name: &str, events: &mpsc::Sender<NodeEvent>) -> Option<String> {
    let node = match client.get(&Place::node(name)).await {
        Ok(node) => node,
        Err(err) => {
            debug!(err = err.as_dyn(), "node not read for its watch");
            return None;
        }
    };
    let version = text(&node, "/metadata/resourceVersion");
    events.send(NodeEvent::Stored(node)).await.ok()?;
    Some(version)
}

/// One watch. Gives the version to go on from after a regular end, `None` after any other.
async fn stream(
    generation: &Generation,
    subject: &Subject,
    from: &str,
    timeout: Duration,
    events: &mpsc::Sender<NodeEvent>,
) -> Option<String> {
    let mut watch = Watch::open(generation, subject, from, timeout).await.ok()?;
    let mut version = from.to_owned();
    loop {
        let news = match watch.next().await {
            Ok(news) => news,
            Err(End::Regular) => return Some(version),
            Err(End::Expired | End::Refused | End::Broken) => return None,
        };
        version = news.version;
        let told = match news.change {
            Change::Added | Change::Modified => NodeEvent::Stored(news.object),
            Change::Deleted => NodeEvent::Deleted,
            Change::Bookmark => continue,
        };
        events.send(told).await.ok()?;
    }
}
