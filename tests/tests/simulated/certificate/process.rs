//! The real program over TLS: the certificates that were issued are those that it shows.

use std::os::unix::fs::chown;

use nix::unistd::geteuid;
use nodepulse_tests::api_server::{Identity, Recorded};
use nodepulse_tests::http1::get;
use nodepulse_tests::process::{Process, finished, node_mode};
use nodepulse_tests::{SOON, eventually, skip};
use tempfile::{TempDir, tempdir};

use super::*;

/// Renewed every second.
const CONFIG: &str = "apiVersion: nodepulse.dev/v1alpha1
kind: NodepulseConfiguration
nodeLeaseDurationSeconds: 4
kernel: {tier: files}
";
/// From the issue of a certificate to its replacement, and some more.
const REPLACED: Duration = Duration::from_mins(1);

/// The arguments of an agent that requests its certificate.
fn arguments(dir: &TempDir) -> Vec<String> {
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(dir.path().join("config.yaml"), CONFIG).unwrap();
    node_mode(&[
        "--bootstrap-kubeconfig",
        &at("bootstrap"),
        "--kubeconfig",
        &at("kubeconfig"),
        "--cert-dir",
        &at("pki"),
        "--config",
        &at("config.yaml"),
    ])
}

async fn token(dir: &TempDir) -> ApiServer {
    let api = ApiServer::start().await;
    api.token_kubeconfig(&dir.path().join("bootstrap"), "abcdef.0123456789abcdef");
    api.allow_token("abcdef.0123456789abcdef", Identity::user(BOOTSTRAP));
    let resource = "certificatesigningrequests";
    api.grant_all(BOOTSTRAP, &[("create", resource), ("get", resource)]);
    api
}

/// Waits for a renewal of the Lease over a connection that was opened after `before`.
async fn renewed_after(api: &ApiServer, before: u64) {
    let view = View::of(api, "worker-1");
    let renewed = |_: &ApiServer| {
        let renewals = view.renewals().into_iter();
        let mut later = renewals.filter(|put| before < put.connection && put.status == Some(200));
        later
            .next()
            .map(|put| assert_eq!(put.identity, "system:node:worker-1"))
    };
    api.wait_for(REPLACED, "a renewal with the new certificate", renewed)
        .await;
}

/// Starts an agent, and waits until it uses a certificate of 20 s.
async fn with_short_certificate(dir: &TempDir) -> (ApiServer, Process) {
    let api = token(dir).await;
    let agent = Process::start(arguments(dir));
    let request = next_request_within(&api, REPLACED).await;
    api.issue(&request, &Issue::now(&api, Duration::from_secs(20)));
    View::of(&api, "worker-1").settled(REPLACED).await;
    (api, agent)
}

#[tokio::test]
async fn issued_certificates_are_used_one_after_the_other() {
    let dir = tempdir().unwrap();
    let (api, agent) = with_short_certificate(&dir).await;
    assert_eq!(mode(&dir.path().join("kubeconfig")), 0o600);
    for life in [Duration::from_secs(20), HOUR] {
        let request = next_request_within(&api, REPLACED).await;
        assert_eq!(request["spec"]["username"], "system:node:worker-1");
        let before = api.connections().opened;
        api.issue(&request, &Issue::now(&api, life));
        renewed_after(&api, before).await;
    }
    let lines = agent.lines_with("PRIVATE KEY");
    assert_eq!(lines, [""; 0]);
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let pki = dir.path().join("pki");
    assert_eq!(
        names(&pki).len(),
        3,
        "two pairs and a link: {:?}",
        names(&pki)
    );

    // The next start needs no other one, and no bootstrap kubeconfig.
    fs::remove_file(dir.path().join("bootstrap")).unwrap();
    let requests = api.signing_requests().len();
    let before = api.connections().opened;
    let agent = Process::start(arguments(&dir));
    renewed_after(&api, before).await;
    assert_eq!(api.signing_requests().len(), requests);
    agent.terminate();
    agent.ends(SOON).await;
}

#[tokio::test]
async fn a_new_certificate_is_tried_before_it_replaces_the_one_in_use() {
    let dir = tempdir().unwrap();
    let (api, agent) = with_short_certificate(&dir).await;
    let pki = dir.path().join("pki");
    let before = current(&pki);
    let request = next_request_within(&api, REPLACED).await;
    let rejected = Issue {
        rejected: true,
        ..Issue::now(&api, HOUR)
    };
    api.issue(&request, &rejected);
    let tried = |api: &ApiServer| {
        let is_try = |one: &Recorded| one.method == "GET" && one.status == Some(401);
        // The second one shows that the first had no effect.
        api.requests_where(is_try).into_iter().nth(1)
    };
    let tried = api.wait_for(REPLACED, "two rejected attempts", tried).await;
    assert_eq!(tried.path, "/api/v1/nodes/worker-1");
    assert_eq!(current(&pki), before);
    assert_eq!(mode(&pki.join("kubelet-client.pem.tmp")), 0o600);
    api.accept_as(&Identity::node("worker-1"));
    renewed_after(&api, tried.connection).await;
    assert_ne!(current(&pki), before);
    assert_eq!(
        names(&pki).len(),
        3,
        "two pairs and a link: {:?}",
        names(&pki)
    );
    agent.terminate();
    agent.ends(SOON).await;
}

