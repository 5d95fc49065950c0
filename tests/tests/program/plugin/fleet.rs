//! `kubectl nodepulse`.

use std::net::SocketAddr;

use nodepulse_tests::api_server::{Effect, Fault, Recorded};
use nodepulse_tests::process::Process;
use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn nodes_with_problems_come_first_with_reason_age_version_and_heartbeat() {
    let cluster = Cluster::reported().await;
    cluster.api.put_object(agent_pod("worker-1", &running()));
    cluster.api.put_object(made_up::node("a-bare"));
    cluster.api.put_object(node("a-calm", "PIDsLow", "False"));
    let text = cluster.run(&[]).await.good();
    let first = text.lines().nth(1).unwrap_or_default();
    assert!(first.starts_with("a-bare"), "{text}");
    assert_eq!(row(&text, "a-bare")[1..3], ["no", "agent"]);
    let worker = row(&text, "worker-1");
    assert_eq!(worker[1..3], ["PIDsLow", "LowPIDs"], "{text}");
    assert_eq!(worker[4], "0.1.0", "{text}");
    for age in [worker[3], worker[5]] {
        let seconds = age.trim_end_matches('s').parse::<u64>();
        assert!(seconds.is_ok_and(|seconds| seconds < 60), "{text}");
    }
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("a-calm"), "the others follow: {text}");
    assert_eq!(row(&text, "a-calm")[1..5], ["ok", "-", "-", "-"]);
}

#[tokio::test]
async fn agents_that_are_in_another_namespace_are_hinted_at() {
    let cluster = Cluster::new().await;
    let mut edge = node("edge", "DiskFailing", "False");
    edge["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.36.0+nodepulse.0.1.0");
    cluster.api.put_object(edge);
    let stderr = async |args: &[&str]| {
        let printed = run(args, &cluster.kubeconfig(), &[]).await;
        assert_eq!(printed.code, Some(0), "{}", printed.stderr);
        printed.stderr
    };
    assert_eq!(stderr(&[]).await, "", "node mode needs no pod");
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    let note = "note: versions are unknown: no pod of an agent in the namespace nodepulse; if \
                the agents run in other pods, name them by --agent-namespace and --agent-selector\n";
    assert_eq!(stderr(&[]).await, note);
    assert_eq!(stderr(&["-o", "json"]).await, "", "for programs");
    cluster.api.put_object(agent_pod("worker-1", &running()));
    assert_eq!(stderr(&[]).await, "");
}

#[tokio::test]
async fn an_agent_that_fails_or_is_silent_is_a_problem_and_unknown_is_not_true() {
    let cluster = Cluster::new().await;
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    cluster.api.put_object(node("broken", "PIDsLow", "False"));
    cluster.api.put_object(agent_pod("broken", &waiting));
    let mut silent = node("silent", "PIDsLow", "False");
    silent["status"]["conditions"][0]["lastHeartbeatTime"] = json!(ago(20 * 60));
    cluster.api.put_object(silent);
    cluster
        .api
        .put_object(node("unknown", "DiskFailing", "Unknown"));
    let mut mode = node("edge", "DiskFailing", "False");
    mode["status"]["nodeInfo"] = json!({ "kubeletVersion": "v1.33.0+nodepulse.0.2.0" });
    mode["status"]["conditions"][4]["status"] = json!("Unknown");
    cluster.api.put_object(mode);
    let text = cluster.run(&[]).await.good();
    assert_eq!(row(&text, "broken")[1..3], ["agent", "CrashLoopBackOff"]);
    assert_eq!(row(&text, "silent")[1..3], ["agent", "silent"]);
    assert_eq!(row(&text, "unknown")[1], "DiskFailing=Unknown");
    let edge = row(&text, "edge");
    assert_eq!((edge[1], edge[4]), ("Ready=Unknown", "0.2.0"), "{text}");
}

