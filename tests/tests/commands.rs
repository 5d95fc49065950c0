//! The commands beside `run`, as an operator types them: the real program against a real socket.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Grant, Identity, Recorded};
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::process::{Finished, finished};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::time::timeout;

const HEAD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A user of a cluster role with these rules, and the kubeconfig of it.
fn user(api: &ApiServer, dir: &Path, rules: &[(&str, &str)]) -> String {
    const NAME: &str = "system:serviceaccount:nodepulse:agent";

    for (verb, resource) in rules {
        api.grant(Grant {
            user: NAME.to_owned(),
            verb: (*verb).to_owned(),
            resource: (*resource).to_owned(),
        });
    }
    text(&api.kubeconfig(&dir.join("kubeconfig-user"), &Identity::user(NAME)))
}

async fn check(kubeconfig: &str, more: &[&str]) -> (Finished, Value) {
    let args = [
        "check",
        "-o",
        "json",
        "--kernel-tier",
        "files",
        "--node-name",
        "worker-1",
        "--kubeconfig",
        kubeconfig,
    ];
    let check = finished(args.iter().chain(more), "").await;
    assert_eq!(check.stderr, [""; 0], "{check:?}");
    let report = serde_json::from_str(&check.stdout).unwrap_or_else(|_| panic!("{check:?}"));
    (check, report)
}

/// The item of this name.
fn item<'a>(report: &'a Value, name: &str) -> &'a Value {
    let items = report["items"].as_array().unwrap();
    let item = items.iter().find(|item| item["name"] == name);
    item.unwrap_or_else(|| panic!("no {name:?} in {report:#}"))
}

/// `verdict` of the item of this name.
fn verdict<'a>(report: &'a Value, name: &str) -> &'a str {
    item(report, name)["verdict"].as_str().unwrap()
}

const COMPANION: [(&str, &str); 7] = [
    ("get", "nodes"),
    ("patch", "nodes/status"),
    ("create", "events"),
    ("patch", "events"),
    ("list", "pods"),
    ("watch", "pods"),
    ("get", "pods"),
];

#[tokio::test]
async fn check_tells_each_permission_that_the_mode_needs() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let node = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    let (ended, report) = check(&node, &["--mode", "node"]).await;
    assert_eq!(ended.code, Some(0), "{report:#}");
    for name in [
        "API server",
        "may watch nodes",
        "may update leases",
        "may patch nodes/status",
    ] {
        assert_eq!(verdict(&report, name), "ok", "{report:#}");
    }

    let all_but = |denied: (&str, &str)| {
        COMPANION
            .into_iter()
            .filter(|rule| *rule != denied)
            .collect::<Vec<_>>()
    };
    let rows = [
        (("", ""), "API server", "ok", 0),
        (
            ("patch", "nodes/status"),
            "may patch nodes/status",
            "missing",
            3,
        ),
        (("create", "events"), "may create events", "missing", 3),
        (("watch", "pods"), "may watch pods", "degraded", 0),
    ];
    for (denied, name, expected, code) in rows {
        let api = ApiServer::start().await;
        let kubeconfig = user(&api, dir.path(), &all_but(denied));
        let (ended, report) = check(&kubeconfig, &["--mode", "companion"]).await;
        assert_eq!(verdict(&report, name), expected, "{report:#}");
        assert_eq!(ended.code, Some(code), "{denied:?}: {report:#}");
        let writes = api.requests_where(|r| r.method != "GET" && !r.path.contains("reviews"));
        assert!(writes.is_empty(), "it only asks: {writes:?}");
    }
}

#[tokio::test]
async fn check_does_not_wait_for_a_silent_server() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    api.faults().push(Fault::on("*", "/", Effect::FreezeAll));
    let node = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    let asked = check(&node, &["--mode", "node"]);
    let (ended, report) = timeout(Duration::from_secs(8), asked).await.unwrap();
    assert_eq!(ended.code, Some(3));
    assert_eq!(verdict(&report, "API server"), "missing", "{report:#}");
    assert_eq!(
        verdict(&report, "may patch nodes/status"),
        "missing",
        "{report:#}"
    );
}

