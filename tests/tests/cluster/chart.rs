//! Helm installs the chart on a real cluster: two releases, upgrades, and what they leave.
//!
//! No node is selected, so that no pod needs the image, and no hook runs: each is a pod.

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::caller::{Caller, text, until};
use super::release::{Releases, are_gone, exist, name};
use super::stage::{Stage, alone};

#[tokio::test]
#[ignore = "no real API server: Helm applies objects of all kinds on the server's side"]
async fn helm_installs_two_releases_and_each_uninstallation_leaves_nothing() {
    alone("chart", installed).await;
}

async fn installed(stage: &Stage) {
    let values = json!({
        "image": {"repository": "none.invalid/nodepulse"},
        "nodeSelector": {"example.com/nodepulse-e2e": "none"},
        "configValidation": {"enabled": false},
        "cleanup": {"enabled": false},
        "networkPolicy": {"enabled": true},
    });
    let Some(releases) = Releases::new("chart", values, &[]) else {
        return;
    };
    let ended = std::panic::AssertUnwindSafe(two(&releases, &stage.admin));
    let ended = ended.catch_unwind().await;
    releases.remove(&["a", "b"], &stage.admin).await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
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
    assert_eq!(releases.status("a")["version"], 1);
    assert_eq!(admin.object(&releases.config_map("a")).await, before);

    let more = json!({"mode": "companion", "cgroupDriver": "systemd"});
    releases.run("upgrade", "a", &more).unwrap();
    assert_eq!(releases.status("a")["version"], 2);
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
    let secrets = format!("{}/secrets", releases.of_namespace());
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
