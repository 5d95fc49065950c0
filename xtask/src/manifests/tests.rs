//! The chart renders to what kustomize has, and its switches switch.

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
    let chart = Chart::load(&root().join(CHART)).unwrap();
    let rendered = chart.render("agents", values).unwrap();
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
fn kustomize_has_what_the_chart_says() {
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
fn the_chart_is_of_this_version() {
    let chart = fs::read_to_string(root().join(CHART).join("Chart.yaml")).unwrap();
    let chart = yaml::parse(&chart).unwrap();
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

/// Every file that is written is also taken.
#[test]
fn each_kustomization_names_each_file_beside_it() {
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
fn a_switch_takes_its_objects_along() {
    let off = json!({"enabled": false});
    let on = json!({"enabled": true});
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
fn taints_give_the_right_to_patch_nodes_and_nothing_else_does() {
    let verbs = |values: Value| {
        let rendered = render(&values);
        let rules = of(&rendered, "ClusterRole")["rules"]
            .as_array()
            .unwrap()
            .clone();
        rules
            .iter()
            .find(|rule| rule["resources"] == json!(["nodes"]))
            .unwrap()["verbs"]
            .clone()
    };
    let cleanup = json!({"enabled": false});
    assert_eq!(verbs(json!({"cleanup": cleanup})), json!(["get"]));
    let taints = json!({"taints": {"MemoryLow": "NoSchedule"}});
    assert_eq!(
        verbs(json!({"cleanup": cleanup, "config": taints})),
        json!(["get", "patch"])
    );
}

#[test]
fn who_turns_taints_off_has_them_taken_off_after_the_upgrade() {
    let jobs = |values: &Value| -> Vec<(Value, Value)> {
        let rendered = render(values).into_iter();
        let jobs = rendered.filter(|object| object["kind"] == "Job");
        let told = |job: Value| {
            let pod = &job["spec"]["template"]["spec"];
            let args = pod["containers"][0]["args"].clone();
            (job["metadata"]["annotations"]["helm.sh/hook"].clone(), args)
        };
        jobs.map(told).collect()
    };
    let (all, taints) = (json!(["cleanup", "--all-nodes"]), "--taints-only");
    let at_the_end = (json!("pre-delete,post-delete"), all);
    let afterwards = (
        json!("post-upgrade,post-rollback"),
        json!(["cleanup", "--all-nodes", taints]),
    );
    let on = json!({"config": {"taints": {"MemoryLow": "NoSchedule"}}});
    assert_eq!(jobs(&on), std::slice::from_ref(&at_the_end));
    assert_eq!(jobs(&json!({})), [at_the_end, afterwards]);
    assert_eq!(jobs(&json!({"cleanup": {"enabled": false}})), []);
}

#[test]
fn values_end_up_where_they_belong() {
    let rendered = render(&json!({
        "image": {"repository": "r.example/np", "digest": "sha256:00", "pullSecrets": [{"name": "s"}]},
        "config": {"cgroupDriver": "cgroupfs", "rootDirectory": "/data/kubelet"},
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
        })
    );
    let account = &of(&rendered, "ServiceAccount")["metadata"]["namespace"];
    assert_eq!(*account, "agents");
}

#[test]
fn nothing_is_served_where_serving_is_off() {
    let rendered = render(&json!({"serve": {"enabled": false}}));
    let container = &of(&rendered, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    for key in ["ports", "startupProbe", "livenessProbe"] {
        assert!(container[key].is_null(), "{key}");
    }
    assert_eq!(container["env"][1]["value"], "off");
}

/// The real tools, where this machine has them: ours must not be the only ones that agree.
#[test]
fn kubectl_builds_the_same_objects() {
    let folder = root().join(KUSTOMIZE).join("base");
    let mut kubectl = std::process::Command::new("kubectl");
    let Ok(output) = kubectl.arg("kustomize").arg(&folder).output() else {
        println!("skipped: no kubectl here");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let mut built = objects(&String::from_utf8(output.stdout).unwrap());
    let chart = Chart::load(&root().join(CHART)).unwrap();
    let rendered = chart
        .render("nodepulse", &json!({"cleanup": {"enabled": false}}))
        .unwrap();
    let mut ours: Vec<Value> = rendered.values().flat_map(|text| objects(text)).collect();
    built.retain(|object| object["kind"] != "Namespace");
    for objects in [&mut built, &mut ours] {
        objects.sort_by_key(|o| format!("{} {}", o["kind"], o["metadata"]["name"]));
    }
    assert_eq!(built.len(), ours.len());
    for (built, ours) in built.iter().zip(&ours) {
        assert_eq!(built, ours);
    }
}
