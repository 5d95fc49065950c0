//! One watch: opened in turn with other requests, read event by event, and why it ended.

#![forbid(unsafe_code)]

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use http::header::ACCEPT;
use kube::core::WatchEvent;
use serde_json::Value;
use tracing::debug;

use super::Generation;
use super::convert::text;

/// The server ends a watch after this time, and up to twice that: at most twelve an hour, and never
/// those of all nodes at once.
pub const TIMEOUT: Duration = Duration::from_mins(5);

/// What to watch.
#[derive(Debug)]
pub struct Subject {
    /// For counting and log lines: `nodes`.
    pub resource: &'static str,
    /// Path of the collection.
    pub path: &'static str,
    /// Which objects of it: `metadata.name=worker-1`, as it stands in a query.
    pub fields: String,
    /// In what form objects are wanted.
    pub accept: &'static str,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is there, or the watch now sees it.
    Added,
    /// It is not what it was.
    Modified,
    /// It is gone, or the watch does not see it any more.
    Deleted,
    /// Nothing: the server tells how far it has looked.
    Bookmark,
}

/// One event of a watch.
#[derive(Debug)]
pub struct News {
    /// What happened.
    pub change: Change,
    /// The object; null of a bookmark.
    pub object: Value,
    /// Where to go on from.
    pub version: String,
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was over, as was asked for.
    Regular,
    /// The server has forgotten what came after the version.
    Expired,
    /// We may not watch this.
    Refused,
    /// Anything else: it may go on from where it was.
    Broken,
}

/// An open watch.
pub struct Watch {
    resource: &'static str,
    events: Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Opens one at version `from`, for `timeout`. With bookmarks, one a minute: a version that
    /// nothing moved would be forgotten by the server, and cost a read at the next watch.
    ///
    /// # Errors
    ///
    /// The end that it has come to already.
    pub async fn open(
        generation: &Generation,
        subject: &Subject,
        from: &str,
        timeout: Duration,
    ) -> Result<Self, End> {
        let Subject {
            resource,
            path,
            fields,
            accept,
        } = subject;
        let uri = format!(
            "{path}?watch=true&allowWatchBookmarks=true&fieldSelector={fields}\
             &resourceVersion={from}&timeoutSeconds={}",
            timeout.as_secs()
        );
        let request = http::Request::get(uri).header(ACCEPT, *accept);
        let request = request.body(Vec::new()).map_err(|err| {
            debug!(
                resource,
                err = &err as &dyn std::error::Error,
                "no such path"
            );
            End::Broken
        })?;
        match generation.watch(resource, request).await {
            Ok(events) => Ok(Self {
                resource,
                events: Box::pin(events),
            }),
            Err(err) => Err(ended(resource, &err)),
        }
    }

    /// The next event.
    ///
    /// # Errors
    ///
    /// The end.
    pub async fn next(&mut self) -> Result<News, End> {
        let event = self.events.try_next().await;
        let event = event.map_err(|err| ended(self.resource, &err))?;
        let (change, object) = match event.ok_or(End::Regular)? {
            WatchEvent::Added(object) => (Change::Added, object),
            WatchEvent::Modified(object) => (Change::Modified, object),
            WatchEvent::Deleted(object) => (Change::Deleted, object),
            WatchEvent::Bookmark(bookmark) => {
                return Ok(News {
                    change: Change::Bookmark,
                    object: Value::Null,
                    version: bookmark.metadata.resource_version,
                });
            }
            WatchEvent::Error(status) => {
                return Err(ended(self.resource, &kube::Error::Api(status)));
            }
        };
        let version = text(&object, "/metadata/resourceVersion");
        Ok(News {
            change,
            object,
            version,
        })
    }
}

fn ended(resource: &str, err: &kube::Error) -> End {
    debug!(resource, err = err as &dyn std::error::Error, "watch ended");
    match err {
        kube::Error::Api(status) => match status.code {
            403 => End::Refused,
            410 => End::Expired,
            _ => End::Broken,
        },
        _ => End::Broken,
    }
}
