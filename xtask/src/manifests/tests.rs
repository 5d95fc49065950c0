//! Compares the kustomize manifests with Helm's output.

use serde_json::Value;

use super::*;
use crate::repo;
use crate::skips::skip;

const FOLDERS: &[&str] = &["base", "networkpolicy", "monitoring", "cleanup", "untaint"];

fn parse(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Parses the objects of a text with several documents.
fn objects(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(parse).collect()
}

/// Renders the chart; if Helm is not installed, returns `None` and counts the test as skipped.
fn from_chart() -> Option<BTreeMap<String, String>> {
    let helm = helm::program().unwrap();
    if !helm.is_file() {
        skip("no Helm", "`cargo xtask setup` installs it");
        return None;
    }
    Some(files(&repo::root()).unwrap())
}

#[test]
fn the_kustomize_manifests_are_those_of_the_chart() {
    let Some(files) = from_chart() else { return };
    for (path, text) in files {
        let path = repo::root().join(KUSTOMIZE).join(path);
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "{}: run `cargo xtask manifests`",
            path.display()
        );
    }
}

#[test]
fn no_manifest_is_of_helm() {
    let Some(files) = from_chart() else { return };
    for (path, text) in files {
        for object in objects(&text) {
            let meta = &object["metadata"];
            assert!(meta["annotations"].is_null(), "{path}: {meta}");
            let labels = meta["labels"].as_object().unwrap();
            for label in ["app.kubernetes.io/managed-by", "helm.sh/chart"] {
                assert!(!labels.contains_key(label), "{path}: {meta}");
            }
            assert_eq!(meta["labels"]["app.kubernetes.io/instance"], "nodepulse");
        }
    }
}

#[test]
fn the_chart_has_this_version() {
    let chart = fs::read_to_string(repo::root().join(CHART).join("Chart.yaml")).unwrap();
    let chart = parse(&chart);
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

#[test]
fn each_kustomization_lists_each_file_in_its_folder() {
    for folder in FOLDERS {
        let folder = repo::root().join(KUSTOMIZE).join(folder);
        let text = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
        let kustomization = parse(&text);
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
fn the_lines_of_helm_are_removed_with_an_annotations_block_that_becomes_empty() {
    let document = "\nmetadata:\n  labels:\n    a: b\n    helm.sh/chart: c  \n  annotations:\n    \
                    helm.sh/hook: test\nspec:\n  annotations:\n    a: b\n";
    let expected = "metadata:\n  labels:\n    a: b\nspec:\n  annotations:\n    a: b\n";
    assert_eq!(without_helm(document), expected);
}

/// Compares with kubectl or kustomize, if this machine has one.
#[test]
fn kubectl_builds_the_same_objects() {
    let folder = repo::root().join(KUSTOMIZE).join("base");
    let mut kubectl = std::process::Command::new("kubectl");
    let output = match kubectl.arg("kustomize").arg(&folder).output() {
        Ok(output) => output,
        Err(err) => return skip("no kubectl", err),
    };
    assert!(output.status.success(), "{output:?}");
    let Some(files) = from_chart() else { return };
    let mut built = objects(&String::from_utf8(output.stdout).unwrap());
    let of_base = files.iter().filter(|(path, _)| path.starts_with("base/"));
    let mut expected: Vec<Value> = of_base.flat_map(|(_, text)| objects(text)).collect();
    built.retain(|object| object["kind"] != "Namespace");
    for objects in [&mut built, &mut expected] {
        objects.sort_by_key(|o| format!("{} {}", o["kind"], o["metadata"]["name"]));
    }
    assert_eq!(built, expected);
}
