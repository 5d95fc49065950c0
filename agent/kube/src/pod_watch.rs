//! A watch on the pods of this node, of which only names are kept.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use nodepulse_core::pods::{Pod, PodChange};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::warn;

use super::Client;
use super::collection_watch::{self, Change};
use super::convert::text;
use super::object_watch::WatchTarget;

/// Requests metadata only. A server that does not support this form sends whole objects.
const ACCEPT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The annotation of a mirror pod with the hash of a static pod's manifest.
const CONFIG_HASH: &str = "/metadata/annotations/kubernetes.io~1config.hash";
/// The annotation that marks a mirror pod.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// Watches the pods of node `node`, until the receiver is dropped.
pub async fn watch(client: Client, node: String, changes: mpsc::Sender<PodChange>) {
    let target = WatchTarget {
        resource: "pods",
        path: "/api/v1/pods",
        selector: format!("fieldSelector=spec.nodeName%3D{node}"),
        accept: ACCEPT,
        bookmarks: true,
    };
    let warned = AtomicBool::new(false);
    let convert = |change: Change<'_>| match change {
        Change::Relisting => Some(PodChange::Relisting),
        Change::Listed => Some(PodChange::Listed),
        Change::Added(object) => pod(object).map(PodChange::Present),
        Change::Deleted(object) => Some(PodChange::Removed(text(object, "/metadata/uid"))),
        // The stored part of a pod never changes.
        Change::Modified(_) => None,
        Change::Refused => {
            if !warned.swap(true, Ordering::Relaxed) {
                warn!(
                    "cannot watch pods, so Events about those without a link in /var/log/containers are \
                     recorded on the Node; allow this identity to list, watch and get pods"
                );
            }
            Some(PodChange::Refused)
        }
    };
    collection_watch::watch(client, target, convert, changes).await;
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
