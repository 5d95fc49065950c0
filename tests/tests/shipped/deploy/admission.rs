//! Evaluates the admission policies like an API server.

use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;

use cel::{Context, Program};
use serde_json::{Value, json};

use super::{all, one};

const AGENT: &str = "system:serviceaccount:nodepulse:nodepulse";
const CLEANUP: &str = "system:serviceaccount:nodepulse:nodepulse-cleanup";
const STALE: &str = "system:serviceaccount:nodepulse:nodepulse-cleanup-stale";

/// A write, as the input of a policy.
struct Write {
    user: &'static str,
    /// The node of the token; `None` if it is not bound to a pod.
    node: Option<&'static str>,
    old: Value,
    new: Value,
}

impl Write {
    fn context(&self) -> Context<'_, '_> {
        let mut user = json!({"username": self.user});
        if let Some(node) = self.node {
            user["extra"] = json!({"authentication.kubernetes.io/node-name": [node]});
        }
        let operation = if self.old.is_null() {
            "CREATE"
        } else {
            "UPDATE"
        };
        let request = json!({
            "userInfo": user,
            "operation": operation,
            "name": self.new["metadata"]["name"],
        });
        let mut context = Context::default();
        for (name, value) in [
            ("request", &request),
            ("oldObject", &self.old),
            ("object", &self.new),
        ] {
            context.add_variable(name, value.clone()).unwrap();
        }
        context
    }

    /// Returns the message of the validation that denies it. As with `failurePolicy: Fail`, an
    /// error denies it.
    fn denied_by(&self, policy: &str) -> Option<String> {
        let policy = one("ValidatingAdmissionPolicy", policy);
        let spec = &policy["spec"];
        let mut context = self.context();
        let is_true = |context: &Context<'_, '_>, entry: &Value| {
            let program = Program::compile(entry["expression"].as_str().unwrap()).unwrap();
            program.execute(context).map(|value| value == true.into())
        };
        let each = |key: &str| spec[key].as_array().unwrap().clone();
        if !each("matchConditions")
            .iter()
            .all(|entry| is_true(&context, entry).unwrap())
        {
            return None;
        }
        let mut variables = std::collections::HashMap::new();
        for entry in each("variables") {
            let program = Program::compile(entry["expression"].as_str().unwrap()).unwrap();
            // Evaluated lazily: a variable with an error is not set.
            if let Ok(value) = program.execute(&context) {
                variables.insert(entry["name"].as_str().unwrap().to_owned(), value);
            }
            context.add_variable_from_value("variables", variables.clone());
        }
        let denies = |entry: &&Value| !is_true(&context, entry).unwrap_or(false);
        let validations = each("validations");
        let denied = validations.iter().find(denies);
        denied.map(|entry| entry["message"].as_str().unwrap().to_owned())
    }
}

fn node() -> Value {
    json!({
        "metadata": {"name": "worker-1", "resourceVersion": "7", "labels": {"zone": "a"}},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "2"},
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "MemoryLow", "status": "False"},
            ],
        },
    })
}

/// Returns `node()` with one value replaced or added.
fn with(pointer: &str, value: Value) -> Value {
    let mut node = node();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match node.pointer_mut(parent).unwrap() {
        Value::Array(list) => list.push(value),
        parent => parent[key] = value,
    }
    node
}

#[test]
fn an_agent_may_change_nodepulse_conditions_and_taints_on_its_node() {
    let allowed = [
        with(
            "/status/conditions/-",
            json!({"type": "DiskIOPressure", "status": "True"}),
        ),
        with(
            "/status/conditions",
            json!([{"type": "Ready", "status": "True"}]),
        ),
        with(
            "/spec/taints/-",
            json!({"key": "nodepulse.dev/memory-low", "effect": "NoSchedule"}),
        ),
        with("/metadata/resourceVersion", json!("8")),
    ];
    for new in allowed {
        let write = |user, node| Write {
            user,
            node,
            old: self::node(),
            new: new.clone(),
        };
        let same_node = write(AGENT, Some("worker-1")).denied_by("nodepulse-nodes");
        assert_eq!(same_node, None, "{new}");
        for account in [CLEANUP, STALE] {
            let cleanup = write(account, Some("worker-2")).denied_by("nodepulse-nodes");
            assert_eq!(cleanup, None, "{account}: {new}");
        }
        for other_node in [Some("worker-2"), Some(""), None] {
            let denied = write(AGENT, other_node)
                .denied_by("nodepulse-nodes")
                .unwrap();
            assert!(denied.contains("Node that it runs on"), "{denied}");
        }
        let other = write("system:node:worker-2", None).denied_by("nodepulse-nodes");
        assert_eq!(other, None, "the policy does not apply to other clients");
    }
}

#[test]
fn an_agent_may_change_nothing_else_of_its_node() {
    let rows = [
        (
            with(
                "/status/conditions/-",
                json!({"type": "X", "status": "True"}),
            ),
            "nodepulse's types",
        ),
        (with("/status/conditions", json!([])), "nodepulse's types"),
        (
            with("/status/capacity", json!({"cpu": "4"})),
            "of the status",
        ),
        (with("/status/images", json!([])), "of the status"),
        (
            with(
                "/status",
                json!({"conditions": node()["status"]["conditions"]}),
            ),
            "of the status",
        ),
        (with("/spec/taints", json!([])), "taints whose key"),
        (
            with("/spec/taints/-", json!({"key": "node.kubernetes.io/x"})),
            "taints whose key",
        ),
        (with("/spec/unschedulable", json!(true)), "of the spec"),
        (with("/spec/podCIDR", json!("10.0.1.0/24")), "of the spec"),
        (with("/metadata/labels", json!({"zone": "b"})), "labels"),
        (with("/metadata/annotations", json!({"a": "b"})), "labels"),
    ];
    for (new, why) in rows {
        for (user, on) in [
            (AGENT, "worker-1"),
            (CLEANUP, "worker-9"),
            (STALE, "worker-9"),
        ] {
            let write = Write {
                user,
                node: Some(on),
                old: node(),
                new: new.clone(),
            };
            let denied = write.denied_by("nodepulse-nodes").unwrap_or_default();
            assert!(denied.contains(why), "{new}: {denied}");
        }
    }
}

