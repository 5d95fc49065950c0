//! Later versions of an Event, which report kills or details that the Event did not contain: while
//! the Event waits, is delayed, was written, or was lost.

use nodepulse_core::kube_event::Annotations;

use super::*;

/// Number of attempts during an outage, a second apart except for the first.
const FAILED: usize = 6;
const POST_POD: &str = "POST /api/v1/namespaces/shop/events";
const PATCH: &str = "PATCH /api/v1/namespaces/default/events/worker-1.6";

fn kill(message: &str) -> Draft {
    Draft {
        id: Some(id(7)),
        position: Some(Position(1)),
        annotations: Annotations::one("k", message),
        ..input("OOMKilled", message)
    }
}

/// Returns a version that reports one more kill.
fn version(message: &str) -> Draft {
    Draft {
        is_later: true,
        times: 0,
        ..kill(message)
    }
}

/// Returns a version that reports no more kills.
fn details(message: &str) -> Draft {
    Draft {
        of: 0,
        ..version(message)
    }
}

fn in_pod(draft: Draft) -> Draft {
    Draft {
        object: pod("cart", "u", None),
        ..draft
    }
}

/// Returns the message and the count in a request.
fn contents(server: &Scripted, request: usize) -> (String, u64) {
    let body = server.body(request);
    let message = body["message"].as_str().unwrap().to_owned();
    (message, body["count"].as_u64().unwrap())
}

