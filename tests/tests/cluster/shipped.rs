//! What is shipped in `deploy/`, for a real server and for the embedded one.

use std::path::Path;

use nodepulse_tests::api_server::{ApiServer, Grant};
use serde_json::Value;

use super::caller::text;
use super::stage::NAMESPACE;

/// Grants a service account the permissions of a rule of its role.
pub fn grant(server: &ApiServer, account: &str, rule: &Value) {
    let words = |key: &str| {
        let all = rule[key].as_array().unwrap().iter();
        all.map(|word| word.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for resource in words("resources") {
        for verb in words("verbs") {
            server.grant(Grant {
                user: format!("system:serviceaccount:{NAMESPACE}:{account}"),
                verb,
                resource: resource.clone(),
            });
        }
    }
}

/// Every shipped object that an agent without a cluster around it can be tried with.
pub fn shipped() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize");
    let files = [
        "base/namespace",
        "base/serviceaccount",
        "base/rbac",
        "base/admissionpolicy",
        "cleanup/cleanup-account",
    ];
    let read = |file: &str| {
        let text = std::fs::read_to_string(folder.join(format!("{file}.yaml"))).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap()
    };
    let all = files.into_iter().flat_map(read);
    all.filter(|object| object["kind"] != "Job").collect()
}

/// The path at which such an object is created.
pub fn collection(object: &Value) -> String {
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    match text(object, "kind") {
        "Namespace" => "/api/v1/namespaces".to_owned(),
        "ServiceAccount" => format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
        "ClusterRole" => format!("{rbac}/clusterroles"),
        "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings"),
        "ValidatingAdmissionPolicy" => format!("{admission}/validatingadmissionpolicies"),
        "ValidatingAdmissionPolicyBinding" => {
            format!("{admission}/validatingadmissionpolicybindings")
        }
        kind => panic!("{kind}: unknown kind"),
    }
}
