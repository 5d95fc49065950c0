//! Implements watches, which send changes since a resource version as lines of JSON.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::query::{QueryParameters, Selector};
use super::read::Form;
use super::resource::Resource;
use super::state::Inner;
use super::store::{Change, Compacted, Store};

/// Interval of bookmarks on the real server, for clients that requested them.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// The minimum of what the real server chooses if the client does not.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// Maximum number of lines that wait for a slow client.
const PENDING_LINES: usize = 64;

pub(super) struct WatchStream {
    resource: &'static Resource,
    selector: Selector,
    form: Form,
    bookmarks: Bookmarks,
    /// Changes up to this revision were sent.
    revision: u64,
    forced_bookmarks: u64,
    next_bookmark: Instant,
    end: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bookmarks {
    Wanted,
    Unwanted,
}

/// The end of a watch: the client closed it, or it got 410.
struct Over;

impl WatchStream {
    /// Checks the query, and starts to write lines. Must be called on the runtime.
    pub(super) fn start(
        inner: &Arc<Inner>,
        resource: &'static Resource,
        selector: Selector,
        form: Form,
        query: &QueryParameters,
    ) -> Result<mpsc::Receiver<Bytes>, Failure> {
        let initial = query.is_true("sendInitialEvents");
        if initial && query.get("resourceVersionMatch") != Some("NotOlderThan") {
            let why = "Forbidden: resourceVersionMatch must be NotOlderThan with sendInitialEvents";
            let causes = [("resourceVersionMatch".to_owned(), why.to_owned())];
            return Err(Failure::invalid("ListOptions", "", &causes));
        }
        let asked = query.number("resourceVersion")?.unwrap_or_default();
        let current = inner.state().store.revision();
        if asked > current {
            return Err(Failure::too_large(asked, current));
        }
        let timeout = query
            .number("timeoutSeconds")?
            .filter(|seconds| *seconds > 0);
        let now = Instant::now();
        let watch = Self {
            resource,
            selector,
            form,
            bookmarks: if query.is_true("allowWatchBookmarks") {
                Bookmarks::Wanted
            } else {
                Bookmarks::Unwanted
            },
            revision: asked,
            forced_bookmarks: inner.state().bookmarks,
            next_bookmark: now + BOOKMARK_PERIOD,
            end: now + timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
        };
        let (lines, receiver) = mpsc::channel(PENDING_LINES);
        let start = match (initial, asked) {
            (true, _) => Start::InitialEvents,
            (false, 0) => Start::Everything,
            (false, _) => Start::Resume,
        };
        tokio::spawn(watch.run(Arc::clone(inner), start, lines));
        Ok(receiver)
    }

    async fn run(mut self, inner: Arc<Inner>, start: Start, lines: mpsc::Sender<Bytes>) {
        let mut changed = inner.changed.subscribe();
        if start != Start::Resume && self.send_everything(&inner, start, &lines).await.is_err() {
            return;
        }
        loop {
            changed.mark_unchanged();
            if self.send_changes(&inner, &lines).await.is_err() {
                return;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = lines.closed() => return,
                () = sleep_until(self.next_bookmark) => {
                    self.next_bookmark += BOOKMARK_PERIOD;
                    if self.send_bookmark(json!({}), &lines).await.is_err() {
                        return;
                    }
                }
                () = sleep_until(self.end) => {
                    // The watch ends anyway, so a client that has left is not an error.
                    let _: Result<(), Over> = self.send_bookmark(json!({}), &lines).await;
                    return;
                }
            }
        }
    }

    async fn send_everything(
        &mut self,
        inner: &Arc<Inner>,
        start: Start,
        lines: &mpsc::Sender<Bytes>,
    ) -> Result<(), Over> {
        let snapshot = {
            let state = inner.state();
            self.revision = state.store.revision();
            state.store.snapshot(self.resource, self.revision)
        };
        for object in snapshot.unwrap_or_default().into_values() {
            if self.selector.matches(&object) {
                self.send("ADDED", &object, inner, lines).await?;
            }
        }
        if start == Start::InitialEvents {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            self.send_bookmark(json!({"annotations": annotations}), lines)
                .await?;
        }
        Ok(())
    }

    async fn send_changes(
        &mut self,
        inner: &Arc<Inner>,
        lines: &mpsc::Sender<Bytes>,
    ) -> Result<(), Over> {
        let (events, forced) = {
            let state = inner.state();
            (self.events(&state.store), state.bookmarks)
        };
        let events = match events {
            Ok(events) => events,
            Err(Compacted(oldest)) => {
                let status = Failure::expired(self.revision, oldest).status();
                line(lines, &json!({"type": "ERROR", "object": status})).await?;
                return Err(Over);
            }
        };
        for (kind, object) in events {
            self.send(kind, &object, inner, lines).await?;
        }
        if forced != self.forced_bookmarks {
            self.forced_bookmarks = forced;
            // A bookmark includes changes that the selector excludes.
            self.send_bookmark(json!({}), lines).await?;
        }
        Ok(())
    }

    /// Returns the changes after the last event that the selector includes.
    fn events(&mut self, store: &Store) -> Result<Vec<(&'static str, Value)>, Compacted> {
        let events = store
            .since(self.revision)?
            .filter(|change| change.resource.plural == self.resource.plural)
            .filter_map(|change| self.event(change))
            .collect();
        self.revision = store.revision();
        Ok(events)
    }

    fn event(&self, change: &Change) -> Option<(&'static str, Value)> {
        let seen = |object: &Option<Arc<Value>>| {
            object
                .as_ref()
                .filter(|object| self.selector.matches(object))
                .cloned()
        };
        let (kind, object) = match (seen(&change.old), seen(&change.new)) {
            (None, None) => return None,
            (None, Some(new)) => ("ADDED", new),
            (Some(_), Some(new)) => ("MODIFIED", new),
            (Some(old), None) => ("DELETED", old),
        };
        let mut object = Value::clone(&object);
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        Some((kind, object))
    }

    async fn send(
        &self,
        kind: &str,
        object: &Value,
        inner: &Inner,
        lines: &mpsc::Sender<Bytes>,
    ) -> Result<(), Over> {
        let object = self
            .form
            .object(self.resource, object, inner.clock.wall().as_secs());
        line(lines, &json!({"type": kind, "object": object})).await
    }

    async fn send_bookmark(
        &self,
        mut metadata: Value,
        lines: &mpsc::Sender<Bytes>,
    ) -> Result<(), Over> {
        if self.bookmarks == Bookmarks::Unwanted {
            return Ok(());
        }
        metadata["resourceVersion"] = json!(self.revision.to_string());
        let (kind, version) = match self.form {
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            Form::Full | Form::Table => (self.resource.kind, self.resource.api_version()),
        };
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        line(lines, &json!({"type": "BOOKMARK", "object": object})).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Sends changes after a resource version.
    Resume,
    /// Sends all objects, and then changes.
    Everything,
    /// Sends all objects, a bookmark, and then changes.
    InitialEvents,
}

async fn line(lines: &mpsc::Sender<Bytes>, event: &Value) -> Result<(), Over> {
    lines
        .send(Bytes::from(format!("{event}\n")))
        .await
        .map_err(|_| Over)
}
