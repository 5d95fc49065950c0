//! The objects are valid for an API server, and request no more privileges than necessary.

use std::io;
use std::path::Path;

use nodepulse::{Config, Overrides};
use nodepulse_core::settings::Mode;
use nodepulse_linux::host::container_logs;
use serde_json::{Value, json};

use super::{all, one};

/// The pods of everything that runs some.
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
        // Of the node nothing may be written but what the agent keeps there.
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
            let path = volume["hostPath"]["path"].as_str().unwrap();
            let writable = ["/run/nodepulse", "/var/lib/nodepulse/history"].contains(&path);
            assert_eq!(mount["readOnly"] == true, !writable, "{mount}");
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
        assert!(
            mounted(config.history_directory.as_deref().unwrap()),
            "incidents"
        );
        let links = config.host_root.join(container_logs::DIRECTORY);
        assert!(mounted(&links), "names of containers");
    }
}
