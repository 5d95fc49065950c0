//! Conversion between nodepulse's types and API objects. No other module knows both.
//!
//! API objects stay JSON values: unknown fields must survive a round trip.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use nodepulse_core::node_status::{
    Address, Condition, LABEL_ARCH, LABEL_OS, NodeInfo, NodeStatus, Registration, Status,
    StoredNode, Taint,
};
use nodepulse_core::reading::container_runtime::{NodeImage, RuntimeHandler};
use nodepulse_core::units::quantity::Quantity;

pub fn initial_node(registration: &Registration, status: &NodeStatus) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": registration.name },
    });
    let metadata = object(&mut node, "metadata");
    for (key, texts) in [
        ("labels", &registration.labels),
        ("annotations", &registration.annotations),
    ] {
        if !texts.is_empty() {
            metadata.insert(key.to_owned(), json!(texts));
        }
    }
    let spec = object(&mut node, "spec");
    if !registration.taints.is_empty() {
        let taints = registration.taints.iter().map(taint).collect();
        spec.insert("taints".to_owned(), Value::Array(taints));
    }
    if let Some(id) = &registration.provider_id {
        spec.insert("providerID".to_owned(), json!(id));
    }
    apply_status(object(&mut node, "status"), status);
    node
}

pub fn status_value(status: &NodeStatus) -> Value {
    let mut value = Map::new();
    apply_status(&mut value, status);
    Value::Object(value)
}

/// Returns `stored` with nodepulse's parts applied. Everything else is unchanged.
pub fn desired_node(stored: &Value, status: &NodeStatus) -> Value {
    let mut node = stored.clone();
    let labels = object_at(&mut node, ["metadata", "labels"]);
    for (key, value) in [
        (LABEL_OS, &status.node_info.operating_system),
        (LABEL_ARCH, &status.node_info.architecture),
    ] {
        if !value.is_empty() {
            labels.insert(key.to_owned(), json!(value));
        }
    }
    apply_status(object(&mut node, "status"), status);
    node
}

/// Extracts the parts of a Node that decisions depend on. Missing or malformed parts count as
/// absent.
pub fn stored_node(node: &Value) -> StoredNode {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    StoredNode {
        uid: text(node, "/metadata/uid"),
        conditions: conditions
            .into_iter()
            .flatten()
            .filter_map(stored_condition)
            .collect(),
        boot_id: text(node, "/status/nodeInfo/bootID"),
        capacity: quantities(node.pointer("/status/capacity")),
        unschedulable: node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)),
    }
}

/// Updates nodepulse's conditions in place and appends new ones in their order.
pub fn apply_conditions(stored: &mut Map<String, Value>, conditions: &[Condition]) {
    if conditions.is_empty() {
        return;
    }
    let list = stored.entry("conditions").or_insert(Value::Null);
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { return };
    for condition in conditions {
        let type_ = Some(condition.type_.as_str());
        let found = list
            .iter_mut()
            .find(|entry| entry.get("type").and_then(Value::as_str) == type_);
        match found.and_then(Value::as_object_mut) {
            Some(entry) => entry.extend(condition_fields(condition)),
            None => list.push(Value::Object(condition_fields(condition))),
        }
    }
}

/// Sets each quantity whose value differs. An equal one keeps the server's format, so that
/// `1048576Ki` instead of `1Gi` is not a change.
pub(super) fn apply_quantities(
    stored: &mut Map<String, Value>,
    key: &str,
    conditions: &BTreeMap<String, Quantity>,
) {
    if conditions.is_empty() {
        return;
    }
    let stored = entry_object(stored, key);
    for (name, quantity) in conditions {
        let same = stored
            .get(name)
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<Quantity>().ok())
            .is_some_and(|stored| stored == *quantity);
        if !same {
            stored.insert(name.clone(), json!(quantity.to_string()));
        }
    }
}

/// Formats a time as `2026-01-31T12:00:00Z`: RFC 3339 in whole seconds, as in `metav1.Time`.
pub fn time(at: SystemTime) -> String {
    timestamp(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time as `2026-01-31T12:00:00.000000Z`: always six digits, as in `metav1.MicroTime`.
pub fn micro_time(at: SystemTime) -> String {
    timestamp(at).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Parses a time from the API; `None` if it is absent or malformed.
pub fn parse_time(value: Option<&Value>) -> Option<SystemTime> {
    let timestamp: Timestamp = value?.as_str()?.parse().ok()?;
    Some(timestamp.into())
}

pub(super) fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    object_at(value, [key])
}

/// Like [`object`], along a path.
pub(super) fn object_at<'a, const N: usize>(
    value: &'a mut Value,
    path: [&str; N],
) -> &'a mut Map<String, Value> {
    path.into_iter()
        .fold(as_object(value), |map, key| entry_object(map, key))
}