#[tokio::test]
async fn a_setting_that_cannot_work_ends_the_start_with_one_line() {
    let dir = tempdir().unwrap();
    let _api = token(&dir).await;
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(dir.path().join("file"), "").unwrap();
    let (bootstrap, kubeconfig) = (at("bootstrap"), at("kubeconfig"));
    let in_file = at("file/pki");
    fs::create_dir(dir.path().join("directory")).unwrap();
    let directory = at("directory");
    let rows: [(&[&str], &str); 4] = [
        (
            &["--bootstrap-kubeconfig", &bootstrap],
            "requires kubeconfig",
        ),
        (
            &[
                "--bootstrap-kubeconfig",
                &bootstrap,
                "--kubeconfig",
                &directory,
            ],
            "directory: it cannot be read",
        ),
        (
            &[
                "--bootstrap-kubeconfig",
                &bootstrap,
                "--kubeconfig",
                &kubeconfig,
                "--cert-dir",
                &in_file,
            ],
            "file/pki: it cannot be created",
        ),
        (
            &[
                "--bootstrap-kubeconfig",
                &bootstrap,
                "--kubeconfig",
                &kubeconfig,
                "--cert-dir",
                "pki",
            ],
            "certDir",
        ),
    ];
    for (further, expected) in rows {
        let mut all = node_mode(further);
        if !all.contains(&"--cert-dir".to_owned()) {
            all.extend(["--cert-dir".to_owned(), at("pki")]);
        }
        let output = finished(&all, "").await;
        assert_eq!(output.code, Some(2), "{further:?}: {output:?}");
        let [line] = output.stderr.as_slice() else {
            panic!("{further:?}: {output:?}");
        };
        assert!(line.contains(expected), "{further:?}: {line}");
    }
}

#[tokio::test]
async fn a_bootstrap_kubeconfig_that_is_late_is_waited_for() {
    let dir = tempdir().unwrap();
    let api = token(&dir).await;
    let (bootstrap, kept) = (dir.path().join("bootstrap"), dir.path().join("kept"));
    fs::rename(&bootstrap, &kept).unwrap();
    let agent = Process::start(arguments(&dir));
    let line = agent.wait_for_line("the agent waits", SOON).await;
    assert!(line.contains("bootstrapKubeconfig"), "{line}");
    assert_eq!(api.signing_requests().len(), 0);
    fs::rename(&kept, &bootstrap).unwrap();
    let request = next_request_within(&api, REPLACED).await;
    api.issue(&request, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(REPLACED).await;
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}

#[tokio::test]
async fn a_program_of_the_bootstrap_kubeconfig_that_hangs_stops_no_other_work() {
    let dir = tempdir().unwrap();
    let _api = token(&dir).await;
    let at = |name: &str| dir.path().join(name);
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [{}]}}",
        at("run").display()
    );
    let words = fs::read_to_string(at("bootstrap")).unwrap();
    let words = words.replace("token: abcdef.0123456789abcdef", &exec);
    fs::write(at("bootstrap"), words).unwrap();
    // The first run fails: pages are served from then on.
    let script = format!(
        "cd {}; mkdir first 2>/dev/null && exit 1; echo $$ > new; mv new pid; exec sleep 60",
        dir.path().display()
    );
    fs::write(at("run"), script).unwrap();
    let mut all = arguments(&dir);
    all.extend(["--serve-address", "127.0.0.1:0"].map(str::to_owned));
    let agent = Process::start(all);
    let address = agent.address().await;
    let pid = eventually("program that hangs", || fs::read_to_string(at("pid"))).await;
    let live = get(&address, "/livez").await.unwrap();
    assert_eq!(live.code, Some(200), "{live:?}");
    // It was not answered only because the program was killed.
    assert!(Path::new("/proc").join(pid.trim()).exists(), "{pid}");
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn other_credentials_in_the_kubeconfig_are_used_without_a_directory_for_certificates() {
    let dir = tempdir().unwrap();
    let api = token(&dir).await;
    let kubeconfig = api.admin_kubeconfig(dir.path());
    let before = fs::read(&kubeconfig).unwrap();
    let agent = Process::start(arguments(&dir));
    View::of(&api, "worker-1").settled(REPLACED).await;
    assert_eq!(api.signing_requests().len(), 0);
    assert!(!dir.path().join("pki").exists());
    assert_eq!(fs::read(&kubeconfig).unwrap(), before);
    agent.terminate();
    agent.ends(SOON).await;
}

#[tokio::test]
async fn a_directory_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return skip("needs root", "only root changes the owner of a file");
    }
    let dir = tempdir().unwrap();
    let _api = token(&dir).await;
    let pki = dir.path().join("pki");
    fs::create_dir(&pki).unwrap();
    chown(&pki, Some(65534), None).unwrap();
    let output = finished(&arguments(&dir), "").await;
    assert_eq!(output.code, Some(2), "{output:?}");
    let [line] = output.stderr.as_slice() else {
        panic!("{output:?}");
    };
    for part in [pki.to_str().unwrap(), "certDir", "65534", "chown"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(names(&pki), [""; 0]);
    assert!(!dir.path().join("kubeconfig").exists());
}