/// RBAC cannot restrict a write to parts of a Node.
#[test]
fn every_account_that_may_write_to_nodes_is_restricted_by_the_policy() {
    let all = all();
    let may_write = |role: &Value| {
        let rules = role["rules"].as_array().unwrap().iter();
        let mut on_nodes = rules.filter(|rule| {
            let of = |resource: &Value| resource.as_str().unwrap().starts_with("nodes");
            rule["resources"].as_array().unwrap().iter().any(of)
        });
        let writes = |verb: &Value| !["get", "list", "watch"].contains(&verb.as_str().unwrap());
        on_nodes.any(|rule| rule["verbs"].as_array().unwrap().iter().any(writes))
    };
    let mut users = Vec::new();
    for binding in all.iter().filter(|o| o["kind"] == "ClusterRoleBinding") {
        if may_write(&one(
            "ClusterRole",
            binding["roleRef"]["name"].as_str().unwrap(),
        )) {
            let account = &binding["subjects"][0];
            let part = |key: &str| account[key].as_str().unwrap();
            let user = ["system", "serviceaccount", part("namespace"), part("name")].join(":");
            users.push(user);
        }
    }
    for job in all.iter().filter(|object| object["kind"] == "Job") {
        let account = &job["spec"]["template"]["spec"]["serviceAccountName"];
        assert!(CLEANUP.ends_with(&format!(":{}", account.as_str().unwrap())));
    }
    users.sort_unstable();
    users.dedup();
    assert_eq!(users, [AGENT, CLEANUP]);
    for user in [AGENT, CLEANUP, STALE] {
        let write = Write {
            user,
            node: Some("worker-1"),
            old: node(),
            new: with("/spec/unschedulable", json!(true)),
        };
        let denied = write.denied_by("nodepulse-nodes").unwrap_or_default();
        assert!(denied.contains("of the spec"), "{user}: {denied}");
    }
}

/// The policy and the agent have the same list of conditions.
#[test]
fn each_of_nodepulse_conditions_may_be_written() {
    for condition_type in NodepulseCondition::ALL {
        let condition = json!({"type": condition_type.type_(), "status": "Unknown"});
        let mut old = node();
        old["status"]["conditions"] = json!([]);
        let mut new = old.clone();
        new["status"]["conditions"] = json!([condition]);
        let write = Write {
            user: AGENT,
            node: Some("worker-1"),
            old,
            new,
        };
        assert_eq!(
            write.denied_by("nodepulse-nodes"),
            None,
            "{condition_type:?}"
        );
        assert!(condition_type.taint_key().starts_with("nodepulse.dev/"));
    }
}

fn event(host: &str, kind: &str, name: &str) -> Value {
    json!({
        "metadata": {"name": "a.1", "namespace": "shop"},
        "involvedObject": {"kind": kind, "name": name},
        "reason": "OOMKilled",
        "source": {"component": "nodepulse", "host": host},
        "count": 1,
    })
}

#[test]
fn an_agent_records_events_with_nodepulse_and_its_node_as_the_source() {
    let valid = || event("worker-1", "Pod", "web-0");
    let mut counted = valid();
    counted["count"] = json!(2);
    let mut moved = valid();
    moved["involvedObject"]["name"] = json!("web-1");
    let mut without_source = valid();
    without_source.as_object_mut().unwrap().remove("source");
    let mut kubelets = valid();
    kubelets["source"]["component"] = json!("kubelet");
    let none = Value::Null;
    let rows = [
        (none.clone(), valid(), None),
        (none.clone(), event("worker-1", "Node", "worker-1"), None),
        (valid(), counted, None),
        (
            none.clone(),
            event("worker-1", "Node", "worker-2"),
            Some("Node that it runs on"),
        ),
        (
            none.clone(),
            event("worker-1", "Secret", "a"),
            Some("Node that it runs on"),
        ),
        (
            none.clone(),
            event("worker-2", "Pod", "web-0"),
            Some("source"),
        ),
        (none.clone(), without_source.clone(), Some("source")),
        (none, kubelets.clone(), Some("source")),
        (kubelets, valid(), Some("only update")),
        (without_source, valid(), Some("only update")),
        (valid(), moved, Some("only update")),
    ];
    for (old, new, why) in rows {
        let write = Write {
            user: AGENT,
            node: Some("worker-1"),
            old,
            new: new.clone(),
        };
        let denied = write.denied_by("nodepulse-events");
        match why {
            None => assert_eq!(denied, None, "{new}"),
            Some(why) => assert!(
                denied.clone().unwrap_or_default().contains(why),
                "{new}: {denied:?}"
            ),
        }
        let unbound = Write {
            node: None,
            old: Value::Null,
            new: event("", "Pod", "a"),
            user: AGENT,
        };
        assert!(unbound.denied_by("nodepulse-events").is_some());
    }
}
