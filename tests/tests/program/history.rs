//! The history of incidents without an API server, and `nodepulse history`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nodepulse_core::checked_line;
use nodepulse_linux::store::Reader;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
use nodepulse_tests::http1::get;
use nodepulse_tests::made_up;
use nodepulse_tests::process::{Output, Process};
use nodepulse_tests::view::EVENTS;
use nodepulse_tests::{SOON, eventually};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::text;

async fn history(directory: &Path, further: &[&str]) -> Output {
    let directory = text(directory);
    let args = ["history", "--history-directory", &directory];
    Process::output(None, &[&args, further].concat()).await
}

/// Starts an agent of the Node `worker-1` with a history.
fn start(kubeconfig: &str, config: &str, history: &str) -> Process {
    Process::start([
        "run",
        "--mode=companion",
        "--node-name=worker-1",
        "--kernel-tier=files",
        "--kubeconfig",
        kubeconfig,
        "--config",
        config,
        "--history-directory",
        history,
    ])
}

/// Waits until a condition with this status is recorded last.
async fn recorded(directory: &Path, status: &str) -> Value {
    eventually(status, || {
        let lines = Reader::new(directory.to_owned()).next_lines();
        let lines = lines.map_err(|err| err.to_string())?;
        let last = lines.last().ok_or("nothing")?;
        let last: Value = serde_json::from_str(last).map_err(|err| err.to_string())?;
        let is_it = last["facts"]["status"] == status && last["settled"] == true;
        is_it
            .then_some(last.clone())
            .ok_or_else(|| last.to_string())
    })
    .await
}

#[tokio::test]
async fn a_condition_that_changes_is_in_the_history_and_is_followed() {
    let dir = tempdir().unwrap();
    let (config, directory) = (dir.path().join("config.yaml"), dir.path().join("history"));
    let threshold = |memory: &str| {
        let text = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
             evictionHard: {{memory.available: {memory}, pid.available: \"5\"}}\n\
             evictionPressureTransitionPeriod: 1s\n"
        );
        fs::write(&config, text).unwrap();
    };
    threshold("1Mi");
    let (file, kept) = (text(&config), text(&directory));
    let flags = ["--config", &file, "--history-directory", &kept];
    let run = ["run", "--mode", "companion", "--kernel-tier", "files"];
    let environment = [("NODEPULSE_SERVE_ADDRESS", "127.0.0.1:0")];
    let agent = Process::start_in(&environment, &[&run[..], &flags].concat());
    agent.wait_for_line("eBPF programs attached", SOON).await;
    let program = nodepulse_tests::process::program();
    let mut follower = tokio::process::Command::new(program)
        .args(["history", "--follow", "--history-directory", &kept])
        .env_clear()
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    threshold("99%");
    agent.hang_up();
    let change = recorded(&directory, "True").await;
    assert_eq!(change["kind"], "Condition");
    assert_eq!(change["facts"]["type"], "MemoryLow", "{change:#}");
    assert_eq!(change["object"], json!({}));
    threshold("1Mi");
    agent.hang_up();
    let ended = recorded(&directory, "False").await;
    assert_ne!(change["id"], ended["id"]);
    assert_eq!(ended["facts"]["ended"], change["id"]);

    let metrics = get(&agent.address().await, "/metrics").await.unwrap();
    let counted = metrics.body.lines().find(|line| {
        line.starts_with("nodepulse_history_revisions_total") && line.contains("recorded")
    });
    assert!(
        counted.is_some_and(|line| line.ends_with(" 3")),
        "{counted:?}"
    );

    let table = history(&directory, &[]).await;
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", table.stdout);
    assert!(
        lines[1].contains("  node  ") && lines[1].contains("MemoryLow is True: "),
        "{}",
        lines[1]
    );
    let mut followed = BufReader::new(follower.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(SOON, followed.next_line()).await;
    let line = line.unwrap().unwrap().unwrap();
    assert!(line.contains("MemoryLow is "), "{line}");
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}

#[tokio::test]
async fn what_cannot_be_printed_is_one_line_with_the_cure() {
    let dir = tempdir().unwrap();
    let directory = dir.path().join("history");
    let missing = history(&directory, &[]).await;
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("see historyDirectory"),
        "{}",
        missing.stderr
    );
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("incidents-0000000001.jsonl"), "{\"torn\n").unwrap();
    let none = history(&directory, &["--unit", "a.service"]).await;
    assert_eq!(none.code, Some(0));
    for part in ["1 places of the history are damaged", "no such incident"] {
        assert!(none.stderr.contains(part), "{}", none.stderr);
    }
    fs::create_dir(directory.join("incidents-0000000002.jsonl")).unwrap();
    let incident = json!({
        "apiVersion": "nodepulse.dev/incident/v1",
        "id": "0-1", "revision": 1, "settled": true, "time": "", "object": {},
        "reason": "", "message": "", "kind": "UnidentifiedOOMKills", "facts": {"kills": 1, "whileDown": true},
    });
    let line = checked_line::line(&incident).unwrap();
    fs::write(directory.join("incidents-0000000003.jsonl"), &line).unwrap();
    let rest = history(&directory, &["--output", "json"]).await;
    assert_eq!(rest.code, Some(1), "not all of it was read");
    assert!(
        rest.stderr
            .contains("0002.jsonl: it is not a file of root; the rest is printed"),
        "{}",
        rest.stderr
    );
    assert_eq!(rest.stdout.lines().count(), 1, "{}", rest.stdout);
    #[rustfmt::skip]
    let rows: [(&[&str], i32, &str); 4] = [
        (&["7"], 1, "no incident 7 in the history"),
        (&["--since", "often"], 2, "example: --since 1h"),
        (&["7", "--follow"], 2, "conflicts with --follow"),
        (&["--history-directory", "off"], 2, "historyDirectory: off"),
    ];
    for (flags, code, words) in rows {
        let flags = match flags {
            [first, ..] if *first == "--history-directory" => {
                Process::output(None, &[&["history"], flags].concat()).await
            }
            flags => history(&directory, flags).await,
        };
        assert_eq!(flags.code, Some(code), "{}", flags.stderr);
        assert!(flags.stderr.contains(words), "{words}: {}", flags.stderr);
    }
}

