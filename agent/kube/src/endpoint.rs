//! Objects and collections of the API: their names in errors, and their paths.

#![forbid(unsafe_code)]

use super::body::Limit;

/// One object, or one collection in which objects are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// For errors and log lines.
    pub(super) object: String,
    /// For metrics: the same for all objects of a kind.
    pub(super) resource: &'static str,
    pub(super) path: String,
}

impl Endpoint {
    /// The limit of an answer.
    pub(super) fn limit(&self) -> Limit {
        if self.path.contains("?limit=") {
            Limit::PAGE
        } else if self.resource == "pods" {
            Limit::POD
        } else {
            Limit::OBJECT
        }
    }

    /// The collection of Nodes, to create `name` in it.
    pub fn new_node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: "/api/v1/nodes".to_owned(),
        }
    }

    /// A page of all Nodes, or of those that the label selector `labels` selects: at most `limit`, after
    /// `from`, the `continue` of the previous answer.
    pub fn nodes(limit: u32, labels: Option<&str>, from: Option<&str>) -> Self {
        let parameter = |name: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!("&{name}={}", encoded(value)))
        };
        let (labels, from) = (
            parameter("labelSelector", labels),
            parameter("continue", from),
        );
        Self {
            object: "nodes".to_owned(),
            resource: "nodes",
            path: format!("/api/v1/nodes?limit={limit}{labels}{from}"),
        }
    }

    /// The server's version.
    pub fn version() -> Self {
        Self {
            object: "version".to_owned(),
            resource: "version",
            path: "/version".to_owned(),
        }
    }

    /// The collection of certificate signing requests, to create `name` in it.
    pub fn new_signing_request(name: &str) -> Self {
        Self {
            object: format!("certificate signing request {name}"),
            resource: "certificatesigningrequests",
            path: SIGNING_REQUESTS.to_owned(),
        }
    }

    /// A certificate signing request.
    pub fn signing_request(name: &str) -> Self {
        Self {
            path: format!("{SIGNING_REQUESTS}/{name}"),
            ..Self::new_signing_request(name)
        }
    }

    /// The review of nodepulse's own permissions.
    pub fn access_review() -> Self {
        Self {
            object: "access review".to_owned(),
            resource: "selfsubjectaccessreviews",
            path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
        }
    }

    /// The Node.
    pub fn node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: format!("/api/v1/nodes/{name}"),
        }
    }

    /// The Node's status.
    pub fn node_status(name: &str) -> Self {
        Self {
            object: format!("status of node {name}"),
            resource: "nodes/status",
            path: format!("/api/v1/nodes/{name}/status"),
        }
    }

    /// The collection of node Leases, to create `name` in it.
    pub fn new_lease(name: &str) -> Self {
        Self {
            object: format!("lease {name}"),
            resource: "leases",
            path: format!("{LEASES}/namespaces/{LEASE_NAMESPACE}/leases"),
        }
    }

    /// The Lease of a Node.
    pub fn lease(name: &str) -> Self {
        Self {
            object: format!("lease {name}"),
            resource: "leases",
            path: format!("{LEASES}/namespaces/{LEASE_NAMESPACE}/leases/{name}"),
        }
    }

    /// A pod of this node. The server may answer from its cache.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("pod {namespace}/{name}"),
            resource: "pods",
            path: format!("/api/v1/namespaces/{namespace}/pods/{name}?resourceVersion=0"),
        }
    }

    /// The collection of Events, to create `name` in it.
    pub fn new_event(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("event {namespace}/{name}"),
            resource: "events",
            path: format!("/api/v1/namespaces/{namespace}/events"),
        }
    }

    /// An existing Event.
    pub fn event(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("event {namespace}/{name}"),
            resource: "events",
            path: format!("/api/v1/namespaces/{namespace}/events/{name}"),
        }
    }
}

/// Any text as the value of a query: everything but letters and digits as `%xx`.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The namespace of node Leases.
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
