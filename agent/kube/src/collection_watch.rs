//! A watch on all objects that match a selector.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::object_watch::{ChangeType, Pace, Watch, WatchEnd, WatchTarget};
use super::{Client, Generation};

/// Any version in the cache of the server: a list and its continuation in one request. An older
/// state is harmless here, and spares the server a read of its storage.
const ANY: &str = "0";

/// If no event follows for this long, a new watch has listed all existing objects: the server sends
/// them without a pause. A bookmark confirms it; but a proxy may cut every watch before the first
/// one, which is sent after a minute.
const LISTED_AFTER: Duration = Duration::from_secs(10);

/// What a watch has found.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// All existing objects follow.
    Relisting,
    /// All existing objects were sent.
    Listed,
    Added(&'a Value),
    Modified(&'a Value),
    Deleted(&'a Value),
    /// The identity may not watch. Sent again for each attempt.
    Refused,
}

/// Watches the objects of `target`, until the receiver is dropped. `convert` selects what is sent,
/// so that no object is kept.
///
/// A watch that breaks continues from its version; if the server no longer has it, the watch starts
/// again. It follows the client to a new connection.
pub async fn watch<T>(
    client: Client,
    target: WatchTarget,
    convert: impl Fn(Change<'_>) -> Option<T>,
    changes: mpsc::Sender<T>,
) {
    let listener = changes.clone();
    let mut objects = Objects {
        target,
        version: None,
        confirmed: false,
        convert,
        changes,
        pace: Pace::new(client.jitter()),
    };
    tokio::select! {
        () = listener.closed() => {}
        () = objects.run(&client) => {}
    }
}

struct Objects<T, F> {
    target: WatchTarget,
    /// The version from which to continue; `None` until everything was listed once.
    version: Option<String>,
    /// This watch received a bookmark, so it has succeeded.
    confirmed: bool,
    convert: F,
    changes: mpsc::Sender<T>,
    pace: Pace,
}

impl<T, F: Fn(Change<'_>) -> Option<T>> Objects<T, F> {
    async fn run(&mut self, client: &Client) {
        client.available().await;
        let mut generations = client.generations();
        loop {
            let generation = generations.borrow_and_update().clone();
            self.confirmed = false;
            let end = tokio::select! {
                end = self.stream(&generation) => end,
                // The old connection is dead: it will deliver nothing more.
                _ = generations.changed() => WatchEnd::Broken,
            };
            // Since Kubernetes 1.32, a server with an etcd before 3.4.31 or 3.5.13 cannot combine a
            // list with bookmarks. Without them, each watch lists the objects.
            self.target.bookmarks = end != WatchEnd::Failed || !self.target.bookmarks;
            match end {
                WatchEnd::Regular | WatchEnd::Failed | WatchEnd::Broken => {}
                WatchEnd::Expired => self.version = None,
                WatchEnd::Refused if self.pace.retry_refusal() => self.version = None,
                WatchEnd::Refused => {
                    self.version = None;
                    // If the receiver was dropped, the task ends too.
                    let _receives: bool = self.send(Change::Refused).await;
                    self.pace.rest().await;
                    continue;
                }
            }
            self.pace.pause(client).await;
        }
    }

    /// Returns false if nothing receives it.
    async fn send(&self, change: Change<'_>) -> bool {
        match (self.convert)(change) {
            Some(change) => self.changes.send(change).await.is_ok(),
            None => true,
        }
    }

    async fn stream(&mut self, generation: &Generation) -> WatchEnd {
        let timeout = self.pace.begin();
        let from = self.version.as_deref().unwrap_or(ANY);
        let mut watch = match Watch::open(generation, &self.target, from, timeout).await {
            Ok(watch) => watch,
            Err(end) => return end,
        };
        let mut listing = self.version.is_none();
        if listing && !self.send(Change::Relisting).await {
            return WatchEnd::Broken;
        }
        let all_listed = tokio::time::sleep(LISTED_AFTER);
        tokio::pin!(all_listed);
        loop {
            let event = tokio::select! {
                biased;
                event = watch.next() => event,
                () = &mut all_listed, if listing => {
                    listing = false;
                    if !self.send(Change::Listed).await {
                        return WatchEnd::Broken;
                    }
                    continue;
                }
            };
            let event = match event {
                Ok(event) => event,
                Err(end) => return end,
            };
            self.pace.received();
            self.confirmed |= event.change == ChangeType::Bookmark;
            listing &= !self.confirmed;
            if listing && event.change == ChangeType::Added {
                all_listed.as_mut().reset(Instant::now() + LISTED_AFTER);
            }
            let change = match event.change {
                ChangeType::Added => Some(Change::Added(&event.object)),
                ChangeType::Modified => Some(Change::Modified(&event.object)),
                ChangeType::Deleted => Some(Change::Deleted(&event.object)),
                ChangeType::Bookmark => self.version.is_none().then_some(Change::Listed),
            };
            if let Some(change) = change
                && !self.send(change).await
            {
                return WatchEnd::Broken;
            }
            // Until the first bookmark, objects arrive in any order of their versions.
            if self.version.is_some() || event.change == ChangeType::Bookmark {
                self.version = Some(event.version);
            }
        }
    }
}
