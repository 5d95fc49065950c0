//! `kubectl nodepulse kills`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A copy of the agent's Event about another pod.
fn copied(cluster: &Cluster, name: &str, change: impl FnOnce(&mut Value)) {
    let mut events = cluster.api.list(SHOP_EVENTS);
    let mut event = events.remove(0);
    event["metadata"]["name"] = json!(name);
    event["involvedObject"]["name"] = json!(name);
    change(&mut event);
    cluster.api.put_object(event);
}

#[tokio::test]
async fn a_kill_has_its_container_consequence_limit_and_largest_process() {
    let cluster = Cluster::reported().await;
    let text = cluster.run(&["kills", "-n", "shop"]).await.good();
    let line = text.lines().nth(1).unwrap_or_default();
    let cells: Vec<&str> = line.split("   ").map(str::trim).collect();
    let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..3], ["cart-0", "web", "child process"], "{text}");
    assert!(cells[3].starts_with("container "), "{text}");
    assert_eq!(cells[4], "1", "{text}");
    assert!(cells[5].starts_with("32.0Mi java\\u{1b}[2J"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("NAMESPACE"));

    let json = cluster.run(&["kills", "-A", "-o", "json"]).await.good();
    let json: Value = serde_json::from_str(&json).unwrap();
    let item = &json["items"][0];
    assert_eq!(
        (&item["namespace"], &item["count"]),
        (&json!("shop"), &json!(1))
    );
    assert_eq!(item["memoryUsers"][0]["bytes"], 32 << 20);
    assert!(item["limitBytes"].is_u64(), "{item}");
}

#[tokio::test]
async fn kills_of_one_container_are_added_up_and_old_ones_are_left_out() {
    let cluster = Cluster::reported().await;
    copied(&cluster, "more", |event| {
        event["involvedObject"]["name"] = json!("cart-0");
        event["count"] = json!(4);
    });
    copied(&cluster, "old", |event| {
        event["lastTimestamp"] = json!(ago(7200));
    });
    // Another program's Event about a kill.
    copied(&cluster, "foreign", |event| {
        event["source"] = json!({ "component": "kubelet" });
    });
    let text = cluster.run(&["kills", "-A", "--since", "1h"]).await.good();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(row(&text, "shop").contains(&"5"), "{text}");
    let text = cluster.run(&["kills", "-A"]).await.good();
    assert!(
        row(&text, "shop")[1] == "cart-0" && text.contains("old"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[tokio::test]
async fn the_number_is_an_upper_bound_if_some_kills_were_before_the_time() {
    let cluster = Cluster::reported().await;
    copied(&cluster, "cart-0", |event| {
        event["metadata"]["name"] = json!("more");
        event["firstTimestamp"] = json!(ago(3300));
        event["count"] = json!(11);
    });
    let text = cluster.run(&["kills", "-A", "--since", "2m"]).await.good();
    assert!(row(&text, "shop").contains(&"<=12"), "{text}");
    let text = cluster.run(&["kills", "-A", "--since", "1h"]).await.good();
    assert!(row(&text, "shop").contains(&"12"), "{text}");
    let json = cluster.run(&["kills", "-A", "-o", "json"]).await.good();
    let json: Value = serde_json::from_str(&json).unwrap();
    let first: Timestamp = json["items"][0]["first"].as_str().unwrap().parse().unwrap();
    assert!(first < ago(3000).parse().unwrap(), "{json}");
}

#[tokio::test]
async fn an_event_of_an_old_agent_has_its_container_and_no_guesses() {
    let cluster = Cluster::reported().await;
    let text = cluster.run(&["kills", "-n", "shop"]).await.good();
    assert!(text.contains("child process"), "{text}");
    let mut events = cluster.api.list(SHOP_EVENTS);
    let event = &mut events[0];
    event["metadata"]["annotations"] = json!({});
    cluster.api.put_object(event.clone());
    let text = cluster.run(&["kills", "-n", "shop"]).await.good();
    let words = row(&text, "cart-0");
    assert_eq!(words[1..6], ["web", "unknown", "-", "1", "-"], "{text}");
}

#[tokio::test]
async fn no_kill_is_a_note_and_no_table() {
    let cluster = Cluster::new().await;
    let printed = cluster.run(&["kills"]).await;
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), ""));
    assert!(
        printed
            .stderr
            .starts_with("no OOM kills in namespace default")
    );
}

#[tokio::test]
async fn a_history_replaces_the_events_of_its_node_and_has_older_kills() {
    let cluster = Cluster::reported().await;
    copied(&cluster, "away-0", |event| {
        event["source"]["host"] = json!("worker-2");
    });
    for node in ["worker-1", "worker-2"] {
        cluster.api.put_object(agent_pod(node, &running()));
    }
    let incident = |number: u32, namespace: &str, seconds: u64| {
        json!({
            "apiVersion": "nodepulse.dev/incident/v1", "id": format!("boot-{number}"),
            "revision": 1, "settled": true, "time": ago(seconds), "reason": "OOMKilled",
            "message": "m", "kind": "OOMKill",
            "object": {
                "pod": { "namespace": namespace, "name": "cart-0", "uid": UID }, "container": "web",
            },
            "facts": {
                "consequence": "main_process", "limit": "container", "processes": 1,
                "victim": "java", "victims": [], "nodePressure": false, "verdict": "v",
            },
        })
    };
    let history = [
        incident(1, "shop", 90_000),
        incident(2, "shop", 86_400),
        incident(3, "other", 86_400),
    ];
    let history: String = history.iter().map(|one| format!("{one}\n")).collect();
    let dir = cluster.dir.path();
    fs::write(dir.join("history"), history).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         *pod/nodepulse-worker-1*' -- /nodepulse history --output=json') cat {}/history;;\n\
         *) echo 'no such command' >&2; exit 1;;\nesac\n",
        dir.display()
    );
    let kubectl = dir.join("kubectl");
    fs::write(&kubectl, script).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/bin:/usr/bin", dir.display());
    let kubeconfig = cluster.kubeconfig();
    let environment = [("PATH", path.as_str())];

    let args = ["kills", "-n", "shop", "--history"];
    let printed = run(&args, &kubeconfig, &environment).await;
    let (text, notes) = (printed.stdout, printed.stderr);
    assert_eq!(printed.code, Some(0), "{notes}");
    assert_eq!(text.lines().count(), 3, "{text}");
    let cart = row(&text, "cart-0");
    assert_eq!(cart[1..4], ["web", "main", "process"], "{text}");
    assert!(cart.contains(&"2") && cart.contains(&"24h"), "{text}");
    assert!(row(&text, "away-0").contains(&"child"), "{text}");
    let expected = "node worker-2: only its Events are used, because its history cannot be read: no \
                    such command; check: kubectl -n nodepulse exec nodepulse-worker-2 -- \
                    /nodepulse history\n";
    assert_eq!(notes, expected);

    let args = ["kills", "-n", "shop", "--history", "--since", "1h"];
    let text = run(&args, &kubeconfig, &environment).await.stdout;
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("away-0"), "{text}");

    // The pod is deleted, and its Events are gone.
    let args = ["why", "cart-0", "-n", "other"];
    let failed = run(&args, &kubeconfig, &environment).await.failed(1);
    assert!(failed.contains("not found"), "{failed}");
    let args = ["why", "cart-0", "-n", "other", "--history"];
    let text = run(&args, &kubeconfig, &environment).await.stdout;
    assert!(
        text.starts_with("Pod other/cart-0 on node worker-1: deleted\n"),
        "{text}"
    );
    assert!(text.contains("24h  OOMKilled: m\n"), "{text}");
}
