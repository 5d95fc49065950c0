//! Tests the effects of each value.

use std::collections::BTreeSet;

use nodepulse_tests::helm::Helm;
use serde_json::{Value, json};

use super::{agent_pod, of, render, yaml};

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().filter_map(|o| o["kind"].as_str()).collect()
}

#[test]
fn a_switch_adds_and_removes_its_objects() {
    let Some(helm) = Helm::find() else { return };
    let off = json!({"enabled": false});
    let on = json!({"enabled": true});
    let stale = json!({"stale": {"enabled": true}});
    let none = json!({"create": false});
    let all = kinds(&render(&helm, &json!({}))).len();
    let rows = [
        ("networkPolicy", &on, "NetworkPolicy", true),
        ("admissionPolicy", &off, "ValidatingAdmissionPolicy", false),
        (
            "admissionPolicy",
            &off,
            "ValidatingAdmissionPolicyBinding",
            false,
        ),
        ("resourceQuota", &off, "ResourceQuota", false),
        ("rbac", &none, "ClusterRole", false),
        ("rbac", &none, "ClusterRoleBinding", false),
        ("cleanup", &stale, "CronJob", true),
        ("podMonitor", &on, "PodMonitor", true),
        ("serviceMonitor", &on, "ServiceMonitor", true),
        ("serviceMonitor", &on, "Service", true),
        ("alerts", &on, "PrometheusRule", true),
    ];
    let defaults = render(&helm, &json!({}));
    for (switch, value, kind, there) in rows {
        let rendered = render(&helm, &json!({ switch: value }));
        assert_eq!(kinds(&rendered).contains(&kind), there, "{switch}");
        assert_ne!(kinds(&defaults).contains(&kind), there, "{switch}");
        assert_ne!(kinds(&rendered).len(), all, "{switch}");
    }
    let jobs = json!({"cleanup": off, "configValidation": off});
    assert!(!kinds(&render(&helm, &jobs)).contains(&"Job"));
    let unserved = json!({"networkPolicy": on, "serve": off});
    assert!(!kinds(&render(&helm, &unserved)).contains(&"NetworkPolicy"));
}

#[test]
fn each_alert_links_to_its_section_of_the_configured_runbooks() {
    let Some(helm) = Helm::find() else { return };
    let runbooks = "https://wiki.example.com/nodepulse";
    let rendered = render(
        &helm,
        &json!({"alerts": {"enabled": true, "runbooks": runbooks}}),
    );
    let rules = &of(&rendered, "PrometheusRule")["spec"]["groups"][0]["rules"];
    let rules = rules.as_array().unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        let section = rule["alert"].as_str().unwrap().to_lowercase();
        let expected = format!("{runbooks}#{section}");
        assert_eq!(rule["annotations"]["runbook_url"], expected);
    }
}

#[test]
fn only_taints_grant_the_permission_to_patch_nodes() {
    let Some(helm) = Helm::find() else { return };
    let may = |values: Value| {
        let rendered = render(&helm, &values);
        let of_agents = |object: &&Value| {
            object["kind"] == "ClusterRoleBinding" && object["subjects"][0]["name"] == "nodepulse"
        };
        let bindings = rendered.iter().filter(of_agents);
        let names: Vec<&Value> = bindings
            .map(|binding| &binding["roleRef"]["name"])
            .collect();
        let roles = rendered
            .iter()
            .filter(|o| o["kind"] == "ClusterRole" && names.contains(&&o["metadata"]["name"]));
        let rules = roles.flat_map(|role| role["rules"].as_array().unwrap().clone());
        let on_nodes = rules.filter(|rule| rule["resources"] == json!(["nodes"]));
        Value::from_iter(on_nodes.map(|rule| rule["verbs"].clone()))
    };
    assert_eq!(may(json!({})), json!([["get"]]));
    let taints = json!({"taints": {"MemoryLow": "NoSchedule"}});
    assert_eq!(may(json!({"config": taints})), json!([["get"], ["patch"]]));
}

/// Selector of the default `nodeSelector`.
const LINUX: &str = "--selector=kubernetes.io/os=linux";

/// A hook: its events, its name and its command.
type HookJob = (String, String, Value);