fn entry_object<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    as_object(map.entry(key).or_insert(Value::Null))
}

/// Replaces any other value by an empty object.
fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

fn apply_status(stored: &mut Map<String, Value>, status: &NodeStatus) {
    if let Some(addresses) = &status.addresses {
        let list = addresses.iter().map(address).collect();
        stored.insert("addresses".to_owned(), Value::Array(list));
    }
    apply_quantities(stored, "capacity", &status.capacity);
    apply_quantities(stored, "allocatable", &status.allocatable);
    apply_node_info(entry_object(stored, "nodeInfo"), &status.node_info);
    if let Some(port) = status.kubelet_port {
        let endpoints = json!({ "kubeletEndpoint": { "Port": port } });
        stored.insert("daemonEndpoints".to_owned(), endpoints);
    }
    match &status.volumes_in_use {
        // The server stores no empty list.
        Some(volumes) if volumes.is_empty() => drop(stored.remove("volumesInUse")),
        Some(volumes) => drop(stored.insert("volumesInUse".to_owned(), json!(volumes))),
        None => {}
    }
    match &status.images {
        Some(images) if images.is_empty() => drop(stored.remove("images")),
        Some(images) => {
            let list = images.iter().map(image).collect();
            stored.insert("images".to_owned(), list);
        }
        None => {}
    }
    match &status.runtime_handlers {
        Some(handlers) if handlers.is_empty() => drop(stored.remove("runtimeHandlers")),
        Some(handlers) => {
            let list = handlers.iter().map(runtime_handler).collect();
            stored.insert("runtimeHandlers".to_owned(), list);
        }
        None => {}
    }
    if let Some(supported) = status.supplemental_groups_policy {
        let features = json!({ "supplementalGroupsPolicy": supported });
        stored.insert("features".to_owned(), features);
    }
    apply_conditions(stored, &status.conditions);
}

/// Formats an entry of `images` as the server stores it: `names` is always present, a size of 0
/// never. Sizes in the API are signed.
fn image(image: &NodeImage) -> Value {
    let names = (!image.names.is_empty()).then_some(&image.names);
    let size = i64::try_from(image.size).unwrap_or(i64::MAX);
    if size == 0 {
        json!({ "names": names })
    } else {
        json!({ "names": names, "sizeBytes": size })
    }
}

fn runtime_handler(handler: &RuntimeHandler) -> Value {
    json!({
        "name": handler.name,
        "features": {
            "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
            "userNamespaces": handler.user_namespaces,
        },
    })
}

const RUNTIME_VERSION: &str = "containerRuntimeVersion";

fn apply_node_info(stored: &mut Map<String, Value>, info: &NodeInfo) {
    let texts = [
        ("machineID", info.machine_id.as_str()),
        ("systemUUID", &info.system_uuid),
        ("bootID", &info.boot_id),
        ("kernelVersion", &info.kernel_version),
        ("osImage", &info.os_image),
        ("kubeletVersion", &info.kubelet_version),
        // There is no information about a kube-proxy. Kubelets clear the field, too, which older
        // ones set.
        ("kubeProxyVersion", ""),
        ("operatingSystem", &info.operating_system),
        ("architecture", &info.architecture),
    ];
    for (key, text) in texts {
        stored.insert(key.to_owned(), json!(text));
    }
    match &info.container_runtime_version {
        Some(version) => drop(stored.insert(RUNTIME_VERSION.to_owned(), json!(version))),
        // The API requires the field.
        None => drop(stored.entry(RUNTIME_VERSION).or_insert_with(|| json!(""))),
    }
    match info.swap_capacity {
        Some(capacity) => stored.insert("swap".to_owned(), json!({ "capacity": capacity })),
        None => stored.remove("swap"),
    };
}

fn address(address: &Address) -> Value {
    match address {
        Address::InternalIp(ip) => json!({ "type": "InternalIP", "address": ip.to_string() }),
        Address::Hostname(name) => json!({ "type": "Hostname", "address": name }),
    }
}

/// Formats an entry of `spec.taints`.
pub(super) fn taint(taint: &Taint) -> Value {
    if taint.value.is_empty() {
        json!({ "key": taint.key, "effect": taint.effect })
    } else {
        json!({ "key": taint.key, "value": taint.value, "effect": taint.effect })
    }
}

