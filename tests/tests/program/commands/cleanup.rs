//! `nodepulse cleanup` removes conditions and taints of nodepulse, and nothing else.

use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::process::{Finished, finished};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::{HEAD, text};

fn node(name: &str, conditions: &Value, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": taints},
        "status": {
            "conditions": conditions,
            "capacity": {"cpu": "2"},
            "images": [{"names": ["x"], "sizeBytes": 1}],
        },
    })
}

fn condition(type_: &str) -> Value {
    json!({
        "type": type_,
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    })
}

/// A Node without the fields that the server maintains.
fn kept(mut node: Value) -> String {
    let metadata = node["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    node.to_string()
}

/// Runs it as this user, with further flags.
async fn cleanup(kubeconfig: &str, flags: &[&str]) -> Finished {
    let args = ["cleanup", "--kubeconfig", kubeconfig];
    finished(args.iter().chain(flags), "").await
}

#[tokio::test]
async fn cleanup_removes_nodepulse_conditions_and_taints_and_changes_no_other_byte() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    let theirs = json!([condition("Ready"), condition("KernelDeadlock")]);
    let mixed = json!([
        condition("MemoryLow"),
        condition("Ready"),
        condition("FrequentOOMKills"),
        condition("KernelDeadlock"),
    ]);
    let taint = json!({"key": "example.com/a", "value": "b", "effect": "NoExecute"});
    let memory_low = json!({"key": "nodepulse.dev/memory-low", "effect": "NoSchedule"});
    // More than one page of them.
    for n in 0..60 {
        api.put_object(node(
            &format!("worker-{n}"),
            &mixed,
            &json!([memory_low, taint]),
        ));
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "worker-1", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "worker-1"},
    });
    let lease = api.put_object(lease);
    let expected = api.put_object(node("expected", &theirs, &json!([taint])));
    let expected = |name: &str| {
        let stored = api.object(&format!("/api/v1/nodes/{name}")).unwrap();
        let mut expected = expected.clone();
        for field in ["name", "uid", "creationTimestamp"] {
            expected["metadata"][field] = stored["metadata"][field].clone();
        }
        (kept(stored), kept(expected))
    };

    let taints = cleanup(&kubeconfig, &["--taints-only", "--node-name", "worker-2"]).await;
    let expected_line = "worker-2: 0 conditions and 1 taints removed\n";
    assert_eq!(taints.stdout, expected_line, "{taints:?}");
    let stored = &api.object("/api/v1/nodes/worker-2").unwrap();
    assert_eq!(stored["status"]["conditions"], mixed);
    assert_eq!(stored["spec"]["taints"], json!([taint]));

    let one = cleanup(&kubeconfig, &["--node-name", "worker-1"]).await;
    assert_eq!((one.code, one.stderr.len()), (Some(0), 0), "{one:?}");
    assert_eq!(one.stdout, "worker-1: 2 conditions and 1 taints removed\n");
    let (stored, wanted) = expected("worker-1");
    assert_eq!(stored, wanted);
    assert_ne!(
        expected("worker-2").0,
        expected("worker-2").1,
        "only the one that was named"
    );

    let all = cleanup(&kubeconfig, &["--all-nodes"]).await;
    assert_eq!(
        (all.code, all.stdout.lines().count()),
        (Some(0), 61),
        "{all:?}"
    );
    for n in 0..60 {
        let (stored, wanted) = expected(&format!("worker-{n}"));
        assert_eq!(stored, wanted);
    }
    let lists = api.requests_where(|r| r.method == "GET" && r.path == "/api/v1/nodes");
    assert_eq!(lists.len(), 2, "page by page: {lists:?}");
    let alone = |r: &Recorded| r.method == "GET" && r.path.starts_with("/api/v1/nodes/");
    let alone = api.requests_where(alone);
    assert_eq!(alone.len(), 2, "those that were named");
    let unchanged =
        |r: &Recorded| r.method == "PATCH" && r.path.starts_with("/api/v1/nodes/expected");
    let unchanged = api.requests_where(unchanged);
    assert!(unchanged.is_empty(), "{unchanged:?}");
    let deletes = api.requests_where(|r| r.method == "DELETE");
    assert!(deletes.is_empty(), "{deletes:?}");
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1";
    assert_eq!(api.object(path), Some(lease));
}

#[tokio::test]
async fn cleanup_continues_after_a_failure_and_reports_it() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    for name in ["worker-1", "worker-2", "worker-3"] {
        api.put_object(node(name, &json!([condition("PIDsLow")]), &json!([])));
    }
    let refused = Fault::on("PATCH", "/api/v1/nodes/worker-2", Effect::Status(403));
    api.faults().push(refused);
    let all = cleanup(&kubeconfig, &["--all-nodes"]).await;
    assert_eq!(all.code, Some(1), "{all:?}");
    let done = "worker-1: 1 conditions and 0 taints removed\n\
                worker-3: 1 conditions and 0 taints removed\n";
    assert_eq!(all.stdout, done);
    assert!(
        all.stderr.len() == 1 && all.stderr[0].contains("worker-2"),
        "{all:?}"
    );

    let missing = cleanup(&kubeconfig, &["--node-name", "worker-9"]).await;
    assert_eq!(missing.code, Some(0), "nothing is left there: {missing:?}");
}

