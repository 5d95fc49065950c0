//! The two-way strategic merge diff of a Node, as a kubelet sends it to `/status`.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Returns the patch from `read` to `computed`; `None` if nothing differs.
///
/// Of the metadata only labels and annotations are compared, and `spec` never: the subresource
/// accepts the former and drops the latter. There is no resourceVersion, and therefore no
/// optimistic lock: the last writer of a field wins, and there are no conflicts.
pub fn status_patch(read: &Value, computed: &Value) -> Option<Value> {
    let mut patch = Map::new();
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        let part = |node: &Value| node.get("metadata")?.get(key).cloned();
        let (old, new) = (part(read), part(computed));
        diff_member(&mut metadata, key, old.as_ref(), new.as_ref());
    }
    insert_unless_empty(&mut patch, "metadata", metadata);

    let empty = Map::new();
    let status = |node: &'_ Value| node.get("status").and_then(Value::as_object).cloned();
    let old = status(read).unwrap_or_else(|| empty.clone());
    let new = status(computed).unwrap_or(empty);
    insert_unless_empty(&mut patch, "status", diff_status(&old, &new));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns true if `patch` changes more than heartbeat times and annotations, which can wait for
/// the next report.
pub fn is_change(patch: &Value) -> bool {
    !changes(patch).is_empty()
}

/// Returns the members of the Node that `patch` changes, without heartbeat times and annotations.
pub fn changes(patch: &Value) -> BTreeMap<&str, &Value> {
    let labels = patch.pointer("/metadata/labels");
    let status = patch.get("status").and_then(Value::as_object);
    let status = status.into_iter().flatten();
    let changed = status.filter(|(key, value)| match key.as_str() {
        ORDER_OF_CONDITIONS => false,
        CONDITIONS => !only_heartbeats(value),
        _ => true,
    });
    let changed = changed.map(|(key, value)| (key.as_str(), value));
    labels
        .map(|labels| ("labels", labels))
        .into_iter()
        .chain(changed)
        .collect()
}

/// The list that is merged by type.
pub const CONDITIONS: &str = "conditions";

const ORDER_OF_CONDITIONS: &str = "$setElementOrder/conditions";

fn only_heartbeats(conditions: &Value) -> bool {
    conditions.as_array().is_some_and(|list| {
        list.iter().all(|entry| {
            entry.as_object().is_some_and(|entry| {
                entry
                    .keys()
                    .all(|key| key == "type" || key == "lastHeartbeatTime")
            })
        })
    })
}

fn diff_status(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for key in old
        .keys()
        .chain(new.keys().filter(|key| !old.contains_key(*key)))
    {
        let (old, new) = (old.get(key), new.get(key));
        match key.as_str() {
            CONDITIONS => diff_conditions(&mut patch, old, new),
            "addresses" => diff_addresses(&mut patch, old, new),
            _ => diff_member(&mut patch, key, old, new),
        }
    }
    patch
}

/// Compares one member of an object: objects are merged by key, everything else is sent completely.
/// The lists of a Node's status are atomic, except for the two with separate functions.
fn diff_member(
    patch: &mut Map<String, Value>,
    key: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    match (old, new) {
        (Some(old), Some(new)) if old == new => {}
        (None, None) => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            insert_unless_empty(patch, key, diff_object(old, new));
        }
        (_, Some(new)) => {
            patch.insert(key.to_owned(), new.clone());
        }
        (Some(_), None) => {
            patch.insert(key.to_owned(), Value::Null);
        }
    }
}

fn diff_object(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for key in old
        .keys()
        .chain(new.keys().filter(|key| !old.contains_key(*key)))
    {
        diff_member(&mut patch, key, old.get(key), new.get(key));
    }
    patch
}

