//! Tests files that are shipped with the binary: manifests, admission policies, alerts and the
//! dashboard.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

mod admission;
mod documents;
mod objects;
mod series;

/// Returns a path in `deploy/` of this repository.
fn path(name: &str) -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.join("../deploy").join(name)
}

fn text(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// Reads every object in the kustomize manifests.
fn all() -> Vec<Value> {
    let mut all = Vec::new();
    for folder in ["base", "networkpolicy", "monitoring", "cleanup", "untaint"] {
        let folder = path("kustomize").join(folder);
        for entry in fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().path();
            if !name.ends_with("kustomization.yaml") {
                let text = fs::read_to_string(&name).unwrap();
                let documents = text.split("\n---\n");
                all.extend(documents.map(yaml));
            }
        }
    }
    all
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn one(kind: &str, name: &str) -> Value {
    let is = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let found = all().into_iter().find(is);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}
