//! Checks each value, other than its default, in its fields of the rendered objects.

use nodepulse_tests::helm::Helm;
use serde_json::{Value, json};

use super::render;

/// An object by kind and name, a field in it, and its value.
type Row = (&'static str, &'static str, &'static str, Value);

fn check(objects: &[Value], rows: &[Row]) {
    for (kind, name, pointer, expected) in rows {
        let is = |o: &&Value| o["kind"] == **kind && o["metadata"]["name"] == **name;
        let object = objects.iter().find(is);
        let object = object.unwrap_or_else(|| panic!("no {kind} {name}"));
        let found = object.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, expected, "{kind} {name} {pointer}");
    }
}

/// Returns the values of a pod template that both the agents and the Jobs have.
fn placement() -> Value {
    json!({
        "image": {"repository": "r.example/np", "tag": "v9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/os": "linux", "pool": "gpu"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "hostNetwork": true,
        "dnsPolicy": "Default",
        "resources": {"requests": {"cpu": "7m", "memory": "9Mi"}, "limits": {"memory": "99Mi"}},
    })
}

#[test]
fn values_of_pods_are_in_the_agents_and_in_every_job() {
    let Some(helm) = Helm::find() else { return };
    let mut values = placement();
    values["cleanup"] = json!({"stale": {"enabled": true}});
    let objects = render(&helm, &values);
    let pods = [
        ("DaemonSet", "nodepulse", "/spec/template/spec"),
        ("Job", "nodepulse-cleanup", "/spec/template/spec"),
        ("Job", "nodepulse-untaint", "/spec/template/spec"),
        ("Job", "nodepulse-validation", "/spec/template/spec"),
        (
            "CronJob",
            "nodepulse-cleanup-stale",
            "/spec/jobTemplate/spec/template/spec",
        ),
    ];
    for (kind, name, pointer) in pods {
        let is = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
        let object = objects.iter().find(is);
        let pod = object.unwrap_or_else(|| panic!("no {kind} {name}"));
        let pod = pod.pointer(pointer).unwrap();
        for key in [
            "imagePullSecrets",
            "tolerations",
            "hostNetwork",
            "dnsPolicy",
        ] {
            assert_eq!(pod[key], values[key], "{kind} {name} {key}");
        }
        let container = &pod["containers"][0];
        assert_eq!(container["image"], "r.example/np:v9", "{kind} {name}");
        assert_eq!(container["imagePullPolicy"], "Always", "{kind} {name}");
        let limits = &container["resources"]["limits"]["memory"];
        let requests = &container["resources"]["requests"];
        assert_eq!((limits, &requests["cpu"]), (&json!("99Mi"), &json!("7m")));
        if kind != "DaemonSet" {
            let security = &container["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{name}");
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        }
    }
}

#[test]
fn values_of_the_agents_are_in_their_set() {
    let Some(helm) = Helm::find() else { return };
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}]}}});
    let update = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}});
    let local = json!({"type": "Localhost", "localhostProfile": "nodepulse.json"});
    let armor = json!({"type": "Localhost", "localhostProfile": "nodepulse"});
    let volume = json!({"name": "cri", "hostPath": {"path": "/run/cri.sock", "type": "Socket"}});
    let mount = json!({"name": "cri", "mountPath": "/run/cri.sock", "readOnly": true});
    let objects = render(
        &helm,
        &json!({
            "affinity": affinity, "priorityClassName": "nodes", "updateStrategy": update,
            "revisionHistoryLimit": 2, "dnsPolicy": "Default", "seccompProfile": local,
            "appArmorProfile": armor, "seLinuxOptions": {"type": "spc_t"},
            "extraVolumes": [volume], "extraVolumeMounts": [mount],
            "resourceQuota": {"pods": "77"},
            "serviceAccount": {"annotations": {"example.com/role": "agent"}},
        }),
    );
    let pod = "/spec/template/spec";
    let field = |pointer: &str| -> &'static str { format!("{pod}{pointer}").leak() };
    let security = |key: &str| field(&format!("/containers/0/securityContext/{key}"));
    let set = |pointer: &'static str, value: Value| ("DaemonSet", "nodepulse", pointer, value);
    let priority = "/spec/scopeSelector/matchExpressions/0/values";
    check(
        &objects,
        &[
            set("/spec/updateStrategy", update),
            set("/spec/revisionHistoryLimit", json!(2)),
            set(field("/affinity"), affinity),
            set(field("/priorityClassName"), json!("nodes")),
            set(field("/dnsPolicy"), json!("Default")),
            set(field("/hostPID"), json!(true)),
            set(security("seccompProfile"), local),
            set(security("appArmorProfile"), armor),
            set(security("seLinuxOptions"), json!({"type": "spc_t"})),
            set(security("allowPrivilegeEscalation"), json!(false)),
            set(security("capabilities/drop"), json!(["ALL"])),
            set(field("/volumes/8"), volume),
            set(field("/containers/0/volumeMounts/8"), mount),
            ("ResourceQuota", "nodepulse", "/spec/hard/pods", json!("77")),
            ("ResourceQuota", "nodepulse", priority, json!(["nodes"])),
            (
                "ServiceAccount",
                "nodepulse",
                "/metadata/annotations",
                json!({"example.com/role": "agent"}),
            ),
        ],
    );
}