/// Compares conditions, which are merged by `type`. The server rejects a patch whose elements are
/// in another order than its list of all types, so both follow `new`; deletions are last and not in
/// the list.
fn diff_conditions(patch: &mut Map<String, Value>, old: Option<&Value>, new: Option<&Value>) {
    let (old, new) = (elements(old), elements(new));
    if old == new {
        return;
    }
    let same_type = |list: &[Value], entry: &Value| {
        let found = list
            .iter()
            .find(|other| other.get("type") == entry.get("type"));
        found.cloned()
    };
    let mut changes: Vec<Value> = Vec::new();
    for entry in new {
        let change = match (same_type(old, entry), entry) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let mut change = diff_object(&old, new);
                if change.is_empty() {
                    continue;
                }
                change.insert("type".to_owned(), type_of(entry));
                Value::Object(change)
            }
            _ => entry.clone(),
        };
        changes.push(change);
    }
    for entry in old.iter().filter(|entry| same_type(new, entry).is_none()) {
        changes.push(json!({ "type": type_of(entry), "$patch": "delete" }));
    }
    if !changes.is_empty() {
        patch.insert(CONDITIONS.to_owned(), Value::Array(changes));
    }
    let order = new.iter().map(|entry| json!({ "type": type_of(entry) }));
    patch.insert(ORDER_OF_CONDITIONS.to_owned(), order.collect());
}

/// Compares addresses, which are declared to be merged by `type`. Two addresses of one node can
/// share a type, and a merge would write both into the first, so the list is replaced.
fn diff_addresses(patch: &mut Map<String, Value>, old: Option<&Value>, new: Option<&Value>) {
    let (old, new) = (elements(old), elements(new));
    if old == new {
        return;
    }
    let mut list = new.to_vec();
    // Without a stored list there is nothing to merge with.
    if !old.is_empty() {
        list.push(json!({ "$patch": "replace" }));
    }
    patch.insert("addresses".to_owned(), Value::Array(list));
}