#[tokio::test]
async fn check_shows_which_cgroup_of_the_pods_is_there() {
    //  what is there, what is configured, how it is taken, and what is said of it
    let rows = [
        ("kubepods", "", "ok", "/kubepods, found"),
        ("kubepods.slice", "", "ok", "/kubepods.slice, found"),
        ("kubepods", "cgroupDriver: cgroupfs", "ok", "as configured"),
        (
            "kubepods",
            "cgroupDriver: systemd",
            "degraded",
            "/kubepods.slice, so no",
        ),
        ("others", "", "degraded", "/kubepods, so no"),
        ("both", "", "degraded", "/kubepods, by what is in it"),
        ("both", "cgroupDriver: cgroupfs", "ok", "as configured"),
    ];
    for (there, driver, expected, words) in rows {
        let host = MadeUpHost::calm();
        let cgroups = host.path().join("sys/fs/cgroup");
        host.pods_limit("15Gi");
        if there == "both" {
            fs::create_dir(cgroups.join("kubepods.slice")).unwrap();
            fs::write(cgroups.join(PODS).join("cgroup.events"), "populated 1\n").unwrap();
        } else {
            fs::rename(cgroups.join(PODS), cgroups.join(there)).unwrap();
        }
        let config = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\nhostRoot: {}\n{driver}\n",
            host.path().display()
        );
        let args = ["check", "-o", "json", "--kernel-tier", "files"];
        let check = finished(args.iter().chain(&["--config", "-"]), &config).await;
        let report: Value = serde_json::from_str(&check.stdout).unwrap();
        let item = item(&report, "cgroup of the pods");
        assert_eq!(item["verdict"], expected, "{there}, {driver}: {item}");
        assert!(item.to_string().contains(words), "{words}: {item}");
    }
}

#[tokio::test]
async fn check_says_what_the_machine_offers_in_a_line_each() {
    let args = ["check", "--kernel-tier", "files", "--node-name", "worker-1"];
    let check = finished(args, "").await;
    for name in [
        "kernel",
        "capabilities",
        "cgroups",
        "clock",
        "probe pid_fork",
        "API server",
    ] {
        let lines = check
            .stdout
            .lines()
            .filter(|line| line[10..].starts_with(name));
        assert!(lines.count() >= 1, "{name}: {check:?}");
    }
    let verdicts = ["ok", "degraded", "missing"];
    for line in check.stdout.lines() {
        let word = line.split_whitespace().next().unwrap();
        assert!(verdicts.contains(&word), "{line:?}");
        assert_eq!(word != "ok", line.contains("; to do: "), "{line:?}");
    }
    assert_eq!(check.code, Some(0), "{check:?}");

    // A root without anything in it: what cannot be looked at is said, and what is required missing.
    let dir = tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(
        &config,
        format!("{HEAD}hostRoot: {}\n", dir.path().display()),
    )
    .unwrap();
    let args = [
        "check",
        "--kernel-tier",
        "files",
        "-o",
        "json",
        "--config",
        &text(&config),
    ];
    let check = finished(args, "").await;
    let report = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!(verdict(&report, "cgroups"), "missing", "{report:#}");
    assert_eq!(verdict(&report, "kernel"), "degraded", "{report:#}");
    assert_eq!(
        (check.code, &report["verdict"]),
        (Some(3), &json!("missing"))
    );
}

