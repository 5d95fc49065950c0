//! The commands other than `run`, as an operator types them: the real program against a real
//! socket.

/// `nodepulse check`.
mod check;
/// `nodepulse cleanup`.
mod cleanup;
/// `nodepulse config`.
mod config;
/// Shells and viewers of manual pages.
mod shells;
/// Help, versions and invalid calls.
mod usage;

use std::fs;

use nodepulse_tests::process::finished;
use serde_json::Value;
use tempfile::tempdir;

use super::text;

const HEAD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";

#[tokio::test]
async fn version_lists_the_embedded_programs() {
    let version = finished(["version", "-o", "json"], "").await;
    let version: Value = serde_json::from_str(&version.stdout).unwrap();
    let number = env!("CARGO_PKG_VERSION");
    assert_eq!(version["version"], number);
    assert!(version.get("commit").is_some(), "{version}");
    let object = nodepulse_linux::kernel::object::embedded().unwrap();
    assert_eq!(version["ebpfObject"]["bytes"], object.len());
    assert_eq!(version["ebpfObject"]["abi"], agent_common::ABI_VERSION);
    let dir = tempdir().unwrap();
    let file = dir.path().join("object");
    fs::write(&file, object).unwrap();
    let sum = tokio::process::Command::new("sha256sum")
        .arg(&file)
        .output();
    let sum = String::from_utf8(sum.await.unwrap().stdout).unwrap();
    let sum = sum.split_whitespace().next().unwrap();
    assert_eq!(version["ebpfObject"]["sha256"], sum);
    let text = finished(["version"], "").await.stdout;
    assert!(text.starts_with(&format!("nodepulse {number} (")), "{text}");
    assert!(text.contains("commit") && text.contains(sum), "{text}");
    for flag in ["--version", "-V"] {
        assert_eq!(finished([flag], "").await.stdout, text, "{flag}");
    }
}

#[tokio::test]
async fn an_invalid_call_is_refused_in_one_line() {
    let dir = tempdir().unwrap();
    let write = |name: &str, words: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, words).unwrap();
        text(&path)
    };
    let good = write("good/config.yaml", HEAD);
    let bad = write("bad.yaml", &format!("{HEAD}maxPods: many\n"));
    let with_directory = write("other/config.yaml", HEAD);
    write("other/conf.d/10.yaml", &format!("{HEAD}maxPod: 1\n"));
    let wrong = write("wrong.yaml", HEAD);
    let absent = text(&dir.path().join("absent"));
    let node = ["run", "--mode", "node", "--node-name", "worker-1"];
    let node = |limit: [&'static str; 2]| [&node[..], &limit].concat();
    let memory = node(["--system-reserved", "memory=64Ti"]);
    let processors = node(["--kube-reserved", "cpu=5k"]);
    let rows: [(&[&str], [&str; 3]); 12] = [
        (&memory, ["systemReserved", "of memory", "this machine"]),
        (
            &processors,
            ["kubeReserved", "5k of cpu", "example: systemReserved"],
        ),
        (
            &["run", "--config", &with_directory],
            ["conf.d/10.yaml", "maxPod", "maxPods"],
        ),
        (
            &["run", "--kubelet-config", &absent],
            ["absent", "No such file", "--kubelet-config"],
        ),
        (
            &["run", "--kubelet-config", &wrong],
            ["apiVersion", "wrong.yaml", "kubelet.config.k8s.io"],
        ),
        (
            &["check", "--config", &bad],
            ["maxPods", "many", "maxPods: 110"],
        ),
        (
            &["check", "--kubeconfig", &absent],
            ["kubeconfig", "absent", "No such file"],
        ),
        (&["check", "-o", "xml"], ["--output", "xml", "text, json"]),
        (
            &["config", "validate", "--config", &bad],
            ["maxPods", "many", "maxPods: 110"],
        ),
        (
            &["config", "print", "--config", &absent],
            ["absent", "No such file", "--config"],
        ),
        (
            &["cleanup", "--config", &good],
            ["kubeconfig", "not set", "--kubeconfig"],
        ),
        (
            &["cleanup", "--all-nodes", "--node-name", "a"],
            ["--all-nodes", "--node-name", "only one"],
        ),
    ];
    for (args, names) in rows {
        let refused = finished(args, "").await;
        assert_eq!(
            (refused.code, refused.stdout.as_str()),
            (Some(2), ""),
            "{args:?}: {refused:?}"
        );
        let [line] = refused.stderr.as_slice() else {
            panic!("{args:?}: not one line: {:#?}", refused.stderr);
        };
        for word in names {
            assert!(line.contains(word), "{args:?}: {word:?} is not in {line:?}");
        }
    }
}
