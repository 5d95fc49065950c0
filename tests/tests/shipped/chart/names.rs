//! Checks names: two releases in one cluster, and references between objects.

use std::collections::BTreeSet;

use nodepulse_tests::helm::Helm;
use serde_json::{Value, json};

use super::release;

/// Returns kind, namespace and name of all objects, with all options turned on.
fn identities(objects: &[Value]) -> BTreeSet<String> {
    let text = |object: &Value, key: &str| object["metadata"][key].to_string();
    let all = objects.iter().map(|object| {
        let (namespace, name) = (text(object, "namespace"), text(object, "name"));
        format!("{} {namespace} {name}", object["kind"])
    });
    all.collect()
}

fn everything() -> Value {
    let on = json!({"enabled": true});
    json!({
        "networkPolicy": &on, "serviceMonitor": &on, "alerts": &on, "dashboard": &on,
        "cleanup": {"stale": &on},
        "config": {"taints": {"MemoryLow": "NoSchedule"}},
    })
}

#[test]
fn two_releases_share_no_object() {
    let Some(helm) = Helm::find() else { return };
    let values = everything();
    let (cpu, gpu) = (
        identities(&release(&helm, "nodepulse", &values)),
        identities(&release(&helm, "gpu", &values)),
    );
    assert!(cpu.len() > 20 && cpu.len() == gpu.len(), "{cpu:?} {gpu:?}");
    assert_eq!(cpu.intersection(&gpu).count(), 0);
    for identity in gpu {
        assert!(identity.contains("\"gpu-nodepulse"), "{identity}");
    }
}

#[test]
fn overrides_replace_the_beginning_of_every_name() {
    let Some(helm) = Helm::find() else { return };
    let rows = [
        ("pulse", json!({"fullnameOverride": "pulse"})),
        ("gpu-pulse", json!({"nameOverride": "pulse"})),
    ];
    for (expected, overrides) in rows {
        let mut values = everything();
        for (key, value) in overrides.as_object().unwrap() {
            values[key] = value.clone();
        }
        for identity in identities(&release(&helm, "gpu", &values)) {
            let name = identity.rsplit_once(" \"").unwrap().1;
            assert!(name.starts_with(expected), "{identity}");
        }
    }
}

/// Uses the longest names: a CronJob may have 52 characters, and Helm allows 53 in a release.
#[test]
fn names_of_a_long_release_are_short_enough() {
    let Some(helm) = Helm::find() else { return };
    let long = "a-release-of-fifty-three-characters-for-the-gpu-nodes";
    for object in release(&helm, long, &everything()) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let limit = if object["kind"] == "CronJob" { 52 } else { 63 };
        assert!(name.len() <= limit, "{name}");
    }
}

/// Kubernetes finds pods by labels; the pods of a Job must not be taken for agents.
#[test]
fn selectors_match_the_agents_of_their_release_only() {
    let Some(helm) = Helm::find() else { return };
    // Without quotes, the second name would be a number.
    for name in ["gpu", "123"] {
        let all = release(&helm, name, &everything());
        check_selectors(&all, name);
    }
}

fn check_selectors(all: &[Value], release: &str) {
    let set = all.iter().find(|object| object["kind"] == "DaemonSet");
    let agents = &set.unwrap()["spec"]["selector"]["matchLabels"];
    for object in all {
        let spec = &object["spec"];
        let selectors = [&spec["podSelector"]["matchLabels"], &spec["selector"]];
        for selector in selectors {
            let selector = match &selector["matchLabels"] {
                Value::Null => selector,
                labels => labels,
            };
            assert!(selector.is_null() || selector == agents, "{object}");
        }
        let pods = &spec["template"]["metadata"]["labels"];
        let jobs = &spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"];
        for labels in [pods, jobs] {
            if !labels.is_null() {
                let is_agent = labels["app.kubernetes.io/component"] == "agent";
                assert_eq!(is_agent, object["kind"] == "DaemonSet", "{object}");
                assert_eq!(labels["app.kubernetes.io/instance"], release);
            }
        }
        let labels = &object["metadata"]["labels"];
        for key in [
            "app.kubernetes.io/name",
            "app.kubernetes.io/version",
            "app.kubernetes.io/managed-by",
            "helm.sh/chart",
        ] {
            assert!(labels[key].is_string(), "{key}: {object}");
        }
    }
}

/// The accounts of the pods are those of the roles and of the admission policies.
#[test]
fn the_policies_name_the_accounts_of_their_release() {
    let Some(helm) = Helm::find() else { return };
    let mut values = everything();
    values["serviceAccount"] = json!({"name": "agents-of-gpus"});
    let all = release(&helm, "gpu", &values);
    let user = |name: &Value| {
        format!(
            "\"system:serviceaccount:agents:{}\"",
            name.as_str().unwrap()
        )
    };
    let of = |kind| {
        all.iter()
            .filter(move |object: &&Value| object["kind"] == kind)
    };
    let expected = [
        "agents-of-gpus",
        "gpu-nodepulse-cleanup",
        "gpu-nodepulse-cleanup-stale",
    ];
    let bound: BTreeSet<_> = of("ClusterRoleBinding")
        .map(|binding| user(&binding["subjects"][0]["name"]))
        .collect();
    assert_eq!(bound, expected.map(|name| user(&json!(name))).into());
    let policies: Vec<_> = of("ValidatingAdmissionPolicy").collect();
    assert_eq!(policies.len(), 2);
    for policy in policies {
        let condition = policy["spec"]["matchConditions"][0]["expression"]
            .as_str()
            .unwrap();
        let nodes = policy["metadata"]["name"] == "gpu-nodepulse-nodes";
        for name in expected.iter().take(if nodes { 3 } else { 1 }) {
            assert!(condition.contains(&user(&json!(name))), "{condition}");
        }
    }
    let pod = super::agent_pod(&all);
    assert_eq!(pod["serviceAccountName"], "agents-of-gpus");
    for binding in of("ValidatingAdmissionPolicyBinding") {
        assert_eq!(binding["spec"]["policyName"], binding["metadata"]["name"]);
    }
}
