//! A watch on our own Node, so that what others write to it is known without asking.

#![forbid(unsafe_code)]

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::debug;

use super::backoff::{Backoff, Jitter};
use super::convert::text;
use super::{Client, Generation, Place};

/// The server ends the watch after this time, and up to twice that: at most twelve an hour, and
/// never all nodes at once.
const TIMEOUT: Duration = Duration::from_mins(5);

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
    let mut generations = client.generations();
    let mut backoff = Backoff::LEASE;
    let mut version = Some(version);
    while !events.is_closed() {
        let Some(from) = version.take() else {
            tokio::time::sleep(backoff.advance()).await;
            version = read(&client, &name, &events).await;
            continue;
        };
        let timeout = jitter.stretch(TIMEOUT, 1.0);
        let generation = generations.borrow_and_update().clone();
        version = tokio::select! {
            last = stream(&generation, &name, &from, timeout, &events) => last,
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
    name: &str,
    from: &str,
    timeout: Duration,
    events: &mpsc::Sender<NodeEvent>,
) -> Option<String> {
    let seconds = timeout.as_secs();
    let path = format!(
        "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={from}&\
         timeoutSeconds={seconds}"
    );
    let request = http::Request::get(path).body(Vec::new()).ok()?;
    let opened = generation.client().request_events::<Value>(request).await;
    generation.watched("nodes", &opened);
    let opened = opened.inspect_err(|err| {
        debug!(err = err as &dyn std::error::Error, "node not watched");
    });
    let mut stream = pin!(opened.ok()?);
    let mut version = from.to_owned();
    loop {
        let event = match stream.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Some(version),
            Err(err) => {
                debug!(
                    err = &err as &dyn std::error::Error,
                    "watch of the node broke"
                );
                return None;
            }
        };
        let told = match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                version = text(&node, "/metadata/resourceVersion");
                NodeEvent::Stored(node)
            }
            WatchEvent::Deleted(_) => NodeEvent::Deleted,
            WatchEvent::Bookmark(bookmark) => {
                version = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => {
                debug!(
                    code = status.code,
                    message = status.message,
                    "watch of the node ended"
                );
                return None;
            }
        };
        events.send(told).await.ok()?;
    }
}
