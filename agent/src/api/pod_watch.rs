//! A watch on the pods of our node, of which only names are taken.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

use super::backoff::Jitter;
use super::convert::text;
use super::object_watch::{ChangeType, Pace, Watch, WatchEnd, WatchTarget};
use super::{Client, Generation};
use crate::pods::{Pod, PodChange};

/// Metadata alone; whole objects from a server that does not know that form.
const ACCEPT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// What the server may have kept in memory, whatever it is: a list and its continuation in one
/// request. Being behind does no harm here, and spares the server a read of its storage.
const ANY: &str = "0";

/// Where a kubelet writes the hash of a static pod's manifest, in its mirror pod.
const CONFIG_HASH: &str = "/metadata/annotations/kubernetes.io~1config.hash";
/// What makes a pod a mirror.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// After so long without another a new watch has told of all pods that were there: the server sends
/// those in one go. Where bookmarks come they say so for certain; a proxy may cut every watch before its
/// first, which comes after a minute.
const ALL_TOLD: Duration = Duration::from_secs(10);

/// Watches the pods of node `node`, until nobody listens.
///
/// A watch that breaks goes on from where it was; one whose past the server has forgotten starts
/// anew. On a new connection it moves there.
pub async fn watch(client: Client, node: String, jitter: Jitter, changes: mpsc::Sender<PodChange>) {
    let listener = changes.clone();
    let mut pods = Pods {
        subject: WatchTarget {
            resource: "pods",
            path: "/api/v1/pods",
            fields: format!("spec.nodeName%3D{node}"),
            accept: ACCEPT,
        },
        version: None,
        heard: false,
        changes,
        pace: Pace::new(jitter),
    };
    tokio::select! {
        () = listener.closed() => {}
        () = pods.run(&client) => {}
    }
}

struct Pods {
    subject: WatchTarget,
    /// Where to go on from; `None` until everything was listed once.
    version: Option<String>,
    /// This watch had a bookmark: it was one that works.
    heard: bool,
    changes: mpsc::Sender<PodChange>,
    pace: Pace,
}

impl Pods {
    async fn run(&mut self, client: &Client) {
        let mut generations = client.generations();
        let mut told = false;
        loop {
            let generation = generations.borrow_and_update().clone();
            self.heard = false;
            let end = tokio::select! {
                end = self.stream(&generation) => end,
                // The old connection is dead: nothing will come over it any more.
                _ = generations.changed() => WatchEnd::Broken,
            };
            match end {
                WatchEnd::Regular | WatchEnd::Broken => {}
                WatchEnd::Expired => self.version = None,
                WatchEnd::Refused => {
                    self.refused(&mut told).await;
                    self.pace.rest().await;
                    continue;
                }
            }
            self.pace.pause().await;
        }
    }

    async fn refused(&mut self, told: &mut bool) {
        self.version = None;
        if !std::mem::replace(told, true) {
            warn!(
                "pods cannot be watched, so what happens in them is told of the node; allow this \
                 identity to list, watch and get pods"
            );
        }
        // Whoever listened is gone: then this ends too.
        drop(self.changes.send(PodChange::Refused).await);
    }

    async fn stream(&mut self, generation: &Generation) -> WatchEnd {
        let timeout = self.pace.begin();
        let from = self.version.as_deref().unwrap_or(ANY);
        let mut watch = match Watch::open(generation, &self.subject, from, timeout).await {
            Ok(watch) => watch,
            Err(end) => return end,
        };
        let mut listing = self.version.is_none();
        let mut change = listing.then_some(PodChange::Relisting);
        let all_told = tokio::time::sleep(ALL_TOLD);
        tokio::pin!(all_told);
        loop {
            if let Some(change) = change.take()
                && self.changes.send(change).await.is_err()
            {
                return WatchEnd::Broken;
            }
            let news = tokio::select! {
                biased;
                news = watch.next() => news,
                () = &mut all_told, if listing => {
                    listing = false;
                    change = Some(PodChange::Listed);
                    continue;
                }
            };
            let news = match news {
                Ok(news) => news,
                Err(end) => return end,
            };
            self.pace.brought();
            self.heard |= news.change == ChangeType::Bookmark;
            listing &= !self.heard;
            if listing && news.change == ChangeType::Added {
                all_told.as_mut().reset(Instant::now() + ALL_TOLD);
            }
            change = match news.change {
                ChangeType::Added => pod(&news.object).map(PodChange::Present),
                ChangeType::Deleted => {
                    Some(PodChange::Removed(text(&news.object, "/metadata/uid")))
                }
                ChangeType::Bookmark => self.version.is_none().then_some(PodChange::Listed),
                // Nothing that we keep of a pod ever changes.
                ChangeType::Modified => None,
            };
            // Until the first bookmark pods come in any order of their versions.
            if self.version.is_some() || news.change == ChangeType::Bookmark {
                self.version = Some(news.version);
            }
        }
    }
}

pub(super) fn pod(object: &Value) -> Option<Pod> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let hash = text(MIRROR).and_then(|_| text(CONFIG_HASH));
    Pod::new(
        text("/metadata/namespace")?,
        text("/metadata/name")?,
        text("/metadata/uid")?,
        hash,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_read_from_its_metadata_and_a_mirror_has_a_hash() {
        let object = |annotations: Value| {
            json!({ "metadata": {
                "namespace": "n", "name": "p", "uid": "u", "annotations": annotations,
            } })
        };
        let hash = "kubernetes.io/config.hash";
        let mirror = "kubernetes.io/config.mirror";
        let rows = [
            (json!(null), None),
            (json!({ hash: "aa" }), None),
            (json!({ hash: "aa", mirror: "aa" }), Some("aa")),
            (json!({ hash: 7, mirror: "aa" }), None),
        ];
        for (annotations, expected) in rows {
            let read = pod(&object(annotations.clone()));
            assert_eq!(read, Pod::new("n", "p", "u", expected), "{annotations}");
        }
        for object in [
            json!(null),
            json!({ "metadata": { "uid": "u" } }),
            json!([]),
        ] {
            assert_eq!(pod(&object), None);
        }
    }
}
