//! Credentials that are renewed while the real program runs: it uses the new ones, and the Lease
//! is renewed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::process::{Process, node_mode};
use nodepulse_tests::view::View;
use tempfile::tempdir;

/// Renewed every second.
const CONFIG: &str = "apiVersion: nodepulse.dev/v1alpha1
kind: NodepulseConfiguration
nodeLeaseDurationSeconds: 4
kernel: {tier: files}
";

/// Credentials number `n`, at the agent's path. Those before are no longer valid.
type Issue = fn(&ApiServer, &Path, u32);

const TOKENS: [&str; 3] = ["first", "second", "third"];

fn token(api: &ApiServer, n: u32) -> &'static str {
    TOKENS.iter().for_each(|token| api.revoke_token(token));
    let token = TOKENS[usize::try_from(n).unwrap()];
    api.allow_token(token, Identity::node("worker-1"));
    token
}

/// As Kubernetes does it: whole, or not at all.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn user(api: &ApiServer, dir: &Path, user: &str) {
    let path = dir.join("kubeconfig");
    api.token_kubeconfig(&path, "TOKEN");
    let text = fs::read_to_string(&path).unwrap();
    write(&path, &text.replace("token: TOKEN", user));
}

fn token_in_the_kubeconfig(api: &ApiServer, dir: &Path, n: u32) {
    let token = token(api, n);
    api.token_kubeconfig(&dir.join("kubeconfig"), token);
}

fn token_file(api: &ApiServer, dir: &Path, n: u32) {
    let file = dir.join("token");
    write(&file, token(api, n));
    user(api, dir, &format!("tokenFile: {}", file.display()));
}

fn certificate(api: &ApiServer, dir: &Path, _: u32) {
    api.expire_certificates();
    api.kubeconfig(&dir.join("kubeconfig"), &Identity::node("worker-1"));
}

fn program(api: &ApiServer, dir: &Path, n: u32) {
    let printed = dir.join("printed");
    let token = token(api, n);
    write(
        &printed,
        &format!(r#"{{"status": {{"token": "{token}"}}}}"#),
    );
    let printed = printed.display();
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/cat, args: [{printed}]}}"
    );
    user(api, dir, &exec);
}

#[tokio::test]
async fn renewed_credentials_are_used_when_the_old_ones_are_rejected() {
    let rows: [(&str, Issue); 4] = [
        ("a token in the kubeconfig", token_in_the_kubeconfig),
        ("a token's file", token_file),
        ("a certificate", certificate),
        ("a program's token", program),
    ];
    for (name, issue) in rows {
        let dir = tempdir().unwrap();
        let api = ApiServer::start().await;
        issue(&api, dir.path(), 0);
        let config = dir.path().join("config.yaml");
        fs::write(&config, CONFIG).unwrap();
        let agent = Process::start(node_mode(&[
            "--kubeconfig",
            &dir.path().join("kubeconfig").display().to_string(),
            "--config",
            &config.display().to_string(),
        ]));
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        let opened = api.connections().opened;
        assert_eq!(opened, 1, "{name}");

        issue(&api, dir.path(), 1);
        let changed = api.now();
        let renewed = |_: &ApiServer| {
            let good = view.renewals().into_iter();
            let mut good = good.filter(|put| changed < put.at && put.status == Some(200));
            good.next().map(|put| put.at)
        };
        let at = api
            .wait_for(SOON, "a renewal with the new ones", renewed)
            .await;
        // Due within a second, and sent again at once.
        let late = at - changed;
        assert!(late < Duration::from_secs(3), "{name}: after {late:?}");
        agent.wait_for_line("credentials have changed", SOON).await;
        agent.terminate();
        let ended = agent.ends(SOON).await;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    }
}
