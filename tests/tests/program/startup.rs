//! The start of the real program: invalid configurations, files and servers.

use std::fs;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::process::{Process, node_mode, node_mode_of};
use nodepulse_tests::view::View;
use tempfile::tempdir;

use super::text;

#[tokio::test]
async fn a_server_of_another_authority_is_used_only_with_insecure_skip_tls_verify() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let good = fs::read_to_string(api.node_kubeconfig(dir.path(), "worker-1")).unwrap();
    let (before, rest) = good.split_once("certificate-authority-data: ").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    let start = |name: &str, key: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("{before}{key}\n{after}")).unwrap();
        Process::start(node_mode(&[
            "--kubeconfig",
            &text(&path),
            "--kernel-tier",
            "files",
        ]))
    };
    let other = ApiServer::start().await;
    let other = fs::read_to_string(other.node_kubeconfig(dir.path(), "worker-1")).unwrap();
    let authority = other
        .lines()
        .find(|line| line.contains("certificate-authority-data"));
    let refused = start("other", authority.unwrap().trim());
    refused
        .wait_for_line("invalid peer certificate", SOON)
        .await;
    refused.terminate();
    assert_eq!(refused.ends(SOON).await.code, Some(0));
    let view = View::of(&api, "worker-1");
    assert_eq!(view.creates().len(), 0);

    let used = start("insecure", "insecure-skip-tls-verify: true");
    view.settled(SOON).await;
    used.terminate();
    assert_eq!(used.ends(SOON).await.code, Some(0));
}

#[tokio::test]
async fn a_kubelets_file_is_read_and_its_other_keys_are_listed_once() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    let kubelet = dir.path().join("kubelet.yaml");
    let words = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                 enableControllerAttachDetach: false\nmaxPods: 7\nreservedSystemCPUs: '0'\n\
                 clusterDNS: [10.96.0.10]\nreadOnlyPort: 0\nauthentication: {x509: {}}\n";
    fs::write(&kubelet, words).unwrap();
    let agent = Process::start(node_mode(&[
        "--kubeconfig",
        &kubeconfig,
        "--kubelet-config",
        &text(&kubelet),
        "--kernel-tier",
        "files",
    ]));
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    let node = view.node().unwrap();
    assert_eq!(node["status"]["capacity"]["pods"], "7");
    assert!(node["metadata"]["annotations"].is_null(), "{node:#}");
    agent.terminate();
    let ended = agent.ends(SOON).await;
    let of = |words: &str| {
        let lines = ended.stderr.iter().filter(|line| line.contains(words));
        lines.cloned().collect::<Vec<_>>()
    };
    let [line] = of("clusterDNS").try_into().unwrap();
    assert!(line.contains("INFO") && !line.contains("maxPods"), "{line}");
    let [line] = of("readOnlyPort").try_into().unwrap();
    assert!(
        line.contains("WARN") && line.contains("authentication"),
        "{line}"
    );
}

#[tokio::test]
async fn an_address_that_cannot_be_reported_is_logged_once() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = text(&api.node_kubeconfig(dir.path(), "worker-1"));
    let further = ["--kubeconfig", &kubeconfig, "--kernel-tier", "files"];
    let agent = Process::start(node_mode_of("worker-1", "127.0.0.1", &further));
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    assert!(view.node().unwrap()["status"]["addresses"].is_null());
    agent.terminate();
    let ended = agent.ends(SOON).await;
    let mut lines = ended.stderr;
    lines.retain(|line| line.contains("127.0.0.1 is a"));
    let [line] = lines.try_into().unwrap();
    assert!(
        line.contains("WARN") && line.contains("--node-ip"),
        "{line}"
    );
}