fn elements(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn type_of(entry: &Value) -> Value {
    entry.get("type").cloned().unwrap_or(Value::Null)
}

fn insert_unless_empty(patch: &mut Map<String, Value>, key: &str, part: Map<String, Value>) {
    if !part.is_empty() {
        patch.insert(key.to_owned(), Value::Object(part));
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::node_status::{Address, Status};

    use super::*;
    use crate::convert::tests::{at, registration, status};
    use crate::convert::{desired_node, initial_node};

    /// (what differs, before, after, the status part of the patch, whether it is a change)
    fn rows() -> Vec<(&'static str, Value, Value, Option<Value>, bool)> {
        vec![
            ("nothing", json!({ "a": 1 }), json!({ "a": 1 }), None, false),
            (
                "a scalar, and one key of a map",
                json!({ "phase": "x", "nodeInfo": { "bootID": "1", "osImage": "o" } }),
                json!({ "phase": "y", "nodeInfo": { "bootID": "2", "osImage": "o" } }),
                Some(json!({ "phase": "y", "nodeInfo": { "bootID": "2" } })),
                true,
            ),
            (
                "a key less and a key more",
                json!({ "capacity": { "hugepages-1Gi": "0", "cpu": "8" } }),
                json!({ "capacity": { "pods": "110", "cpu": "8" } }),
                Some(json!({ "capacity": { "hugepages-1Gi": null, "pods": "110" } })),
                true,
            ),
            (
                "an atomic list",
                json!({ "volumesInUse": ["a", "b"] }),
                json!({ "volumesInUse": ["a"] }),
                Some(json!({ "volumesInUse": ["a"] })),
                true,
            ),
            (
                "addresses, if some are stored",
                json!({ "addresses": [{ "type": "InternalIP", "address": "1" }] }),
                json!({ "addresses": [
                    { "type": "InternalIP", "address": "1" },
                    { "type": "InternalIP", "address": "2" },
                ] }),
                Some(json!({ "addresses": [
                    { "type": "InternalIP", "address": "1" },
                    { "type": "InternalIP", "address": "2" },
                    { "$patch": "replace" },
                ] })),
                true,
            ),
            (
                "addresses, if none are stored",
                json!({}),
                json!({ "addresses": [{ "type": "InternalIP", "address": "1" }] }),
                Some(json!({ "addresses": [{ "type": "InternalIP", "address": "1" }] })),
                true,
            ),
            (
                "heartbeats alone",
                json!({ "conditions": [
                    { "type": "Foreign", "status": "True" },
                    { "type": "Ready", "status": "True", "lastHeartbeatTime": "1" },
                ] }),
                json!({ "conditions": [
                    { "type": "Foreign", "status": "True" },
                    { "type": "Ready", "status": "True", "lastHeartbeatTime": "2" },
                ] }),
                Some(json!({
                    "conditions": [{ "type": "Ready", "lastHeartbeatTime": "2" }],
                    "$setElementOrder/conditions": [{ "type": "Foreign" }, { "type": "Ready" }],
                })),
                false,
            ),
            (
                "a transition, a new condition, one removed, a field removed",
                json!({ "conditions": [
                    { "type": "Removed", "status": "True" },
                    { "type": "Ready", "status": "True", "message": "m" },
                ] }),
                json!({ "conditions": [
                    { "type": "Ready", "status": "False" },
                    { "type": "New", "status": "True" },
                ] }),
                Some(json!({
                    "conditions": [
                        { "type": "Ready", "status": "False", "message": null },
                        { "type": "New", "status": "True" },
                        { "type": "Removed", "$patch": "delete" },
                    ],
                    "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "New" }],
                })),
                true,
            ),
            (
                "the first conditions",
                json!({}),
                json!({ "conditions": [{ "type": "Ready", "status": "False" }] }),
                Some(json!({
                    "conditions": [{ "type": "Ready", "status": "False" }],
                    "$setElementOrder/conditions": [{ "type": "Ready" }],
                })),
                true,
            ),
        ]
    }

    #[test]
    fn each_part_of_the_status_is_merged_by_its_rule() {
        for (name, before, after, expected, change) in rows() {
            let patch = status_patch(&json!({ "status": before }), &json!({ "status": after }));
            let expected = expected.map(|status| json!({ "status": status }));
            assert_eq!(patch, expected, "{name}");
            assert_eq!(patch.is_some_and(|p| is_change(&p)), change, "{name}");
        }
    }

    #[test]
    fn of_other_parts_only_labels_and_annotations_are_sent() {
        let read = json!({
            "metadata": { "resourceVersion": "1", "labels": { "a": "1", "b": "2" }, "finalizers": ["f"] },
            "spec": { "taints": [{ "key": "k" }] },
        });
        let computed = json!({
            "metadata": { "resourceVersion": "2", "labels": { "a": "3" } },
            "spec": {},
        });
        let patch = status_patch(&read, &computed).unwrap();
        assert_eq!(
            patch,
            json!({ "metadata": { "labels": { "a": "3", "b": null } } })
        );
        assert!(is_change(&patch), "a label");

        let computed = json!({ "metadata": {
            "labels": { "a": "1", "b": "2" }, "annotations": { "n": "1" },
        } });
        let patch = status_patch(&read, &computed).unwrap();
        assert_eq!(
            patch,
            json!({ "metadata": { "annotations": { "n": "1" } } })
        );
        assert!(!is_change(&patch), "an annotation alone");
    }

    #[test]
    fn patches_match_the_golden_files() {
        let read = initial_node(&registration(), &status(0));

        let heartbeat = status_patch(&read, &desired_node(&read, &status(10))).unwrap();
        assert_eq!(
            heartbeat.to_string(),
            concat!(
                r#"{"status":{"$setElementOrder/conditions":[{"type":"MemoryPressure"},{"type":"Ready"}],"#,
                r#""conditions":["#,
                r#"{"lastHeartbeatTime":"2023-11-14T22:13:30Z","type":"MemoryPressure"},"#,
                r#"{"lastHeartbeatTime":"2023-11-14T22:13:30Z","type":"Ready"}]}}"#,
            )
        );

        let mut edge = status(10);
        edge.conditions[0].status = Status::True;
        edge.conditions[0].last_transition_time = at(10);
        edge.addresses = Some(vec![
            Address::InternalIp([10, 0, 0, 8].into()),
            Address::Hostname("worker-1".to_owned()),
        ]);
        let edge = status_patch(&read, &desired_node(&read, &edge)).unwrap();
        assert_eq!(
            edge.to_string(),
            concat!(
                r#"{"status":{"$setElementOrder/conditions":[{"type":"MemoryPressure"},{"type":"Ready"}],"#,
                r#""addresses":[{"address":"10.0.0.8","type":"InternalIP"},"#,
                r#"{"address":"worker-1","type":"Hostname"},{"$patch":"replace"}],"#,
                r#""conditions":["#,
                r#"{"lastHeartbeatTime":"2023-11-14T22:13:30Z","lastTransitionTime":"2023-11-14T22:13:30Z","#,
                r#""status":"True","type":"MemoryPressure"},"#,
                r#"{"lastHeartbeatTime":"2023-11-14T22:13:30Z","type":"Ready"}]}}"#,
            )
        );
    }
}