/// As the header `Date` has it.
fn in_20_minutes() -> String {
    let now = Timestamp::try_from(Clock::kernel().now().wall).unwrap();
    let later = now + SignedDuration::from_mins(20);
    later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn an_agent_is_silent_by_the_clock_of_the_api_server_and_the_given_time() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(node("worker-1", "PIDsLow", "False"));
    cluster.api.put_object(agent_pod("worker-1", &running()));
    assert_eq!(row(&cluster.run(&[]).await.good(), "worker-1")[1], "ok");
    let ahead = Fault::on("*", "/", Effect::Date(in_20_minutes())).always();
    cluster.api.faults().push(ahead);
    let text = cluster.run(&[]).await.good();
    assert_eq!(row(&text, "worker-1")[1..3], ["agent", "silent"]);
    // An unchanged status may be 7.5 minutes old.
    for (time, expected) in [("479s", true), ("8m", false)] {
        let printed = cluster.run(&["--silent-after", time]).await;
        assert_eq!(printed.code, Some(0), "{time}: {}", printed.stderr);
        let parts = [
            "note: --silent-after 479s",
            "nodeStatusReportFrequency",
            "8m",
        ];
        let has_note = parts.iter().all(|part| printed.stderr.contains(part));
        assert_eq!(has_note, expected, "{time}: {}", printed.stderr);
        assert_eq!(
            printed.stderr.is_empty(),
            !expected,
            "{time}: {}",
            printed.stderr
        );
    }
    let text = cluster.run(&["--silent-after", "1h"]).await.good();
    assert_eq!(
        row(&text, "worker-1")[1..6],
        ["ok", "-", "-", "0.1.0", "21m"]
    );
}

#[tokio::test]
async fn the_pressure_conditions_of_a_kubelet_are_nodepulses_in_node_mode_only() {
    let cluster = Cluster::new().await;
    for (name, version) in [("edge", "v1.36.0+nodepulse.0.1.0"), ("kubelet", "v1.36.0")] {
        let mut node = node(name, "DiskFailing", "False");
        node["status"]["nodeInfo"]["kubeletVersion"] = json!(version);
        node["status"]["conditions"][1]["type"] = json!("MemoryPressure");
        node["status"]["conditions"][1]["status"] = json!("True");
        cluster.api.put_object(node);
        cluster.api.put_object(agent_pod(name, &running()));
    }
    let text = cluster.run(&[]).await.good();
    assert_eq!(row(&text, "edge")[1], "MemoryPressure", "{text}");
    assert_eq!(row(&text, "kubelet")[1], "ok", "{text}");
    let no_kubectl = [("PATH", "/absent")];
    let text = run(&["edge"], &cluster.kubeconfig(), &no_kubectl).await;
    assert!(text.good().contains("  MemoryPressure=True"));
}

#[tokio::test]
async fn without_permission_to_list_pods_an_agent_is_not_absent_but_can_be_silent() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(made_up::node("bare"));
    let mut silent = node("silent", "PIDsLow", "True");
    silent["status"]["conditions"][0]["lastHeartbeatTime"] = json!(ago(3 * 86400));
    cluster.api.put_object(silent);
    let reader = cluster.kubeconfig_of("reader", &[("list", "nodes"), ("get", "nodes")]);
    let text = run(&[], &reader, &[]).await.stdout;
    assert_eq!(row(&text, "bare")[1..3], ["no", "conditions"], "{text}");
    let text = run(&["silent"], &reader, &[]).await.good();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("; it has not reported for 3d"), "{text}");
}

#[tokio::test]
async fn json_has_what_the_table_has_and_a_selector_selects() {
    let cluster = Cluster::reported().await;
    cluster.api.put_object(made_up::node("other"));
    let host = "kubernetes.io/hostname=worker-1";
    let text = cluster.run(&["-o", "json", "-l", host]).await.good();
    let json: Value = serde_json::from_str(&text).unwrap();
    let [item] = json["items"].as_array().unwrap().as_slice() else {
        panic!("{text}");
    };
    assert_eq!(item["node"], "worker-1");
    assert_eq!(item["notWell"][0]["type"], "PIDsLow");
    assert!(item["notWell"][0]["message"].is_string());
    assert!(item["heartbeat"].is_string());
}

