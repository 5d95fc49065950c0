//! One clear line for each failure, and the right exit status.

use std::fs;

use nodepulse_tests::api_server::{Effect, Fault};

use super::*;

#[tokio::test]
async fn a_missing_permission_is_named_with_its_rule() {
    let cluster = Cluster::reported().await;
    let stranger = cluster.kubeconfig_of("stranger", &[]);
    let rows: [(&[&str], &str, &str); 4] = [
        (
            &[],
            "may not list nodes in the whole cluster",
            "resources: [nodes], verbs: [list]",
        ),
        (
            &["worker-1"],
            "may not get nodes",
            "resources: [nodes], verbs: [get]",
        ),
        (
            &["kills", "-n", "shop"],
            "may not list events in namespace shop",
            "resources: [events]",
        ),
        (
            &["why", "cart-0"],
            "may not list events in namespace default",
            "apiGroups: [\"\"]",
        ),
    ];
    for (args, what, rule) in rows {
        let line = run(args, &stranger, &[]).await.failed(1);
        assert!(line.contains("error: user \"stranger\""), "{line}");
        assert!(line.contains(what) && line.contains(rule), "{line}");
    }
}

#[tokio::test]
async fn what_may_be_read_is_shown_without_the_rest() {
    let cluster = Cluster::reported().await;
    cluster.api.put_object(agent_pod("worker-1", &running()));
    let viewer = cluster.kubeconfig_of("viewer", &[("list", "nodes"), ("get", "nodes")]);
    let printed = run(&[], &viewer, &[]).await;
    assert_eq!(printed.code, Some(0));
    assert_eq!(row(&printed.stdout, "worker-1")[4], "-");
    let note = "note: versions are unknown: user \"viewer\" may not list pods";
    assert!(printed.stderr.starts_with(note), "{}", printed.stderr);
    let text = run(&["worker-1"], &viewer, &[]).await.good();
    assert!(text.contains("PIDsLow=True"), "{text}");
    assert!(
        text.contains("unknown: user \"viewer\" may not list events"),
        "{text}"
    );
}

#[tokio::test]
async fn a_wrong_kubeconfig_context_or_name_is_named() {
    let cluster = Cluster::new().await;
    let good = cluster.kubeconfig();
    let broken = cluster.dir.path().join("broken");
    fs::write(&broken, "clusters: [[").unwrap();
    let bare = cluster.dir.path().join("bare");
    let text = fs::read_to_string(&good).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("current-context"));
    fs::write(&bare, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let absent = Path::new("/absent/config");
    //  arguments, kubeconfig, exit status, what the line contains
    let rows: [(&[&str], &Path, i32, &str); 9] = [
        (&[], absent, 1, "no kubeconfig: set KUBECONFIG"),
        (
            &["--kubeconfig", "/absent/config"],
            &good,
            1,
            "/absent/config: No such file",
        ),
        (&[], &broken, 1, "broken: "),
        (
            &[],
            &bare,
            1,
            "no current context: choose one with --context (the kubeconfig has ",
        ),
        (
            &["--context", "x\u{1b}[2J"],
            &good,
            1,
            "context x\\u{1b}[2J does not exist: the kubeconfig has ",
        ),
        (&["worker-9"], &good, 1, "error: node worker-9 not found"),
        (&["Worker"], &good, 2, "is not the name of a node"),
        (&["--watch", "-o", "json"], &good, 2, "cannot be used with"),
        (&["kills", "--since", "5"], &good, 2, "is not a duration"),
    ];
    for (args, kubeconfig, code, expected) in rows {
        let line = run(args, kubeconfig, &[]).await.failed(code);
        assert!(line.contains(expected), "{args:?}: {line}");
    }
}

#[tokio::test]
async fn files_of_the_variable_are_merged_and_absent_ones_are_skipped() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(made_up::node("worker-1"));
    let good = cluster.kubeconfig();
    let other = cluster.dir.path().join("other");
    fs::write(&other, "apiVersion: v1\nkind: Config\n").unwrap();
    let list = format!("/absent/config::{}:{}", other.display(), good.display());
    let text = run(&[], Path::new(&list), &[]).await.good();
    assert!(text.contains("worker-1"), "{text}");
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_or_answers_nonsense_is_one_line() {
    let cluster = Cluster::new().await;
    let kubeconfig = cluster.kubeconfig();
    //  the answer, and the line
    let rows = [
        (Effect::Status(500), "error: cannot list nodes: 500 "),
        (
            Effect::Garbage,
            "error: cannot list nodes: the answer is not what an API server sends",
        ),
        (Effect::Truncated, "error: cannot "),
        (
            Effect::Reset,
            "error: cannot reach the API server https://127.0.0.1:",
        ),
    ];
    for (effect, expected) in rows {
        let shown = format!("{effect:?}");
        cluster.api.faults().push(Fault::on("GET", NODES, effect));
        let line = run(&[], &kubeconfig, &[]).await.failed(1);
        assert!(line.contains(expected), "{shown}: {line}");
    }
    // A server that is busy is asked again.
    cluster.api.put_object(made_up::node("worker-1"));
    cluster
        .api
        .faults()
        .push(Fault::on("GET", NODES, Effect::TooManyRequests(1)));
    assert!(run(&[], &kubeconfig, &[]).await.good().contains("worker-1"));

    cluster.api.expire_certificates();
    let line = run(&[], &kubeconfig, &[]).await.failed(1);
    assert!(line.contains("(401 Unauthorized): log in again"), "{line}");
    cluster.api.stop().await;
    let line = run(&[], &kubeconfig, &[]).await.failed(1);
    assert!(line.contains("Connection refused"), "{line}");
}

#[tokio::test]
async fn hostile_text_does_not_reach_the_terminal_and_a_closed_pipe_is_quiet() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(agent_pod("elsewhere", &running()));
    for n in 0..300 {
        let mut hostile = node(&format!("worker-{n}"), "PIDsLow", "True");
        let condition = &mut hostile["status"]["conditions"][0];
        condition["reason"] = json!("\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\r\nworker-x");
        condition["message"] = json!("\u{1b}[2J\nfaked line");
        cluster.api.put_object(hostile);
    }
    let controls = |text: &str| {
        text.chars()
            .any(|c| c.is_control() && c != '\n' || c == '\u{202e}')
    };
    let text = cluster.run(&[]).await.good();
    assert!(!controls(&text) && text.lines().count() == 301, "{text:?}");
    let text = cluster.run(&["worker-1"]).await.good();
    assert!(!controls(&text), "{text:?}");
    assert!(text.contains("\\u{1b}[2J\\nfaked line"), "{text}");

    let pipe = format!("{} | head -n 1", plugin().display());
    let mut shell = Command::new("bash");
    shell
        .args(["-o", "pipefail", "-c", &pipe])
        .env("KUBECONFIG", cluster.kubeconfig());
    let output = shell.output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    assert!(output.stdout.starts_with(b"NODE"));
}