#[tokio::test]
async fn what_config_prints_is_valid_and_says_the_same() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let part = dir.path().join("conf.d/10-edge.yaml");
    let kubelet = dir.path().join("kubelet.yaml");
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    fs::write(
        &file,
        format!("{HEAD}mode: node\nnodeName: worker-1\nmaxPods: 5\n"),
    )
    .unwrap();
    fs::write(
        &part,
        format!("{HEAD}maxPods: 6\nproviderID: '- a: \"b\" # c'\n"),
    )
    .unwrap();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    fs::write(
        &kubelet,
        format!("{head}maxPods: 7\npodsPerCore: 8\nport: 10250\n"),
    )
    .unwrap();
    // Those that are not for us.
    fs::write(dir.path().join("conf.d/.10.yaml"), "nonsense").unwrap();
    fs::write(dir.path().join("conf.d/10.yaml~"), "nonsense").unwrap();

    let (file, kubelet) = (text(&file), text(&kubelet));
    let args = [
        "config",
        "print",
        "--config",
        &file,
        "--kubelet-config",
        &kubelet,
    ];
    let printed = finished(args, "").await;
    assert_eq!(
        (printed.code, printed.stderr.len()),
        (Some(0), 0),
        "{printed:?}"
    );
    let yaml = printed.stdout;
    for line in [
        &format!("maxPods: 6  # {}", part.display()),
        &format!("podsPerCore: 8  # {kubelet}"),
        "podsPerCore: 8",
    ] {
        assert!(yaml.contains(line), "{line} is not in {yaml}");
    }
    let validated = finished(["config", "validate", "--config", "-"], &yaml).await;
    assert_eq!(validated.code, Some(0), "{validated:?}");
    let again = finished(["config", "print", "--config", "-"], &yaml).await;
    let values = |yaml: &str| {
        let lines = yaml
            .lines()
            .map(|line| line.split("  # ").next().unwrap().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(values(&again.stdout), values(&yaml));

    let defaults = finished(["config", "defaults", "--mode", "node"], "").await;
    assert!(
        defaults
            .stdout
            .contains("maxPods: 110  # default: the kubelet's"),
        "{defaults:?}"
    );
    let validated = finished(["config", "validate", "--config", "-"], &defaults.stdout).await;
    assert_eq!(validated.code, Some(0), "{validated:?}");
}

/// Those that a kubelet has too, by its name where that is another one.
#[tokio::test]
async fn what_a_kubelets_flag_says_holds() {
    //  flag, its value, what is printed, and after whom
    let rows = [
        ("--cgroup-driver", "systemd", "cgroupDriver: systemd"),
        ("--enforce-node-allocatable", "none", "- none"),
        ("--eviction-soft", "pid.available<9%", "pid.available: 9%"),
        (
            "--eviction-soft-grace-period",
            "pid.available=7s",
            "pid.available: 7s",
        ),
        (
            "--eviction-minimum-reclaim",
            "nodefs.available=3Gi",
            "nodefs.available: 3Gi",
        ),
        ("--register-node", "false", "registerNode: false"),
        ("--provider-id", "metal-7", "providerID: metal-7"),
        (
            "--enable-controller-attach-detach",
            "false",
            "enableControllerAttachDetach: false",
        ),
        (
            "--node-status-update-frequency",
            "11s",
            "nodeStatusUpdateFrequency: 11s",
        ),
        ("--max-pods", "7", "maxPods: 7"),
        ("--pods-per-core", "8", "podsPerCore: 8"),
        ("--system-reserved", "cpu=250m", "cpu: 250m"),
        ("--kube-reserved", "memory=1Gi", "memory: 1Gi"),
        ("--reserved-cpus", "0-3", "reservedSystemCPUs: 0-3"),
    ];
    let flags = rows.map(|(flag, value, _)| format!("{flag}={value}"));
    let args = ["config", "print", "--mode", "node"].into_iter();
    let args = args.chain(flags.iter().map(String::as_str));
    let printed = finished(args, "").await;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    for (flag, _, line) in rows {
        let flag = flag.replace("--reserved-cpus", "--reserved-system-cpus");
        let line = format!("{line}  # {flag}");
        assert!(printed.stdout.contains(&line), "{line:?}: {printed:?}");
    }
}

/// As a kubelet takes them, which knows them as switches.
#[tokio::test]
async fn a_switch_of_a_kubelet_needs_no_value() {
    const FILE: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                        registerNode: false\nenableControllerAttachDetach: false\n";
    let config = ["--mode", "node", "--config", "-"];
    let flags = ["--register-node", "--enable-controller-attach-detach"];
    let args = ["config", "print"].into_iter().chain(flags).chain(config);
    let printed = finished(args, FILE).await;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    for (flag, key) in flags
        .iter()
        .zip(["registerNode", "enableControllerAttachDetach"])
    {
        let line = format!("{key}: true  # {flag}");
        assert!(printed.stdout.contains(&line), "{line:?}: {printed:?}");
    }
}

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

/// What of a Node is not the server's own bookkeeping.
fn kept(mut node: Value) -> String {
    let metadata = node["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    node.to_string()
}

#[tokio::test]
async fn cleanup_takes_what_is_ours_and_leaves_every_other_byte() {
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
    let ours = json!({"key": "nodepulse.dev/memory-low", "effect": "NoSchedule"});
    // More than one page of them.
    for n in 0..60 {
        api.put_object(node(&format!("worker-{n}"), &mixed, &json!([ours, taint])));
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

    let args = [
        "cleanup",
        "--taints-only",
        "--node-name",
        "worker-2",
        "--kubeconfig",
        &kubeconfig,
    ];
    let taints = finished(args, "").await;
    let told = "worker-2: 0 conditions and 1 taints removed\n";
    assert_eq!(taints.stdout, told, "{taints:?}");
    let stored = &api.object("/api/v1/nodes/worker-2").unwrap();
    assert_eq!(stored["status"]["conditions"], mixed);
    assert_eq!(stored["spec"]["taints"], json!([taint]));

    let args = [
        "cleanup",
        "--node-name",
        "worker-1",
        "--kubeconfig",
        &kubeconfig,
    ];
    let one = finished(args, "").await;
    assert_eq!((one.code, one.stderr.len()), (Some(0), 0), "{one:?}");
    assert_eq!(one.stdout, "worker-1: 2 conditions and 1 taints removed\n");
    let (stored, wanted) = expected("worker-1");
    assert_eq!(stored, wanted);
    assert_ne!(
        expected("worker-2").0,
        expected("worker-2").1,
        "only the one that was named"
    );

    let args = ["cleanup", "--all-nodes", "--kubeconfig", &kubeconfig];
    let all = finished(args, "").await;
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
async fn cleanup_goes_on_after_a_failure_and_says_so() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    for name in ["worker-1", "worker-2", "worker-3"] {
        api.put_object(node(name, &json!([condition("PIDsLow")]), &json!([])));
    }
    let refused = Fault::on("PATCH", "/api/v1/nodes/worker-2", Effect::Status(403));
    api.faults().push(refused);
    let args = ["cleanup", "--all-nodes", "--kubeconfig", &kubeconfig];
    let all = finished(args, "").await;
    assert_eq!(all.code, Some(1), "{all:?}");
    let done = "worker-1: 1 conditions and 0 taints removed\n\
                worker-3: 1 conditions and 0 taints removed\n";
    assert_eq!(all.stdout, done);
    assert!(
        all.stderr.len() == 1 && all.stderr[0].contains("worker-2"),
        "{all:?}"
    );

    let gone = [
        "cleanup",
        "--node-name",
        "worker-9",
        "--kubeconfig",
        &kubeconfig,
    ];
    let gone = finished(gone, "").await;
    assert_eq!(gone.code, Some(0), "nothing is left there: {gone:?}");
}

/// A Job of an upgrade runs it so, and an upgrade is not to fail with one Node.
#[tokio::test]
async fn taints_of_all_nodes_are_taken_off_though_one_node_fails() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    let ours = json!([{"key": "nodepulse.dev/memory-low", "effect": "NoSchedule"}]);
    let path = |name: &str| format!("/api/v1/nodes/{name}");
    for name in ["worker-1", "worker-2", "worker-3"] {
        api.put_object(node(name, &json!([condition("PIDsLow")]), &ours));
    }
    let faults = [
        Fault::on("PATCH", &path("worker-1"), Effect::Status(500)),
        Fault::on("PATCH", &path("worker-2"), Effect::Status(403)).always(),
    ];
    for fault in faults {
        api.faults().push(fault);
    }
    let args = [
        "cleanup",
        "--all-nodes",
        "--taints-only",
        "--kubeconfig",
        &kubeconfig,
    ];
    let all = finished(args, "").await;
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

    let args = [
        "cleanup",
        "--taints-only",
        "--node-name",
        "worker-2",
        "--kubeconfig",
        &kubeconfig,
    ];
    let one = finished(args, "").await;
    assert_eq!(one.code, Some(1), "the one that was asked for: {one:?}");

    let unlisted = Fault::on("GET", "/api/v1/nodes", Effect::Status(403));
    api.faults().push(unlisted);
    let args = [
        "cleanup",
        "--all-nodes",
        "--taints-only",
        "--kubeconfig",
        &kubeconfig,
    ];
    let none = finished(args, "").await;
    assert_eq!(none.code, Some(1), "nothing was looked at: {none:?}");
}

#[tokio::test]
async fn version_names_the_programs_inside() {
    let version = finished(["version", "-o", "json"], "").await;
    let version: Value = serde_json::from_str(&version.stdout).unwrap();
    assert!(version["version"].is_string(), "{version}");
    let object = nodepulse::kernel::object::embedded().unwrap();
    assert_eq!(version["ebpfObject"]["bytes"], object.len());
    assert_eq!(version["ebpfObject"]["abi"], agent_common::ABI_VERSION);
    let dir = tempdir().unwrap();
    let file = dir.path().join("object");
    fs::write(&file, object).unwrap();
    let sum = tokio::process::Command::new("sha256sum")
        .arg(&file)
        .output();
    let sum = String::from_utf8(sum.await.unwrap().stdout).unwrap();
    let sum = sum.split_whitespace().next().unwrap();
    assert_eq!(version["ebpfObject"]["sha256"], sum);
    let text = finished(["version"], "").await.stdout;
    assert!(text.contains(sum), "{text}");
}

#[tokio::test]
async fn a_call_that_cannot_work_is_refused_in_one_line() {
    let dir = tempdir().unwrap();
    let write = |name: &str, words: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, words).unwrap();
        text(&path)
    };
    let good = write("good/config.yaml", HEAD);
    let bad = write("bad.yaml", &format!("{HEAD}maxPods: many\n"));
    let beside = write("beside/config.yaml", HEAD);
    write("beside/conf.d/10.yaml", &format!("{HEAD}maxPod: 1\n"));
    let wrong = write("wrong.yaml", HEAD);
    let absent = text(&dir.path().join("absent"));
    let rows: [(&[&str], [&str; 3]); 13] = [
        (
            &["run", "--config", &beside],
            ["conf.d/10.yaml", "maxPod", "maxPods"],
        ),
        (
            &["run", "--kubelet-config", &absent],
            ["absent", "No such file", "--kubelet-config"],
        ),
        (
            &["run", "--kubelet-config", &wrong],
            ["apiVersion", "wrong.yaml", "kubelet.config.k8s.io"],
        ),
        (
            &["check", "--config", &bad],
            ["maxPods", "many", "maxPods: 110"],
        ),
        (
            &["check", "--kubeconfig", &absent],
            ["kubeconfig", "absent", "clusters: ["],
        ),
        (&["check", "-o", "xml"], ["--output", "xml", "example"]),
        (
            &["config", "validate", "--config", &bad],
            ["maxPods", "many", "maxPods: 110"],
        ),
        (
            &["config", "print", "--config", &absent],
            ["absent", "No such file", "--config"],
        ),
        (
            &["config", "defaults", "--mode", "both"],
            ["--mode", "both", "mode: companion"],
        ),
        (&["config", "prnt"], ["unknown command", "prnt", "example"]),
        (
            &["cleanup", "--config", &good],
            ["kubeconfig", "none is given", "--kubeconfig"],
        ),
        (
            &["cleanup", "--all-nodes", "--node-name", "a"],
            ["--all-nodes", "--node-name", "example"],
        ),
        (&["version", "-o"], ["--output", "no value", "example"]),
    ];
    for (args, names) in rows {
        let refused = finished(args, "").await;
        assert_eq!(
            (refused.code, refused.stdout.as_str()),
            (Some(2), ""),
            "{args:?}: {refused:?}"
        );
        let [line] = refused.stderr.as_slice() else {
            panic!("{args:?}: not one line: {:#?}", refused.stderr);
        };
        for word in names {
            assert!(line.contains(word), "{args:?}: {word:?} is not in {line:?}");
        }
    }
}
