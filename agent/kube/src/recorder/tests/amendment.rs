//! Details that are added to a written Event, also while its count changes and when requests fail.

use nodepulse_core::kube_event::Annotations;

use super::*;

const PATCH: &str = "PATCH /api/v1/namespaces/default/events/worker-1.17979cfe362a0000";

fn kill() -> Draft {
    Draft {
        id: Some(id(7)),
        ..input("OOMKilled", "m")
    }
}

fn with_details(message: &str) -> Draft {
    Draft {
        is_later: true,
        of: 0,
        times: 0,
        message: message.to_owned(),
        ..kill()
    }
}

/// Waits long enough for everything that takes no time or a few retries.
async fn pass() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// Writes an Event, after which the server answers with `replies`.
async fn written(replies: impl IntoIterator<Item = Reply>) -> (Scripted, Started) {
    let server = Scripted::new([accepted()].into_iter().chain(replies));
    let mut started = start(&server, 0);
    let delivered = started.deliver(kill()).await;
    assert_eq!(delivered.incident, Some(id(7).incident));
    (server, started)
}

#[tokio::test(start_paused = true)]
async fn only_the_message_is_patched_and_a_later_count_keeps_the_details() {
    let (server, started) = written([accepted(), accepted()]).await;
    started.sink.record(with_details("m with details"));
    pass().await;
    started.sink.record(kill());
    assert_eq!(started.end().await.delivered, 2);
    assert_eq!(server.lines(), [EVENTS, PATCH, PATCH]);
    assert_eq!(server.body(1), json!({ "message": "m with details" }));
    assert_eq!(
        server.body(2),
        json!({ "count": 2, "lastTimestamp": "2023-11-14T22:13:20Z" }),
        "the message stays"
    );
}

#[tokio::test(start_paused = true)]
async fn details_of_an_event_on_the_node_instead_of_a_pod_keep_the_name_of_the_pod() {
    let mut kill = kill();
    kill.object = pod("cart", "u", None);
    let rejected = refusal(404, "NotFound");
    let server = Scripted::new([rejected, accepted(), accepted()]);
    let mut started = start(&server, 0);
    started.deliver(kill).await;
    started.sink.record(with_details("m with details"));
    pass().await;
    assert_eq!(server.body(1)["message"], "Pod shop/cart: m");
    let message = "Pod shop/cart: m with details";
    assert_eq!(server.body(2), json!({ "message": message }));
    drop(started);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_has_expired_gets_no_details_and_is_created_again_without_them() {
    let expired = || refusal(404, "NotFound");
    let (server, started) = written([expired(), expired(), accepted()]).await;
    started.sink.record(with_details("m with details"));
    pass().await;
    assert_eq!(server.lines(), [EVENTS, PATCH], "not repeated");
    started.sink.record(kill());
    assert_eq!(started.end().await.delivered, 2);
    assert_eq!(server.lines(), [EVENTS, PATCH, PATCH, EVENTS]);
    assert_eq!(server.body(3)["message"], "m");
    assert_eq!(server.body(3)["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_an_error_and_a_lost_answer_are_retried_a_few_times() {
    //  answers, requests for the details
    let rows: [(&str, Vec<Reply>, usize); 6] = [
        ("conflict", vec![refusal(409, "Conflict"), accepted()], 2),
        ("error", vec![refusal(500, "InternalError"), accepted()], 2),
        ("lost answer", vec![Reply::Cut, accepted()], 2),
        (
            "no end",
            vec![Reply::Cut, Reply::Cut, Reply::Cut, accepted()],
            3,
        ),
        ("forbidden", vec![refusal(403, "Forbidden"), accepted()], 1),
        ("invalid", vec![refusal(422, "Invalid"), accepted()], 1),
    ];
    for (name, replies, expected) in rows {
        let (server, started) = written(replies).await;
        started.sink.record(with_details("m with details"));
        pass().await;
        assert_eq!(server.lines()[1..], vec![PATCH; expected], "{name}");
        assert_eq!(started.end().await.delivered, 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_do_not_wait_for_details_that_are_not_answered() {
    let (server, started) = written([Reply::Silent, accepted(), accepted()]).await;
    started.sink.record(with_details("m with details"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    started.sink.record(input("OOMKilled", "another"));
    started.sink.record(kill());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(server.lines(), [EVENTS, PATCH, EVENTS, PATCH]);
    // It may arrive before the details or after them, because it leaves the message as it is.
    assert_eq!(server.body(3)["message"], json!(null));
    drop(started);
}

#[tokio::test(start_paused = true)]
async fn details_of_an_unknown_or_combined_event_are_dropped_and_long_ones_are_cut() {
    let (server, started) = written([accepted()]).await;
    let unknown = Draft {
        id: Some(id(8)),
        ..with_details("m")
    };
    started.sink.record(unknown);
    started.sink.record(with_details(&"é".repeat(600)));
    pass().await;
    assert_eq!(server.lines(), [EVENTS, PATCH]);
    assert_eq!(server.body(1)["message"].as_str().unwrap().len(), 1024);
    drop(started);

    let server = Scripted::new((0..10).map(|_| accepted()));
    let mut started = start(&server, 0);
    for n in 0..10 {
        let combined = Draft {
            message: n.to_string(),
            ..kill()
        };
        let delivered = started.deliver(combined).await;
        assert_eq!(delivered.incident.is_some(), n < 9, "{n}");
    }
    drop(started);
}

#[tokio::test(start_paused = true)]
async fn a_combined_event_has_the_annotations_of_the_newest_kill_without_details() {
    let server = Scripted::new((0..11).map(|_| accepted()));
    let mut started = start(&server, 0);
    for n in 0..11 {
        let draft = Draft {
            message: n.to_string(),
            annotations: Annotations::one("k", &n.to_string()),
            ..kill()
        };
        started.deliver(draft).await;
    }
    let annotations = |n: usize| server.body(n)["metadata"]["annotations"].clone();
    assert_eq!(annotations(0), json!({ "k": "0" }));
    let newest = json!({ "k": "10", "nodepulse.dev/memory-users": null });
    assert_eq!(annotations(10), newest);
}

#[tokio::test(start_paused = true)]
async fn details_do_not_wait_for_another_event_that_the_server_refuses_for_now() {
    let overloaded = || refusal(500, "InternalError");
    let (server, started) = written([overloaded(), overloaded(), accepted(), accepted()]).await;
    started.sink.record(input("OOMKilled", "another"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    started.sink.record(with_details("m with details"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(server.lines()[1..], [EVENTS, EVENTS, PATCH]);
    assert_eq!(started.end().await.delivered, 2);
    assert_eq!(server.lines()[4..], [EVENTS]);
}

#[tokio::test(start_paused = true)]
async fn details_of_an_event_that_is_being_written_are_added_afterwards() {
    let server = Scripted::new([refusal(500, "InternalError"), accepted(), accepted()]);
    let started = start(&server, 0);
    started.sink.record(kill());
    tokio::time::sleep(Duration::from_millis(1)).await;
    started.sink.record(with_details("m with details"));
    assert_eq!(started.end().await.delivered, 1);
    assert_eq!(server.lines(), [EVENTS, EVENTS, PATCH]);
}

#[test]
fn a_full_queue_loses_details_before_anything_else() {
    let mut backlog = Backlog::new(1);
    backlog.push(PendingEvent::once(with_details("m")));
    assert!(!backlog.has_write(None), "details are added, not written");
    let other = PendingEvent::once(input("OOMKilled", "another"));
    assert_eq!(backlog.push(other.clone()), Overflow::None);
    assert_eq!(backlog.pop(None), Some(other), "it is not combined");
}