/// Ends the recorder, and checks that `expected` revisions are accepted and that the counts add up.
async fn end(mut started: Started, expected: usize, name: &str) {
    let sink = started.sink.clone();
    let task = started.task;
    drop(started.sink);
    sink.leave();
    task.await.unwrap();
    let outcomes: Vec<_> = std::iter::from_fn(|| started.outcomes.try_recv().ok()).collect();
    assert_eq!(outcomes.len(), expected, "{name}");
    assert!(outcomes.iter().all(|outcome| outcome.is_accepted), "{name}");
    let counts = sink.counts();
    assert_eq!(
        (counts.pending(), counts.lost()),
        (0, 0),
        "{name}: {counts:?}"
    );
    assert_eq!(counts.delivered, counts.recorded, "{name}: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_written_event_is_patched_and_its_count_stays() {
    //  answers to the version, requests for it
    let rows: [(&str, Vec<Reply>, usize); 3] = [
        ("accepted", vec![accepted()], 1),
        ("lost answer", vec![Reply::Cut, accepted()], 2),
        ("error", vec![refusal(500, ""), accepted()], 2),
    ];
    for (name, replies, requests) in rows {
        let server = Scripted::new([accepted()].into_iter().chain(replies).chain([accepted()]));
        let mut started = start(&server, 0);
        started.deliver(kill("one")).await;
        let delivered = started.deliver(version("two")).await;
        assert_eq!((delivered.incident, delivered.times), (None, 0), "{name}");
        assert_eq!(server.lines()[1..], vec![PATCH; requests], "{name}");
        let expected = json!({
            "count": 1, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "two",
            "metadata": { "annotations": { "k": "two" } },
        });
        assert_eq!(server.body(requests), expected, "{name}");
        // A raised count keeps what the version reports.
        started.deliver(kill("one")).await;
        assert_eq!(server.body(requests + 1)["message"], json!(null), "{name}");
        assert_eq!(server.body(requests + 1)["count"], 2, "{name}");
        end(started, 3, name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_patched_after_hundreds_that_get_no_later_version() {
    const SETTLED: u64 = 300;
    let server = Scripted::new((0..=SETTLED + 1).map(|_| accepted()));
    let mut started = start(&server, 0);
    started.deliver(kill("one")).await;
    for number in 0..SETTLED {
        let settled = Draft {
            id: Some(id(100 + number)),
            object: pod(&format!("cart-{number}"), "u", None),
            is_last: true,
            ..kill("another")
        };
        started.deliver(settled).await;
    }
    started.deliver(version("two")).await;
    assert_eq!(server.lines().last().unwrap(), PATCH);
    end(started, 302, "").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_cannot_process_is_replaced_by_the_last_one() {
    let failures = (0..12).map(|_| refusal(500, ""));
    let server = Scripted::new([accepted()].into_iter().chain(failures).chain([accepted()]));
    let mut started = start(&server, 0);
    started.deliver(kill("one")).await;
    started.sink.record(version("two"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    started.sink.record(Draft {
        is_last: true,
        ..version("three")
    });
    tokio::time::sleep(Duration::from_hours(1)).await;
    let lines = server.lines();
    assert_eq!(lines[1..], vec![PATCH; lines.len() - 1]);
    assert_eq!(server.body(lines.len() - 1)["message"], "three");
    end(started, 3, "").await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_waits_is_written_once_with_everything() {
    let outage = vec![Reply::Cut; FAILED].into_iter();
    let server = Scripted::new(outage.chain((0..9).map(|_| accepted())));
    let started = start(&server, 0);
    // The first one is on its way during the outage.
    started.sink.record(input("Starting", "m"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    started.sink.record(kill("one"));
    for message in ["two", "three"] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        started.sink.record(version(message));
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(server.lines(), vec![EVENTS; FAILED + 2]);
    assert_eq!(contents(&server, FAILED + 1), ("three".to_owned(), 1));
    let body = server.body(FAILED + 1);
    assert_eq!(body["metadata"]["annotations"], json!({ "k": "three" }));
    end(started, 3, "").await;
}

#[tokio::test(start_paused = true)]
async fn an_event_on_its_way_during_an_outage_is_patched_afterwards() {
    let outage = vec![Reply::Cut; FAILED].into_iter();
    let server = Scripted::new(outage.chain((0..9).map(|_| accepted())));
    let started = start(&server, 0);
    started.sink.record(kill("one"));
    for message in ["two", "three"] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        started.sink.record(version(message));
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    let (last, created) = (server.lines().pop(), server.lines().len() - 1);
    assert_eq!((last.as_deref(), created), (Some(PATCH), FAILED + 1));
    assert_eq!(server.body(FAILED)["message"], "one");
    assert_eq!(contents(&server, FAILED + 1), ("three".to_owned(), 1));
    end(started, 3, "").await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_rate_limit_delays_has_everything_when_it_is_written() {
    let server = Scripted::new(std::iter::repeat_n(accepted(), 40));
    let mut started = start(&server, 0);
    for _ in 0..25 {
        started.deliver(input("SystemOOM", "m")).await;
    }
    started.sink.record(kill("one"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let delivered = started.deliver(version("two")).await;
    assert_eq!((delivered.message.as_str(), delivered.times), ("two", 1));
    assert_eq!(contents(&server, 25), ("two".to_owned(), 1));
    end(started, 2, "").await;
}

#[tokio::test(start_paused = true)]
async fn of_an_event_that_is_not_known_the_later_kills_are_a_separate_event() {
    let server = Scripted::new(std::iter::repeat_n(accepted(), 40));
    let mut started = start(&server, 0);
    let delivered = started.deliver(version("two")).await;
    assert_eq!((delivered.message.as_str(), delivered.times), ("two", 1));
    assert_eq!(server.body(0)["count"], 1);
    // A version that reports no more kills is not needed.
    started.sink.record(details("with details"));
    // A combined Event counts processes.
    for n in 0..8 {
        started.deliver(input("OOMKilled", &n.to_string())).await;
    }
    started.sink.record(kill("one of a group"));
    assert_eq!(
        started.deliveries.recv().await.unwrap().incident,
        None,
        "combined"
    );
    assert_eq!(server.body(9)["count"], 1);
    started.deliver(version("two of a group")).await;
    let combined = "(combined from similar events): two of a group";
    assert_eq!(contents(&server, 10), (combined.to_owned(), 2));
    assert_eq!(server.lines().len(), 11);
    end(started, 4, "").await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_event_is_created_again_with_everything() {
    let server = Scripted::new([accepted(), refusal(404, "NotFound"), accepted(), accepted()]);
    let mut started = start(&server, 0);
    started.deliver(kill("one")).await;
    started.deliver(version("two")).await;
    assert_eq!(server.lines(), [EVENTS, PATCH, EVENTS]);
    assert_eq!(contents(&server, 2), ("two".to_owned(), 1));
    end(started, 2, "").await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_pods_namespace_rejects_is_on_the_node_with_everything() {
    let rejected = || refusal(404, "NotFound");
    let server = Scripted::new([rejected(), accepted(), accepted()]);
    let started = start(&server, 0);
    started.sink.record(in_pod(kill("one")));
    started.sink.record(in_pod(version("two")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    started.sink.record(in_pod(version("three")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.lines(), [POST_POD, EVENTS, PATCH]);
    assert_eq!(server.body(1)["message"], "Pod shop/cart: two");
    assert_eq!(server.body(2)["message"], "Pod shop/cart: three");
    end(started, 3, "").await;

    // The namespace is deleted in between.
    let server = Scripted::new([accepted(), rejected(), rejected(), accepted()]);
    let mut started = start(&server, 0);
    started.deliver(in_pod(kill("one"))).await;
    started.deliver(in_pod(version("two"))).await;
    assert_eq!(server.lines().len(), 4);
    assert_eq!(server.lines()[3], EVENTS);
    assert_eq!(server.body(3)["message"], "Pod shop/cart: two");
    end(started, 2, "").await;
}

#[tokio::test(start_paused = true)]
async fn details_that_follow_a_version_are_written_last() {
    let server = Scripted::new([accepted(), accepted(), accepted()]);
    let mut started = start(&server, 0);
    started.deliver(kill("one")).await;
    started.sink.record(version("two"));
    started.sink.record(details("two with details"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        server.body(server.lines().len() - 1)["message"],
        "two with details"
    );
    end(started, 3, "").await;
}

#[tokio::test(start_paused = true)]
async fn details_of_an_event_that_has_expired_are_not_written() {
    let expired = || refusal(404, "NotFound");
    let server = Scripted::new([accepted(), expired(), expired(), accepted()]);
    let mut started = start(&server, 0);
    started.deliver(kill("one")).await;
    started.sink.record(details("one with details"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.lines(), [EVENTS, PATCH]);
    started.sink.record(kill("one"));
    end(started, 3, "").await;
    assert_eq!(server.lines(), [EVENTS, PATCH, PATCH, EVENTS]);
    assert_eq!(contents(&server, 3), ("one".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn details_of_an_event_that_is_being_written_follow_it_and_other_events() {
    let server = Scripted::new([refusal(500, ""), accepted(), accepted(), accepted()]);
    let started = start(&server, 0);
    started.sink.record(kill("one"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    started.sink.record(details(&"é".repeat(600)));
    started.sink.record(input("Rebooted", "m"));
    end(started, 2, "").await;
    assert_eq!(server.lines(), [EVENTS, EVENTS, EVENTS, PATCH]);
    assert_eq!(contents(&server, 3).0.len(), MESSAGE_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_combined_event_has_the_annotations_of_the_newest_kill_without_details() {
    let server = Scripted::new((0..11).map(|_| accepted()));
    let mut started = start(&server, 0);
    for n in 0..11 {
        let delivered = started.deliver(kill(&n.to_string())).await;
        assert_eq!(delivered.incident.is_some(), n < 9, "{n}");
    }
    let annotations = |n: usize| server.body(n)["metadata"]["annotations"].clone();
    assert_eq!(annotations(0), json!({ "k": "0" }));
    let newest = json!({ "k": "10", "nodepulse.dev/memory-users": null });
    assert_eq!(annotations(10), newest);
}

/// The agent was killed before it knew of the answer, and reads the incident from its history.
#[tokio::test(start_paused = true)]
async fn an_event_that_exists_since_an_earlier_start_is_completed() {
    let exists = || refusal(409, "AlreadyExists");
    let combined = json!({ "message": "(combined from similar events): later", "count": 7 });
    let combined = Reply::json(200, combined);
    let mut names = Vec::new();
    for (replies, requests) in [
        (vec![accepted()], 1),
        (vec![exists(), accepted(), accepted()], 3),
        (
            vec![
                exists(),
                accepted(),
                Reply::Cut,
                exists(),
                accepted(),
                accepted(),
            ],
            6,
        ),
        (vec![exists(), combined], 2),
    ] {
        let server = Scripted::new(replies);
        let mut started = start(&server, 0);
        started.deliver(kill("one with details")).await;
        end(started, 1, "").await;
        assert_eq!(server.lines().len(), requests);
        names.push(server.body(0)["metadata"]["name"].clone());
        if requests > 1 {
            assert_eq!(server.body(1), json!({}), "to read the message");
        }
        if requests == 3 {
            let message = json!({
                "message": "one with details",
                "metadata": { "annotations": { "k": "one with details" } },
            });
            assert_eq!(server.body(2), message);
        }
    }
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");

    // Another incident, and the Event on the Node, have other names.
    let other = |number, on_node| {
        let incident = id(number).incident;
        EventId { incident, on_node }.number()
    };
    assert_ne!(other(7, false), other(8, false));
    assert_ne!(other(7, false), other(7, true));
}
