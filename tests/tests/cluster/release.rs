//! Releases of the chart on a real cluster, whose names begin with that of the run.

use std::path::PathBuf;

use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::helm::Helm;
use serde_json::Value;

use super::caller::{Caller, text, until};
use super::stage::{RUN, real};

pub struct Releases {
    pub namespace: String,
    helm: Helm,
    kubeconfig: PathBuf,
    values: Value,
    flags: &'static [&'static str],
}

/// Of one of the releases.
pub fn name(release: &str) -> String {
    format!("{}-{release}", *RUN)
}

impl Releases {
    /// With these values, but for `config`, and these flags of each command that changes a release.
    /// `None`, and the test counts as skipped, if Helm is not installed.
    pub fn new(namespace: &str, values: Value, flags: &'static [&'static str]) -> Option<Self> {
        Some(Self {
            namespace: name(namespace),
            helm: Helm::find()?,
            kubeconfig: real().unwrap(),
            values,
            flags,
        })
    }

    /// `helm install` or `helm upgrade`.
    pub fn run(&self, command: &str, release: &str, config: &Value) -> Result<String, String> {
        let name = name(release);
        let mut arguments = vec![command, &name, "--namespace", &self.namespace];
        arguments.extend(self.flags);
        if command == "install" {
            arguments.push("--create-namespace");
        }
        let mut values = self.values.clone();
        values["config"] = config.clone();
        self.helm.apply(&self.kubeconfig, &arguments, &values)
    }

    /// Any other command.
    pub fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let arguments = [arguments, &["--namespace", &self.namespace]].concat();
        self.helm.on_cluster(&self.kubeconfig, &arguments)
    }

    pub fn status(&self, release: &str) -> Value {
        let status = self.ask(&["status", &name(release), "--output", "json"]);
        serde_json::from_str(&status.unwrap()).unwrap()
    }

    /// The path of every object of the release.
    pub fn paths(&self, release: &str) -> Vec<String> {
        let manifest = self.ask(&["get", "manifest", &name(release)]).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
        let objects = objects.iter().filter(|object| !object.is_null());
        let path = |object: &Value| {
            let collection = ApiServer::collection(object).unwrap();
            format!("{collection}/{}", text(&object["metadata"], "name"))
        };
        objects.map(path).collect()
    }

    pub fn config_map(&self, release: &str) -> String {
        format!("{}/configmaps/{}", self.of_namespace(), name(release))
    }

    pub fn of_namespace(&self) -> String {
        format!("/api/v1/namespaces/{}", self.namespace)
    }

    /// Removes what a failure may have left.
    pub async fn remove(&self, releases: &[&str], admin: &Caller) {
        for release in releases {
            let _absent = self.ask(&[
                "uninstall",
                &name(release),
                "--no-hooks",
                "--ignore-not-found",
            ]);
        }
        let namespace = self.of_namespace();
        admin.delete(&namespace).await;
        until("the namespace is gone", async || {
            admin.object(&namespace).await.is_null().then_some(())
        })
        .await;
    }
}

pub async fn exist(admin: &Caller, paths: &[String]) {
    for path in paths {
        assert!(admin.object(path).await.is_object(), "{path}");
    }
}

pub async fn are_gone(admin: &Caller, paths: &[String]) {
    for path in paths {
        until(&format!("{path} is gone"), async || {
            admin.object(path).await.is_null().then_some(())
        })
        .await;
    }
}
