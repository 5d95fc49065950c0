//! The chart with its pods, on a node with a kubelet: hooks, `helm test`, the agent, the plugin, an
//! OOM kill, and an uninstallation.
//!
//! `NODEPULSE_E2E_VALUES` names a file of the chart's values with which the cluster can run the
//! image.

use std::path::Path;

use futures_util::FutureExt as _;
use nodepulse_tests::process::program_of;
use nodepulse_tests::skip;
use serde_json::{Value, json};
use tokio::process::Command;

use super::caller::{Caller, NODES, condition, taint_keys, text, until};
use super::companion::nodepulse_conditions;
use super::release::{Releases, are_gone, name};
use super::stage::{RUN, Stage, alone, real};

const VALUES: &str = "NODEPULSE_E2E_VALUES";
const RELEASE: &str = "kubelet";
/// Of a release that selects no node.
const EMPTY: &str = "empty";
/// Hooks and pods are over when these commands are.
const FLAGS: &[&str] = &["--wait", "--timeout", "4m"];

#[tokio::test]
#[ignore = "no real API server: the pods run on a node with a kubelet"]
async fn the_charts_pods_run_on_a_real_kubelet_and_leave_nothing() {
    let Some(values) = values() else { return };
    alone(RELEASE, async |stage| installed(stage, values).await).await;
}

#[tokio::test]
#[ignore = "no real API server: the hooks run on a node with a kubelet"]
async fn the_hooks_of_a_release_without_nodes_run_on_another_node() {
    let Some(values) = values() else { return };
    alone(EMPTY, async |stage| without_nodes(stage, values).await).await;
}

/// `None`, and the test counts as skipped, if there are none.
fn values() -> Option<Value> {
    let Some(file) = std::env::var_os(VALUES) else {
        skip(
            "no values for a real node",
            format!("{VALUES} names no file of the chart's values"),
        );
        return None;
    };
    let read = std::fs::read_to_string(Path::new(&file)).unwrap();
    Some(serde_saphyr::from_str(&read).unwrap())
}

