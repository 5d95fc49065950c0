//! The actions that the API server allows this client.

#![forbid(unsafe_code)]

use serde_json::{Value, json};

use super::{ApiError, Client, Endpoint};

/// An empty string means all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAttributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`.
    pub verb: &'static str,
    /// API group; empty for `v1`.
    pub group: &'static str,
    /// The plural, such as `nodes`.
    pub resource: &'static str,
    /// `status`, or empty for the object itself.
    pub subresource: &'static str,
    /// Empty for all namespaces, and for cluster-scoped resources.
    pub namespace: &'static str,
    pub name: String,
    /// The field selector of a list or watch: its field and value.
    pub field: Option<(&'static str, String)>,
}

/// Creates a `SelfSubjectAccessReview`, which the server does not store.
pub async fn allowed(client: &Client, access: &ResourceAttributes) -> Result<bool, ApiError> {
    let mut attributes = json!({
        "verb": access.verb,
        "group": access.group,
        "version": "v1",
        "resource": access.resource,
        "subresource": access.subresource,
        "namespace": access.namespace,
        "name": access.name,
    });
    // A node's identity may list and watch only its own objects, and the authorizer reads the
    // selector from 1.31 on; older servers ignore the field.
    if let (Some((key, value)), Some(attributes)) = (&access.field, attributes.as_object_mut()) {
        let requirement = json!({ "key": key, "operator": "In", "values": [value] });
        let selector = json!({ "requirements": [requirement] });
        attributes.insert("fieldSelector".to_owned(), selector);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let answer = client.create(&Endpoint::access_review(), &review).await?;
    let allowed = answer.pointer("/status/allowed").and_then(Value::as_bool);
    Ok(allowed.unwrap_or(false))
}

/// Returns the server's version, such as `v1.33.0`; `None` if the answer has none.
pub async fn version(client: &Client) -> Result<Option<String>, ApiError> {
    let answer = client.get(&Endpoint::version()).await?;
    let version = answer.get("gitVersion").and_then(Value::as_str);
    Ok(version.map(str::to_owned))
}