fn hook_jobs(objects: &[Value]) -> Vec<HookJob> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let hook = |object: &Value| {
        let meta = &object["metadata"];
        let args = &object["spec"]["template"]["spec"]["containers"][0]["args"];
        (
            text(&meta["annotations"]["helm.sh/hook"]),
            text(&meta["name"]),
            args.clone(),
        )
    };
    let mut jobs: Vec<_> = objects
        .iter()
        .filter(|o| o["kind"] == "Job")
        .map(hook)
        .collect();
    jobs.sort_by(|a, b| a.1.cmp(&b.1));
    jobs
}

/// Also runs after a rollback, which renders nothing again. After an upgrade the hook needs the
/// role of the installed release, which only a server has.
#[test]
fn jobs_run_as_hooks_with_their_account() {
    let Some(helm) = Helm::find() else { return };
    let job = |hooks: &str, name: &str, args: &[&str]| {
        (hooks.to_owned(), format!("nodepulse-{name}"), json!(args))
    };
    let cleanup = job(
        "pre-delete,post-delete",
        "cleanup",
        &["cleanup", "--all-nodes", LINUX],
    );
    let args = ["cleanup", "--all-nodes", "--taints-only", LINUX];
    let untaint = job("post-rollback", "untaint", &args);
    let validation = job(
        "pre-install,pre-upgrade",
        "validation",
        &["config", "validate"],
    );
    let taints = json!({"config": {"taints": {"MemoryLow": "NoSchedule"}}});
    let rows = [
        (
            json!({}),
            vec![cleanup.clone(), untaint, validation.clone()],
        ),
        (taints, vec![cleanup, validation.clone()]),
        (json!({"cleanup": {"enabled": false}}), vec![validation]),
    ];
    for (values, expected) in rows {
        let rendered = render(&helm, &values);
        assert_eq!(hook_jobs(&rendered), expected, "{values}");
        for job in rendered.iter().filter(|o| o["kind"] == "Job") {
            let deadline = job["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
            assert!(deadline < 300, "Helm's timeout");
            let account = &job["spec"]["template"]["spec"]["serviceAccountName"];
            let hooks = job["metadata"]["annotations"]["helm.sh/hook"]
                .as_str()
                .unwrap();
            let made = rendered
                .iter()
                .find(|o| o["kind"] == "ServiceAccount" && o["metadata"]["name"] == *account);
            let made = made.map(|o| {
                o["metadata"]["annotations"]["helm.sh/hook"]
                    .as_str()
                    .unwrap()
            });
            for hook in hooks.split(',').filter(|_| !account.is_null()) {
                assert!(made.unwrap().split(',').any(|made| made == hook), "{hook}");
            }
        }
    }
}

#[test]
fn the_cleanup_jobs_write_to_the_nodes_of_their_release() {
    let Some(helm) = Helm::find() else { return };
    let args = |selector: Value| {
        let rendered = render(&helm, &json!({"nodeSelector": selector}));
        let jobs = hook_jobs(&rendered).into_iter();
        let last = |(_, name, args): HookJob| {
            let args = args.as_array().unwrap().last().unwrap().clone();
            (!name.ends_with("validation")).then_some(args)
        };
        jobs.filter_map(last).collect::<Vec<_>>()
    };
    let pool = "--selector=kubernetes.io/os=linux,pool=gpu";
    assert_eq!(args(json!({"pool": "gpu"})), [pool, pool]);
    let none = json!({"kubernetes.io/os": null});
    assert_eq!(args(none), ["--all-nodes", "--taints-only"]);
}

/// The release may select no node, if its pool is empty.
#[test]
fn a_job_needs_a_node_that_can_run_the_image_and_prefers_those_of_its_release() {
    let Some(helm) = Helm::find() else { return };
    let placements = |selector: Value| {
        let rendered = render(&helm, &json!({"nodeSelector": selector}));
        let jobs = rendered.iter().filter(|o| o["kind"] == "Job");
        let pods = jobs.map(|job| &job["spec"]["template"]["spec"]);
        let placement = |pod: &Value| (pod["nodeSelector"].clone(), pod["affinity"].clone());
        let placements: Vec<_> = pods.map(placement).collect();
        assert_eq!(placements.len(), 3);
        assert!(placements.iter().all(|one| *one == placements[0]));
        assert_eq!(
            agent_pod(&rendered)["nodeSelector"]
                .as_object()
                .unwrap()
                .len(),
            1 + selector.as_object().unwrap().len()
        );
        placements[0].clone()
    };
    let linux = json!({"kubernetes.io/os": "linux"});
    assert_eq!(placements(json!({})), (linux.clone(), Value::Null));
    let (needed, preferred) = placements(json!({"pool": "gpu", "example.com/zone": "1"}));
    assert_eq!(needed, linux);
    let preferred =
        &preferred["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    let label = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    assert_eq!(
        preferred["preference"]["matchExpressions"],
        json!([label("example.com/zone", "1"), label("pool", "gpu")])
    );
    let (needed, preferred) = placements(json!({"kubernetes.io/arch": "arm64"}));
    assert_eq!(needed["kubernetes.io/arch"], "arm64");
    assert_eq!(preferred, Value::Null);
}

/// The check reads the new configuration, not the installed one, and needs no privileges.
#[test]
fn the_validation_reads_the_new_configuration_before_the_agents() {
    let Some(helm) = Helm::find() else { return };
    let rendered = render(&helm, &json!({"config": {"cgroupDriver": "cgroupfs"}}));
    let find = |kind: &str, name: &str| {
        let is = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
        rendered.iter().find(is).unwrap()
    };
    let (new, installed) = (
        find("ConfigMap", "nodepulse-validation"),
        find("ConfigMap", "nodepulse"),
    );
    assert_eq!(new["data"], installed["data"]);
    let pod = &find("Job", "nodepulse-validation")["spec"]["template"]["spec"];
    assert_eq!(
        pod["volumes"],
        json!([{"name": "config", "configMap": {"name": "nodepulse-validation"}}])
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(
        pod["containers"][0]["securityContext"]["runAsNonRoot"],
        true
    );
    assert!(pod["hostPID"].is_null());
    let hooks = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].clone();
    assert_eq!(hooks(new), "pre-install,pre-upgrade");
    let weight = &new["metadata"]["annotations"]["helm.sh/hook-weight"];
    assert_eq!(weight, "-1", "before the Job");
}

#[test]
fn the_test_runs_check_with_the_privileges_of_an_agent() {
    let Some(helm) = Helm::find() else { return };
    let values = json!({"extraCapabilities": ["SETPCAP"], "extraArgs": ["--log-format=json"]});
    let rendered = render(&helm, &values);
    let test = of(&rendered, "Pod");
    assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
    let (test, agent) = (&test["spec"], agent_pod(&rendered));
    assert_eq!(test["restartPolicy"], "Never");
    assert_eq!(test["containers"][0]["args"], json!(["check"]));
    for key in [
        "hostPID",
        "serviceAccountName",
        "volumes",
        "tolerations",
        "nodeSelector",
    ] {
        assert_eq!(test[key], agent[key], "{key}");
    }
    for key in ["securityContext", "volumeMounts", "env", "image"] {
        assert_eq!(
            test["containers"][0][key], agent["containers"][0][key],
            "{key}"
        );
    }
    assert!(test["containers"][0]["startupProbe"].is_null());
}

#[test]
fn the_agent_may_lock_its_memory_by_default() {
    let Some(helm) = Helm::find() else { return };
    let capabilities = |values: &Value| {
        let pod = agent_pod(&render(&helm, values)).clone();
        pod["containers"][0]["securityContext"]["capabilities"]["add"].clone()
    };
    let locked = json!(["BPF", "PERFMON", "DAC_READ_SEARCH", "SYS_RESOURCE"]);
    assert_eq!(capabilities(&json!({})), locked);
    let none = json!(["BPF", "PERFMON", "DAC_READ_SEARCH"]);
    assert_eq!(capabilities(&json!({"extraCapabilities": []})), none);
}

#[test]
fn values_are_rendered_in_their_fields() {
    let Some(helm) = Helm::find() else { return };
    let digest = format!("sha256:{}", "0".repeat(64));
    let rendered = render(
        &helm,
        &json!({
            "image": {"repository": "r.example/np", "digest": digest},
            "config": {"cgroupDriver": "cgroupfs", "rootDirectory": "/data/kubelet",
                       "imagefsDirectory": "/data/images"},
            "extraCapabilities": ["SETPCAP"],
            "extraArgs": ["--log-format=json"],
            "extraEnv": [{"name": "A", "value": "b"}],
            "podAnnotations": {"a": "b"},
            "podLabels": {"team": "nodes"},
            "hostNetwork": true,
            "serve": {"port": 9999},
        }),
    );
    let template = &of(&rendered, "DaemonSet")["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["a"], "b");
    assert_eq!(template["metadata"]["labels"]["team"], "nodes");
    let pod = agent_pod(&rendered);
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
    let container = &pod["containers"][0];
    assert_eq!(container["image"], format!("r.example/np@{digest}"));
    assert_eq!(container["args"], json!(["run", "--log-format=json"]));
    assert_eq!(
        container["terminationMessagePolicy"],
        "FallbackToLogsOnError"
    );
    let capabilities = &container["securityContext"]["capabilities"]["add"];
    assert_eq!(
        *capabilities,
        json!(["BPF", "PERFMON", "DAC_READ_SEARCH", "SETPCAP"])
    );
    assert_eq!(container["ports"][0]["containerPort"], 9999);
    assert_eq!(container["env"][2]["value"], "$(POD_IP):9999");
    assert_eq!(container["env"][3], json!({"name": "A", "value": "b"}));
    let cgroup = &container["volumeMounts"][4];
    assert_eq!(cgroup["recursiveReadOnly"], "IfPossible");
    let mut maps = rendered.iter().filter(|o| o["kind"] == "ConfigMap");
    let map = maps.next_back().unwrap();
    assert_eq!(
        yaml(map["data"]["config.yaml"].as_str().unwrap()),
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

/// A running agent logs that it needs a restart, and continues without the new value.
#[test]
fn the_pods_are_replaced_if_a_key_changes_that_an_agent_does_not_apply() {
    let Some(helm) = Helm::find() else { return };
    let template = |config: &Value| {
        let rendered = render(&helm, &json!({"config": config}));
        of(&rendered, "DaemonSet")["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let default = template(&json!({}));
    assert_eq!(default, Value::Null);
    let live = json!({"evictionHard": {"memory.available": "1Gi"}, "diskIO": {"slowFor": "20s"}});
    assert_eq!(template(&live), default);
    let restart = [
        json!({"taints": {"MemoryLow": "NoSchedule"}}),
        json!({"taints": {"MemoryLow": "NoExecute"}}),
        json!({"psi": {"enabled": false}}),
        json!({"cgroupRoot": "/pods"}),
    ];
    let annotations: BTreeSet<String> = restart.iter().map(|c| template(c).to_string()).collect();
    assert_eq!(annotations.len(), restart.len(), "{annotations:?}");
    assert!(
        annotations
            .iter()
            .all(|one| one.contains("nodepulse.dev/restart-config"))
    );
}

#[test]
fn nothing_is_served_if_serving_is_disabled() {
    let Some(helm) = Helm::find() else { return };
    let rendered = render(&helm, &json!({"serve": {"enabled": false}}));
    let container = &agent_pod(&rendered)["containers"][0];
    for key in ["ports", "startupProbe", "livenessProbe"] {
        assert!(container[key].is_null(), "{key}");
    }
    assert_eq!(container["env"][1]["value"], "off");
}

/// The alerts require the job name `nodepulse`, also of a release or a chart with another name.
#[test]
fn both_monitors_set_the_job_name() {
    let Some(helm) = Helm::find() else { return };
    let rows = [
        ("podMonitor", "PodMonitor", "podMetricsEndpoints"),
        ("serviceMonitor", "ServiceMonitor", "endpoints"),
    ];
    for (key, kind, endpoints) in rows {
        let more = json!([{"targetLabel": "cluster", "replacement": "a"}]);
        let monitor = json!({"enabled": true, "scrapeTimeout": "9s", "relabelings": more});
        let rendered = render(&helm, &json!({ key: monitor, "nameOverride": "pulse" }));
        let endpoint = &of(&rendered, kind)["spec"][endpoints][0];
        let job = json!({"targetLabel": "job", "replacement": "nodepulse"});
        assert_eq!(endpoint["relabelings"], json!([job, more[0]]));
        assert_eq!(endpoint["scrapeTimeout"], "9s");
        assert_eq!(endpoint["honorLabels"], true);
    }
}
