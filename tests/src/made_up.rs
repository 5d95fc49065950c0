//! Creates a Node and Pods of the usual size, and a Lease, as an API server stores them.

use nodepulse_linux::cri::messages::Image;
use serde_json::{Value, json};

/// Number of images on a Node: the maximum that a kubelet reports.
const IMAGES: u32 = 50;

/// Returns a Node that a kubelet has registered.
pub fn node(name: &str) -> Value {
    let images = (0..IMAGES).map(|n| {
        let digest = format!("registry.example/team/image-{n}@sha256:{n:064x}");
        json!({ "names": [digest, format!("registry.example/team/image-{n}:v1.{n}")],
                "sizeBytes": 100_000_000 + n })
    });
    let condition = |type_: &str, status: &str, reason: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({ "type": type_, "status": status, "reason": reason, "message": reason,
                "lastHeartbeatTime": time, "lastTransitionTime": time })
    };
    let amounts =
        json!({ "cpu": "2", "memory": "16Gi", "pods": "500", "ephemeral-storage": "90Gi" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
        "spec": { "podCIDR": "10.244.1.0/24" },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": "192.0.2.10" },
                { "type": "Hostname", "address": name },
            ],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "images": images.collect::<Vec<_>>(),
        },
    })
}

/// Returns running pod `number` of a Node, with two containers.
pub fn pod(node: &str, number: u32) -> Value {
    let application = format!("app-{}", number % 20);
    let name = format!(
        "{application}-{:08x}-{number:05}",
        number.wrapping_mul(2_654_435_761)
    );
    let containers = ["main", "sidecar"].map(|container| {
        let variables: Vec<Value> = (0..10)
            .map(|n| json!({ "name": format!("SETTING_{n}"), "value": "of no matter here" }))
            .collect();
        json!({
            "name": container,
            "image": format!("registry.example/team/{application}:v1.2.3"),
            "env": variables,
            "resources": { "requests": { "cpu": "50m", "memory": "64Mi" },
                           "limits": { "memory": "256Mi" } },
        })
    });
    let statuses = (1_u32..).zip(["main", "sidecar"]).map(|(n, container)| {
        json!({
            "name": container,
            "ready": true,
            "restartCount": 0,
            "containerID": format!("containerd://{:064x}", u64::from(number) * 2 + u64::from(n)),
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
        })
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": format!("team-{}", number % 7),
            "uid": format!("{number:08x}-0000-4000-8000-{number:012x}"),
            "labels": { "app.kubernetes.io/name": application, "pod-template-hash": "5d4f8c7b6f" },
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "8080" },
        },
        "spec": { "nodeName": node, "containers": containers },
        "status": {
            "phase": "Running",
            "podIP": format!("10.244.{}.{}", number / 250, number % 250 + 2),
            "containerStatuses": statuses.collect::<Vec<_>>(),
        },
    })
}

/// Returns the Lease of `worker-1` that `manager` renewed at `time`, as a server stores it.
pub fn lease(manager: &str, time: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "worker-1",
            "namespace": "kube-node-lease",
            "managedFields": [{
                "manager": manager,
                "operation": "Update",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:renewTime": {}}},
            }],
        },
        "spec": {
            "holderIdentity": "worker-1",
            "leaseDurationSeconds": 40,
            "renewTime": time,
        },
    })
}

/// Returns an image with a digest and a tag, as a container runtime lists it.
pub fn image(number: u64) -> Image {
    let name = format!(
        "registry.example.com/team-{}/service-{number:03}",
        number % 7
    );
    Image {
        id: format!("sha256:{number:064x}"),
        repo_tags: vec![format!("{name}:v1.{number}")],
        repo_digests: vec![format!("{name}@sha256:{:064x}", number * 31)],
        size: (number + 1) << 20,
    }
}