/// As many as do not fit into a page.
fn put_many(cluster: &Cluster, nodes: usize) {
    for n in 0..nodes {
        cluster
            .api
            .put_object(node(&format!("node-{n:04}"), "PIDsLow", "False"));
    }
}

#[tokio::test]
async fn a_large_fleet_is_read_in_pages_and_a_list_that_expires_is_read_again() {
    let cluster = Cluster::new().await;
    put_many(&cluster, 1_200);
    cluster.api.put_object(agent_pod("elsewhere", &running()));
    let pages = |cluster: &Cluster| {
        let pages = cluster
            .api
            .requests_where(|request| request.path.starts_with(NODES));
        assert!(pages.iter().all(|page| page.query.contains("limit=500")));
        pages.len()
    };
    let text = cluster.run(&[]).await.good();
    assert_eq!((text.lines().count(), pages(&cluster)), (1_201, 3));

    let second =
        |request: &Recorded| request.path.starts_with(NODES) && request.query.contains("continue=");
    let expired = Fault::when(second, Effect::Status(410));
    cluster.api.faults().push(expired);
    let text = cluster.run(&[]).await.good();
    assert_eq!((text.lines().count(), pages(&cluster)), (1_201, 8));
}

/// An agent that serves, and its port.
async fn serving_agent() -> (Process, u16) {
    let agent = Process::start([
        "run",
        "--mode=companion",
        "--kernel-tier=files",
        "--serve-address=127.0.0.1:0",
    ]);
    let address: SocketAddr = agent.address().await.parse().unwrap();
    (agent, address.port())
}

/// A pod whose agent serves at this port of this machine.
fn serving_pod(node: &str, port: u16) -> Value {
    let mut pod = agent_pod(node, &running());
    pod["status"]["podIP"] = json!("127.0.0.1");
    pod["spec"]["containers"][0]["ports"] = json!([{ "name": "metrics", "containerPort": port }]);
    pod
}

#[tokio::test]
async fn the_tier_is_asked_of_each_agent_if_the_user_may() {
    let cluster = Cluster::new().await;
    let (agent, port) = serving_agent().await;
    for name in ["worker-1", "worker-2", "worker-3"] {
        cluster.api.put_object(node(name, "PIDsLow", "False"));
    }
    cluster.api.put_object(serving_pod("worker-1", port));
    cluster.api.put_object(agent_pod("worker-2", &running()));
    let kubeconfig = cluster.kubeconfig();
    // The proxy passes the header of a pod, whose clock is not the API server's.
    let served = "/api/v1/namespaces/nodepulse/pods/nodepulse-worker-1:";
    let ahead = Fault::on("GET", served, Effect::Date(in_20_minutes()));
    cluster.api.faults().push(ahead);
    // It would be run for `explain`.
    let no_kubectl = [("PATH", "/absent")];
    let printed = run(&["-o", "wide"], &kubeconfig, &[]).await;
    assert_eq!(printed.code, Some(0));
    let text = &printed.stdout;
    assert_eq!(row(text, "NODE")[4..6], ["TIER", "VERSION"]);
    let worker = row(text, "worker-1");
    assert_eq!(
        (worker[1], &worker[4..6]),
        ("ok", &["files", "0.1.0"][..]),
        "{text}"
    );
    assert_eq!(row(text, "worker-2")[4..6], ["-", "0.1.0"], "{text}");
    let note = "note: the tier of one agent is unknown: pod nodepulse-worker-2 does not report its tier: it serves no metrics";
    assert!(printed.stderr.starts_with(note), "{}", printed.stderr);
    assert!(!cluster.run(&[]).await.good().contains("TIER"));
    let text = run(&["worker-1"], &kubeconfig, &no_kubectl).await.good();
    assert!(
        text.contains("Tier:      files (files only, no eBPF programs)\n"),
        "{text}"
    );

    let permissions = [("list", "nodes"), ("get", "nodes"), ("list", "pods")];
    let reader = cluster.kubeconfig_of("reader", &permissions);
    let printed = run(&["-o", "wide"], &reader, &[]).await;
    assert_eq!(row(&printed.stdout, "worker-1")[4..6], ["-", "0.1.0"]);
    let note = "note: tiers are unknown: user \"reader\" may not get pods/proxy in namespace \
                nodepulse; grant it with the rule";
    assert!(printed.stderr.starts_with(note), "{}", printed.stderr);
    assert_eq!(printed.stderr.lines().count(), 1, "{}", printed.stderr);
    let text = run(&["worker-1"], &reader, &no_kubectl).await.good();
    assert!(
        text.contains("Tier:      unknown: user \"reader\""),
        "{text}"
    );

    agent.kill();
    agent.ends(SOON).await;
    let text = run(&["worker-1"], &kubeconfig, &no_kubectl).await.good();
    assert!(
        text.contains("Tier:      unknown: cannot get pods/proxy: 503"),
        "{text}"
    );
}

