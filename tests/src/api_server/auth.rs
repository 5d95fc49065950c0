//! Defines users and their permissions: administrators, nodes, and granted ones.

use serde_json::Value;

use super::failure::Failure;
use super::query::Selector;
use super::resource::{Part, Resource, Target};
use super::store::Store;

/// A user and their groups, as the API server sees them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// For instance `system:node:worker-1`, `admin`, `system:serviceaccount:…`.
    pub user: String,
    /// For instance `system:nodes`, `system:masters`.
    pub groups: Vec<String>,
}

impl Identity {
    /// Returns an identity with all permissions.
    pub fn admin() -> Self {
        Self::new("admin", &["system:masters", "system:authenticated"])
    }

    pub fn node(name: &str) -> Self {
        let user = format!("system:node:{name}");
        Self::new(&user, &["system:nodes", "system:authenticated"])
    }

    /// Returns any other user, who has no permission until one is granted.
    pub fn user(name: &str) -> Self {
        Self::new(name, &["system:authenticated"])
    }

    /// Returns the identity of a certificate that is invalid or has expired.
    pub(super) fn unknown() -> Self {
        Self::new("", &[])
    }

    pub(super) fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    fn new(user: &str, groups: &[&str]) -> Self {
        Self {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    pub(super) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }

    /// Returns the name of the node that the identity belongs to.
    pub(super) fn node_name(&self) -> Option<&str> {
        let name = self.user.strip_prefix("system:node:")?;
        self.is_in("system:nodes").then_some(name)
    }
}

/// A permission of a user, as in a cluster role. `*` means all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub user: String,
    /// One of `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// For instance `nodes`, `nodes/status`, `leases`.
    pub resource: String,
}

/// A request to the authorizer.
#[derive(Debug)]
pub(super) struct Access<'a> {
    pub(super) verb: &'a str,
    pub(super) target: &'a Target,
    /// Selector of a list or watch.
    pub(super) selector: &'a Selector,
}

impl Access<'_> {
    fn resource(&self) -> String {
        match self.target.part {
            Part::Object => self.target.resource.plural.to_owned(),
            Part::Status => format!("{}/status", self.target.resource.plural),
            Part::Proxy => format!("{}/proxy", self.target.resource.plural),
        }
    }

    /// Returns 403 with the API server's message if `identity` lacks the permission.
    pub(super) fn check(
        &self,
        identity: &Identity,
        grants: &[Grant],
        store: &Store,
    ) -> Result<(), Failure> {
        if self.allowed(identity, grants, store) {
            return Ok(());
        }
        let Target {
            resource,
            namespace,
            name,
            ..
        } = self.target;
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let why = format!(
            "User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {place}",
            identity.user,
            self.verb,
            self.resource(),
            resource.group
        );
        Err(Failure::forbidden(resource, name, &why))
    }

    pub(super) fn allowed(&self, identity: &Identity, grants: &[Grant], store: &Store) -> bool {
        let granted = |grant: &Grant| {
            grant.user == identity.user
                && (grant.verb == "*" || grant.verb == self.verb)
                && (grant.resource == "*" || grant.resource == self.resource())
        };
        let as_node = |node: &str| self.allowed_to_node(node, store);
        identity.is_in("system:masters")
            || grants.iter().any(granted)
            || identity.node_name().is_some_and(as_node)
    }

    // Implements the node authorizer of 1.32 and newer, which checks selectors.
    //
    // https://kubernetes.io/docs/reference/access-authn-authz/node/
    fn allowed_to_node(&self, node: &str, store: &Store) -> bool {
        let Target {
            resource,
            namespace,
            name,
            part,
        } = self.target;
        let reads_many = matches!(self.verb, "list" | "watch");
        match (resource.plural, part) {
            ("nodes", Part::Object) if reads_many => {
                self.selector.only("metadata.name") == Some(node)
            }
            ("nodes", Part::Object) => match self.verb {
                // The name is in the body, which the admission checks.
                "create" => true,
                "get" | "update" | "patch" => name == node,
                _ => false,
            },
            ("nodes" | "pods", Part::Status) => {
                let permitted = resource.plural == "pods" || name == node;
                permitted && matches!(self.verb, "update" | "patch")
            }
            ("leases", _) => {
                let permitted = name == node || name.is_empty() && self.verb == "create";
                permitted && !reads_many && namespace == "kube-node-lease"
            }
            ("certificatesigningrequests", Part::Object) => {
                reads_many || matches!(self.verb, "create" | "get")
            }
            ("events", _) => matches!(self.verb, "create" | "update" | "patch"),
            ("pods", Part::Object) if reads_many => {
                self.selector.only("spec.nodeName") == Some(node)
            }
            ("pods", Part::Object) => {
                let key = (namespace.clone(), name.clone());
                let pod = store.get(resource, &key);
                let permitted = pod.is_some_and(|pod| pod["spec"]["nodeName"] == node);
                permitted && matches!(self.verb, "get" | "delete")
            }
            _ => false,
        }
    }
}

