//! Checks by properties that the agent's patch, merged like the API server does, gives what was
//! computed, and changes nothing that is not the agent's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use nodepulse_core::node_status::{Address, Condition, NodeInfo, NodeStatus, Status};
use nodepulse_core::units::quantity::Quantity;
use nodepulse_kube::convert::desired_node;
use nodepulse_kube::patch::{is_change, status_patch};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::{strategic, typed};

const NODEPULSE_TYPES: [&str; 6] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "DiskIOPressure",
    "DiskFailing",
    "Ready",
];
const OF_OTHERS: [&str; 3] = ["KernelDeadlock", "NetworkUnavailable", "example.com/Fan"];
const ADDRESS_TYPES: [&str; 4] = ["InternalIP", "InternalIP", "ExternalIP", "Hostname"];
const RESOURCES: [&str; 5] = ["cpu", "memory", "pods", "hugepages-1Gi", "example.com/gpu"];
/// Some amounts are equal in different units.
const AMOUNTS: [&str; 7] = ["0", "4", "4000m", "110", "1Gi", "1024Mi", "1048576Ki"];

fn word() -> impl Strategy<Value = String> {
    select(vec!["", "a", "b", "$patch", "\u{1F600} \"\\"]).prop_map(str::to_owned)
}

fn map(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    btree_map(select(RESOURCES.to_vec()), values, 0..4).prop_map(|map| json!(map))
}

fn amounts() -> impl Strategy<Value = Value> {
    map(select(AMOUNTS.to_vec()).prop_map(Value::from))
}

fn texts() -> impl Strategy<Value = Value> {
    map(word().prop_map(Value::from))
}

/// Generates a stored condition: fields in any order, some missing, and some unknown.
fn stored_condition(type_: &'static str) -> impl Strategy<Value = Value> {
    let fields = [
        "status",
        "reason",
        "message",
        "lastHeartbeatTime",
        "observedGeneration",
    ];
    btree_map(select(fields.to_vec()), word(), 0..5).prop_map(move |fields| {
        let mut condition = json!(fields);
        condition["type"] = json!(type_);
        condition
    })
}

fn stored_conditions() -> impl Strategy<Value = Value> {
    let types = [NODEPULSE_TYPES.as_slice(), &OF_OTHERS].concat();
    subsequence(types, 0..=8)
        .prop_shuffle()
        .prop_flat_map(|types| types.into_iter().map(stored_condition).collect::<Vec<_>>())
        .prop_map(Value::from)
}

/// Never empty, since the API omits an empty list. Those of one type are adjacent: even if the list
/// is replaced, the merge groups them.
fn stored_addresses() -> impl Strategy<Value = Value> {
    vec((select(ADDRESS_TYPES.to_vec()), word()), 1..5).prop_map(|mut addresses| {
        addresses.sort_by_key(|(type_, _)| *type_);
        let addresses = addresses.iter();
        addresses
            .map(|(type_, address)| json!({"type": type_, "address": address}))
            .collect()
    })
}

prop_compose! {
    fn stored_status()(
        conditions in option::of(stored_conditions()),
        addresses in option::of(stored_addresses()),
        capacity in option::of(amounts()),
        allocatable in option::of(amounts()),
        info in option::of(texts()),
        swap in option::of(0..3_i64),
        volumes in option::of(vec(word(), 0..3)),
        port in option::of(0..3_u16),
    ) -> Value {
        let mut status = json!({});
        let parts = [
            ("conditions", conditions),
            ("addresses", addresses),
            ("capacity", capacity),
            ("allocatable", allocatable),
            ("nodeInfo", info),
            ("volumesInUse", volumes.map(Value::from)),
            ("daemonEndpoints", port.map(|port| json!({"kubeletEndpoint": {"Port": port}}))),
        ];
        for (key, part) in parts {
            if let Some(part) = part {
                status[key] = part;
            }
        }
        if let Some(swap) = swap {
            status["nodeInfo"]["swap"] = json!({"capacity": swap});
        }
        status
    }
}

prop_compose! {
    fn stored_node()(
        status in option::of(stored_status()),
        labels in option::of(texts()),
        annotations in option::of(texts()),
        taints in vec(word(), 0..3),
    ) -> Value {
        let taints: Vec<_> = taints.iter().map(|key| json!({"key": key})).collect();
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "worker-1", "uid": "u", "resourceVersion": "7"},
            "spec": {"taints": taints, "podCIDRs": ["10.0.0.0/24"]},
        });
        for (key, part) in [("labels", labels), ("annotations", annotations)] {
            if let Some(part) = part {
                node["metadata"][key] = part;
            }
        }
        if let Some(status) = status {
            node["status"] = status;
        }
        node
    }
}

fn wall() -> impl Strategy<Value = SystemTime> {
    (0..4_u64).prop_map(|at| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + at))
}

prop_compose! {
    fn condition(type_: &'static str)(
        status in select(vec![Status::True, Status::False, Status::Unknown]),
        reason in word(),
        message in word(),
        last_transition_time in wall(),
        last_heartbeat_time in wall(),
    ) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status, reason, message, last_transition_time, last_heartbeat_time,
        }
    }
}