#[tokio::test]
async fn agents_that_do_not_answer_do_not_delay_the_table_for_long() {
    let cluster = Cluster::new().await;
    for n in 0..40 {
        let name = format!("node-{n}");
        cluster.api.put_object(node(&name, "PIDsLow", "False"));
        cluster.api.put_object(serving_pod(&name, 1));
    }
    let served = "/api/v1/namespaces/nodepulse/pods/";
    let hang = Fault::on("GET", served, Effect::Hang).always();
    cluster.api.faults().push(hang);
    let printed = cluster.run(&["-o", "wide"]).await;
    assert_eq!(printed.code, Some(0));
    assert_eq!(row(&printed.stdout, "node-7")[4..6], ["-", "0.1.0"]);
    let note = "note: the tiers of 40 agents are unknown (gave up after 32 agents in a row did \
                not answer); of one: pod nodepulse-node-";
    assert!(printed.stderr.starts_with(note), "{}", printed.stderr);
}

#[tokio::test]
async fn the_table_fits_the_terminal() {
    let cluster = Cluster::new().await;
    let name = "ip-10-20-30-40.eu-central-1.compute.internal.example";
    let mut long = node(name, "PodsMemoryStallPressure", "True");
    long["status"]["conditions"][0]["reason"] = json!("AReasonThatIsLongerThanAnyOther");
    cluster.api.put_object(long);
    cluster.api.put_object(agent_pod("elsewhere", &running()));
    for (columns, width) in [("80", 80), ("120", 120)] {
        let variables = [("COLUMNS", columns), ("NO_COLOR", "1")];
        let text = on_terminal(&cluster.kubeconfig(), &variables).await;
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= width), "{text}");
        assert!(text.contains('…'), "{text}");
    }
    let text = cluster.run(&[]).await.good();
    assert!(text.contains(name), "nothing is cut in a pipe: {text}");
}

/// The table on a terminal.
async fn on_terminal(kubeconfig: &Path, variables: &[(&str, &str)]) -> String {
    let mut script = Command::new("script");
    let line = format!("{} 2>&1", plugin().display());
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .env("KUBECONFIG", kubeconfig)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    let output = timeout(SOON, script.output()).await;
    String::from_utf8(output.unwrap().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn colors_are_for_terminals_and_never_if_no_color_is_set() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(node("worker-1", "PIDsLow", "True"));
    cluster.api.put_object(agent_pod("elsewhere", &running()));
    let kubeconfig = cluster.kubeconfig();
    let red = "\u{1b}[1;31mPIDsLow\u{1b}[0m";
    assert!(on_terminal(&kubeconfig, &[]).await.contains(red));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_terminal(&kubeconfig, &[(name, value)]).await;
        assert!(plain.contains("PIDsLow") && !plain.contains('\u{1b}'));
    }
    assert!(!cluster.run(&[]).await.good().contains('\u{1b}'));
}
