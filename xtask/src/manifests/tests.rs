//! The chart renders to the kustomize manifests, and each of its switches has an effect.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

fn root() -> PathBuf {
    repo::root()
}

/// The objects of a text with several documents.
fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").map(|text| yaml::parse(text).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

fn render(values: &Value) -> Vec<Value> {
    render_over(values, &[])
}

/// If these objects are installed already, as kind and name.
fn render_over(values: &Value, installed: &[(&str, &str)]) -> Vec<Value> {
    let chart = Chart::load(&root().join(CHART)).unwrap();
    let rendered = chart.render("agents", values, installed).unwrap();
    rendered.values().flat_map(|text| objects(text)).collect()
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = objects.iter().filter_map(|o| o["kind"].as_str()).collect();
    kinds.dedup();
    kinds
}

fn of<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind)
        .unwrap()
}

#[test]
fn the_kustomize_manifests_are_those_of_the_chart() {
    for (path, text) in files(&root()).unwrap() {
        let path = root().join(KUSTOMIZE).join(path);
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "{}: run `cargo xtask manifests`",
            path.display()
        );
    }
}

#[test]
fn the_chart_has_this_version() {
    let chart = fs::read_to_string(root().join(CHART).join("Chart.yaml")).unwrap();
    let chart = yaml::parse(&chart).unwrap();
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

/// Every generated file is used.
#[test]
fn each_kustomization_lists_each_file_in_its_folder() {
    for folder in ["base", "monitoring", "cleanup", "untaint"] {
        let folder = root().join(KUSTOMIZE).join(folder);
        let text = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
        let kustomization = yaml::parse(&text).unwrap();
        let mut named: Vec<&str> = kustomization["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        named.sort_unstable();
        let mut there: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "kustomization.yaml")
            .collect();
        there.sort_unstable();
        assert_eq!(named, there, "{}", folder.display());
    }
}

#[test]
fn a_switch_adds_and_removes_its_objects() {
    let off = json!({"enabled": false});
    let on = json!({"enabled": true});
    let stale = json!({"stale": {"enabled": true}});
    let all = kinds(&render(&json!({}))).len();
    let rows = [
        ("networkPolicy", &off, "NetworkPolicy", false),
        ("serve", &off, "NetworkPolicy", false),
        ("admissionPolicy", &off, "ValidatingAdmissionPolicy", false),
        (
            "admissionPolicy",
            &off,
            "ValidatingAdmissionPolicyBinding",
            false,
        ),
        ("resourceQuota", &off, "ResourceQuota", false),
        ("cleanup", &off, "Job", false),
        ("cleanup", &stale, "CronJob", true),
        ("podMonitor", &on, "PodMonitor", true),
        ("alerts", &on, "PrometheusRule", true),
    ];
    for (switch, value, kind, there) in rows {
        let rendered = render(&json!({ switch: value }));
        assert_eq!(kinds(&rendered).contains(&kind), there, "{switch}");
        assert_ne!(kinds(&rendered).len(), all, "{switch}");
    }
    let none = render(&json!({"podMonitor": on, "serve": off}));
    assert!(!kinds(&none).contains(&"PodMonitor"), "nothing to scrape");
}

#[test]
fn each_alert_links_to_its_section_of_the_configured_runbooks() {
    let runbooks = "https://wiki.example.com/nodepulse";
    let rendered = render(&json!({"alerts": {"enabled": true, "runbooks": runbooks}}));
    let rules = rendered.iter().find(|o| o["kind"] == "PrometheusRule");
    let rules = rules.unwrap()["spec"]["groups"][0]["rules"]
        .as_array()
        .unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        let section = rule["alert"].as_str().unwrap().to_lowercase();
        let expected = format!("{runbooks}#{section}");
        assert_eq!(rule["annotations"]["runbook_url"], expected);
    }
}

#[test]
fn only_taints_grant_the_permission_to_patch_nodes() {
    let may = |values: Value| {
        let rendered = render(&values);
        let of_agents = |object: &&Value| {
            object["kind"] == "ClusterRoleBinding" && object["subjects"][0]["name"] == "nodepulse"
        };
        let names: Vec<Value> = rendered
            .iter()
            .filter(of_agents)
            .map(|binding| binding["roleRef"]["name"].clone())
            .collect();
        let roles = rendered
            .iter()
            .filter(|o| o["kind"] == "ClusterRole" && names.contains(&o["metadata"]["name"]));
        let rules = roles.flat_map(|role| role["rules"].as_array().unwrap().clone());
        let on_nodes = rules.filter(|rule| rule["resources"] == json!(["nodes"]));
        Value::from_iter(on_nodes.map(|rule| rule["verbs"].clone()))
    };
    assert_eq!(may(json!({})), json!([["get"]]));
    let taints = json!({"taints": {"MemoryLow": "NoSchedule"}});
    assert_eq!(may(json!({"config": taints})), json!([["get"], ["patch"]]));
}

