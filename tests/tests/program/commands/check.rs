//! `nodepulse check` reports what this machine and this cluster offer.

use std::fs;
use std::path::Path;

use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Identity};
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::COMPANION_PERMISSIONS;
use nodepulse_tests::process::{Finished, finished};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::{HEAD, text};

/// A user of a cluster role with these rules, and the kubeconfig of it.
fn user(api: &ApiServer, dir: &Path, rules: &[(&str, &str)]) -> String {
    const NAME: &str = "system:serviceaccount:nodepulse:agent";

    api.grant_all(NAME, rules);
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

#[tokio::test]
async fn check_lists_each_permission_that_the_mode_needs() {
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
        COMPANION_PERMISSIONS
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
    let (ended, report) = check(&node, &["--mode", "node"]).await;
    assert_eq!(ended.code, Some(3));
    assert_eq!(verdict(&report, "API server"), "missing", "{report:#}");
    assert_eq!(
        verdict(&report, "may patch nodes/status"),
        "missing",
        "{report:#}"
    );
}

#[tokio::test]
async fn check_shows_the_pods_cgroup() {
    //  what exists, what is configured, the result, and its text
    let rows = [
        ("kubepods", "", "ok", "/kubepods, detected"),
        ("kubepods.slice", "", "ok", "/kubepods.slice, detected"),
        ("kubepods", "cgroupDriver: cgroupfs", "ok", "as configured"),
        (
            "kubepods",
            "cgroupDriver: systemd",
            "degraded",
            "/kubepods.slice not found",
        ),
        ("others", "", "degraded", "/kubepods not found"),
        ("both", "", "degraded", "/kubepods selected"),
        ("both", "cgroupDriver: cgroupfs", "ok", "as configured"),
    ];
    for (there, driver, expected, words) in rows {
        let host = MadeUpHost::calm();
        let cgroups = host.path().join("sys/fs/cgroup");
        // Without a trace of Kubernetes, no pods are expected.
        fs::create_dir_all(host.path().join("var/lib/kubelet")).unwrap();
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
async fn check_prints_one_line_for_each_item_of_the_machine() {
    let args = ["check", "--kernel-tier", "files", "--node-name", "worker-1"];
    let check = finished(args, "").await;
    for name in [
        "kernel",
        "capabilities",
        "cgroups",
        "clock",
        "imagefs",
        "probe pid_fork",
        "API server",
    ] {
        let lines = check
            .stdout
            .lines()
            .filter(|line| line.get(10..).is_some_and(|line| line.starts_with(name)));
        assert!(lines.count() >= 1, "{name}: {check:?}");
    }
    let verdicts = ["ok", "degraded", "missing"];
    let (items, summary) = check.stdout.trim_end().rsplit_once("\n\n").unwrap();
    let counted = summary.split(" missing, ").next().unwrap();
    assert_eq!(counted, "0", "{summary}");
    for line in items.lines() {
        let word = line.split_whitespace().next().unwrap();
        assert!(verdicts.contains(&word), "{line:?}");
        let no_action = line.contains("no action needed");
        let has_remedy = line.contains("; to do: ");
        assert_eq!(word != "ok" && !no_action, has_remedy, "{line:?}");
    }
    assert_eq!(check.code, Some(0), "{check:?}");

    // An empty root: what cannot be read is reported, and what is required is missing.
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
    let images = item(&report, "imagefs").to_string();
    let none = "no separate file system at /var/lib/containerd and /var/lib/containers/storage";
    assert!(images.contains(none), "{images}");
    assert_eq!(
        (check.code, &report["verdict"]),
        (Some(3), &json!("missing"))
    );
    let all = report["items"].as_array().unwrap().iter();
    let missing = all.filter(|item| item["verdict"] == "missing").count();
    assert_eq!(report["counts"]["missing"], missing, "{report:#}");
}