/// Returns why the NodeRestriction admission rejects a write by a node: `old` and `new` are the
/// object before and after, `old` absent at creation.
pub(super) fn restrict_node(
    node: &str,
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Failure> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |why: String| Err(Failure::forbidden(resource, name, &why));
    match resource.plural {
        "nodes" if name != node => {
            let why = format!("node \"{node}\" is not allowed to modify node \"{name}\"");
            return refuse(why);
        }
        "leases" if name != node => {
            return refuse(
                "can only access node lease with the same name as the requesting node".to_owned(),
            );
        }
        "pods" if new["spec"]["nodeName"] != node => {
            let why = format!(
                "node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"
            );
            return refuse(why);
        }
        "nodes" => {}
        _ => return Ok(()),
    }
    let labels = changed_labels(old, new);
    let denied: Vec<&str> = labels.into_iter().filter(|label| !may_set(label)).collect();
    if !denied.is_empty() {
        let verb = if old.is_some() { "modify" } else { "set" };
        let list = denied.join(", ");
        return refuse(format!(
            "is not allowed to {verb} the following labels: {list}"
        ));
    }
    let Some(old) = old else { return Ok(()) };
    if old["spec"]["taints"] != new["spec"]["taints"] {
        return refuse(format!("node \"{node}\" is not allowed to modify taints"));
    }
    if old["metadata"]["ownerReferences"] != new["metadata"]["ownerReferences"] {
        return refuse(format!(
            "node \"{node}\" is not allowed to modify ownerReferences"
        ));
    }
    Ok(())
}

fn changed_labels<'a>(old: Option<&'a Value>, new: &'a Value) -> Vec<&'a str> {
    let labels = |object: &'a Value| object["metadata"]["labels"].as_object();
    let (old, new) = (old.and_then(labels), labels(new));
    let names = [old, new]
        .into_iter()
        .flatten()
        .flat_map(|labels| labels.keys());
    let mut changed: Vec<&str> = names
        .filter(|name| old.and_then(|old| old.get(*name)) != new.and_then(|new| new.get(*name)))
        .map(String::as_str)
        .collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

// https://github.com/kubernetes/kubernetes/blob/v1.33.0/staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go
fn may_set(label: &str) -> bool {
    const ALLOWED: [&str; 12] = [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    let Some((domain, _)) = label.split_once('/') else {
        return true;
    };
    let below = |parent: &str| {
        domain == parent
            || domain
                .strip_suffix(parent)
                .is_some_and(|prefix| prefix.ends_with('.'))
    };
    if below("node-restriction.kubernetes.io") {
        return false;
    }
    ALLOWED.contains(&label)
        || below("kubelet.kubernetes.io")
        || below("node.kubernetes.io")
        || !(below("kubernetes.io") || below("k8s.io"))
}
