//! Checks that the objects are valid for an API server, and request no more privileges than
//! necessary.

use std::io;
use std::path::Path;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use nodepulse::{Config, Overrides};
use nodepulse_core::settings::Mode;
use nodepulse_linux::host::container_logs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{all, one};

/// Converts to the type of the API and back, which drops unknown fields.
fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|err| {
        panic!("{} {}: {err}", object["kind"], object["metadata"]["name"]);
    });
    serde_json::to_value(typed).unwrap()
}

#[test]
fn each_object_has_only_fields_of_its_type() {
    for object in all() {
        let back = match object["kind"].as_str().unwrap() {
            "ClusterRole" => typed::<ClusterRole>(&object),
            "ClusterRoleBinding" => typed::<ClusterRoleBinding>(&object),
            "ConfigMap" => typed::<ConfigMap>(&object),
            "DaemonSet" => typed::<DaemonSet>(&object),
            "Job" => typed::<Job>(&object),
            "Namespace" => typed::<Namespace>(&object),
            "NetworkPolicy" => typed::<NetworkPolicy>(&object),
            "ResourceQuota" => typed::<ResourceQuota>(&object),
            "ServiceAccount" => typed::<ServiceAccount>(&object),
            "ValidatingAdmissionPolicy" => typed::<ValidatingAdmissionPolicy>(&object),
            "ValidatingAdmissionPolicyBinding" => {
                typed::<ValidatingAdmissionPolicyBinding>(&object)
            }
            // The operator's types are not available here.
            "PodMonitor" | "PrometheusRule" => object.clone(),
            kind => panic!("{kind}: of which type?"),
        };
        assert_eq!(back, object);
    }
}

/// Returns the pod templates of all workloads.
fn pods() -> Vec<Value> {
    let runs =
        |object: &Value| Some(object["spec"]["template"]["spec"].clone()).filter(|s| !s.is_null());
    all().iter().filter_map(runs).collect()
}

#[test]
fn no_container_has_more_privileges_than_it_needs() {
    let pods = pods();
    assert_eq!(pods.len(), 3, "the agent and both cleanups");
    for pod in &pods {
        for key in ["hostNetwork", "hostIPC"] {
            assert!(pod[key].is_null(), "{key}");
        }
        for container in pod["containers"].as_array().unwrap() {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["readOnlyRootFilesystem"], true);
            assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
            assert!(context["privileged"].is_null());
            assert!(container["resources"]["limits"]["memory"].is_string());
        }
        // Of the node, only the agent's files may be written.
        let host = |volume: &&Value| !volume["hostPath"].is_null();
        for volume in pod["volumes"]
            .as_array()
            .iter()
            .flat_map(|v| v.iter())
            .filter(host)
        {
            let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
            let mount = mounts
                .iter()
                .find(|mount| mount["name"] == volume["name"])
                .unwrap();
            let writable = volume["hostPath"]["path"] == "/run/nodepulse";
            assert_eq!(mount["readOnly"] == true, !writable, "{mount}");
        }
    }
}

/// A compromised agent must not read more of the node than it needs.
#[test]
fn only_the_needed_directories_of_the_node_are_mounted() {
    let daemon_set = one("DaemonSet", "nodepulse");
    let volumes = daemon_set["spec"]["template"]["spec"]["volumes"].as_array();
    let paths = volumes
        .unwrap()
        .iter()
        .map(|volume| &volume["hostPath"]["path"]);
    let paths: Vec<_> = paths.filter_map(Value::as_str).collect();
    let expected = [
        "/run/nodepulse",
        "/sys/fs/cgroup",
        "/var/lib/kubelet/plugins/nodepulse.dev",
        "/var/lib/containerd/nodepulse.dev",
        "/var/log/containers",
    ];
    assert_eq!(paths, expected);
}

/// Checks the permissions that conditions, taints and Events need.
#[test]
fn no_role_grants_more_than_it_must() {
    for role in all()
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
    {
        for rule in role["rules"].as_array().unwrap() {
            assert_eq!(rule["apiGroups"], json!([""]));
            let texts =
                |key: &str| -> Vec<String> { serde_json::from_value(rule[key].clone()).unwrap() };
            for resource in texts("resources") {
                let known = ["nodes", "nodes/status", "pods", "events"];
                assert!(known.contains(&&*resource), "{resource}");
                for verb in texts("verbs") {
                    let reads = ["get", "list", "watch"].contains(&&*verb);
                    let writes = verb == "patch" && resource != "pods";
                    let creates = verb == "create" && resource == "events";
                    assert!(reads || writes || creates, "{verb} {resource}");
                }
            }
        }
    }
}

/// The agent itself reads the ConfigMap and the DaemonSet's environment.
#[test]
fn the_agent_accepts_the_shipped_configuration() {
    let map = one("ConfigMap", "nodepulse");
    let text = map["data"]["config.yaml"].as_str().unwrap().to_owned();
    let daemon_set = one("DaemonSet", "nodepulse");
    let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    for (pod_ip, address) in [
        ("10.1.2.3", "10.1.2.3:20260"),
        ("fd00::7", "[fd00::7]:20260"),
    ] {
        let variable = |name: &str| {
            let entry = env.iter().find(|entry| entry["name"] == name)?;
            match entry["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("spec.nodeName") => Some("worker-1".to_owned()),
                Some("status.podIP") => Some(pod_ip.to_owned()),
                Some(field) => panic!("{field}"),
                None => Some(entry["value"].as_str()?.replace("$(POD_IP)", pod_ip)),
            }
        };
        let file = |path: &Path| {
            let there = path == Path::new("/etc/nodepulse/config.yaml");
            there
                .then(|| text.clone())
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let config = Config::load(&Overrides::default(), &variable, &file, "host").unwrap();
        assert_eq!(config.mode, Mode::Companion);
        assert_eq!(config.node_name, "worker-1");
        assert_eq!(config.serve, address.parse().ok());
        assert_eq!(config.pods_cgroups.len(), 2, "found by what exists");
        let mounted = |directory: &Path| {
            let mounts = container["volumeMounts"].as_array().unwrap();
            mounts
                .iter()
                .any(|mount| mount["mountPath"] == *directory.to_string_lossy())
        };
        assert!(mounted(&config.root_directory), "nodefs");
        let images = config.imagefs_directory.as_deref();
        let images = images.unwrap_or(Path::new("/var/lib/containerd"));
        assert!(mounted(images), "imagefs");
        assert!(mounted(&config.state_directory), "what is remembered");
        let links = config.host_root.join(container_logs::DIRECTORY);
        assert!(mounted(&links), "names of containers");
    }
}
