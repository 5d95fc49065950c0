//! What the API server has of the simulated Nodes and their pods.

use nodepulse_kube::Client;
use nodepulse_kube::collection_watch::{self, Change};
use nodepulse_kube::convert::{entries, stored_node, text};
use nodepulse_kube::object_watch::WatchTarget;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::node::{OS_IMAGE, SIMULATED, StoredConditions};
use crate::pod::{StoredPod, Uid};

/// Changes that wait for the loop.
const ROOM: usize = 64;

pub type Watch<T> = mpsc::Receiver<Seen<T>>;

#[derive(Debug)]
pub enum Seen<T> {
    /// All objects follow.
    Relisting,
    /// All objects were sent.
    Listed,
    Present(T),
    Deleted(Uid),
    Refused,
}

#[derive(Debug)]
pub struct SeenNode {
    pub name: String,
    pub uid: Uid,
    pub conditions: StoredConditions,
    /// It has the taints, and the status of a simulated node.
    pub is_simulated: bool,
}

/// Returns whether no kubelet has written the status of a Node.
pub fn is_simulated(node: &Value) -> bool {
    text(node, "/status/nodeInfo/osImage") == OS_IMAGE
}

pub fn nodes(client: Client) -> Watch<SeenNode> {
    watch(client, "nodes", "/api/v1/nodes", |node| {
        let stored = stored_node(node);
        Some(SeenNode {
            name: node.pointer("/metadata/name")?.as_str()?.to_owned(),
            uid: Uid::parse(&stored.uid)?,
            conditions: StoredConditions::of(&stored.conditions),
            is_simulated: is_simulated(node)
                && entries(node, "/spec/taints")
                    .filter(|taint| text(taint, "/key") == SIMULATED)
                    .count()
                    == 2,
        })
    })
}

pub fn pods(client: Client) -> Watch<StoredPod> {
    watch(client, "pods", "/api/v1/pods", StoredPod::of)
}

fn watch<T: Send + 'static>(
    client: Client,
    resource: &'static str,
    path: &'static str,
    convert: fn(&Value) -> Option<T>,
) -> Watch<T> {
    let (send, seen) = mpsc::channel(ROOM);
    let target = WatchTarget {
        resource,
        path,
        selector: "labelSelector=nodepulse.dev%2Fsimulated%3Dtrue".to_owned(),
        accept: "application/json",
        bookmarks: true,
    };
    let convert = move |change: Change<'_>| match change {
        Change::Relisting => Some(Seen::Relisting),
        Change::Listed => Some(Seen::Listed),
        Change::Added(object) | Change::Modified(object) => convert(object).map(Seen::Present),
        Change::Deleted(object) => Uid::parse(&text(object, "/metadata/uid")).map(Seen::Deleted),
        Change::Refused => Some(Seen::Refused),
    };
    tokio::spawn(collection_watch::watch(client, target, convert, send));
    seen
}
