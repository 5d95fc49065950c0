//! Simulates Pods that a kubelet runs.

use serde_json::{Value, json};

use crate::api_server::ApiServer;

pub const UID: &str = "6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
pub const ID: &str = "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
pub const POD: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
pub const CONTAINER: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11/\
     3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";

#[derive(Debug, Clone)]
pub struct Pod {
    namespace: String,
    name: String,
    uid: String,
    node: String,
    annotations: Value,
    containers: Vec<(String, Option<String>)>,
}

impl Pod {
    /// Creates a pod of this namespace, name and uid on node `worker-1`, without a container.
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            node: "worker-1".to_owned(),
            annotations: json!({}),
            containers: Vec::new(),
        }
    }

    /// Moves it to another node.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        node.clone_into(&mut self.node);
        self
    }

    /// Adds a container with its id.
    #[must_use]
    pub fn container(mut self, name: &str, id: &str) -> Self {
        self.containers.push((name.to_owned(), Some(id.to_owned())));
        self
    }

    /// Adds a container that the kubelet has not reported as running yet.
    #[must_use]
    pub fn new_container(mut self, name: &str) -> Self {
        self.containers.push((name.to_owned(), None));
        self
    }

    /// Makes it the mirror of a static pod, whose manifest has this hash.
    #[must_use]
    pub fn mirror(mut self, hash: &str) -> Self {
        self.annotations = json!({
            "kubernetes.io/config.hash": hash,
            "kubernetes.io/config.mirror": hash,
            "kubernetes.io/config.source": "file",
        });
        self
    }

    /// Stores it, and its namespace if that does not exist.
    pub fn put(&self, api: &ApiServer) {
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        if api.object(&namespace).is_none() {
            api.put_object(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace },
                "status": { "phase": "Active" },
            }));
        }
        let specified = self.containers.iter();
        let specified: Vec<_> = specified
            .map(|(name, _)| json!({ "name": name, "image": "registry.example/app:1" }))
            .collect();
        let running = self.containers.iter();
        let running: Vec<_> = running
            .filter_map(|(name, id)| {
                let id = format!("containerd://{}", id.as_ref()?);
                let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
                Some(json!({ "name": name, "containerID": id, "state": running }))
            })
            .collect();
        api.put_object(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": self.namespace, "name": self.name, "uid": self.uid,
                "annotations": self.annotations,
            },
            "spec": {
                "nodeName": self.node, "restartPolicy": "Always", "containers": specified,
            },
            "status": { "phase": "Running", "containerStatuses": running },
        }));
    }

    pub fn delete(&self, api: &ApiServer) {
        api.delete_object(&self.path());
    }

    pub fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }

    pub fn events(&self, api: &ApiServer) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let mut events = api.list(&path);
        events.retain(|event| event["involvedObject"]["uid"] == self.uid.as_str());
        events
    }
}
