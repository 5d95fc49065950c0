//! Creates the Node, or adopts an existing one.

#![forbid(unsafe_code)]

use std::time::Duration;

use nodepulse_core::node_status::{ATTACH_DETACH, NodeStatus, Registration};
use nodepulse_core::units::quantity::Quantity;
use serde_json::{Map, Value, json};
use tracing::{debug, info};

use super::convert::{initial_node, object, object_at};
use super::patch::status_patch;
use super::{ApiError, Client, Disposition, Endpoint, Refusal};
use nodepulse_core::backoff::Backoff;

/// The checkpoint that a device manager leaves on its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCheckpoint {
    /// The devices of the stored Node still belong to this machine.
    Present,
    /// The machine was installed again: extended resources of the stored Node are set to zero until
    /// a device plugin announces them again.
    Absent,
}

/// The labels of an existing Node that are corrected; all others belong to other clients.
const DEFAULT_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

#[derive(Debug, Clone, PartialEq)]
pub enum Registered {
    Created(Value),
    Adopted(Value),
}

/// Registers the Node, one attempt at a time. The caller computes the status again for each
/// attempt.
#[derive(Debug, Clone)]
pub struct Registrar {
    backoff: Backoff,
    /// The wait that the server requested after the last attempt.
    asked: Duration,
    /// Adopts only a Node with this label and value.
    label: Option<(&'static str, &'static str)>,
}

impl Default for Registrar {
    fn default() -> Self {
        Self {
            backoff: Backoff::REGISTRATION,
            asked: Duration::ZERO,
            label: None,
        }
    }
}

impl Registrar {
    /// Adopts only a Node with this label and value; another one is an error.
    pub fn requiring(label: (&'static str, &'static str)) -> Self {
        Self {
            label: Some(label),
            ..Self::default()
        }
    }

    /// Returns the wait before the next attempt: the first one waits too, as a kubelet's does.
    pub fn next_delay(&mut self) -> Duration {
        self.backoff.advance().max(self.asked)
    }

    /// Makes one attempt.
    ///
    /// Every failure may be retried without limit: even a missing permission can be granted later.
    pub async fn attempt(
        &mut self,
        client: &Client,
        registration: &Registration,
        status: &NodeStatus,
        checkpoint: DeviceCheckpoint,
    ) -> Result<Registered, ApiError> {
        let result = self
            .register(client, registration, status, checkpoint)
            .await;
        self.asked = match result.as_ref().map_err(ApiError::disposition) {
            Err(Disposition::RetryAfter(wait)) => wait.min(client.deadline()),
            Err(Disposition::Retry | Disposition::Reread | Disposition::GiveUp) | Ok(_) => {
                Duration::ZERO
            }
        };
        result
    }

    async fn register(
        &self,
        client: &Client,
        registration: &Registration,
        status: &NodeStatus,
        checkpoint: DeviceCheckpoint,
    ) -> Result<Registered, ApiError> {
        let name = &registration.name;
        let fresh = initial_node(registration, status);
        let err = match client.create(&Endpoint::new_node(name), &fresh).await {
            Ok(stored) => {
                info!(node = name.as_str(), "node created");
                return Ok(Registered::Created(stored));
            }
            Err(err) => err,
        };
        // Even without permission to create a Node, an existing one can be adopted.
        if !matches!(
            err.refusal(),
            Some(Refusal::AlreadyExists | Refusal::Forbidden)
        ) {
            return Err(err);
        }
        debug!(
            err = err.as_dyn(),
            "cannot create the node, trying to adopt it"
        );
        let stored = match client.get(&Endpoint::node(name)).await {
            Ok(stored) => stored,
            // There is none to adopt: the missing permission is the cause.
            Err(missing)
                if missing.refusal() == Some(Refusal::NotFound)
                    && err.refusal() == Some(Refusal::Forbidden) =>
            {
                return Err(err);
            }
            Err(err) => return Err(err),
        };
        if let Some((label, value)) = self.label
            && labels(&stored).and_then(|labels| labels.get(label)?.as_str()) != Some(value)
        {
            let node = name.clone();
            return Err(ApiError::OtherNode { node });
        }
        let desired = reconciled(&stored, &fresh, status, checkpoint);
        let adopted = match status_patch(&stored, &desired) {
            Some(patch) => {
                let patch = patch.to_string();
                client
                    .patch(&Endpoint::node_status(name), patch.as_bytes())
                    .await?
            }
            None => stored,
        };
        info!(node = name.as_str(), "node adopted");
        Ok(Registered::Adopted(adopted))
    }
}

/// Returns `stored` with the changes of a registration. Everything else that differs waits for the
/// first status patch, or stays: the user's labels, taints, provider ID.
fn reconciled(
    stored: &Value,
    fresh: &Value,
    status: &NodeStatus,
    checkpoint: DeviceCheckpoint,
) -> Value {
    let mut node = stored.clone();
    reconcile_metadata(&mut node, fresh);
    let part = object(&mut node, "status");
    for key in ["capacity", "allocatable"] {
        if let (None, Some(computed)) = (part.get(key), fresh.pointer(&format!("/status/{key}"))) {
            part.insert(key.to_owned(), computed.clone());
        }
    }
    match checkpoint {
        DeviceCheckpoint::Absent => zero_extended_resources(part),
        DeviceCheckpoint::Present => {}
    }
    reconcile_huge_pages(part, status);
    node
}

