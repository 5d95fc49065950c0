//! A watch on the pods of this node, of which only names are kept.

#![forbid(unsafe_code)]

use std::time::Duration;

use nodepulse_core::pods::{Pod, PodChange};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

use super::convert::text;
use super::object_watch::{ChangeType, Pace, Watch, WatchEnd, WatchTarget};
use super::{Client, Generation};

/// Requests metadata only. A server that does not support this form sends whole objects.
const ACCEPT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Any version in the cache of the server: a list and its continuation in one request. An older
/// state is harmless here, and spares the server a read of its storage.
const ANY: &str = "0";

/// The annotation of a mirror pod with the hash of a static pod's manifest.
const CONFIG_HASH: &str = "/metadata/annotations/kubernetes.io~1config.hash";
/// The annotation that marks a mirror pod.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// If no event follows for this long, a new watch has listed all existing pods: the server sends
/// them without a pause. A bookmark confirms it; but a proxy may cut every watch before the first
/// one, which is sent after a minute.
const LISTED_AFTER: Duration = Duration::from_secs(10);

/// Watches the pods of node `node`, until the receiver is dropped.
///
/// A watch that breaks continues from its version; if the server no longer has it, the watch starts
/// again. It follows the client to a new connection.
pub async fn watch(client: Client, node: String, changes: mpsc::Sender<PodChange>) {
    let listener = changes.clone();
    let mut pods = Pods {
        subject: WatchTarget {
            resource: "pods",
            path: "/api/v1/pods",
            fields: format!("spec.nodeName%3D{node}"),
            accept: ACCEPT,
            bookmarks: true,
        },
        version: None,
        confirmed: false,
        changes,
        pace: Pace::new(client.jitter()),
    };
    tokio::select! {
        () = listener.closed() => {}
        () = pods.run(&client) => {}
    }
}

struct Pods {
    subject: WatchTarget,
    /// The version from which to continue; `None` until everything was listed once.
    version: Option<String>,
    /// This watch received a bookmark, so it has succeeded.
    confirmed: bool,
    changes: mpsc::Sender<PodChange>,
    pace: Pace,
}

impl Pods {
    async fn run(&mut self, client: &Client) {
        client.available().await;
        let mut generations = client.generations();
        let mut warned = false;
        loop {
            let generation = generations.borrow_and_update().clone();
            self.confirmed = false;
            let end = tokio::select! {
                end = self.stream(&generation) => end,
                // The old connection is dead: it will deliver nothing more.
                _ = generations.changed() => WatchEnd::Broken,
            };
            // Since Kubernetes 1.32, a server with an etcd before 3.4.31 or 3.5.13 cannot combine a
            // list with bookmarks. Without them, each watch lists the pods.
            self.subject.bookmarks = end != WatchEnd::Failed || !self.subject.bookmarks;
            match end {
                WatchEnd::Regular | WatchEnd::Failed | WatchEnd::Broken => {}
                WatchEnd::Expired => self.version = None,
                WatchEnd::Refused => {
                    self.refused(&mut warned).await;
                    self.pace.rest().await;
                    continue;
                }
            }
            self.pace.pause().await;
        }
    }

    async fn refused(&mut self, warned: &mut bool) {
        self.version = None;
        if !std::mem::replace(warned, true) {
            warn!(
                "cannot watch pods, so their events are recorded on the Node; allow this \
                 identity to list, watch and get pods"
            );
        }
        // If the receiver was dropped, the task ends too.
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
        let all_listed = tokio::time::sleep(LISTED_AFTER);
        tokio::pin!(all_listed);
        loop {
            if let Some(change) = change.take()
                && self.changes.send(change).await.is_err()
            {
                return WatchEnd::Broken;
            }
            let event = tokio::select! {
                biased;
                event = watch.next() => event,
                () = &mut all_listed, if listing => {
                    listing = false;
                    change = Some(PodChange::Listed);
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
            change = match event.change {
                ChangeType::Added => pod(&event.object).map(PodChange::Present),
                ChangeType::Deleted => {
                    Some(PodChange::Removed(text(&event.object, "/metadata/uid")))
                }
                ChangeType::Bookmark => self.version.is_none().then_some(PodChange::Listed),
                // The stored part of a pod never changes.
                ChangeType::Modified => None,
            };
            // Until the first bookmark, pods arrive in any order of their versions.
            if self.version.is_some() || event.change == ChangeType::Bookmark {
                self.version = Some(event.version);
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
    fn a_pod_is_read_from_its_metadata_and_a_mirror_pod_has_a_hash() {
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