/// After the upgrade that turns taints off, and after rollbacks: a
/// rollback renders nothing again.
#[test]
fn turning_taints_off_removes_them_from_all_nodes() {
    let hooked_jobs = |values: &Value, installed: &[(&str, &str)]| -> Vec<(String, Value, Value)> {
        let rendered = render_over(values, installed);
        let account = rendered.iter().find(|object| {
            object["kind"] == "ServiceAccount" && object["metadata"]["name"] == "nodepulse-cleanup"
        });
        let hooks = |object: &Value| {
            let hooks = &object["metadata"]["annotations"]["helm.sh/hook"];
            hooks.as_str().unwrap().to_owned()
        };
        let job_of_hook = |job: &Value| {
            let pod = &job["spec"]["template"]["spec"];
            assert_eq!(pod["serviceAccountName"], "nodepulse-cleanup");
            let made = hooks(account.unwrap());
            for hook in hooks(job).split(',') {
                assert!(made.split(',').any(|made| made == hook), "{hook}: {made}");
            }
            (
                hooks(job),
                job["metadata"]["name"].clone(),
                pod["containers"][0]["args"].clone(),
            )
        };
        let jobs = rendered.iter().filter(|object| object["kind"] == "Job");
        jobs.map(job_of_hook).collect()
    };
    let at_the_end = (
        "pre-delete,post-delete".to_owned(),
        json!("nodepulse-cleanup"),
        json!(["cleanup", "--all-nodes"]),
    );
    let on = |hooks: &str| {
        let args = json!(["cleanup", "--all-nodes", "--taints-only"]);
        (hooks.to_owned(), json!("nodepulse-untaint"), args)
    };
    let tainting = [("ClusterRole", "nodepulse-taints")];
    let taints = json!({"config": {"taints": {"MemoryLow": "NoSchedule"}}});
    assert_eq!(
        hooked_jobs(&taints, &tainting),
        std::slice::from_ref(&at_the_end)
    );
    let rendered = render(&taints);
    let (kind, name) = tainting[0];
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    assert_eq!(
        rendered.iter().filter(is).count(),
        1,
        "the role that the chart looks up"
    );
    assert_eq!(
        hooked_jobs(&json!({}), &tainting),
        [at_the_end.clone(), on("post-upgrade,post-rollback")]
    );
    assert_eq!(
        hooked_jobs(&json!({}), &[]),
        [at_the_end, on("post-rollback")]
    );
    let rendered = render(&json!({}));
    let job = rendered
        .iter()
        .find(|object| object["metadata"]["name"] == "nodepulse-untaint")
        .unwrap();
    let delete_policy = &job["metadata"]["annotations"]["helm.sh/hook-delete-policy"];
    assert_eq!(
        *delete_policy, "before-hook-creation",
        "its log can be read"
    );
    let deadline = job["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
    assert!(deadline < 300, "Helm's timeout");
    let off = json!({"cleanup": {"enabled": false}});
    assert_eq!(hooked_jobs(&off, &tainting), []);
}

#[test]
fn values_are_rendered_in_their_fields() {
    let rendered = render(&json!({
        "image": {"repository": "r.example/np", "digest": "sha256:00", "pullSecrets": [{"name": "s"}]},
        "config": {"cgroupDriver": "cgroupfs", "rootDirectory": "/data/kubelet",
                   "imagefsDirectory": "/data/images"},
        "extraCapabilities": ["SYS_RESOURCE"],
        "serve": {"port": 9999},
    }));
    let pod = &of(&rendered, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "r.example/np@sha256:00");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "s"}]));
    let capabilities = &container["securityContext"]["capabilities"]["add"];
    assert_eq!(
        *capabilities,
        json!(["BPF", "PERFMON", "DAC_READ_SEARCH", "SYS_RESOURCE"])
    );
    assert_eq!(container["ports"][0]["containerPort"], 9999);
    assert_eq!(container["env"][2]["value"], "$(POD_IP):9999");
    assert_eq!(container["volumeMounts"][3]["mountPath"], "/data/kubelet");
    let nodefs = &pod["volumes"][3]["hostPath"]["path"];
    assert_eq!(*nodefs, "/data/kubelet/plugins/nodepulse.dev");
    assert_eq!(container["volumeMounts"][4]["mountPath"], "/data/images");
    let imagefs = &pod["volumes"][4]["hostPath"]["path"];
    assert_eq!(*imagefs, "/data/images/nodepulse.dev");
    let config = of(&rendered, "ConfigMap")["data"]["config.yaml"]
        .as_str()
        .unwrap();
    assert_eq!(
        yaml::parse(config).unwrap(),
        json!({
            "apiVersion": "nodepulse.dev/v1alpha1",
            "kind": "NodepulseConfiguration",
            "mode": "companion",
            "cgroupDriver": "cgroupfs",
            "rootDirectory": "/data/kubelet",
            "imagefsDirectory": "/data/images",
        })
    );
    let account = &of(&rendered, "ServiceAccount")["metadata"]["namespace"];
    assert_eq!(*account, "agents");
}

#[test]
fn nothing_is_served_if_serving_is_disabled() {
    let rendered = render(&json!({"serve": {"enabled": false}}));
    let container = &of(&rendered, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    for key in ["ports", "startupProbe", "livenessProbe"] {
        assert!(container[key].is_null(), "{key}");
    }
    assert_eq!(container["env"][1]["value"], "off");
}

/// Compares with the real tool, if this machine has it.
#[test]
fn kubectl_builds_the_same_objects() {
    let folder = root().join(KUSTOMIZE).join("base");
    let mut kubectl = std::process::Command::new("kubectl");
    let output = match kubectl.arg("kustomize").arg(&folder).output() {
        Ok(output) => output,
        Err(err) => return crate::skips::skip("no kubectl", err),
    };
    assert!(output.status.success(), "{output:?}");
    let mut built = objects(&String::from_utf8(output.stdout).unwrap());
    let chart = Chart::load(&root().join(CHART)).unwrap();
    let rendered = chart
        .render("nodepulse", &json!({"cleanup": {"enabled": false}}), &[])
        .unwrap();
    let mut expected: Vec<Value> = rendered.values().flat_map(|text| objects(text)).collect();
    built.retain(|object| object["kind"] != "Namespace");
    for objects in [&mut built, &mut expected] {
        objects.sort_by_key(|o| format!("{} {}", o["kind"], o["metadata"]["name"]));
    }
    assert_eq!(built.len(), expected.len());
    for (built, expected) in built.iter().zip(&expected) {
        assert_eq!(built, expected);
    }
}
