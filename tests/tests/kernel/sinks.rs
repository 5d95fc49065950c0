//! Kills reach the API server, a collector and a webhook, whichever is away, and however the agent
//! ends.
//!
//! Runs as root.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::process::{Process, node_mode};
use nodepulse_tests::provoke::cgroup::CgroupTree;
use nodepulse_tests::receiver::{AWAY, Receiver};
use nodepulse_tests::{SOON, eventually};
use serde_json::Value;

use super::provoke;

const MIB: u64 = 1 << 20;

/// Kills in each part of the test.
const KILLS: u64 = 12;

async fn agent(
    directory: &Path,
    tree: &CgroupTree,
    api: &ApiServer,
    receivers: [&Receiver; 2],
) -> Process {
    let [collector, webhook] =
        receivers.map(|receiver| format!("http://127.0.0.1:{}", receiver.port));
    let [state, history] = ["state", "history"].map(|name| directory.join(name));
    let kubeconfig = api.node_kubeconfig(directory, "worker-1");
    let agent = Process::start(node_mode(&[
        "--cgroup-root",
        &tree.path(""),
        "--kubeconfig",
        &kubeconfig.display().to_string(),
        "--state-directory",
        &state.display().to_string(),
        "--history-directory",
        &history.display().to_string(),
        "--sinks-otlp-endpoint",
        &collector,
        "--sinks-webhooks",
        &webhook,
    ]));
    agent.wait_for_line("OOM kill source selected", SOON).await;
    agent
}

/// Returns the kills of all incidents that the receiver has accepted.
fn kills(receiver: &Receiver) -> u64 {
    let mut latest = BTreeMap::new();
    for incident in receiver.accepted() {
        let now = (incident.revision, incident.kills);
        let known = latest.entry(incident.id).or_insert(now);
        *known = (*known).max(now);
    }
    latest.values().map(|(_, kills)| kills).sum()
}

/// Returns the kills that the Events on the Node report.
fn reported(api: &ApiServer) -> u64 {
    let events = api.list("/api/v1/namespaces/default/events");
    let is_kill = |event: &&Value| {
        let reason = event["reason"].as_str();
        reason.is_some_and(|reason| reason.starts_with("OOMKill"))
    };
    let counts = events.iter().filter(is_kill).map(|event| &event["count"]);
    counts.filter_map(Value::as_u64).sum()
}

/// Returns the number of incidents in the history, of one kill each.
fn recorded(history: &Path) -> u64 {
    let files = std::fs::read_dir(history).unwrap().map(Result::unwrap);
    let text = files.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default());
    let text: String = text.collect();
    let lines = text.lines().filter(|line| line.contains("\"OOMKill\""));
    let incidents = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ids: BTreeSet<_> = incidents
        .map(|incident| incident["id"].to_string())
        .collect();
    u64::try_from(ids.len()).unwrap()
}

#[tokio::test]
async fn each_receiver_gets_every_kill_although_it_was_away_and_the_agent_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = CgroupTree::new(&format!("nodepulse-sinks-{}", std::process::id())).unwrap();
    tree.add("kubepods/podaa/c").unwrap();
    tree.limit("kubepods/podaa/c", 32 * MIB).unwrap();
    let collector = Receiver::start(200, None).await.unwrap();
    let webhook = Receiver::start(200, None).await.unwrap();
    let api = ApiServer::start().await;
    let receivers = [&collector, &webhook];
    let mut expected = 0;
    let parts = [
        (false, [503, 200]),
        (true, [200, AWAY]),
        (false, [503, 503]),
        (true, [200, 200]),
    ];
    for (is_served, statuses) in parts {
        if is_served {
            api.restart().await;
        } else {
            api.stop().await;
        }
        for (receiver, status) in receivers.iter().zip(statuses) {
            receiver.set_status(status);
        }
        let agent = agent(dir.path(), &tree, &api, receivers).await;
        let cgroup = tree.dir("kubepods/podaa/c");
        // The receivers answer meanwhile.
        let killed = tokio::task::spawn_blocking(move || {
            for _ in 0..KILLS {
                provoke().eat_in(&cgroup, 256 * MIB).unwrap();
            }
        });
        killed.await.unwrap();
        expected += KILLS;
        for (receiver, status) in receivers.iter().zip(statuses) {
            eventually("what was killed so far", || {
                let counted = kills(receiver);
                (status != 200 || counted == expected)
                    .then_some(())
                    .ok_or(counted)
            })
            .await;
        }
        if is_served {
            eventually("Events about all kills", || {
                let counted = reported(&api);
                (counted == expected).then_some(()).ok_or(counted)
            })
            .await;
        }
        // A SIGKILL before that makes the next start report kills by number, which takes a while.
        eventually("a history of all kills", || {
            let counted = recorded(&dir.path().join("history"));
            (counted == expected).then_some(()).ok_or(counted)
        })
        .await;
        agent.kill();
        agent.ends(SOON).await;
    }
}