fn quantities() -> impl Strategy<Value = BTreeMap<String, Quantity>> {
    let amount = select(AMOUNTS.to_vec()).prop_map(|text| text.parse().expect("a quantity"));
    btree_map(
        select(RESOURCES.to_vec()).prop_map(str::to_owned),
        amount,
        0..5,
    )
}

fn addresses() -> impl Strategy<Value = Vec<Address>> {
    let ip = (1..4_u8).prop_map(|n| Address::InternalIp([10, 0, 0, n].into()));
    (vec(ip, 0..3), word()).prop_map(|(mut addresses, name)| {
        addresses.push(Address::Hostname(name));
        addresses
    })
}

prop_compose! {
    fn node_status()(
        addresses in option::of(addresses()),
        capacity in quantities(),
        allocatable in quantities(),
        boot_id in word(),
        operating_system in word(),
        swap_capacity in option::of(0..3_i64),
        kubelet_port in option::of(0..3_u16),
        volumes_in_use in option::of(vec(word(), 0..3)),
        conditions in subsequence(NODEPULSE_TYPES.to_vec(), 0..=5)
            .prop_flat_map(|types| types.into_iter().map(condition).collect::<Vec<_>>()),
    ) -> NodeStatus {
        NodeStatus {
            addresses, capacity, allocatable, kubelet_port, conditions, volumes_in_use,
            node_info: NodeInfo { boot_id, operating_system, swap_capacity, ..NodeInfo::default() },
            ..NodeStatus::default()
        }
    }
}

/// Returns the object after the patch, or unchanged without one.
fn merged(node: &Value, patch: Option<&Value>) -> Value {
    let mut merged = match patch {
        Some(patch) => strategic("Node", node, patch).expect("a patch that the server takes"),
        None => node.clone(),
    };
    typed(&mut merged);
    merged
}

/// Removes empty lists and maps, which the API omits.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
    match value {
        Value::Object(map) => {
            let parts = map
                .iter()
                .map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(parts.filter(|(_, value)| !is_empty(value)).collect())
        }
        other => other.clone(),
    }
}

/// Returns the conditions of these types, by type.
fn conditions<'a>(node: &'a Value, types: &[&str]) -> BTreeMap<&'a str, &'a Value> {
    let all = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    all.filter_map(|condition| Some((condition["type"].as_str()?, condition)))
        .filter(|(type_, _)| types.contains(type_))
        .collect()
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        // A failure prints the smallest input, which becomes a separate case instead of a file.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_server_stores_what_the_agent_computes(
        stored in stored_node(),
        status in node_status(),
    ) {
        let computed = desired_node(&stored, &status);
        let patch = status_patch(&stored, &computed);
        let after = merged(&stored, patch.as_ref());
        prop_assert_eq!(without_empty(&after), without_empty(&computed));

        // A second patch would be empty.
        prop_assert_eq!(status_patch(&after, &computed).filter(is_change), None);

        // Neither the conditions of others nor what is not in the subresource changes, not even in
        // order.
        prop_assert_eq!(conditions(&after, &OF_OTHERS), conditions(&stored, &OF_OTHERS));
        prop_assert_eq!(&after["spec"], &stored["spec"]);
        let patch = patch.unwrap_or_default();
        let named = conditions(&patch, &OF_OTHERS);
        prop_assert!(named.is_empty(), "{}", patch);
        prop_assert_eq!(patch.get("spec"), None);

        let types = |node: &Value| -> Vec<Value> {
            let all = node["status"]["conditions"].as_array().into_iter().flatten();
            all.map(|condition| condition["type"].clone()).collect()
        };
        let kept: Vec<_> = types(&after).into_iter().take(types(&stored).len()).collect();
        prop_assert_eq!(kept, types(&stored));
    }

    #[test]
    fn quantities_keep_the_servers_notation_if_the_amount_is_the_same(
        stored in stored_node(),
        status in node_status(),
    ) {
        let patch = status_patch(&stored, &desired_node(&stored, &status)).unwrap_or_default();
        for (key, computed) in [("capacity", &status.capacity), ("allocatable", &status.allocatable)] {
            let sent: BTreeSet<_> = patch["status"][key].as_object().into_iter().flatten()
                .map(|(name, _)| name.as_str()).collect();
            let differs = |(name, amount): &(&String, &Quantity)| {
                let stored = stored["status"][key][name.as_str()].as_str();
                stored.and_then(|text| text.parse::<Quantity>().ok()) != Some(**amount)
            };
            let differing: BTreeSet<_> = computed.iter().filter(differs)
                .map(|(name, _)| name.as_str()).collect();
            prop_assert_eq!(sent, differing, "{}", key);
        }
    }

    // Uses whole statuses, so that conditions, keys and lists are added and removed.
    #[test]
    fn a_patch_turns_any_status_into_any_other(
        old in stored_node(),
        new in stored_status(),
        labels in texts(),
    ) {
        let mut computed = old.clone();
        computed["status"] = new;
        computed["metadata"]["labels"] = labels;
        let patch = status_patch(&old, &computed);
        let after = merged(&old, patch.as_ref());
        prop_assert_eq!(without_empty(&after), without_empty(&computed));
    }
}
