//! Formats the rows that `kubectl get` prints.

use serde_json::{Value, json};

use super::read::metadata_only;
use super::resource::Resource;
use super::stamp;

/// Returns a `meta.k8s.io/v1` Table of objects of one resource.
pub(super) fn of(resource: &Resource, objects: &[&Value], metadata: Value, wall: u64) -> Value {
    let columns: Vec<Value> = columns(resource).iter().map(|name| column(name)).collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| json!({"cells": cells(resource, object, wall), "object": metadata_only(object)}))
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "continue": metadata["continue"].as_str().unwrap_or_default(),
        },
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn columns(resource: &Resource) -> &'static [&'static str] {
    match resource.kind {
        "Node" => &["Name", "Status", "Roles", "Age", "Version"],
        "Pod" => &["Name", "Ready", "Status", "Restarts", "Age", "Node"],
        "Event" => &["Last Seen", "Type", "Reason", "Object", "Message"],
        "Lease" => &["Name", "Holder", "Age"],
        "Namespace" => &["Name", "Status", "Age"],
        _ => &["Name", "Age"],
    }
}

fn column(name: &str) -> Value {
    let format = if name == "Name" { "name" } else { "" };
    let priority = i32::from(name == "Node");
    json!({"name": name, "type": "string", "format": format, "description": name, "priority": priority})
}

fn cells(resource: &Resource, object: &Value, wall: u64) -> Vec<Value> {
    let name = object["metadata"]["name"].clone();
    let age = json!(age(&object["metadata"]["creationTimestamp"], wall));
    match resource.kind {
        "Node" => {
            let version = object["status"]["nodeInfo"]["kubeletVersion"].clone();
            vec![
                name,
                json!(node_status(object)),
                json!(roles(object)),
                age,
                version,
            ]
        }
        "Pod" => {
            let status = &object["status"];
            let empty = Vec::new();
            let all = status["containerStatuses"].as_array().unwrap_or(&empty);
            let ready = all
                .iter()
                .filter(|container| container["ready"] == true)
                .count();
            let total = object["spec"]["containers"].as_array().map_or(0, Vec::len);
            let restarts: u64 = all
                .iter()
                .filter_map(|one| one["restartCount"].as_u64())
                .sum();
            let ready = json!(format!("{ready}/{total}"));
            let phase = status["phase"].clone();
            vec![
                name,
                ready,
                phase,
                json!(restarts.to_string()),
                age,
                object["spec"]["nodeName"].clone(),
            ]
        }
        "Event" => {
            let seen = [
                &object["lastTimestamp"],
                &object["eventTime"],
                &object["metadata"]["creationTimestamp"],
            ];
            let seen = seen
                .into_iter()
                .find(|time| time.is_string())
                .unwrap_or(&Value::Null);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let involved = &object["involvedObject"];
            let involved = format!(
                "{}/{}",
                text(&involved["kind"]).to_lowercase(),
                text(&involved["name"])
            );
            let (type_, reason) = (object["type"].clone(), object["reason"].clone());
            vec![
                json!(self::age(seen, wall)),
                type_,
                reason,
                json!(involved),
                object["message"].clone(),
            ]
        }
        "Lease" => vec![name, object["spec"]["holderIdentity"].clone(), age],
        "Namespace" => vec![name, object["status"]["phase"].clone(), age],
        _ => vec![name, age],
    }
}

fn node_status(object: &Value) -> String {
    let empty = Vec::new();
    let conditions = object["status"]["conditions"].as_array().unwrap_or(&empty);
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready");
    let status = match ready.map(|condition| &condition["status"]) {
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if object["spec"]["unschedulable"] == true {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_owned()
    }
}

fn roles(object: &Value) -> String {
    let labels = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten();
    let roles: Vec<&str> = labels
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    }
}

fn age(time: &Value, wall: u64) -> String {
    let Some(then) = time.as_str().and_then(stamp::parse) else {
        return "<unknown>".to_owned();
    };
    match wall.saturating_sub(then) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
