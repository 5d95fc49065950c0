//! What the API server would let us do.

#![forbid(unsafe_code)]

use serde_json::{Value, json};

use super::{ApiError, Client, Endpoint};

/// One thing to do. Empty texts stand for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAttributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`.
    pub verb: &'static str,
    /// API group; empty for `v1`.
    pub group: &'static str,
    /// Plural: `nodes`.
    pub resource: &'static str,
    /// `status`, or empty for the object itself.
    pub subresource: &'static str,
    /// Empty for all namespaces, and for what has none.
    pub namespace: &'static str,
    /// Of one object.
    pub name: String,
    /// The one field, and its value, that a list or watch asks for.
    pub field: Option<(&'static str, String)>,
}

/// Whether the server would let us. Changes nothing there.
///
/// # Errors
///
/// As the server says, or where an answer is no `SelfSubjectAccessReview`.
pub async fn allowed(client: &Client, access: &ResourceAttributes) -> Result<bool, ApiError> {
    let mut asked = json!({
        "verb": access.verb,
        "group": access.group,
        "version": "v1",
        "resource": access.resource,
        "subresource": access.subresource,
        "namespace": access.namespace,
        "name": access.name,
    });
    // A node's identity may list and watch only what is its own, and the authorizer looks at the
    // selector from 1.31 on; older ones leave the field out.
    if let (Some((key, value)), Some(asked)) = (&access.field, asked.as_object_mut()) {
        let requirement = json!({ "key": key, "operator": "In", "values": [value] });
        let selector = json!({ "requirements": [requirement] });
        asked.insert("fieldSelector".to_owned(), selector);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": asked },
    });
    let answer = client.create(&Endpoint::access_review(), &review).await?;
    let allowed = answer.pointer("/status/allowed").and_then(Value::as_bool);
    Ok(allowed.unwrap_or(false))
}

/// The server's version, such as `v1.33.0`; `None` where it does not say.
///
/// # Errors
///
/// As the server says.
pub async fn version(client: &Client) -> Result<Option<String>, ApiError> {
    let answer = client.get(&Endpoint::version()).await?;
    let version = answer.get("gitVersion").and_then(Value::as_str);
    Ok(version.map(str::to_owned))
}