async fn without_nodes(stage: &Stage, mut values: Value) {
    let config = values["config"].take();
    values["nodeSelector"] = json!({"example.com/nodepulse-e2e": "none"});
    let Some(releases) = Releases::new(EMPTY, values, FLAGS) else {
        return;
    };
    let whole = async {
        releases.run("install", EMPTY, &config).unwrap();
        let paths = releases.paths(EMPTY);
        let uninstall = ["uninstall", &name(EMPTY), "--wait", "--timeout", "4m"];
        releases.ask(&uninstall).unwrap();
        are_gone(&stage.admin, &paths).await;
    };
    let ended = std::panic::AssertUnwindSafe(whole).catch_unwind().await;
    releases.remove(&[EMPTY], &stage.admin).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

async fn installed(stage: &Stage, mut values: Value) {
    let Some(node) = free_node(&stage.admin).await else {
        return;
    };
    let config = values["config"].take();
    let host = node["metadata"]["labels"]["kubernetes.io/hostname"].clone();
    values["nodeSelector"] = json!({"kubernetes.io/hostname": host});
    let Some(releases) = Releases::new(RELEASE, values, FLAGS) else {
        return;
    };
    let lived = Lived {
        admin: &stage.admin,
        node: text(&node["metadata"], "name"),
        releases: &releases,
        config,
    };
    let ended = std::panic::AssertUnwindSafe(lived.whole())
        .catch_unwind()
        .await;
    releases.remove(&[RELEASE], &stage.admin).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

/// A Node that is ready and has no agent.
async fn free_node(admin: &Caller) -> Option<Value> {
    let mut nodes = admin.items(NODES).await;
    nodes.retain(|node| {
        condition(node, "Ready")["status"] == "True"
            && !text(&node["metadata"], "name").starts_with(RUN.as_str())
            && node["metadata"]["labels"]["kubernetes.io/hostname"].is_string()
    });
    let without_agent = |node: &Value| {
        let marked = taint_keys(node);
        nodepulse_conditions(node) == 0
            && !marked.iter().any(|key| key.starts_with("nodepulse.dev/"))
    };
    let free = nodes.into_iter().find(without_agent);
    if free.is_none() {
        skip(
            "another agent keeps a Node",
            "no node is ready and has no agent",
        );
    }
    free
}

/// A release from its installation to its end.
struct Lived<'a> {
    admin: &'a Caller,
    node: &'a str,
    releases: &'a Releases,
    config: Value,
}

impl Lived<'_> {
    async fn whole(&self) {
        let tainted = self.config_with(&json!({
            "evictionHard": {"pid.available": "99.9%"}, "taints": {"PIDsLow": "PreferNoSchedule"},
        }));
        self.releases.run("install", RELEASE, &tainted).unwrap();
        self.node_is("it has a condition that is True, and its taint", |node| {
            condition(node, "PIDsLow")["status"] == "True"
                && taint_keys(node)
                    .iter()
                    .any(|key| key == "nodepulse.dev/pids-low")
        })
        .await;
        let tested = self.releases.ask(&["test", &name(RELEASE), "--logs"]);
        let tested = tested.unwrap();
        assert!(tested.contains("0 missing, "), "{tested}");

        self.hook_refuses().await;
        let calm = self.config_with(&json!({}));
        self.releases.run("upgrade", RELEASE, &calm).unwrap();
        self.node_is("the Job has removed the taint", |node| {
            taint_keys(node)
                .iter()
                .all(|key| key != "nodepulse.dev/pids-low")
        })
        .await;
        self.node_is("the agents have read the new configuration", |node| {
            condition(node, "PIDsLow")["status"] == "False"
        })
        .await;

        let explained = self.plugin(&[self.node]).await;
        assert!(explained.contains("\n  PIDsLow is False"), "{explained}");
        self.killed().await;

        let paths = self.releases.paths(RELEASE);
        let uninstall = ["uninstall", &name(RELEASE), "--wait", "--timeout", "4m"];
        self.releases.ask(&uninstall).unwrap();
        are_gone(self.admin, &paths).await;
        self.node_is("nothing of nodepulse is left", |node| {
            nodepulse_conditions(node) == 0
        })
        .await;
        // The pods of `helm test` and of the Job that removed the taint have ended, and stay for
        // their logs.
        let ended = |object: &Value| text(&object["status"], "phase") == "Succeeded";
        for kind in ["configmaps", "secrets", "serviceaccounts", "pods"] {
            let all = format!("{}/{kind}", self.releases.of_namespace());
            until(&format!("{all} of the release are gone"), async || {
                let mut left = self.admin.items(&all).await;
                left.retain(|object| text(&object["metadata"], "name").contains(RUN.as_str()));
                left.iter().all(ended).then_some(())
            })
            .await;
        }
    }

    fn config_with(&self, more: &Value) -> Value {
        let mut config = self.config.clone();
        config["mode"] = json!("companion");
        config["evictionPressureTransitionPeriod"] = json!("1s");
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    }

    /// A value that the schema cannot judge is refused before anything changes.
    async fn hook_refuses(&self) {
        let map = self.releases.config_map(RELEASE);
        let before = self.admin.object(&map).await;
        let wrong = self.config_with(&json!({"diskIO": {"slowFor": "11m"}}));
        let refused = self.releases.run("upgrade", RELEASE, &wrong).unwrap_err();
        assert!(refused.contains("slowFor"), "{refused}");
        assert_eq!(self.admin.object(&map).await, before);
        assert_eq!(self.releases.status(RELEASE)["info"]["status"], "failed");
    }

    /// An OOM kill in a real container is an Event on its Pod, which the plugin finds.
    async fn killed(&self) {
        let pods = format!("{}/pods", self.releases.of_namespace());
        let apps = self
            .releases
            .of_namespace()
            .replacen("/api/v1", "/apis/apps/v1", 1);
        let agents = format!("{apps}/daemonsets/{}", name(RELEASE));
        let agents = self.admin.object(&agents).await;
        let image = &agents["spec"]["template"]["spec"]["containers"][0]["image"];
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "greedy"},
            "spec": {
                "nodeName": self.node, "hostNetwork": true, "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "app", "image": image, "imagePullPolicy": "IfNotPresent",
                    // It reads the kernel's types, which take more.
                    "args": ["check"],
                    "resources": {"limits": {"memory": "6Mi"}},
                }],
            },
        });
        self.admin.make(&pods, &pod).await;
        let killed = async || {
            let pod = self.admin.object(&format!("{pods}/greedy")).await;
            let ended = pod["status"]["containerStatuses"][0]["state"]["terminated"].clone();
            (ended["reason"] == "OOMKilled").then_some(())
        };
        until("the container is OOM-killed", killed).await;
        let namespace = ["--namespace", &self.releases.namespace];
        let story = until("the Event is there", async || {
            let kills = self.plugin(&[&["kills"][..], &namespace].concat()).await;
            kills.contains("greedy").then_some(kills)
        })
        .await;
        assert!(story.contains("pod 6.0Mi"), "{story}");
        let why = self
            .plugin(&[&["why", "greedy"][..], &namespace].concat())
            .await;
        assert!(why.contains("memory limit of 6Mi"), "{why}");
    }

    async fn plugin(&self, args: &[&str]) -> String {
        let mut plugin = Command::new(program_of("kubectl-nodepulse"));
        plugin
            .args(args)
            .args(["--agent-namespace", &self.releases.namespace]);
        let output = plugin
            .env("KUBECONFIG", real().unwrap())
            .output()
            .await
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(
            output.status.success() && stderr.is_empty(),
            "{stderr}{stdout}"
        );
        stdout
    }

    async fn node_is(&self, what: &str, wanted: impl Fn(&Value) -> bool) {
        let path = format!("{NODES}/{}", self.node);
        until(what, async || {
            wanted(&self.admin.object(&path).await).then_some(())
        })
        .await;
    }
}
