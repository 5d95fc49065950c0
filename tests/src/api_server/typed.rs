//! Decodes objects strictly into the types of the API, like `fieldValidation=Strict`.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, Pod, ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use super::resource::Resource;

/// Returns 400 if a value has another type than its field, or a field is unknown.
pub(super) fn strict(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let kind = resource.kind;
    let Some(decoded) = round_trip(kind, object) else {
        return Ok(());
    };
    let decoded = decoded.map_err(|err| {
        let version = "in version \"v1\" cannot be handled as a";
        Failure::bad_request(format!("{kind} {version} {kind}: {err}"))
    })?;
    match unknown(object, &decoded, "") {
        Some(field) => {
            let why = format!("strict decoding error: unknown field {field:?}");
            Err(Failure::bad_request(why))
        }
        None => Ok(()),
    }
}

/// Returns the object without unknown fields; `None` for kinds whose types are not built in, such
/// as those of the Prometheus operator.
fn round_trip(kind: &str, object: &Value) -> Option<serde_json::Result<Value>> {
    Some(match kind {
        "CertificateSigningRequest" => of::<CertificateSigningRequest>(object),
        "ClusterRole" => of::<ClusterRole>(object),
        "ClusterRoleBinding" => of::<ClusterRoleBinding>(object),
        "ConfigMap" => of::<ConfigMap>(object),
        "CronJob" => of::<CronJob>(object),
        "DaemonSet" => of::<DaemonSet>(object),
        "Event" => of::<Event>(object),
        "Job" => of::<Job>(object),
        "Lease" => of::<Lease>(object),
        "Namespace" => of::<Namespace>(object),
        "NetworkPolicy" => of::<NetworkPolicy>(object),
        "Node" => of::<Node>(object),
        "Pod" => of::<Pod>(object),
        "ResourceQuota" => of::<ResourceQuota>(object),
        "Service" => of::<Service>(object),
        "ServiceAccount" => of::<ServiceAccount>(object),
        "ValidatingAdmissionPolicy" => of::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => of::<ValidatingAdmissionPolicyBinding>(object),
        _ => return None,
    })
}

fn of<T: DeserializeOwned + Serialize>(object: &Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<T>(object.clone())?)
}

/// Returns the path of a field that `decoded` lacks.
fn unknown(object: &Value, decoded: &Value, at: &str) -> Option<String> {
    match object {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = if at.is_empty() {
                name.clone()
            } else {
                format!("{at}.{name}")
            };
            match decoded.get(name) {
                Some(decoded) => unknown(value, decoded, &path),
                None => (!value.is_null()).then_some(path),
            }
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(n, item)| {
            let decoded = decoded.get(n).unwrap_or(&Value::Null);
            unknown(item, decoded, &format!("{at}[{n}]"))
        }),
        _ => None,
    }
}