/// A Job of an upgrade runs it so, and an upgrade is not to fail with one Node.
#[tokio::test]
async fn the_taints_of_all_nodes_are_removed_even_if_one_node_fails() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    let memory_low = json!([{"key": "nodepulse.dev/memory-low", "effect": "NoSchedule"}]);
    let path = |name: &str| format!("/api/v1/nodes/{name}");
    for name in ["worker-1", "worker-2", "worker-3"] {
        api.put_object(node(name, &json!([condition("PIDsLow")]), &memory_low));
    }
    let faults = [
        Fault::on("PATCH", &path("worker-1"), Effect::Status(500)),
        Fault::on("PATCH", &path("worker-2"), Effect::Status(403)).always(),
    ];
    for fault in faults {
        api.faults().push(fault);
    }
    let all = cleanup(&kubeconfig, &["--all-nodes", "--taints-only"]).await;
    assert_eq!(all.code, Some(0), "{all:?}");
    let done = "worker-3: 0 conditions and 1 taints removed\n\
                worker-1: 0 conditions and 1 taints removed\n";
    assert_eq!(all.stdout, done, "what a second try can mend");
    assert!(
        all.stderr.len() == 1 && all.stderr[0].contains("worker-2"),
        "{all:?}"
    );
    let left = ["worker-1", "worker-2", "worker-3"]
        .map(|name| !api.object(&path(name)).unwrap()["spec"]["taints"].is_null());
    assert_eq!(left, [false, true, false]);

    let one = cleanup(&kubeconfig, &["--taints-only", "--node-name", "worker-2"]).await;
    assert_eq!(one.code, Some(1), "the one that was asked for: {one:?}");

    let unlisted = Fault::on("GET", "/api/v1/nodes", Effect::Status(403));
    api.faults().push(unlisted);
    let none = cleanup(&kubeconfig, &["--all-nodes", "--taints-only"]).await;
    assert_eq!(none.code, Some(1), "no Node was read: {none:?}");
}

/// A Node that may be cleaned later is named even if the list of the others fails.
#[tokio::test]
async fn cleanup_names_failed_nodes_even_if_the_list_fails() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    for n in 0..60 {
        let conditions = json!([{ "type": "MemoryLow", "status": "False" }]);
        api.put_object(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("worker-{n:02}") },
            "status": { "conditions": conditions },
        }));
    }
    let faults = api.faults();
    faults.push(Fault::on("PATCH", "/api/v1/nodes/worker-03", Effect::Status(500)).always());
    faults.push(
        Fault::on("GET", "/api/v1/nodes", Effect::Status(500))
            .skip(1)
            .always(),
    );
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    let ended = cleanup(&kubeconfig, &["--all-nodes"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["list of Nodes", "worker-03"] {
        assert!(ended.stderr.join("\n").contains(part), "{part}: {ended:?}");
    }
}

#[tokio::test]
async fn cleanup_of_stale_nodes_refuses_a_time_in_which_agents_may_not_renew() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    api.put_object(node("worker-1", &json!([condition("Ready")]), &json!([])));
    //  the flag, nodeStatusReportFrequency, exit code, part of the error
    let rows = [
        (
            "5m",
            "5m",
            Some(2),
            "less than twice nodeStatusReportFrequency (300s)",
        ),
        (
            "30m",
            "20m",
            Some(2),
            "less than twice nodeStatusReportFrequency (1200s)",
        ),
        ("30", "5m", Some(2), "--stale: \"30\" "),
        ("-1h", "5m", Some(2), "--stale"),
        ("10m", "5m", Some(0), ""),
    ];
    for (after, frequency, code, error) in rows {
        let config = format!("{HEAD}nodeStatusReportFrequency: {frequency}\n");
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, config).unwrap();
        let stale = format!("--stale={after}");
        let ended = cleanup(&kubeconfig, &[&stale, "--config", &text(&file)]).await;
        assert_eq!(ended.code, code, "{after}: {ended:?}");
        let stderr = ended.stderr.join("\n");
        assert!(stderr.contains(error), "{after}: {stderr}");
        if code == Some(2) {
            assert!(stderr.contains("example: --stale 30m"), "{after}: {stderr}");
        } else {
            let summary = "1 Nodes in use or clean, 0 Nodes whose kubelet does not respond\n";
            assert_eq!(ended.stdout, summary);
        }
    }
    let writes = api.requests_where(|request| request.method != "GET");
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test]
async fn with_a_selector_only_nodes_with_its_labels_are_cleaned() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    for (name, pool) in [("gpu-1", "gpu"), ("gpu-2", "gpu"), ("cpu-1", "cpu")] {
        let mut node = node(name, &json!([condition("MemoryLow")]), &json!([]));
        node["metadata"]["labels"] = json!({"pool": pool, "kubernetes.io/os": "linux"});
        api.put_object(node);
    }
    let selector = "--selector=kubernetes.io/os=linux,pool=gpu";
    let cleaned = cleanup(&kubeconfig, &["--all-nodes", selector]).await;
    let expected = "gpu-1: 1 conditions and 0 taints removed\n\
                    gpu-2: 1 conditions and 0 taints removed\n";
    assert_eq!(
        (cleaned.code, &*cleaned.stdout),
        (Some(0), expected),
        "{cleaned:?}"
    );
    let other = api.object("/api/v1/nodes/cpu-1").unwrap();
    assert_eq!(other["status"]["conditions"][0]["type"], "MemoryLow");

    let refused = cleanup(&kubeconfig, &[selector]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
}
