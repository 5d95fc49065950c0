//! Our own conditions on a Node that somebody else keeps: what takes them away.

#![forbid(unsafe_code)]

use serde_json::{Value, json};

use super::convert::object;
use super::taints::{self, Seen};
use super::{ApiError, Client, Place};
use crate::node_status::Taint;
use crate::node_status::own::OwnCondition;

/// What was taken off a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Conditions.
    pub conditions: usize,
    /// Taints.
    pub taints: usize,
}

/// Takes conditions of these types off the Node `name`, and all taints of ours: those with a
/// default key, and those of `configured` by key and effect. Never the Node itself, nor a Lease.
///
/// A Node that has none of them is only read, so this can be repeated.
///
/// # Errors
///
/// As the server says; 404 where there is no such Node. What was removed before stays so.
pub async fn remove(
    client: &Client,
    name: &str,
    types: &[OwnCondition],
    configured: &[Taint],
) -> Result<Removed, ApiError> {
    let mut node = client.get(&Place::node(name)).await?;
    let deletions: Vec<Value> = stored(&node)
        .filter(|(own, _)| types.contains(own))
        .map(|(own, _)| deletion(own))
        .collect();
    let conditions = deletions.len();
    if conditions > 0 {
        let patch = in_status(deletions).to_string();
        let place = Place::node_status(name);
        node = client.patch(&place, patch.as_bytes()).await?;
    }
    let before = Seen::of(&node);
    let changed = taints::change(client, name, before, |taints| {
        let mut kept = taints.to_vec();
        kept.retain(|taint| !taints::is_ours(taint, configured));
        kept
    });
    let taints = changed.await?.map_or(0, |change| change.removed);
    Ok(Removed { conditions, taints })
}

fn conditions(node: &Value) -> impl Iterator<Item = &Value> {
    let list = node.pointer("/status/conditions").and_then(Value::as_array);
    list.into_iter().flatten()
}

/// Conditions of ours, as stored.
fn stored(node: &Value) -> impl Iterator<Item = (OwnCondition, &Value)> {
    conditions(node).filter_map(|entry| {
        let type_ = entry.get("type")?.as_str()?;
        Some((OwnCondition::parse(type_)?, entry))
    })
}

fn deletion(own: OwnCondition) -> Value {
    json!({ "type": own.type_(), "$patch": "delete" })
}

fn in_status(conditions: Vec<Value>) -> Value {
    let mut patch = Value::Null;
    object(&mut patch, "status").insert("conditions".to_owned(), Value::Array(conditions));
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Refusal;
    use crate::api::scripted::{Reply, Scripted, refusal};

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
    async fn what_is_ours_is_removed_and_then_there_is_nothing_to_do() {
        let ready = json!({ "type": "Ready", "status": "True" });
        let low = json!({ "type": "MemoryLow", "status": "True" });
        let slow = json!({ "type": "DiskIOPressure", "status": "False" });
        let theirs = json!({ "key": "dedicated", "value": "db", "effect": "NoExecute" });
        let default = json!({ "key": "nodepulse.dev/memory-low", "effect": "NoExecute" });
        let named = json!({ "key": "example.com/slow", "effect": "NoSchedule" });
        let other_effect = json!({ "key": "example.com/slow", "effect": "NoExecute" });
        let all = json!([theirs, default, named, other_effect]);
        let kept = json!([theirs, other_effect]);
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
        let removed = remove(&client, "worker-1", &OwnCondition::ALL, &configured).await;
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

        let again = remove(&client, "worker-1", &OwnCondition::ALL, &configured).await;
        assert_eq!(again.unwrap(), Removed::default());
        assert_eq!(server.lines(), [GET, PATCH_STATUS, PATCH, GET]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_types_that_are_asked_for_go_and_a_missing_node_is_an_error() {
        let both = json!([{ "type": "MemoryLow" }, { "type": "PIDsLow" }]);
        let low = json!([{ "type": "MemoryLow" }]);
        let server = Scripted::new([
            Reply::json(200, node("1", &both, &json!(null))),
            Reply::json(200, node("2", &low, &json!(null))),
            refusal(404, "NotFound"),
        ]);
        let client = server.client();
        let removed = remove(&client, "worker-1", &[OwnCondition::PidsLow], &[]).await;
        assert_eq!(removed.unwrap().conditions, 1);
        let deleted = json!([{ "type": "PIDsLow", "$patch": "delete" }]);
        assert_eq!(server.body(1)["status"]["conditions"], deleted);

        let none = remove(&client, "worker-1", &OwnCondition::ALL, &[]).await;
        assert_eq!(none.unwrap_err().refusal(), Some(Refusal::NotFound));
    }
}
