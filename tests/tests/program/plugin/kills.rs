//! `kubectl nodepulse kills`.

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
