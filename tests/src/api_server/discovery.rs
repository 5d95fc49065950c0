//! Implements discovery: versions, groups, resources.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resource::{RESOURCES, Resource, Scope, StatusSubresource};

/// Returns the document at a path outside of the resources; `None` if there is none.
pub(super) fn answer(path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["version"] => Some(json!({
            "major": "1",
            "minor": "33",
            "gitVersion": "v1.33.0+testapi",
            "platform": "linux/amd64",
        })),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["apis"] => Some(json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": groups().into_iter().map(group).collect::<Vec<_>>(),
        })),
        ["apis", name] if groups().contains(name) => Some(group(name)),
        ["api", "v1"] => Some(resources("")),
        ["apis", name, "v1"] if groups().contains(name) => Some(resources(name)),
        _ => None,
    }
}

/// Returns the groups of the resources, and that of reviews.
fn groups() -> BTreeSet<&'static str> {
    let groups = RESOURCES.iter().map(|resource| resource.group);
    let named = groups.filter(|group| !group.is_empty());
    named.chain(["authorization.k8s.io"]).collect()
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": [version],
        "preferredVersion": version,
    })
}

fn resources(group: &str) -> Value {
    let version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    let mut resources: Vec<Value> = RESOURCES
        .iter()
        .filter(|resource| resource.group == group)
        .flat_map(entries)
        .collect();
    if group == "authorization.k8s.io" {
        resources.push(json!({
            "name": "selfsubjectaccessreviews",
            "singularName": "selfsubjectaccessreview",
            "namespaced": false,
            "kind": "SelfSubjectAccessReview",
            "verbs": ["create"],
        }));
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": resources,
    })
}

fn entries(resource: &Resource) -> Vec<Value> {
    let namespaced = resource.scope == Scope::Namespaced;
    let mut object = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": namespaced,
        "kind": resource.kind,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    });
    if !resource.short.is_empty() {
        object["shortNames"] = json!([resource.short]);
    }
    let mut entries = vec![object];
    if resource.status == StatusSubresource::Present {
        entries.push(json!({
            "name": format!("{}/status", resource.plural),
            "singularName": "",
            "namespaced": namespaced,
            "kind": resource.kind,
            "verbs": ["get", "patch", "update"],
        }));
    }
    entries
}
