//! Helm installs the chart on a real cluster: two releases, upgrades, and what they leave.
//!
//! No node is selected, so that no pod needs the image, and no hook runs: each is a pod.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::helm::Helm;
use serde_json::{Value, json};

use super::caller::{Caller, text, until};
use super::stage::{RUN, Stage, alone, real};

#[tokio::test]
#[ignore = "no real API server: Helm applies objects of all kinds on the server's side"]
async fn helm_installs_two_releases_and_each_uninstallation_leaves_nothing() {
    alone("chart", installed).await;
}

async fn installed(stage: &Stage) {
    let Some(helm) = Helm::find() else { return };
    let releases = Releases {
        helm,
        kubeconfig: real().unwrap(),
        namespace: format!("{}-chart", *RUN),
    };
    let ended = std::panic::AssertUnwindSafe(two(&releases, &stage.admin));
    let ended = ended.catch_unwind().await;
    releases.remove(&stage.admin).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

struct Releases {
    helm: Helm,
    kubeconfig: PathBuf,
    namespace: String,
}

/// Of one of the two releases.
fn name(release: &str) -> String {
    format!("{}-{release}", *RUN)
}

fn values(config: &Value) -> Value {
    json!({
        "image": {"repository": "none.invalid/nodepulse"},
        "nodeSelector": {"example.com/nodepulse-e2e": "none"},
        "configValidation": {"enabled": false},
        "cleanup": {"enabled": false},
        "networkPolicy": {"enabled": true},
        "config": config,
    })
}

impl Releases {
    fn run(&self, command: &str, release: &str, config: &Value) -> Result<String, String> {
        let name = name(release);
        let mut arguments = vec![command, &name, "--namespace", &self.namespace];
        if command == "install" {
            arguments.push("--create-namespace");
        }
        self.helm
            .apply(&self.kubeconfig, &arguments, &values(config))
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let arguments = [arguments, &["--namespace", &self.namespace]].concat();
        self.helm.on_cluster(&self.kubeconfig, &arguments)
    }

    fn revision(&self, release: &str) -> Value {
        let status = self.ask(&["status", &name(release), "--output", "json"]);
        let status: Value = serde_json::from_str(&status.unwrap()).unwrap();
        status["version"].clone()
    }

    /// The path of every object of the release.
    fn paths(&self, release: &str) -> Vec<String> {
        let manifest = self.ask(&["get", "manifest", &name(release)]).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
        let objects = objects.iter().filter(|object| !object.is_null());
        let path = |object: &Value| {
            let collection = ApiServer::collection(object).unwrap();
            format!("{collection}/{}", text(&object["metadata"], "name"))
        };
        objects.map(path).collect()
    }

    fn config_map(&self, release: &str) -> String {
        format!(
            "/api/v1/namespaces/{}/configmaps/{}",
            self.namespace,
            name(release)
        )
    }

    /// Removes what a failure may have left.
    async fn remove(&self, admin: &Caller) {
        for release in ["a", "b"] {
            let _absent = self.ask(&[
                "uninstall",
                &name(release),
                "--no-hooks",
                "--ignore-not-found",
            ]);
        }
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        admin.delete(&namespace).await;
        until("the namespace is gone", async || {
            admin.object(&namespace).await.is_null().then_some(())
        })
        .await;
    }
}

async fn exist(admin: &Caller, paths: &[String]) {
    for path in paths {
        assert!(admin.object(path).await.is_object(), "{path}");
    }
}

async fn are_gone(admin: &Caller, paths: &[String]) {
    for path in paths {
        until(&format!("{path} is gone"), async || {
            admin.object(path).await.is_null().then_some(())
        })
        .await;
    }
}

async fn two(releases: &Releases, admin: &Caller) {
    let taints = json!({"mode": "companion", "taints": {"MemoryLow": "NoSchedule"}});
    for release in ["a", "b"] {
        releases.run("install", release, &taints).unwrap();
    }
    let (a, b) = (releases.paths("a"), releases.paths("b"));
    assert!(a.len() > 10 && a.len() == b.len(), "{a:?} {b:?}");
    assert!(a.iter().all(|path| !b.contains(path)), "{a:?} {b:?}");
    exist(admin, &[a.clone(), b.clone()].concat()).await;
    expressions_are_typed(admin, "a").await;

    let before = admin.object(&releases.config_map("a")).await;
    let mut wrong = taints.clone();
    wrong["evictionHardd"] = json!({"memory.available": "1Gi"});
    let refused = releases.run("upgrade", "a", &wrong).unwrap_err();
    assert!(refused.contains("evictionHardd"), "{refused}");
    assert_eq!(releases.revision("a"), 1);
    assert_eq!(admin.object(&releases.config_map("a")).await, before);

    let more = json!({"mode": "companion", "cgroupDriver": "systemd"});
    releases.run("upgrade", "a", &more).unwrap();
    assert_eq!(releases.revision("a"), 2);
    let after = admin.object(&releases.config_map("a")).await;
    assert!(
        text(&after["data"], "config.yaml").contains("cgroupDriver: systemd"),
        "{after}"
    );
    let taints_role = format!("/{}-taints", name("a"));
    let (removed, kept): (Vec<_>, Vec<_>) =
        a.into_iter().partition(|path| path.ends_with(&taints_role));
    assert_eq!(removed.len(), 2, "the role and its binding");
    are_gone(admin, &removed).await;
    exist(admin, &kept).await;

    releases.ask(&["uninstall", &name("a")]).unwrap();
    are_gone(admin, &kept).await;
    exist(admin, &b).await;
    releases.ask(&["uninstall", &name("b")]).unwrap();
    are_gone(admin, &b).await;
    let secrets = format!("/api/v1/namespaces/{}/secrets", releases.namespace);
    assert_eq!(admin.items(&secrets).await, [Value::Null; 0]);
}

/// The server checks the types in the expressions of a policy, and reports warnings in its status.
async fn expressions_are_typed(admin: &Caller, release: &str) {
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    for policy in ["nodes", "events"] {
        let path = format!("{policies}/{}-{policy}", name(release));
        let checked = until(&format!("{path} is checked"), async || {
            let policy = admin.object(&path).await;
            let checked = &policy["status"]["typeChecking"];
            checked.is_object().then(|| checked.clone())
        })
        .await;
        let warnings = &checked["expressionWarnings"];
        assert!(warnings.is_null(), "{path}: {warnings:#}");
    }
}
