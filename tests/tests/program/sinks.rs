//! Incidents are sent to a collector and a webhook.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use nodepulse_tests::http1::get;
use nodepulse_tests::process::Process;
use nodepulse_tests::receiver::Receiver;
use nodepulse_tests::{SOON, eventually};
use tempfile::{TempDir, tempdir};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::text;

/// An agent whose threshold changes its condition.
struct Node {
    dir: TempDir,
    sinks: String,
    signal: &'static str,
}

impl Node {
    fn new(sinks: String) -> Self {
        let dir = tempdir().unwrap();
        let signal = "nodefs.available";
        Self { dir, sinks, signal }
    }

    fn path(&self, name: &str) -> String {
        text(&self.dir.path().join(name))
    }

    /// Sets the threshold.
    fn set_threshold(&self, threshold: &str) {
        let text = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
             evictionHard: {{{}: {threshold}, pid.available: \"5\"}}\n\
             evictionPressureTransitionPeriod: 1s\nsinks: {}\n",
            self.signal, self.sinks
        );
        fs::write(self.path("config.yaml"), text).unwrap();
    }

    async fn start(&self) -> Process {
        self.set_threshold("1Mi");
        let (file, history) = (self.path("config.yaml"), self.path("history"));
        let flags = ["--config", &file, "--history-directory", &history];
        let run = ["run", "--mode", "companion", "--kernel-tier", "files"];
        let environment = [("NODEPULSE_SERVE_ADDRESS", "127.0.0.1:0")];
        let agent = Process::start_in(&environment, &[&run[..], &flags].concat());
        agent.wait_for_line("eBPF programs attached", SOON).await;
        agent
    }

    /// Makes its condition True, and waits until the receiver was asked so many times.
    async fn change(&self, agent: &Process, receiver: &Receiver, requests: usize) {
        self.set_threshold("99%");
        agent.hang_up();
        asked(receiver, requests).await;
    }
}

async fn asked(receiver: &Receiver, requests: usize) {
    eventually("the receiver is asked", || {
        let received = receiver.received().len();
        (requests <= received).then_some(()).ok_or(received)
    })
    .await;
}

async fn end(agent: Process) {
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}

fn private(path: &str, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_collector_and_a_webhook_get_an_incident_in_their_forms() {
    let collector = Receiver::start(200, None).await.unwrap();
    let webhook = Receiver::start(200, None).await.unwrap();
    let headers = tempdir().unwrap();
    let file = text(&headers.path().join("headers"));
    private(&file, "Authorization: Bearer secret\n\nX-Site: a b\n");
    let mut node = Node::new(format!(
        "{{otlp: {{endpoint: \"http://127.0.0.1:{}\"}}, \
           webhooks: [{{url: \"http://127.0.0.1:{}/hook?a=b\", headersFile: {file}}}]}}",
        collector.port, webhook.port
    ));
    node.signal = "memory.available";
    let agent = node.start().await;
    // The second revision has the largest users.
    node.change(&agent, &webhook, 2).await;
    eventually("the collector has both", || {
        let accepted = collector.accepted().len();
        (accepted == 2).then_some(()).ok_or(accepted)
    })
    .await;
    let details = |at: usize| webhook.received()[at].body["data"]["facts"]["details"].clone();
    assert!(details(0).is_null());
    assert!(details(1).as_str().unwrap().starts_with("largest "));
    let got = &webhook.received()[0];
    assert_eq!(got.path, "/hook");
    assert_eq!(got.headers["authorization"], "Bearer secret");
    assert_eq!(got.headers["x-site"], "a b");
    assert_eq!(got.headers["content-type"], "application/cloudevents+json");
    let event = &got.body;
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["type"], "dev.nodepulse.incident.Condition");
    let incident = &event["data"];
    assert_eq!(event["incident"], incident["id"]);
    let id = incident["id"].as_str().unwrap();
    assert_eq!(event["id"], format!("{id}.1"));
    assert_eq!(incident["facts"]["type"], "MemoryLow", "{incident:#}");
    assert!(incident.get("position").is_none());

    let logs = &collector.received()[0];
    assert_eq!(logs.path, "/v1/logs");
    assert!(!logs.headers.contains_key("authorization"));
    let record = &logs.body["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["severityText"], "WARN");
    assert_eq!(record["body"]["stringValue"], incident["message"]);
    assert_eq!(collector.accepted(), webhook.accepted());

    let metrics = get(&agent.address().await, "/metrics").await.unwrap();
    for series in ["sink_delivered_total", "sink_lag"] {
        let found = metrics.body.lines().filter(|line| line.contains(series));
        let found: Vec<_> = found.filter(|line| !line.starts_with('#')).collect();
        let end = if series == "sink_lag" { " 0" } else { " 2" };
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|line| line.ends_with(end)), "{found:?}");
    }
    agent.terminate();
    let log = agent.ends(SOON).await.stderr.concat();
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test]
async fn what_a_receiver_did_not_accept_is_delivered_by_the_next_agent_and_only_once() {
    let webhook = Receiver::start(503, None).await.unwrap();
    let url = format!("http://127.0.0.1:{}", webhook.port);
    // Other tests can have processes killed meanwhile.
    let other = Receiver::start(200, None).await.unwrap();
    let node = Node::new(format!(
        "{{webhooks: [{{url: \"{url}\", kinds: [Condition]}}, \
                      {{url: \"http://127.0.0.1:{}\", kinds: [Condition]}}]}}",
        other.port
    ));
    let agent = node.start().await;
    node.change(&agent, &webhook, 2).await;
    let logged = agent
        .wait_for_line("incidents are not delivered", SOON)
        .await;
    assert!(logged.contains("503 Service Unavailable"), "{logged}");
    asked(&other, 1).await;
    let metrics = get(&agent.address().await, "/metrics").await.unwrap().body;
    let ready = get(&agent.address().await, "/readyz?verbose")
        .await
        .unwrap();
    let expected = "ok\n[-]sink/webhook failing, 1 wait\n[+]sink/webhook-2 ok";
    assert_eq!(ready.body, expected);
    let mut failing = metrics
        .lines()
        .filter(|line| line.starts_with("nodepulse_sink_failing"));
    let expected = "sink=\"webhook\"} 1";
    assert!(failing.any(|line| line.ends_with(expected)), "{metrics}");
    end(agent).await;
    let tried = webhook.received();
    webhook.set_status(200);
    let agent = node.start().await;
    // The problem was over when this agent started.
    asked(&webhook, tried.len() + 2).await;
    end(agent).await;
    let accepted = webhook.accepted();
    let [again, ended] = [0, 1].map(|at| webhook.received()[tried.len() + at].body.clone());
    assert_eq!(again, tried[0].body);
    assert_eq!(ended["data"]["facts"]["ended"], again["incident"]);
    let agent = node.start().await;
    node.change(&agent, &webhook, tried.len() + accepted.len() + 1)
        .await;
    end(agent).await;
    assert_eq!(other.accepted(), webhook.accepted(), "each has its cursor");
    let mut ids: Vec<_> = webhook.accepted();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "{ids:?}");
}