pub(super) fn condition_fields(condition: &Condition) -> Map<String, Value> {
    [
        ("type", condition.type_.clone()),
        ("status", condition.status.as_str().to_owned()),
        ("reason", condition.reason.clone()),
        ("message", condition.message.clone()),
        ("lastTransitionTime", time(condition.last_transition_time)),
        ("lastHeartbeatTime", time(condition.last_heartbeat_time)),
    ]
    .into_iter()
    .map(|(key, text)| (key.to_owned(), Value::String(text)))
    .collect()
}

fn stored_condition(entry: &Value) -> Option<Condition> {
    Some(Condition {
        type_: entry.get("type")?.as_str()?.to_owned(),
        // The API accepts any text; this one is neither True nor False.
        status: Status::parse(&text(entry, "/status")).unwrap_or(Status::Unknown),
        reason: text(entry, "/reason"),
        message: text(entry, "/message"),
        last_transition_time: parse_time(entry.get("lastTransitionTime"))
            .unwrap_or(SystemTime::UNIX_EPOCH),
        last_heartbeat_time: parse_time(entry.get("lastHeartbeatTime"))
            .unwrap_or(SystemTime::UNIX_EPOCH),
    })
}

fn quantities(map: Option<&Value>) -> BTreeMap<String, Quantity> {
    let map = map.and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .filter_map(|(name, value)| {
            let quantity = value.as_str()?.parse::<Quantity>().ok()?;
            Some((name.clone(), quantity))
        })
        .collect()
}

/// Returns the entries of the list at `pointer`; none if there is no list.
pub fn entries<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// Returns the string at `pointer`; empty if there is none.
pub fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

