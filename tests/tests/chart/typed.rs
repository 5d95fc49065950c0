//! Objects as the API's types.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Converted to its type and back, which drops unknown fields.
pub fn round_trip(object: &Value) -> Result<Value, serde_json::Error> {
    match object["kind"].as_str().unwrap() {
        "ClusterRole" => of::<ClusterRole>(object),
        "ClusterRoleBinding" => of::<ClusterRoleBinding>(object),
        "ConfigMap" => of::<ConfigMap>(object),
        "CronJob" => of::<CronJob>(object),
        "DaemonSet" => of::<DaemonSet>(object),
        "Job" => of::<Job>(object),
        "NetworkPolicy" => of::<NetworkPolicy>(object),
        "Pod" => of::<Pod>(object),
        "ResourceQuota" => of::<ResourceQuota>(object),
        "Service" => of::<Service>(object),
        "ServiceAccount" => of::<ServiceAccount>(object),
        "ValidatingAdmissionPolicy" => of::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => of::<ValidatingAdmissionPolicyBinding>(object),
        // The operator's types are not available here.
        "PodMonitor" | "PrometheusRule" | "ServiceMonitor" => Ok(object.clone()),
        kind => panic!("{kind}: of which type?"),
    }
}

fn of<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(object.clone())?)
}
