//! The admission policies, decided as an API server decides them.

use cel::{Context, Program};
use nodepulse::node_status::nodepulse_condition::NodepulseCondition;
use serde_json::{Value, json};

use super::{all, one};

const AGENT: &str = "system:serviceaccount:nodepulse:nodepulse";
const CLEANUP: &str = "system:serviceaccount:nodepulse:nodepulse-cleanup";

/// One write, as a policy sees it.
struct Write {
    user: &'static str,
    /// Of the token; nothing where it is not bound to a pod.
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

    /// The message of what refuses it. As with `failurePolicy: Fail`, an error refuses too.
    fn refused_by(&self, policy: &str) -> Option<String> {
        let policy = one("ValidatingAdmissionPolicy", policy);
        let spec = &policy["spec"];
        let mut context = self.context();
        let holds = |context: &Context<'_, '_>, entry: &Value| {
            let program = Program::compile(entry["expression"].as_str().unwrap()).unwrap();
            program.execute(context).map(|value| value == true.into())
        };
        let each = |key: &str| spec[key].as_array().unwrap().clone();
        if !each("matchConditions")
            .iter()
            .all(|entry| holds(&context, entry).unwrap())
        {
            return None;
        }
        let mut variables = std::collections::HashMap::new();
        for entry in each("variables") {
            let program = Program::compile(entry["expression"].as_str().unwrap()).unwrap();
            // Evaluated when it is asked for: an error stands for none.
            if let Ok(value) = program.execute(&context) {
                variables.insert(entry["name"].as_str().unwrap().to_owned(), value);
            }
            context.add_variable_from_value("variables", variables.clone());
        }
        let refuses = |entry: &&Value| !holds(&context, entry).unwrap_or(false);
        let validations = each("validations");
        let refused = validations.iter().find(refuses);
        refused.map(|entry| entry["message"].as_str().unwrap().to_owned())
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

/// `node()` with one value replaced or added.
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
fn an_agent_changes_what_is_ours_on_its_own_node() {
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
        let own = write(AGENT, Some("worker-1")).refused_by("nodepulse-nodes");
        assert_eq!(own, None, "{new}");
        let cleanup = write(CLEANUP, Some("worker-2")).refused_by("nodepulse-nodes");
        assert_eq!(cleanup, None, "{new}");
        for elsewhere in [Some("worker-2"), Some(""), None] {
            let refused = write(AGENT, elsewhere)
                .refused_by("nodepulse-nodes")
                .unwrap();
            assert!(refused.contains("no other"), "{refused}");
        }
        let other = write("system:node:worker-2", None).refused_by("nodepulse-nodes");
        assert_eq!(other, None, "not ours to judge");
    }
}

#[test]
fn an_agent_changes_nothing_else_of_its_node() {
    let rows = [
        (
            with(
                "/status/conditions/-",
                json!({"type": "X", "status": "True"}),
            ),
            "own conditions",
        ),
        (with("/status/conditions", json!([])), "own conditions"),
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
        (with("/spec/taints", json!([])), "taints with a key"),
        (
            with("/spec/taints/-", json!({"key": "node.kubernetes.io/x"})),
            "taints with a key",
        ),
        (with("/spec/unschedulable", json!(true)), "of the spec"),
        (with("/spec/podCIDR", json!("10.0.1.0/24")), "of the spec"),
        (with("/metadata/labels", json!({"zone": "b"})), "labels"),
        (with("/metadata/annotations", json!({"a": "b"})), "labels"),
    ];
    for (new, why) in rows {
        for (user, on) in [(AGENT, "worker-1"), (CLEANUP, "worker-9")] {
            let write = Write {
                user,
                node: Some(on),
                old: node(),
                new: new.clone(),
            };
            let refused = write.refused_by("nodepulse-nodes").unwrap_or_default();
            assert!(refused.contains(why), "{new}: {refused}");
        }
    }
}

/// Whoever of ours may write to Nodes: RBAC cannot say what of them.
#[test]
fn no_account_of_ours_writes_to_nodes_unfenced() {
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
    for user in [AGENT, CLEANUP] {
        let write = Write {
            user,
            node: Some("worker-1"),
            old: node(),
            new: with("/spec/unschedulable", json!(true)),
        };
        let refused = write.refused_by("nodepulse-nodes").unwrap_or_default();
        assert!(refused.contains("of the spec"), "{user}: {refused}");
    }
}

/// The policy's list of conditions is the agent's.
#[test]
fn each_condition_of_ours_may_be_written() {
    for own in NodepulseCondition::ALL {
        let condition = json!({"type": own.type_(), "status": "Unknown"});
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
        assert_eq!(write.refused_by("nodepulse-nodes"), None, "{own:?}");
        assert!(own.taint_key().starts_with("nodepulse.dev/"));
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
fn an_agent_records_events_in_its_own_name() {
    let own = || event("worker-1", "Pod", "web-0");
    let mut counted = own();
    counted["count"] = json!(2);
    let mut moved = own();
    moved["involvedObject"]["name"] = json!("web-1");
    let mut nobodys = own();
    nobodys.as_object_mut().unwrap().remove("source");
    let mut kubelets = own();
    kubelets["source"]["component"] = json!("kubelet");
    let none = Value::Null;
    let rows = [
        (none.clone(), own(), None),
        (none.clone(), event("worker-1", "Node", "worker-1"), None),
        (own(), counted, None),
        (
            none.clone(),
            event("worker-1", "Node", "worker-2"),
            Some("own Node"),
        ),
        (
            none.clone(),
            event("worker-1", "Secret", "a"),
            Some("own Node"),
        ),
        (
            none.clone(),
            event("worker-2", "Pod", "web-0"),
            Some("as its source"),
        ),
        (none.clone(), nobodys.clone(), Some("as its source")),
        (none, kubelets.clone(), Some("as its source")),
        (kubelets, own(), Some("no others")),
        (nobodys, own(), Some("no others")),
        (own(), moved, Some("no others")),
    ];
    for (old, new, why) in rows {
        let write = Write {
            user: AGENT,
            node: Some("worker-1"),
            old,
            new: new.clone(),
        };
        let refused = write.refused_by("nodepulse-events");
        match why {
            None => assert_eq!(refused, None, "{new}"),
            Some(why) => assert!(
                refused.clone().unwrap_or_default().contains(why),
                "{new}: {refused:?}"
            ),
        }
        let unbound = Write {
            node: None,
            old: Value::Null,
            new: event("", "Pod", "a"),
            user: AGENT,
        };
        assert!(unbound.refused_by("nodepulse-events").is_some());
    }
}
