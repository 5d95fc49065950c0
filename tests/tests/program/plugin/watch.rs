//! `kubectl nodepulse --watch`.

use nodepulse_tests::api_server::{Effect, Fault, Recorded};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::*;

/// The program with `--watch`, and what it prints.
fn watch(kubeconfig: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    watch_with(&["--watch"], kubeconfig)
}

fn watch_with(args: &[&str], kubeconfig: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command(args, kubeconfig, &[]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn next(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> String {
    let line = timeout(SOON, lines.next_line()).await;
    line.expect("a line").unwrap().unwrap_or_default()
}

#[tokio::test]
async fn a_watch_prints_what_changes_and_survives_an_expired_version() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    let (_child, mut lines) = watch(&cluster.kubeconfig());
    assert!(next(&mut lines).await.starts_with("NODE"));
    assert!(next(&mut lines).await.starts_with("worker-1"));
    watches(&cluster, 1).await;
    // A heartbeat is no change.
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    cluster.api.put_object(node("worker-1", "PIDsLow", "True"));
    let line = next(&mut lines).await;
    assert_eq!(row(&line, "worker-1")[1], "PIDsLow");
    let time = line.split_whitespace().last().map(str::parse::<Timestamp>);
    assert!(matches!(time, Some(Ok(_))), "{line}");
    cluster.api.expire_watches();
    cluster.api.put_object(made_up::node("worker-2"));
    let line = next(&mut lines).await;
    assert_eq!(row(&line, "worker-2")[1..3], ["no", "agent"]);
    watches(&cluster, 2).await;
    cluster.api.delete_object("/api/v1/nodes/worker-2");
    assert_eq!(row(&next(&mut lines).await, "worker-2")[1], "deleted");
}

fn is_watch(request: &Recorded) -> bool {
    request.path == NODES && request.query.contains("watch=1")
}

/// Waits until so many watches of Nodes were opened.
async fn watches(cluster: &Cluster, count: usize) {
    let open = |api: &ApiServer| {
        let watches = api.requests_where(is_watch).len();
        (watches >= count).then_some(())
    };
    cluster.api.wait_for(SOON, "a watch", open).await;
}

#[tokio::test]
async fn a_watch_continues_after_the_server_was_away_and_prints_only_what_is_shown() {
    let cluster = Cluster::new().await;
    let worker = node("worker-1", "PIDsLow", "True");
    let labelled = |zone: &str, status: &str, message: &str| {
        let mut node = worker.clone();
        node["metadata"]["labels"] = json!({ "zone": zone });
        node["status"]["conditions"][0]["status"] = json!(status);
        node["status"]["conditions"][0]["message"] = json!(message);
        node
    };
    cluster.api.put_object(labelled("a", "True", "1 of 2"));
    let args = ["--watch", "-l", "zone=a"];
    let (mut child, mut lines) = watch_with(&args, &cluster.kubeconfig());
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(next(&mut lines).await.starts_with("NODE"));
    assert!(next(&mut lines).await.starts_with("worker-1"));
    assert!(next(&mut notes).await.contains("versions are unknown"));
    watches(&cluster, 1).await;
    cluster.api.stop().await;
    let note = next(&mut notes).await;
    assert!(
        note.starts_with("note: cannot reach the API server"),
        "{note}"
    );
    assert!(note.ends_with(": trying again"), "{note}");
    cluster.api.restart().await;
    watches(&cluster, 2).await;
    // No column has the message.
    cluster.api.put_object(labelled("a", "True", "2 of 2"));
    cluster.api.put_object(labelled("a", "Unknown", ""));
    let line = next(&mut lines).await;
    assert_eq!(row(&line, "worker-1")[1], "PIDsLow=Unknown");
    assert_eq!(
        next(&mut notes).await,
        "note: the API server responds again"
    );
    cluster.api.put_object(labelled("b", "True", ""));
    let line = next(&mut lines).await;
    assert!(line.contains("deleted or not selected"), "{line}");
}

/// The next line that is not about the end of a watch: those of Nodes and of pods end at about the
/// same time.
async fn next_but_ended(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> String {
    loop {
        let line = next(lines).await;
        if !line.starts_with("note: the watch of ") {
            return line;
        }
    }
}

#[tokio::test]
async fn a_watch_continues_after_errors_of_the_server_and_ends_without_valid_credentials() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    cluster.api.put_object(agent_pod("worker-1", &running()));
    for code in [500, 429] {
        let refused = Fault::when(is_watch, Effect::Status(code));
        cluster.api.faults().push(refused);
    }
    let (mut child, _lines) = watch(&cluster.kubeconfig());
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let note = next(&mut notes).await;
    assert!(note.starts_with("note: cannot watch nodes: 500 "), "{note}");
    assert_eq!(
        next(&mut notes).await,
        "note: the API server responds again",
        "one note for both errors"
    );
    watches(&cluster, 3).await;
    // The list that follows an expired version.
    let refused = Fault::on("GET", NODES, Effect::Status(503));
    cluster.api.faults().push(refused);
    cluster.api.expire_watches();
    let note = next_but_ended(&mut notes).await;
    assert!(note.starts_with("note: cannot list nodes: 503 "), "{note}");
    let note = next_but_ended(&mut notes).await;
    assert_eq!(note, "note: the API server responds again");
    cluster.api.expire_certificates();
    cluster.api.expire_watches();
    let last = next_but_ended(&mut notes).await;
    assert!(last.contains("(401 Unauthorized)"), "{last}");
    let status = timeout(SOON, child.wait()).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(1));
}

#[tokio::test]
async fn a_watch_shows_agents_that_fail_are_replaced_or_may_not_be_watched() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    cluster.api.put_object(agent_pod("worker-1", &running()));
    let (_child, mut lines) = watch(&cluster.kubeconfig());
    assert!(next(&mut lines).await.starts_with("NODE"));
    assert_eq!(
        row(&next(&mut lines).await, "worker-1")[1..5],
        ["ok", "-", "-", "0.1.0"]
    );
    let pods = "/api/v1/namespaces/nodepulse/pods";
    let open = |api: &ApiServer| {
        let of_pods =
            |request: &Recorded| request.path == pods && request.query.contains("watch=1");
        (!api.requests_where(of_pods).is_empty()).then_some(())
    };
    cluster.api.wait_for(SOON, "a watch of pods", open).await;
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    cluster.api.put_object(agent_pod("worker-1", &waiting));
    assert_eq!(
        row(&next(&mut lines).await, "worker-1")[1..3],
        ["agent", "CrashLoopBackOff"]
    );
    // The pod that replaces it runs before the first is deleted.
    let mut replacement = agent_pod("worker-1", &running());
    replacement["metadata"]["name"] = json!("nodepulse-new");
    replacement["spec"]["containers"][0]["image"] = json!("registry.example/nodepulse:0.2.0");
    cluster.api.put_object(replacement);
    let line = next(&mut lines).await;
    assert_eq!(row(&line, "worker-1")[1..5], ["ok", "-", "-", "0.2.0"]);
    cluster
        .api
        .delete_object(&format!("{pods}/nodepulse-worker-1"));
    cluster.api.delete_object(&format!("{pods}/nodepulse-new"));
    // The first deletion changes no row.
    assert_eq!(row(&next(&mut lines).await, "worker-1")[4], "-");

    cluster.api.put_object(agent_pod("elsewhere", &running()));
    let permissions = [("list", "nodes"), ("watch", "nodes"), ("list", "pods")];
    let reader = cluster.kubeconfig_of("reader", &permissions);
    let (mut child, _lines) = watch(&reader);
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = next(&mut notes).await;
    let note =
        "note: changes of the agents' pods are not shown: user \"reader\" may not watch pods";
    assert!(line.starts_with(note), "{line}");
}