fn labels(node: &Value) -> Option<&Map<String, Value>> {
    node.pointer("/metadata/labels")?.as_object()
}

fn reconcile_metadata(node: &mut Value, fresh: &Value) {
    let part = |key: &str| fresh.get("metadata")?.get(key)?.as_object();
    let wanted = part("annotations").and_then(|annotations| annotations.get(ATTACH_DETACH));
    let stored = node.pointer("/metadata/annotations");
    if stored.and_then(|stored| stored.get(ATTACH_DETACH)) != wanted {
        let annotations = object_at(node, ["metadata", "annotations"]);
        match wanted {
            Some(value) => annotations.insert(ATTACH_DETACH.to_owned(), value.clone()),
            None => annotations.remove(ATTACH_DETACH),
        };
    }
    let Some(fresh) = part("labels") else { return };
    let labels = object_at(node, ["metadata", "labels"]);
    for key in DEFAULT_LABELS {
        match fresh.get(key) {
            Some(value) if value == "" => {
                labels.remove(key);
            }
            Some(value) => {
                labels.insert(key.to_owned(), value.clone());
            }
            None => {}
        }
    }
}

fn zero_extended_resources(status: &mut Map<String, Value>) {
    for key in ["capacity", "allocatable"] {
        let Some(Value::Object(map)) = status.get_mut(key) else {
            continue;
        };
        for (name, value) in map {
            // A name with a domain is an extended resource, except with Kubernetes' domain.
            if name.contains('/') && !name.contains("kubernetes.io/") {
                *value = json!("0");
            }
        }
    }
}

