//! The availability of the API server, and the permissions of the agent.

use std::time::Duration;

use futures_util::future::join_all;
use nodepulse_core::settings::Mode;
use nodepulse_io::clock::Clock;
use nodepulse_kube::access::{ResourceAttributes, allowed, version};
use nodepulse_kube::convert::time;
use nodepulse_kube::credentials::bootstrap::{self, KubeconfigState};
use nodepulse_kube::endpoint::LEASE_NAMESPACE;
use nodepulse_kube::{ApiError, Client, Refusal};
use nodepulse_linux::certificate_store::{CURRENT, CertificateStore};

use super::super::settings;
use super::report::{Item, Verdict};
use crate::config::Config;
use crate::telemetry::certificate::describe;

/// Timeout of a request. A silent server costs two: all permissions are requested at once.
const DEADLINE: Duration = Duration::from_secs(3);

const NAME: &str = "API server";

/// Returns `Err` if the credentials cannot be used at all, which `run` would refuse too.
pub(super) async fn items(config: &Config) -> Result<Vec<Item>, String> {
    let certificate = certificate(config)?;
    // Without one, the API server cannot be asked.
    let missing = certificate
        .as_ref()
        .filter(|item| item.verdict != Verdict::Ok);
    if let Some(missing) = missing {
        return Ok(vec![missing.clone()]);
    }
    let Some(client) = settings::client(config, DEADLINE)
        .await
        .map_err(|obstacle| obstacle.to_string())?
    else {
        let found = "not configured: conditions are evaluated and logged, but not sent";
        return Ok(vec![Item::ok(found).named(NAME)]);
    };
    let version = version(&client).await;
    let reached = reached(version).named(NAME);
    let is_reachable = reached.verdict == Verdict::Ok;
    let permissions = permissions(config);
    let mut items = vec![reached];
    items.extend(certificate);
    if is_reachable {
        let answers = permissions.iter().map(|one| permission(&client, one));
        items.extend(join_all(answers).await);
    } else {
        let unknown = |one: &Permission| {
            one.item("unknown: the API server is not reachable", one.if_denied())
        };
        items.extend(permissions.iter().map(unknown));
    }
    Ok(items)
}

/// Checks the client certificate, if node mode requests one.
fn certificate(config: &Config) -> Result<Option<Item>, String> {
    let Some(certificate) = &config.certificate else {
        return Ok(None);
    };
    let pair = certificate.directory.join(CURRENT);
    match bootstrap::state(&certificate.kubeconfig, &pair).map_err(|err| err.to_string())? {
        // The API server checks these credentials.
        KubeconfigState::Other => return Ok(None),
        KubeconfigState::Missing | KubeconfigState::Invalid(_) | KubeconfigState::Requested => {}
    }
    let now = Clock::kernel().now().wall;
    let store = CertificateStore::existing(&certificate.directory, &config.node_name);
    let item = match store.current(now) {
        Ok(found) => Item::ok(format!("valid until {}", time(found.not_after))),
        Err(problem) => Item::degraded(
            describe(&problem, now),
            "start nodepulse, which requests one; check kubectl get csr",
        ),
    };
    Ok(Some(item.named("client certificate")))
}

fn reached(version: Result<Option<String>, ApiError>) -> Item {
    match version {
        Ok(version) => {
            let version = version.unwrap_or_else(|| "unknown".to_owned());
            Item::ok(format!("answers, version {version}"))
        }
        Err(err) => {
            let cure = match err.refusal() {
                Some(Refusal::Unauthorized | Refusal::Forbidden) => {
                    "renew the certificate or the token in the kubeconfig"
                }
                Some(_) => "check which server answers at the address in the kubeconfig",
                None => {
                    "check the server and certificate authority in the kubeconfig, and the network"
                }
            };
            Item::missing(err.chain(), cure)
        }
    }
}