#[tokio::test]
async fn a_batch_that_a_collector_refuses_is_sent_one_by_one_and_ends_there() {
    let collector = Receiver::start(503, None).await.unwrap();
    let endpoint = format!("http://127.0.0.1:{}", collector.port);
    let node = Node::new(format!("{{otlp: {{endpoint: \"{endpoint}\"}}}}"));
    let agent = node.start().await;
    node.change(&agent, &collector, 1).await;
    node.set_threshold("1Mi");
    agent.hang_up();
    agent.wait_for_line("from=True to=False", SOON).await;
    let records = |body: &serde_json::Value| {
        let records = &body["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
        records.as_array().map_or(0, Vec::len)
    };
    end(agent).await;
    let tried = collector.received().len();
    collector.set_status(422);
    let agent = node.start().await;
    agent
        .wait_for_line("the receiver refuses an incident", SOON)
        .await;
    asked(&collector, tried + 3).await;
    let sizes: Vec<_> = collector
        .received()
        .iter()
        .skip(tried)
        .map(|one| {
            let is_compressed = one.headers.contains_key("content-encoding");
            (records(&one.body), is_compressed)
        })
        .collect();
    let expected = [(2, true), (1, false), (1, false)];
    assert_eq!(sizes, expected, "both changes, then each");
    collector.set_status(200);
    node.change(&agent, &collector, tried + 4).await;
    let last = collector.received().pop().unwrap();
    assert_eq!((records(&last.body), last.answered), (1, 200));
    let metrics = get(&agent.address().await, "/metrics").await.unwrap().body;
    let refused = metrics
        .lines()
        .find(|line| line.contains("reason=\"refused\""));
    assert!(
        refused.is_some_and(|line| line.ends_with(" 2")),
        "{refused:?}"
    );
    end(agent).await;
}

/// Returns a server's certificate in PEM, and the server's side.
fn certificate() -> (String, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (made.cert.pem(), TlsAcceptor::from(Arc::new(server)))
}

#[tokio::test]
async fn redirects_are_not_followed_and_only_a_verified_server_gets_incidents() {
    let moved = Receiver::start(307, None).await.unwrap();
    let (authority, tls) = certificate();
    let collector = Receiver::start(200, Some(tls)).await.unwrap();
    let sinks = |further: &str| {
        format!(
            "{{otlp: {{endpoint: \"https://127.0.0.1:{}\"}}, \
               webhooks: [{{url: \"http://127.0.0.1:{}/here\"}}]{further}}}",
            collector.port, moved.port
        )
    };
    let mut node = Node::new(sinks(""));
    let agent = node.start().await;
    node.change(&agent, &moved, 2).await;
    let line = agent
        .wait_for_line("redirects are not followed", SOON)
        .await;
    assert!(line.contains("sink=\"webhook\""), "{line}");
    let line = agent.wait_for_line("invalid peer certificate", SOON).await;
    assert!(line.contains("sink=\"otlp\""), "{line}");
    end(agent).await;
    assert!(moved.received().iter().all(|one| one.path == "/here"));
    assert!(collector.received().is_empty());

    let file = node.path("ca.pem");
    fs::write(&file, authority).unwrap();
    node.sinks = sinks(&format!(", caFile: {file}"));
    let agent = node.start().await;
    asked(&collector, 1).await;
    end(agent).await;
}

#[tokio::test]
async fn a_receiver_that_is_not_configured_safely_is_refused_with_the_cure() {
    let dir = tempdir().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        text(&path)
    };
    let shared = file("shared", "A: b\n", 0o644);
    let torn = file("torn", "A: b\nBearer\n", 0o600);
    let pem = file("pem", "nothing\n", 0o644);
    let url = "url: \"http://127.0.0.1:9\"";
    #[rustfmt::skip]
    let rows = [
        (format!("{{webhooks: [{{{url}, headersFile: {shared}}}]}}"), "chmod 0600"),
        (format!("{{webhooks: [{{{url}, headersFile: {torn}}}]}}"), "line 2 of"),
        (format!("{{webhooks: [{{{url}, headersFile: /nothing}}]}}"), "sinks.webhooks: /nothing"),
        (format!("{{webhooks: [{{{url}}}], caFile: {pem}}}"), "no certificate in PEM"),
        ("{webhooks: [{url: \"https://a:b@c\"}]}".to_owned(), "belong in a file with headers"),
        ("{otlp: {endpoint: \"ftp://c\"}}".to_owned(), "http:// or https://"),
        (format!("{{webhooks: [{{{url}, kinds: [OOMKil]}}]}}"), "the nearest is OOMKill"),
    ];
    for (sinks, words) in rows {
        let node = Node::new(sinks);
        node.set_threshold("1Mi");
        let (file, history) = (node.path("config.yaml"), node.path("history"));
        let environment = [("NODEPULSE_SERVE_ADDRESS", "off")];
        let flags = ["--config", &file, "--history-directory", &history];
        let run = ["run", "--mode", "companion", "--kernel-tier", "files"];
        let agent = Process::start_in(&environment, &[&run[..], &flags].concat());
        let ended = agent.ends(SOON).await;
        let log = ended.stderr.concat();
        assert_eq!(ended.code, Some(2), "{log}");
        assert!(log.contains(words), "{words}: {log}");
    }
}