fn reconcile_huge_pages(status: &mut Map<String, Value>, computed: &NodeStatus) {
    for (key, computed_part) in [
        ("capacity", &computed.capacity),
        ("allocatable", &computed.allocatable),
    ] {
        let of_huge_pages = |name: &str| name.starts_with("hugepages-");
        let computed_part: std::collections::BTreeMap<String, Quantity> = computed_part
            .iter()
            .filter(|(name, _)| of_huge_pages(name))
            .map(|(name, quantity)| (name.clone(), *quantity))
            .collect();
        if let Some(Value::Object(map)) = status.get_mut(key) {
            map.retain(|name, _| !of_huge_pages(name) || computed.capacity.contains_key(name));
        }
        super::convert::apply_quantities(status, key, &computed_part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::tests::{registration, status};
    use crate::scripted::{Reply, Scripted, refusal};

    fn node() -> Value {
        initial_node(&registration(), &status(0))
    }

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn an_existing_node_gets_only_the_changes_of_a_registration() {
        use DeviceCheckpoint::{Absent, Present};
        type Edit = fn(&mut Value);
        #[rustfmt::skip]
        let rows: [(&str, Edit, DeviceCheckpoint, Option<Value>); 8] = [
            ("nothing differs", |_| {}, Present, None),
            ("a wrong default label", |n| n["metadata"]["labels"]["kubernetes.io/arch"] = json!("arm64"),
                Present, Some(json!({ "metadata": { "labels": { "kubernetes.io/arch": "amd64" } } }))),
            (
                "labels, taints and addresses of others",
                |n| {
                    n["metadata"]["labels"]["mine"] = json!("1");
                    n["spec"]["taints"] = json!([{ "key": "k", "effect": "NoSchedule" }]);
                    n["status"]["addresses"] = json!([]);
                    n["status"]["capacity"]["memory"] = json!("5Gi");
                },
                Present,
                None,
            ),
            ("an annotation that the new object does not have",
                |n| n["metadata"]["annotations"] = json!({ ATTACH_DETACH: "true", "a": "b" }), Present,
                Some(json!({ "metadata": { "annotations": { ATTACH_DETACH: null } } }))),
            (
                "no capacity at all",
                |n| {
                    n["status"].as_object_mut().unwrap().remove("capacity");
                },
                Present,
                Some(json!({ "status": { "capacity": { "memory": "1Gi" } } })),
            ),
            ("devices, and a checkpoint of them", |n| n["status"]["capacity"]["example.com/gpu"] = json!("2"),
                Present, None),
            (
                "devices of the previous installation",
                |n| {
                    n["status"]["capacity"]["example.com/gpu"] = json!("2");
                    n["status"]["allocatable"]["example.com/gpu"] = json!("1");
                    n["status"]["capacity"]["x.kubernetes.io/odd"] = json!("3");
                },
                Absent,
                Some(json!({ "status": {
                    "capacity": { "example.com/gpu": "0" },
                    "allocatable": { "example.com/gpu": "0" },
                } })),
            ),
            (
                "huge pages that the machine does not have",
                |n| {
                    n["status"]["capacity"]["hugepages-1Gi"] = json!("1Gi");
                    n["status"]["allocatable"]["hugepages-1Gi"] = json!("1Gi");
                },
                Present,
                Some(json!({ "status": {
                    "capacity": { "hugepages-1Gi": null },
                    "allocatable": { "hugepages-1Gi": null },
                } })),
            ),
        ];
        for (name, edit, checkpoint, expected) in rows {
            let mut stored = node();
            edit(&mut stored);
            let desired = reconciled(&stored, &node(), &status(0), checkpoint);
            assert_eq!(status_patch(&stored, &desired), expected, "{name}");
        }
    }

    #[test]
    fn huge_pages_of_the_machine_are_added_and_corrected() {
        let mut computed = status(0);
        for map in [&mut computed.capacity, &mut computed.allocatable] {
            map.insert("hugepages-2Mi".to_owned(), quantity("4Mi"));
        }
        let mut stored = node();
        stored["status"]["capacity"]["hugepages-2Mi"] = json!("4096Ki");
        let fresh = initial_node(&registration(), &computed);
        let desired = reconciled(&stored, &fresh, &computed, DeviceCheckpoint::Present);
        assert_eq!(
            status_patch(&stored, &desired),
            Some(json!({ "status": { "allocatable": { "hugepages-2Mi": "4Mi" } } })),
            "added to one, the same by value in the other"
        );
    }

    async fn attempt(server: &Scripted) -> Result<Registered, ApiError> {
        Registrar::default()
            .attempt(
                &server.client(),
                &registration(),
                &status(0),
                DeviceCheckpoint::Present,
            )
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_created_once() {
        let server = Scripted::new([Reply::json(201, node())]);
        let registered = attempt(&server).await.unwrap();
        assert_eq!(registered, Registered::Created(node()));
        assert_eq!(server.lines(), ["POST /api/v1/nodes"]);
        assert_eq!(server.body(0), node());
    }

    #[tokio::test(start_paused = true)]
    async fn an_existing_node_is_adopted_even_without_permission_to_create() {
        for (code, reason) in [(409, "AlreadyExists"), (403, "Forbidden")] {
            let server = Scripted::new([refusal(code, reason), Reply::json(200, node())]);
            let registered = attempt(&server).await.unwrap();
            assert_eq!(registered, Registered::Adopted(node()), "{reason}");
            assert_eq!(
                server.lines(),
                ["POST /api/v1/nodes", "GET /api/v1/nodes/worker-1"],
                "{reason}: it matches, so nothing is patched"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_adopted_node_is_corrected_through_its_status() {
        let mut stored = node();
        stored["metadata"]["labels"]["kubernetes.io/arch"] = json!("arm64");
        let server = Scripted::new([
            refusal(409, "AlreadyExists"),
            Reply::json(200, stored),
            Reply::json(200, node()),
        ]);
        let registered = attempt(&server).await.unwrap();
        assert_eq!(registered, Registered::Adopted(node()));
        assert_eq!(server.lines()[2], "PATCH /api/v1/nodes/worker-1/status");
        assert_eq!(
            server.body(2),
            json!({ "metadata": { "labels": { "kubernetes.io/arch": "amd64" } } })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_node_with_the_required_label_is_adopted() {
        for (value, is_adopted) in [(None, false), (Some("false"), false), (Some("true"), true)] {
            let mut stored = node();
            if let Some(value) = value {
                stored["metadata"]["labels"]["simulated"] = json!(value);
            }
            let server = Scripted::new([refusal(409, "AlreadyExists"), Reply::json(200, stored)]);
            let registered = Registrar::requiring(("simulated", "true"))
                .attempt(
                    &server.client(),
                    &registration(),
                    &status(0),
                    DeviceCheckpoint::Present,
                )
                .await;
            assert_eq!(registered.is_ok(), is_adopted, "{value:?}");
            assert_eq!(server.lines().len(), 2, "{value:?}: nothing is written");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn any_other_failure_is_one_failed_attempt() {
        let server = Scripted::new([refusal(500, ""), refusal(403, ""), refusal(404, "NotFound")]);
        let mut registrar = Registrar::default();
        for expected in [Refusal::Server, Refusal::Forbidden] {
            let err = registrar
                .attempt(
                    &server.client(),
                    &registration(),
                    &status(0),
                    DeviceCheckpoint::Present,
                )
                .await
                .unwrap_err();
            assert_eq!(err.refusal(), Some(expected));
        }
        assert_eq!(server.lines().len(), 3);
    }

    #[test]
    fn attempts_are_delayed_and_a_throttling_server_is_respected() {
        let mut registrar = Registrar::default();
        assert_eq!(registrar.next_delay(), Duration::from_millis(100));
        registrar.asked = Duration::from_secs(3);
        assert_eq!(registrar.next_delay(), Duration::from_secs(3));
        registrar.asked = Duration::ZERO;
        assert_eq!(registrar.next_delay(), Duration::from_millis(400));
    }
}