async fn permission(client: &Client, permission: &Permission) -> Item {
    match allowed(client, &permission.access).await {
        Ok(true) => Item::ok("allowed").named(permission.name()),
        Ok(false) => permission.item("not allowed", permission.if_denied()),
        Err(err) => permission.item(&format!("unknown: {}", err.chain()), permission.if_denied()),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Permission {
    access: ResourceAttributes,
    /// Effect of a denial; `None` if the mode requires the permission.
    without: Option<&'static str>,
}

impl Permission {
    fn new(verb: &'static str, resource: &'static str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let access = ResourceAttributes {
            verb,
            group: "",
            resource,
            subresource,
            namespace: "",
            name: String::new(),
            field: None,
        };
        Self {
            access,
            without: None,
        }
    }

    fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.access.name);
        self
    }

    fn inside(mut self, group: &'static str, namespace: &'static str) -> Self {
        self.access.group = group;
        self.access.namespace = namespace;
        self
    }

    fn with_field(mut self, field: &'static str, value: &str) -> Self {
        self.access.field = Some((field, value.to_owned()));
        self
    }

    fn optional(mut self, without: &'static str) -> Self {
        self.without = Some(without);
        self
    }

    fn name(&self) -> String {
        format!("may {} {}", self.access.verb, self.resource())
    }

    fn resource(&self) -> String {
        match (self.access.resource, self.access.subresource) {
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        }
    }

    fn if_denied(&self) -> Verdict {
        match self.without {
            Some(_) => Verdict::Degraded,
            None => Verdict::Missing,
        }
    }

    fn item(&self, found: &str, verdict: Verdict) -> Item {
        let (verb, group, resource) = (self.access.verb, self.access.group, self.resource());
        let place = match self.access.namespace {
            "" => "in a ClusterRole".to_owned(),
            namespace => format!("in a Role of namespace {namespace}"),
        };
        let cure = format!("grant verb {verb} on {resource} (apiGroups: [{group:?}]) {place}");
        let without = self
            .without
            .map_or_else(String::new, |what| format!("; {what}"));
        Item::new(verdict, format!("{found}{without}"), cure).named(self.name())
    }
}

fn permissions(config: &Config) -> Vec<Permission> {
    const WITHOUT_PODS: &str = "OOM kills are reported on the Node instead of the Pod";
    const WITHOUT_PATCH: &str = "repeated Events are lost";

    let node = config.node_name.as_str();
    let mut all = vec![
        Permission::new("get", "nodes").named(node),
        Permission::new("patch", "nodes/status").named(node),
    ];
    match config.mode {
        Mode::Node => {
            if config.register_node {
                all.push(Permission::new("create", "nodes"));
            }
            for verb in ["list", "watch"] {
                let one = Permission::new(verb, "nodes").named(node);
                all.push(one.with_field("metadata.name", node));
            }
            for verb in ["get", "create", "update"] {
                let name = if verb == "create" { "" } else { node };
                let one = Permission::new(verb, "leases").named(name);
                all.push(one.inside("coordination.k8s.io", LEASE_NAMESPACE));
            }
            if config.certificate.is_some() {
                for verb in ["create", "get"] {
                    let one = Permission::new(verb, "certificatesigningrequests");
                    all.push(one.inside("certificates.k8s.io", ""));
                }
            }
            all.push(Permission::new("create", "events").inside("", "default"));
            let patch = Permission::new("patch", "events").inside("", "default");
            all.push(patch.optional(WITHOUT_PATCH));
        }
        Mode::Companion => {
            // An Event about a Pod is in the Pod's namespace.
            all.push(Permission::new("create", "events"));
            all.push(Permission::new("patch", "events").optional(WITHOUT_PATCH));
            for verb in ["list", "watch", "get"] {
                let one = Permission::new(verb, "pods");
                let one = one.with_field("spec.nodeName", node);
                all.push(one.optional(WITHOUT_PODS));
            }
            if !config.nodepulse_taints.is_empty() {
                all.push(Permission::new("patch", "nodes").named(node));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn names(mode: &str, register: &str) -> Vec<String> {
        let overrides = Overrides {
            mode: Some(mode.to_owned()),
            register_node: Some(register.to_owned()),
            ..Overrides::default()
        };
        let absent = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let config = Config::load(&overrides, &|_| None, &absent, "worker-1").unwrap();
        let required = permissions(&config)
            .into_iter()
            .filter(|one| one.without.is_none());
        required.map(|one| one.name()).collect()
    }

    #[test]
    fn each_mode_requires_only_what_it_writes() {
        let companion = [
            "may get nodes",
            "may patch nodes/status",
            "may create events",
        ];
        assert_eq!(names("companion", "true"), companion);
        let node = [
            "may get nodes",
            "may patch nodes/status",
            "may create nodes",
            "may list nodes",
            "may watch nodes",
            "may get leases",
            "may create leases",
            "may update leases",
            "may create events",
        ];
        assert_eq!(names("node", "true"), node);
        let adopted: Vec<&str> = node
            .into_iter()
            .filter(|name| *name != "may create nodes")
            .collect();
        assert_eq!(names("node", "false"), adopted);
    }
}
