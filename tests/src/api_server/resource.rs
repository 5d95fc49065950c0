//! Defines the resources that the server supports, and their paths.

use super::failure::Failure;

/// One kind of object, as discovery describes it.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) short: &'static str,
    pub(super) kind: &'static str,
    pub(super) scope: Scope,
    pub(super) status: StatusSubresource,
    /// Dotted fields that a `fieldSelector` may name, in addition to `metadata.name` and
    /// `metadata.namespace`.
    pub(super) fields: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Cluster,
    Namespaced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusSubresource {
    Present,
    Absent,
}

/// The resources, all of version `v1`.
pub(super) static RESOURCES: [Resource; 21] = [
    Resource {
        group: "",
        plural: "nodes",
        singular: "node",
        short: "no",
        kind: "Node",
        scope: Scope::Cluster,
        status: StatusSubresource::Present,
        fields: &["spec.unschedulable"],
    },
    Resource {
        group: "",
        plural: "pods",
        singular: "pod",
        short: "po",
        kind: "Pod",
        scope: Scope::Namespaced,
        status: StatusSubresource::Present,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    },
    Resource {
        group: "",
        plural: "events",
        singular: "event",
        short: "ev",
        kind: "Event",
        scope: Scope::Namespaced,
        status: StatusSubresource::Absent,
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    },
    Resource {
        group: "",
        plural: "namespaces",
        singular: "namespace",
        short: "ns",
        kind: "Namespace",
        scope: Scope::Cluster,
        status: StatusSubresource::Present,
        fields: &["status.phase"],
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        short: "",
        kind: "Lease",
        scope: Scope::Namespaced,
        status: StatusSubresource::Absent,
        fields: &[],
    },
    Resource {
        group: "certificates.k8s.io",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        short: "csr",
        kind: "CertificateSigningRequest",
        scope: Scope::Cluster,
        status: StatusSubresource::Present,
        fields: &["spec.signerName"],
    },
    in_namespace("", "serviceaccounts", "serviceaccount", "ServiceAccount"),
    in_namespace("", "configmaps", "configmap", "ConfigMap"),
    in_namespace("", "services", "service", "Service"),
    in_namespace("", "resourcequotas", "resourcequota", "ResourceQuota"),
    in_namespace("apps", "daemonsets", "daemonset", "DaemonSet"),
    in_namespace("batch", "jobs", "job", "Job"),
    in_namespace("batch", "cronjobs", "cronjob", "CronJob"),
    in_namespace(
        "networking.k8s.io",
        "networkpolicies",
        "networkpolicy",
        "NetworkPolicy",
    ),
    of_cluster(RBAC, "clusterroles", "clusterrole", "ClusterRole"),
    of_cluster(
        RBAC,
        "clusterrolebindings",
        "clusterrolebinding",
        "ClusterRoleBinding",
    ),
    of_cluster(
        ADMISSION,
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    ),
    of_cluster(
        ADMISSION,
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
        "ValidatingAdmissionPolicyBinding",
    ),
    in_namespace(MONITORING, "podmonitors", "podmonitor", "PodMonitor"),
    in_namespace(
        MONITORING,
        "servicemonitors",
        "servicemonitor",
        "ServiceMonitor",
    ),
    in_namespace(
        MONITORING,
        "prometheusrules",
        "prometheusrule",
        "PrometheusRule",
    ),
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const MONITORING: &str = "monitoring.coreos.com";

/// Describes objects that are stored and have no further effect.
const fn stored(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    scope: Scope,
) -> Resource {
    Resource {
        group,
        plural,
        singular,
        short: "",
        kind,
        scope,
        status: StatusSubresource::Absent,
        fields: &[],
    }
}

const fn in_namespace(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    stored(group, plural, singular, kind, Scope::Namespaced)
}

const fn of_cluster(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    stored(group, plural, singular, kind, Scope::Cluster)
}

impl Resource {
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{}/v1", self.group)
        }
    }

    /// Returns `nodes` or `leases.coordination.k8s.io`, as in messages.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Returns the path of the collection, in `namespace` if its objects have one.
    pub(super) fn collection(&self, namespace: &str) -> String {
        let group = match self.group {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        match self.scope {
            Scope::Cluster => format!("{group}/{}", self.plural),
            Scope::Namespaced => format!("{group}/namespaces/{namespace}/{}", self.plural),
        }
    }

    /// Finds the resource of a group with this plural.
    pub(super) fn named(group: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES
            .iter()
            .find(|resource| resource.group == group && resource.plural == plural)
    }

    /// Finds the resource whose objects have this `apiVersion` and `kind`.
    pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        RESOURCES
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }
}

/// The object or collection that a path names.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) resource: &'static Resource,
    /// Empty for cluster-scoped objects and for lists across namespaces.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    pub(super) part: Part,
}

/// The whole object, its `/status`, or the proxy of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Object,
    Status,
    Proxy,
}

impl Target {
    /// Resolves `/api/v1/…` and `/apis/<group>/v1/…`; 404 for what the server does not serve.
    pub(super) fn parse(path: &str) -> Result<Self, Failure> {
        Self::resolve(path).ok_or_else(Failure::no_such_resource)
    }

    fn resolve(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, "v1", rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, plural, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if Resource::named(group, plural).is_some() =>
            {
                (*namespace, *plural, rest)
            }
            [plural, rest @ ..] => ("", *plural, rest),
            [] => return None,
        };
        let resource = Resource::named(group, plural)?;
        let (name, part) = match rest {
            [] => ("", Part::Object),
            [name] => (*name, Part::Object),
            [name, "status"] if resource.status == StatusSubresource::Present => {
                (*name, Part::Status)
            }
            _ => return None,
        };
        let scoped = resource.scope == Scope::Namespaced;
        if scoped && namespace.is_empty() && !name.is_empty() || !scoped && !namespace.is_empty() {
            return None;
        }
        Some(Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part,
        })
    }
}
