//! Where objects live: what errors call them, and their paths.

#![forbid(unsafe_code)]

use super::body::Limit;

/// One object, or one collection to create in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// For errors and log lines.
    pub(super) object: String,
    /// For counting: the same for all objects of a kind.
    pub(super) resource: &'static str,
    pub(super) path: String,
}

impl Endpoint {
    /// What an answer may take.
    pub(super) fn limit(&self) -> Limit {
        if self.path.contains("?limit=") {
            Limit::PAGE
        } else if self.resource == "pods" {
            Limit::POD
        } else {
            Limit::OBJECT
        }
    }

    /// Where Nodes are created; `name` is the one to be.
    #[must_use]
    pub fn new_node(name: &str) -> Self {
        Self {
            object: format!("node {name}"),
            resource: "nodes",
            path: "/api/v1/nodes".to_owned(),
        }
    }

    /// Some of all Nodes: at most `limit`, from where `from`, an answer's `continue`, says.
    #[must_use]
    pub fn nodes(limit: u32, from: Option<&str>) -> Self {
        let from = from.map_or_else(String::new, |from| format!("&continue={}", encoded(from)));
        Self {
            object: "nodes".to_owned(),
            resource: "nodes",
            path: format!("/api/v1/nodes?limit={limit}{from}"),
        }
    }

    /// What the server is.
    #[must_use]
    pub fn version() -> Self {
        Self {
            object: "version".to_owned(),
            resource: "version",
            path: "/version".to_owned(),
        }
    }

    /// Where questions about our own rights are asked.
    #[must_use]
    pub fn access_review() -> Self {
        Self {
            object: "access review".to_owned(),
            resource: "selfsubjectaccessreviews",
            path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
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

    /// A pod of ours. Whatever the server has in memory will do.
    #[must_use]
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self {
            object: format!("pod {namespace}/{name}"),
            resource: "pods",
            path: format!("/api/v1/namespaces/{namespace}/pods/{name}?resourceVersion=0"),
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

/// Any text as the value of a query: all but letters and digits as `%xx`.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Where the Leases of Nodes are.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASES: &str = "/apis/coordination.k8s.io/v1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_list_goes_on_cannot_change_what_is_asked() {
        let path = Endpoint::nodes(5, Some("a=b&c/é")).path;
        assert_eq!(path, "/api/v1/nodes?limit=5&continue=a%3Db%26c%2F%C3%A9");
        assert_eq!(Endpoint::nodes(5, None).path, "/api/v1/nodes?limit=5");
    }
}
