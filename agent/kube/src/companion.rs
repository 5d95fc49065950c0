//! nodepulse's conditions on a Node that a kubelet maintains: writing and removing them.
//!
//! Every patch contains each condition completely and nothing else, and sets no order. Fields that
//! others write at the same time stay unchanged and in their order, and a change to nodepulse's
//! conditions by others is corrected. The server inserts new conditions first, so `Ready` stays the
//! last.

#![forbid(unsafe_code)]

use nodepulse_core::node_status::KERNEL_MONITOR;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::node_status::{NodeStatus, Taint};
use serde_json::{Value, json};

use super::convert::{condition_fields, object};
use super::taints::{self, StoredTaints};
use super::{ApiError, Client, Endpoint};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    pub conditions: usize,
    pub taints: usize,
}

/// Removes conditions of these types from the Node `name`, and all of nodepulse's taints: those
/// with a default key, and those of `configured` by key and effect. Never removes the Node or a
/// Lease.
///
/// A Node that has none of them is only read, so this can be repeated. The error is 404 if there is
/// no such Node. Parts that were removed before an error stay removed.
pub async fn remove(
    client: &Client,
    name: &str,
    types: &[NodepulseCondition],
    configured: &[Taint],
) -> Result<Removed, ApiError> {
    let node = client.get(&Endpoint::node(name)).await?;
    remove_from(client, name, node, types, configured).await
}

/// Like [`remove`], for a Node that was already read. Sends no request if there is nothing to
/// remove, and reads the Node again only if its taints have changed.
pub async fn remove_from(
    client: &Client,
    name: &str,
    mut node: Value,
    types: &[NodepulseCondition],
    configured: &[Taint],
) -> Result<Removed, ApiError> {
    let deletions: Vec<Value> = stored(&node)
        .filter(|(condition, _)| types.contains(condition))
        .map(|(condition, _)| deletion(condition))
        .collect();
    let conditions = deletions.len();
    if conditions > 0 {
        let patch = in_status(deletions).to_string();
        let place = Endpoint::node_status(name);
        node = client.patch(&place, patch.as_bytes()).await?;
    }
    let mut before = StoredTaints::of(&node);
    let changed = taints::change(client, name, &mut before, |taints| {
        let mut kept = taints.to_vec();
        kept.retain(|taint| !taints::is_nodepulse(taint, configured));
        kept
    });
    let taints = changed.await?.map_or(0, |change| change.removed);
    Ok(Removed { conditions, taints })
}

/// Returns the patch from the stored conditions to `status`, and true if it changes more than
/// heartbeat times. A stored condition that `status` does not contain is deleted.
pub(super) fn status_patch(read: &Value, status: &NodeStatus) -> (Value, bool) {
    let mut changed = false;
    let mut list: Vec<Value> = Vec::new();
    for condition in &status.conditions {
        let fields = condition_fields(condition);
        let before = conditions(read).find(|entry| is_of_type(entry, &condition.type_));
        changed |= fields
            .iter()
            .filter(|(key, _)| *key != "lastHeartbeatTime")
            .any(|(key, value)| before.and_then(|before| before.get(key)) != Some(value));
        list.push(Value::Object(fields));
    }
    let wanted = |condition: NodepulseCondition| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == condition.type_())
    };
    let removed = stored(read).filter(|(condition, _)| !wanted(*condition));
    let deletions: Vec<Value> = removed.map(|(condition, _)| deletion(condition)).collect();
    changed |= !deletions.is_empty();
    list.extend(deletions);
    (in_status(list), changed)
}

/// Returns the part of a Node that companion mode needs: the rest may be large.
pub(super) fn reduced(node: &Value) -> Value {
    let of = |pointer: &str| node.pointer(pointer).cloned().unwrap_or(Value::Null);
    let monitor = conditions(node).find(|entry| is_of_type(entry, KERNEL_MONITOR));
    let conditions = stored(node).map(|(_, entry)| entry).chain(monitor);
    let conditions: Vec<Value> = conditions.cloned().collect();
    json!({
        "metadata": {
            "uid": of("/metadata/uid"),
            "resourceVersion": of("/metadata/resourceVersion"),
        },
        "spec": { "taints": of("/spec/taints") },
        "status": { "conditions": conditions },
    })
}

