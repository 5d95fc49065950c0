//! Where objects live: what errors call them, and their paths.

#![forbid(unsafe_code)]

/// One object, or one collection to create in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// For errors and log lines.
    pub(super) object: String,
    /// For counting: the same for all objects of a kind.
    pub(super) resource: &'static str,
    pub(super) path: String,
}

impl Place {
    /// Where Nodes are created; `name` is the one to be.
    #[must_use]
    pub fn new_node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: "/api/v1/nodes".to_owned(),
        }
    }

    /// The Node.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: format!("/api/v1/nodes/{name}"),
        }
    }

    /// The Node's status.
    #[must_use]
    pub fn node_status(name: &str) -> Self {
        Self {
            object: format!("status of node {name}"),
            resource: "nodes/status",
            path: format!("/api/v1/nodes/{name}/status"),
        }
    }

    /// Where Leases of Nodes are created; `name` is the one to be.
    #[must_use]
    pub fn new_lease(name: &str) -> Self {
        Self {
            object: format!("lease {name}"),
            resource: "leases",
            path: format!("{LEASES}/namespaces/{LEASE_NAMESPACE}/leases"),
        }
    }

    /// The Lease of a Node.
    #[must_use]
    pub fn lease(name: &str) -> Self {
        Self {
            object: format!("lease {name}"),
            resource: "leases",
            path: format!("{LEASES}/namespaces/{LEASE_NAMESPACE}/leases/{name}"),
        }
    }

    /// Where Events are created; `name` is the one to be.
    #[must_use]
    pub fn new_event(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("event {namespace}/{name}"),
            resource: "events",
            path: format!("/api/v1/namespaces/{namespace}/events"),
        }
    }

    /// An Event that exists.
    #[must_use]
    pub fn event(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("event {namespace}/{name}"),
            resource: "events",
            path: format!("/api/v1/namespaces/{namespace}/events/{name}"),
        }
    }
}

/// Where the Leases of Nodes are.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASES: &str = "/apis/coordination.k8s.io/v1";
