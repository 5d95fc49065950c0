//! Objects and collections of the API: their names in errors, and their paths.

#![forbid(unsafe_code)]

use nodepulse_core::escape::query_value;

use super::body::Limit;

/// One object, or one collection in which objects are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Description for errors and log lines.
    pub(super) object: String,
    /// Label for metrics: the same for all objects of a kind.
    pub(super) resource: &'static str,
    pub(super) path: String,
}

impl Endpoint {
    pub(super) fn limit(&self) -> Limit {
        if self.path.contains("?limit=") {
            Limit::PAGE
        } else if self.resource == "pods" {
            Limit::POD
        } else {
            Limit::OBJECT
        }
    }

    /// Returns the collection of Nodes, to create `name` in it.
    pub fn new_node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: "/api/v1/nodes".to_owned(),
        }
    }

    /// Returns a page of all Nodes, or of those that match the label selector `labels`: at most
    /// `limit`, after `from`, the `continue` of the previous answer.
    pub fn nodes(limit: u32, labels: Option<&str>, from: Option<&str>) -> Self {
        Self {
            object: "nodes".to_owned(),
            resource: "nodes",
            path: page("/api/v1/nodes", limit, labels, from),
        }
    }

    pub fn version() -> Self {
        Self {
            object: "version".to_owned(),
            resource: "version",
            path: "/version".to_owned(),
        }
    }

    /// Returns the collection of certificate signing requests, to create `name` in it.
    pub fn new_signing_request(name: &str) -> Self {
        Self {
            object: format!("certificate signing request {name}"),
            resource: "certificatesigningrequests",
            path: SIGNING_REQUESTS.to_owned(),
        }
    }

    pub fn signing_request(name: &str) -> Self {
        Self {
            path: format!("{SIGNING_REQUESTS}/{name}"),
            ..Self::new_signing_request(name)
        }
    }

    pub fn access_review() -> Self {
        Self {
            object: "access review".to_owned(),
            resource: "selfsubjectaccessreviews",
            path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
        }
    }

    pub fn node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: format!("/api/v1/nodes/{name}"),
        }
    }

    pub fn node_status(name: &str) -> Self {
        Self {
            object: format!("status of node {name}"),
            resource: "nodes/status",
            path: format!("/api/v1/nodes/{name}/status"),
        }
    }

    /// Returns the collection of node Leases, to create `name` in it.
    pub fn new_lease(name: &str) -> Self {
        Self {
            object: format!("lease {name}"),
            resource: "leases",
            path: format!("{LEASES}/namespaces/{LEASE_NAMESPACE}/leases"),
        }
    }

    pub fn lease(name: &str) -> Self {
        Self {
            object: format!("lease {name}"),
            resource: "leases",
            path: format!("{LEASES}/namespaces/{LEASE_NAMESPACE}/leases/{name}"),
        }
    }

    /// Returns a pod of this node, which the server may read from its cache.
    pub fn pod(namespace: &str, name: &str) -> Self {
        let stored = Self::stored_pod(namespace, name);
        Self {
            path: format!("{}?resourceVersion=0", stored.path),
            ..stored
        }
    }

    /// Returns the collection of pods, to create `name` in it.
    pub fn new_pod(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("pod {namespace}/{name}"),
            resource: "pods",
            path: format!("/api/v1/namespaces/{namespace}/pods"),
        }
    }

    /// Returns a pod, to delete it.
    pub fn stored_pod(namespace: &str, name: &str) -> Self {
        let collection = Self::new_pod(namespace, name);
        Self {
            path: format!("{}/{name}", collection.path),
            ..collection
        }
    }

    pub fn pod_status(namespace: &str, name: &str) -> Self {
        let stored = Self::stored_pod(namespace, name);
        Self {
            object: format!("status of {}", stored.object),
            resource: "pods/status",
            path: format!("{}/status", stored.path),
        }
    }

    /// Like [`Self::nodes`], for the pods of all namespaces.
    pub fn pods(limit: u32, labels: &str, from: Option<&str>) -> Self {
        Self {
            object: "pods".to_owned(),
            resource: "pods",
            path: page("/api/v1/pods", limit, Some(labels), from),
        }
    }

    /// Returns the collection of Events, to create `name` in it.
    pub fn new_event(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("event {namespace}/{name}"),
            resource: "events",
            path: format!("/api/v1/namespaces/{namespace}/events"),
        }
    }

    pub fn event(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("event {namespace}/{name}"),
            resource: "events",
            path: format!("/api/v1/namespaces/{namespace}/events/{name}"),
        }
    }
}

fn page(path: &str, limit: u32, labels: Option<&str>, from: Option<&str>) -> String {
    let parameter = |name: &str, value: Option<&str>| {
        value.map_or_else(String::new, |value| {
            format!("&{name}={}", query_value(value))
        })
    };
    let labels = parameter("labelSelector", labels);
    let from = parameter("continue", from);
    format!("{path}?limit={limit}{labels}{from}")
}

pub const LEASE_NAMESPACE: &str = "kube-node-lease";
const SIGNING_REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const LEASES: &str = "/apis/coordination.k8s.io/v1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_and_a_continue_token_cannot_change_the_query() {
        let path = Endpoint::nodes(5, Some("a=b&c"), Some("a=b&c/é")).path;
        assert_eq!(
            path,
            "/api/v1/nodes?limit=5&labelSelector=a%3Db%26c&continue=a%3Db%26c%2F%C3%A9"
        );
        assert_eq!(Endpoint::nodes(5, None, None).path, "/api/v1/nodes?limit=5");
    }
}
