//! Represents errors as a `metav1.Status`.

use serde_json::{Value, json};

use super::resource::Resource;

#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Value,
    /// Seconds, sent in the body and as the `Retry-After` header.
    pub(super) retry_after: Option<u32>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            retry_after: None,
        }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = json!({"name": name, "kind": resource.plural});
        if !resource.group.is_empty() {
            self.details["group"] = json!(resource.group);
        }
        self
    }

    pub(super) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        let mut failure = Self::new(404, "NotFound", message);
        failure.details = json!({});
        failure
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    pub(super) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(super) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = resource.qualified();
        let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    pub(super) fn stale(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(resource, name, why)
    }

    pub(super) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let kind = resource.qualified();
        let message = if name.is_empty() {
            format!("{kind} is forbidden: {why}")
        } else {
            format!("{kind} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    pub(super) fn forbidden_path(user: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot get path \"{path}\"");
        let mut failure = Self::new(403, "Forbidden", message);
        failure.details = json!({});
        failure
    }

    pub(super) fn may_not_impersonate(user: &str, other: &str) -> Self {
        let message = format!(
            "users \"{other}\" is forbidden: User \"{user}\" cannot impersonate resource \"users\" in API \
             group \"\" at the cluster scope"
        );
        Self::new(403, "Forbidden", message)
    }

    /// Returns 422 with one cause for each `(field, message)`.
    pub(super) fn invalid(kind: &str, name: &str, causes: &[(String, String)]) -> Self {
        let details: Vec<String> = causes
            .iter()
            .map(|(field, why)| format!("{field}: {why}"))
            .collect();
        let details = if details.len() == 1 {
            details.concat()
        } else {
            format!("[{}]", details.join(", "))
        };
        let mut failure = Self::new(
            422,
            "Invalid",
            format!("{kind} \"{name}\" is invalid: {details}"),
        );
        let causes: Vec<Value> = causes
            .iter()
            .map(|(field, why)| json!({"reason": cause(why), "message": why, "field": field}))
            .collect();
        failure.details = json!({"name": name, "kind": kind, "causes": causes});
        failure
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns an internal error without a reason.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(super) fn unsupported_media_type() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types \
                       include: application/merge-patch+json, application/strategic-merge-patch+json";
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    pub(super) fn expired_continue() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter.";
        Self::new(410, "Expired", message)
    }

    /// Returns the answer to a resource version that does not exist yet.
    pub(super) fn too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(504, "Timeout", format!("Timeout: {message}"));
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        failure.details = json!({"causes": [cause], "retryAfterSeconds": 1});
        failure.retry_after = Some(1);
        failure
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// Returns the answer of a fault, with the API server's message.
    pub(super) fn scripted(code: u16, retry_after: Option<u32>) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "the request is bad"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden by the fault plan"),
            404 => (
                "NotFound",
                "the server could not find the requested resource",
            ),
            409 => (
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => (
                "Expired",
                "The resourceVersion for the provided watch is too old.",
            ),
            422 => ("Invalid", "the object is invalid"),
            429 => (
                "TooManyRequests",
                "too many requests, please try again later",
            ),
            503 => ("ServiceUnavailable", "apiserver is shutting down"),
            504 => (
                "Timeout",
                "Timeout: request did not complete within the allotted timeout",
            ),
            _ => (
                "InternalError",
                "Internal error occurred: requested by the fault plan",
            ),
        };
        let mut failure = Self::new(code, reason, message);
        failure.details = json!({});
        if let Some(seconds) = retry_after {
            failure.details = json!({"retryAfterSeconds": seconds});
            failure.retry_after = retry_after;
        }
        failure
    }

    /// Returns the body.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

fn cause(why: &str) -> &'static str {
    if why.starts_with("Required") {
        "FieldValueRequired"
    } else if why.starts_with("Forbidden") {
        "FieldValueForbidden"
    } else {
        "FieldValueInvalid"
    }
}