/// Disks outlive a boot, so what is True on the Node is True here until it is sampled.
#[tokio::test]
async fn a_problem_that_the_stored_node_still_has_does_not_end_and_begin_at_a_start() {
    let (api, dir) = (ApiServer::start().await, tempdir().unwrap());
    let mut node = made_up::node("worker-1");
    let time = "2026-01-01T00:00:00Z";
    let stored = json!({
        "type": "DiskSpaceLow", "status": "True", "reason": "LowSpace", "message": "m",
        "lastHeartbeatTime": time, "lastTransitionTime": time,
    });
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(stored);
    api.put_object(node);
    let directory = dir.path().join("history");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let id = "00000000-0000-0000-0000-000000000007-5";
    let began = json!({
        "position": 1, "apiVersion": "nodepulse.dev/incident/v1",
        "id": id, "revision": 1, "settled": true, "time": time, "object": {},
        "reason": "ConditionChanged", "message": "", "kind": "Condition",
        "facts": {"type": "DiskSpaceLow", "status": "True", "reason": "LowSpace", "message": ""},
    });
    let line = checked_line::line(&began).unwrap();
    fs::write(directory.join("incidents-0000000001.jsonl"), line).unwrap();
    let config = dir.path().join("config.yaml");
    let text = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                evictionHard: {nodefs.available: 1Mi}\n\
                evictionPressureTransitionPeriod: 1s\n";
    fs::write(&config, text).unwrap();
    let (config, kept) = (
        config.display().to_string(),
        directory.display().to_string(),
    );
    let kubeconfig = api.admin_kubeconfig(dir.path()).display().to_string();
    let agent = start(&kubeconfig, &config, &kept);
    let ended = recorded(&directory, "False").await;
    assert_eq!(ended["facts"]["ended"], id);
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
    let lines = Reader::new(directory).next_lines().unwrap();
    let changes = lines.iter().filter(|line| line.contains("DiskSpaceLow"));
    assert_eq!(changes.count(), 2, "{lines:#?}");
}

#[tokio::test]
async fn changes_of_a_condition_that_a_killed_agent_could_not_report_are_events_of_the_next_one() {
    let (api, dir) = (ApiServer::start().await, tempdir().unwrap());
    api.put_object(made_up::node("worker-1"));
    let refused = Fault::on("PATCH", "/api/v1/nodes", Effect::Status(503));
    api.faults().push(refused.always());
    let directory = dir.path().join("history");
    let config = dir.path().join("config.yaml");
    let (file, kept) = (text(&config), text(&directory));
    let kubeconfig = text(&api.admin_kubeconfig(dir.path()));
    let start_with = |memory: &str| {
        let text = format!(
            "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
             evictionHard: {{memory.available: {memory}, nodefs.available: 1Mi}}\n\
             evictionPressureTransitionPeriod: 1s\n"
        );
        fs::write(&config, text).unwrap();
        start(&kubeconfig, &file, &kept)
    };
    let agent = start_with("99%");
    let began = recorded(&directory, "True").await;
    assert_eq!(began["facts"]["type"], "MemoryLow", "{began:#}");
    agent.kill();
    assert_eq!(agent.ends(SOON).await.code, None);
    assert_eq!(api.list(EVENTS), [Value::Null; 0]);
    api.faults().clear();
    let agent = start_with("1Mi");
    let ended = eventually("an event", || {
        let mut events = api.list(EVENTS).into_iter();
        events
            .find(|event| event["reason"] == "MemoryAvailable")
            .ok_or_else(|| api.requests().len())
    })
    .await;
    let events = api.list(EVENTS).into_iter();
    let reasons: Vec<_> = events.map(|event| event["reason"].clone()).collect();
    assert!(
        reasons.contains(&json!("LowMemory")),
        "it is first: {reasons:?}"
    );
    let annotation = &ended["metadata"]["annotations"]["nodepulse.dev/ended-incident"];
    assert_eq!(*annotation, began["id"]);
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}