/// Returns each mount of the agent: its path, the path on the node, and whether it is read-only.
fn mounts(pod: &Value) -> Value {
    let list = |value: &Value| value.as_array().unwrap().clone();
    let path = |name: &Value| {
        let volumes = list(&pod["volumes"]).into_iter();
        let mut volumes = volumes.filter(|volume| volume["name"] == *name);
        volumes.next().unwrap()["hostPath"]["path"].clone()
    };
    let mounts = list(&pod["containers"][0]["volumeMounts"]).into_iter();
    mounts
        .map(|it| json!([it["mountPath"], path(&it["name"]), it["readOnly"]]))
        .collect()
}

#[test]
fn configured_directories_are_mounted_and_none_twice() {
    let Some(helm) = Helm::find() else { return };
    let mut config = json!({"stateDirectory": "/data/state", "rootDirectory": "/data/kubelet",
                            "imagefsDirectory": "/data/images", "historyDirectory": "/data/history"});
    let state = json!(["/data/state", "/data/state", null]);
    let history = json!(["/data/history", "/data/history", null]);
    let nodefs = json!(["/data/kubelet", "/data/kubelet/plugins/nodepulse.dev", true]);
    let imagefs = json!(["/data/images", "/data/images/nodepulse.dev", true]);
    let mounted = |config: &Value| {
        let objects = render(&helm, &json!({"config": config}));
        let mounts = mounts(super::agent_pod(&objects));
        mounts.as_array().unwrap().clone()
    };
    let all = mounted(&config);
    for mount in [&state, &history, &nodefs, &imagefs] {
        assert!(all.contains(mount), "{all:?}");
    }
    config["imagefsDirectory"] = config["rootDirectory"].clone();
    config["historyDirectory"] = "off".into();
    let without = mounted(&config);
    assert_eq!(without.len(), all.len() - 3, "{without:?}");
}

#[test]
fn each_directory_of_the_node_is_mounted_where_the_agent_reads_it() {
    let Some(helm) = Helm::find() else { return };
    let objects = render(&helm, &json!({}));
    let pod = super::agent_pod(&objects);
    let nodefs = "/var/lib/kubelet/plugins/nodepulse.dev";
    let imagefs = "/var/lib/containerd/nodepulse.dev";
    let logs = "/var/log/containers";
    let history = "/var/lib/nodepulse/history";
    let pstore = "/var/lib/systemd/pstore";
    let expected = json!([
        ["/etc/nodepulse", null, true],
        ["/run/nodepulse", "/run/nodepulse", null],
        [history, history, null],
        [pstore, pstore, true],
        ["/sys/fs/cgroup", "/sys/fs/cgroup", true],
        ["/var/lib/kubelet", nodefs, true],
        ["/var/lib/containerd", imagefs, true],
        [logs, logs, true],
    ]);
    assert_eq!(mounts(pod), expected);
    let env = &pod["containers"][0]["env"];
    let source = |n: usize| env[n]["valueFrom"]["fieldRef"]["fieldPath"].clone();
    assert_eq!([source(0), source(1)], ["spec.nodeName", "status.podIP"]);
    let container = &pod["containers"][0];
    let probed = |probe: &str| container[probe]["httpGet"]["path"].clone();
    let paths = [probed("startupProbe"), probed("livenessProbe")];
    assert_eq!(paths, ["/readyz", "/livez"], "no restart in an outage");
}

#[test]
fn values_of_the_monitors_are_in_their_fields() {
    let Some(helm) = Helm::find() else { return };
    let drop = json!([{"action": "drop", "sourceLabels": ["device"]}]);
    let monitor = json!({
        "enabled": true, "interval": "1m", "honorLabels": false, "labels": {"release": "p"},
        "metricRelabelings": drop,
    });
    let monitors = [
        ("podMonitor", "PodMonitor", "/spec/podMetricsEndpoints/0"),
        ("serviceMonitor", "ServiceMonitor", "/spec/endpoints/0"),
    ];
    for (key, kind, endpoint) in monitors {
        let objects = render(&helm, &json!({ key: monitor, "serve": {"port": 9100} }));
        let field = |key: &str| -> &'static str { format!("{endpoint}/{key}").leak() };
        let row = |pointer: &'static str, value: Value| (kind, "nodepulse", pointer, value);
        check(
            &objects,
            &[
                row("/metadata/labels/release", json!("p")),
                row(field("interval"), json!("1m")),
                row(field("honorLabels"), json!(false)),
                row(field("metricRelabelings"), drop.clone()),
                row(field("port"), json!("metrics")),
                row(field("path"), json!("/metrics")),
            ],
        );
        if key == "serviceMonitor" {
            let service = |pointer: &'static str, value| ("Service", "nodepulse", pointer, value);
            check(
                &objects,
                &[
                    service("/spec/ports/0/port", json!(9100)),
                    service("/spec/publishNotReadyAddresses", json!(true)),
                ],
            );
        }
    }
}