pub(super) fn conditions(node: &Value) -> impl Iterator<Item = &Value> {
    let list = node.pointer("/status/conditions").and_then(Value::as_array);
    list.into_iter().flatten()
}

pub(super) fn is_of_type(entry: &Value, type_: &str) -> bool {
    entry.get("type").and_then(Value::as_str) == Some(type_)
}

pub(super) fn stored(node: &Value) -> impl Iterator<Item = (NodepulseCondition, &Value)> {
    conditions(node).filter_map(|entry| {
        let type_ = entry.get("type")?.as_str()?;
        Some((NodepulseCondition::parse(type_)?, entry))
    })
}

pub(super) fn deletion(condition: NodepulseCondition) -> Value {
    json!({ "type": condition.type_(), "$patch": "delete" })
}

pub(super) fn in_status(conditions: Vec<Value>) -> Value {
    let mut patch = Value::Null;
    object(&mut patch, "status").insert("conditions".to_owned(), Value::Array(conditions));
    patch
}

#[cfg(test)]
mod tests {
    use nodepulse_core::node_status::Status;

    use super::*;
    use crate::Refusal;
    use crate::convert::tests::condition;
    use crate::scripted::{Reply, Scripted, refusal};

    const GET: &str = "GET /api/v1/nodes/worker-1";
    const PATCH: &str = "PATCH /api/v1/nodes/worker-1";
    const PATCH_STATUS: &str = "PATCH /api/v1/nodes/worker-1/status";

    fn node(version: &str, conditions: &Value, taints: &Value) -> Value {
        json!({
            "metadata": { "uid": "u", "resourceVersion": version, "labels": { "a": "b" } },
            "spec": { "podCIDR": "10.0.0.0/24", "taints": taints },
            "status": { "conditions": conditions, "images": [{ "names": ["x"] }] },
        })
    }

    fn server(nodes: impl IntoIterator<Item = Value>) -> Scripted {
        Scripted::new(nodes.into_iter().map(|node| Reply::json(200, node)))
    }