/// Converts to the epoch if the clock is out of range, because there is no better representation.
fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    pub fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    pub fn condition(type_: &str, status: Status, seconds: u64) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status,
            reason: format!("{type_}Reason"),
            message: format!("{type_} message"),
            last_transition_time: at(0),
            last_heartbeat_time: at(seconds),
        }
    }

    pub fn status(seconds: u64) -> NodeStatus {
        let quantity = |text: &str| text.parse::<Quantity>().unwrap();
        NodeStatus {
            addresses: Some(vec![
                Address::InternalIp([10, 0, 0, 7].into()),
                Address::Hostname("worker-1".to_owned()),
            ]),
            capacity: [("memory".to_owned(), quantity("1Gi"))].into(),
            allocatable: [("memory".to_owned(), quantity("924Mi"))].into(),
            node_info: NodeInfo {
                boot_id: "boot-1".to_owned(),
                kubelet_version: "v1.33.0+nodepulse.0.1.0".to_owned(),
                operating_system: "linux".to_owned(),
                architecture: "amd64".to_owned(),
                ..NodeInfo::default()
            },
            conditions: vec![
                condition("MemoryPressure", Status::False, seconds),
                condition("Ready", Status::True, seconds),
            ],
            ..NodeStatus::default()
        }
    }

    pub fn registration() -> Registration {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Registration {
            name: "worker-1".to_owned(),
            labels: [
                label("kubernetes.io/hostname", "worker-1"),
                label(LABEL_OS, "linux"),
                label(LABEL_ARCH, "amd64"),
            ]
            .into(),
            ..Registration::default()
        }
    }

    #[test]
    fn a_new_node_contains_only_what_is_configured() {
        let mut registration = registration();
        let node = initial_node(&registration, &status(0));
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/os"], "linux");
        assert_eq!(node["metadata"].get("annotations"), None);
        assert_eq!(node["spec"], json!({}));
        assert_eq!(node["status"]["nodeInfo"]["kubeProxyVersion"], "");
        assert_eq!(node["status"].get("daemonEndpoints"), None);
        assert_eq!(node["status"]["nodeInfo"].get("swap"), None);
        assert_eq!(
            node["status"]["conditions"][0],
            json!({
                "type": "MemoryPressure", "status": "False", "reason": "MemoryPressureReason",
                "message": "MemoryPressure message",
                "lastTransitionTime": "2023-11-14T22:13:20Z",
                "lastHeartbeatTime": "2023-11-14T22:13:20Z",
            })
        );

        registration.provider_id = Some("metal://7".to_owned());
        registration.annotations = [("a".to_owned(), "b".to_owned())].into();
        let taint = |key: &str, value: &str| Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        };
        registration.taints = vec![taint("z", "1"), taint("a", "")];
        let mut status = status(0);
        status.kubelet_port = Some(10250);
        status.node_info.swap_capacity = Some(1024);
        status.volumes_in_use = Some(Vec::new());
        let node = initial_node(&registration, &status);
        assert_eq!(
            node["spec"],
            json!({
                "providerID": "metal://7",
                "taints": [
                    { "key": "z", "value": "1", "effect": "NoSchedule" },
                    { "key": "a", "effect": "NoSchedule" },
                ],
            })
        );
        assert_eq!(node["metadata"]["annotations"], json!({ "a": "b" }));
        assert_eq!(
            node["status"]["daemonEndpoints"],
            json!({ "kubeletEndpoint": { "Port": 10250 } })
        );
        assert_eq!(
            node["status"]["nodeInfo"]["swap"],
            json!({ "capacity": 1024 })
        );
        assert_eq!(node["status"].get("volumesInUse"), None, "none: no list");
    }

    #[test]
    fn fields_of_other_clients_stay_unchanged() {
        let mut stored = initial_node(&registration(), &status(0));
        stored["metadata"]["labels"] = json!({ "mine": "1", LABEL_OS: "plan9" });
        stored["status"]["capacity"] = json!({ "memory": "1048576Ki", "example.com/gpu": "2" });
        stored["status"]["nodeInfo"]["kubeProxyVersion"] = json!("v1.29.0");
        stored["status"]["nodeInfo"]["swap"] = json!({ "capacity": 5 });
        stored["status"]["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": 1 } });
        stored["status"]["volumesInUse"] = json!(["v"]);
        let foreign = json!({ "type": "KernelDeadlock", "status": "False", "extra": 1 });
        stored["status"]["conditions"] = json!([
            foreign,
            { "type": "Ready", "status": "Unknown", "later": "field" },
        ]);

        let mut desired = status(10);
        desired.addresses = None;
        let node = desired_node(&stored, &desired);
        assert_eq!(
            node["metadata"]["labels"],
            json!({ "mine": "1", LABEL_OS: "linux", LABEL_ARCH: "amd64" })
        );
        assert_eq!(
            node["status"]["capacity"],
            json!({ "memory": "1048576Ki", "example.com/gpu": "2" }),
            "an equal quantity keeps its format"
        );
        assert_eq!(node["status"]["addresses"], stored["status"]["addresses"]);
        assert_eq!(node["status"]["volumesInUse"], json!(["v"]));
        assert_eq!(node["status"]["nodeInfo"]["kubeProxyVersion"], "");
        assert_eq!(node["status"]["nodeInfo"].get("swap"), None);
        assert_eq!(
            node["status"]["daemonEndpoints"],
            stored["status"]["daemonEndpoints"]
        );
        let conditions = &node["status"]["conditions"];
        assert_eq!(conditions[0], foreign);
        assert_eq!(conditions[1]["type"], "Ready");
        assert_eq!(conditions[1]["status"], "True");
        assert_eq!(conditions[1]["later"], "field");
        assert_eq!(conditions[2]["type"], "MemoryPressure");
    }

    #[test]
    fn a_stored_node_is_read_without_its_malformed_parts() {
        let mut node = initial_node(&registration(), &status(10));
        node["metadata"]["uid"] = json!("uid-1");
        let stored = stored_node(&node);
        assert_eq!(stored.uid, "uid-1");
        assert_eq!(stored.boot_id, "boot-1");
        assert_eq!(stored.conditions, status(10).conditions);
        assert_eq!(stored.capacity, status(10).capacity);
        assert!(!stored.unschedulable);

        node["spec"]["unschedulable"] = json!(true);
        node["status"]["conditions"] = json!([{ "type": "Odd", "status": "maybe" }, 7]);
        node["status"]["capacity"] = json!({ "memory": "much", "pods": 3 });
        let stored = stored_node(&node);
        assert!(stored.unschedulable);
        assert_eq!(stored.conditions.len(), 1);
        assert_eq!(stored.conditions[0].status, Status::Unknown);
        assert_eq!(stored.capacity, BTreeMap::new());
        assert_eq!(stored_node(&Value::Null), StoredNode::default());
    }

    #[test]
    fn times_have_the_resolution_of_their_type() {
        let moment = at(0) + Duration::from_nanos(1_234_567_891);
        assert_eq!(time(moment), "2023-11-14T22:13:21Z");
        assert_eq!(micro_time(moment), "2023-11-14T22:13:21.234567Z");
        assert_eq!(micro_time(at(0)), "2023-11-14T22:13:20.000000Z");
        assert_eq!(parse_time(Some(&json!(time(at(5))))), Some(at(5)));
        assert_eq!(parse_time(Some(&json!("yesterday"))), None);
    }
}