#[test]
fn values_of_the_other_objects_are_in_their_fields() {
    let Some(helm) = Helm::find() else { return };
    let from = json!([{"ipBlock": {"cidr": "10.0.0.0/8"}}]);
    let objects = render(
        &helm,
        &json!({
            "networkPolicy": {"enabled": true, "from": from},
            "alerts": {"enabled": true, "labels": {"release": "p"}},
            "dashboard": {"enabled": true, "labels": {"folder": "nodes"}},
            "cleanup": {"stale": {"enabled": true, "schedule": "1 2 * * *", "after": "2h"}},
        }),
    );
    let cron = ("CronJob", "nodepulse-cleanup-stale");
    let container = "/spec/jobTemplate/spec/template/spec/containers/0/args";
    let config = "/spec/jobTemplate/spec/template/spec/volumes/0/configMap/name";
    let port = json!([{"protocol": "TCP", "port": "metrics"}]);
    check(
        &objects,
        &[
            ("NetworkPolicy", "nodepulse", "/spec/ingress/0/from", from),
            ("NetworkPolicy", "nodepulse", "/spec/ingress/0/ports", port),
            (
                "PrometheusRule",
                "nodepulse",
                "/metadata/labels/release",
                json!("p"),
            ),
            (
                "ConfigMap",
                "nodepulse-dashboard",
                "/metadata/labels/folder",
                json!("nodes"),
            ),
            (cron.0, cron.1, "/spec/schedule", json!("1 2 * * *")),
            (cron.0, cron.1, "/spec/concurrencyPolicy", json!("Forbid")),
            (
                cron.0,
                cron.1,
                container,
                json!(["cleanup", "--stale", "2h"]),
            ),
            (cron.0, cron.1, config, json!("nodepulse")),
        ],
    );
    let dashboard = objects
        .iter()
        .find(|o| o["metadata"]["name"] == "nodepulse-dashboard");
    let text = dashboard.unwrap()["data"]["nodepulse.json"]
        .as_str()
        .unwrap();
    let dashboard: Value = serde_json::from_str(text).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 3);
}

/// Checks the permissions and the namespace of each account.
#[test]
fn the_roles_have_exactly_the_permissions_that_each_program_needs() {
    let Some(helm) = Helm::find() else { return };
    let objects = render(&helm, &json!({"cleanup": {"stale": {"enabled": true}}}));
    let status = json!({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]});
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    let agent = json!([
        rule("nodes", &["get"]),
        status,
        rule("pods", &["get", "list", "watch"]),
        rule("events", &["create", "patch"]),
    ]);
    let cleanup = json!([rule("nodes", &["get", "list", "patch"]), status]);
    let accounts = [
        ("nodepulse", agent),
        ("nodepulse-cleanup", cleanup.clone()),
        ("nodepulse-cleanup-stale", cleanup),
    ];
    for (name, rules) in accounts {
        let subject = json!([
            {"kind": "ServiceAccount", "name": name, "namespace": "agents"}
        ]);
        check(
            &objects,
            &[
                ("ClusterRole", name, "/rules", rules),
                ("ClusterRoleBinding", name, "/subjects", subject),
            ],
        );
    }
}

#[test]
fn jobs_are_tried_again_and_removed_as_long_as_their_results_matter() {
    let Some(helm) = Helm::find() else { return };
    let objects = render(&helm, &json!({}));
    let policy = "/metadata/annotations/helm.sh~1hook-delete-policy";
    let rows = [
        (
            "nodepulse-cleanup",
            3,
            "before-hook-creation,hook-succeeded",
        ),
        ("nodepulse-untaint", 3, "before-hook-creation"),
        (
            "nodepulse-validation",
            0,
            "before-hook-creation,hook-succeeded",
        ),
    ];
    for (name, tries, deleted) in rows {
        check(
            &objects,
            &[
                ("Job", name, "/spec/backoffLimit", json!(tries)),
                ("Job", name, policy, json!(deleted)),
            ],
        );
    }
}

#[test]
fn an_account_that_exists_is_used_and_not_created() {
    let Some(helm) = Helm::find() else { return };
    let account = json!({"create": false, "name": "agents"});
    let objects = render(&helm, &json!({"serviceAccount": account}));
    let pod = super::agent_pod(&objects);
    assert_eq!(pod["serviceAccountName"], "agents");
    let created = |o: &&Value| o["kind"] == "ServiceAccount" && o["metadata"]["name"] == "agents";
    assert!(!objects.iter().any(|o| created(&o)));
}