    #[tokio::test(start_paused = true)]
    async fn nodepulses_conditions_and_taints_are_removed_once() {
        let ready = json!({ "type": "Ready", "status": "True" });
        let low = json!({ "type": "MemoryLow", "status": "True" });
        let slow = json!({ "type": "DiskIOPressure", "status": "False" });
        let other = json!({ "key": "dedicated", "value": "db", "effect": "NoExecute" });
        let default = json!({ "key": "nodepulse.dev/memory-low", "effect": "NoExecute" });
        let named = json!({ "key": "example.com/slow", "effect": "NoSchedule" });
        let other_effect = json!({ "key": "example.com/slow", "effect": "NoExecute" });
        let all = json!([other, default, named, other_effect]);
        let kept = json!([other, other_effect]);
        let server = server([
            node("1", &json!([low, ready, slow]), &all),
            node("2", &json!([ready]), &all),
            node("3", &json!([ready]), &kept),
            node("3", &json!([ready]), &kept),
        ]);
        let configured = [Taint {
            key: "example.com/slow".to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        }];
        let client = server.client();
        let removed = remove(&client, "worker-1", &NodepulseCondition::ALL, &configured).await;
        assert_eq!(
            removed.unwrap(),
            Removed {
                conditions: 2,
                taints: 2
            }
        );
        assert_eq!(server.lines(), [GET, PATCH_STATUS, PATCH]);
        let deleted = json!({ "status": { "conditions": [
            { "type": "MemoryLow", "$patch": "delete" },
            { "type": "DiskIOPressure", "$patch": "delete" },
        ] } });
        assert_eq!(server.body(1), deleted);
        let taints = json!({
            "metadata": { "resourceVersion": "2" },
            "spec": { "taints": kept },
        });
        assert_eq!(server.body(2), taints);

        let again = remove(&client, "worker-1", &NodepulseCondition::ALL, &configured).await;
        assert_eq!(again.unwrap(), Removed::default());
        assert_eq!(server.lines(), [GET, PATCH_STATUS, PATCH, GET]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_given_types_are_removed_and_a_missing_node_is_an_error() {
        let both = json!([{ "type": "MemoryLow" }, { "type": "PIDsLow" }]);
        let low = json!([{ "type": "MemoryLow" }]);
        let server = Scripted::new([
            Reply::json(200, node("1", &both, &json!(null))),
            Reply::json(200, node("2", &low, &json!(null))),
            refusal(404, "NotFound"),
        ]);
        let client = server.client();
        let removed = remove(&client, "worker-1", &[NodepulseCondition::PidsLow], &[]).await;
        assert_eq!(removed.unwrap().conditions, 1);
        let deleted = json!([{ "type": "PIDsLow", "$patch": "delete" }]);
        assert_eq!(server.body(1)["status"]["conditions"], deleted);

        let none = remove(&client, "worker-1", &NodepulseCondition::ALL, &[]).await;
        assert_eq!(none.unwrap_err().refusal(), Some(Refusal::NotFound));
    }

    /// Name, change to the stored Node, and whether it results in a change.
    type Row<'a> = (&'a str, &'a dyn Fn(&mut Value), bool);

    #[test]
    fn a_patch_contains_each_condition_completely_and_nothing_else() {
        let status = |seconds| NodeStatus {
            conditions: vec![
                condition("MemoryLow", Status::True, seconds),
                condition("PIDsLow", Status::False, seconds),
            ],
            ..NodeStatus::default()
        };
        let read = |change: &dyn Fn(&mut Value)| {
            let (patch, _) = status_patch(&json!({}), &status(0));
            let mut node = node("1", &patch["status"]["conditions"], &json!(null));
            change(&mut node);
            node
        };
        #[rustfmt::skip]
        let rows: [Row<'_>; 6] = [
            ("as stored", &|_| {}, false),
            (
                "among those of others",
                &|node| {
                    let list = node["status"]["conditions"].as_array_mut().unwrap();
                    list.insert(0, json!({ "type": "Ready", "status": "True" }));
                },
                false,
            ),
            (
                "one removed",
                &|node| {
                    drop(
                        node["status"]["conditions"]
                            .as_array_mut()
                            .unwrap()
                            .remove(0),
                    );
                },
                true,
            ),
            ("an invalid status", &|node| node["status"]["conditions"][0]["status"] = json!("true"), true),
            ("another message", &|node| node["status"]["conditions"][1]["message"] = json!("theirs"), true),
            ("another time", &|node| node["status"]["conditions"][1]["lastTransitionTime"] = json!(null), true),
        ];
        for (name, change, expected) in rows {
            let (patch, changed) = status_patch(&read(change), &status(60));
            assert_eq!(changed, expected, "{name}");
            let whole = |n: usize| {
                let fields = condition_fields(&status(60).conditions[n]);
                assert_eq!(fields.len(), 6);
                fields
            };
            let expected = json!({ "status": { "conditions": [whole(0), whole(1)] } });
            assert_eq!(patch, expected, "{name}");
        }
    }

    #[test]
    fn a_condition_that_is_no_longer_configured_is_deleted_once() {
        let status = NodeStatus {
            conditions: vec![condition("MemoryLow", Status::False, 0)],
            ..NodeStatus::default()
        };
        let stored = json!([{ "type": "Ready" }, { "type": "PIDsLow" }]);
        let (patch, changed) = status_patch(&node("1", &stored, &json!(null)), &status);
        assert!(changed);
        let list = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[1], json!({ "type": "PIDsLow", "$patch": "delete" }));
        let (patch, _) = status_patch(&node("1", &json!([]), &json!(null)), &status);
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_node_is_reduced_to_nodepulses_conditions_and_what_taints_need() {
        let taints = json!([{ "key": "dedicated", "effect": "NoSchedule" }]);
        let low = json!({ "type": "MemoryLow", "status": "True" });
        let monitor = json!({ "type": "KernelDeadlock", "status": "False" });
        let all = json!([{ "type": "Ready" }, monitor, low]);
        let kept = reduced(&node("7", &all, &taints));
        let expected = json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "spec": { "taints": taints },
            "status": { "conditions": [low, monitor] },
        });
        assert_eq!(kept, expected);
    }
}
