//! The recorder against a server in memory, on a paused clock.

use std::time::Duration;

use nodepulse_core::clock::Now;
use nodepulse_core::incident::{BootId, Position};
use serde_json::json;

use super::correlate::tests::{input, pod};
use super::failure::RETRIED;
use super::*;
use crate::convert::tests::at;
use crate::scripted::{Reply, Scripted, refusal};

const EVENTS: &str = "POST /api/v1/namespaces/default/events";

/// Returns the id of the Event about an incident.
fn id(number: u64) -> EventId {
    let boot = BootId(1);
    EventId {
        incident: IncidentId { boot, number },
        on_node: false,
    }
}

fn accepted() -> Reply {
    Reply::json(201, json!({}))
}

struct Started {
    sink: EventSink,
    deliveries: mpsc::Receiver<Box<Delivered>>,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    task: tokio::task::JoinHandle<()>,
}

fn start(server: &Scripted, seed: u64) -> Started {
    start_with_room(server, seed, ROOM)
}

fn start_with_room(server: &Scripted, seed: u64, room: usize) -> Started {
    let (sink, recorder, (deliveries, outcomes)) = recorder(server, seed, room);
    Started {
        sink,
        deliveries,
        outcomes,
        task: tokio::spawn(recorder.run()),
    }
}

/// Deliveries, and outcomes of revisions.
type Results = (
    mpsc::Receiver<Box<Delivered>>,
    mpsc::UnboundedReceiver<Outcome>,
);

fn recorder(server: &Scripted, seed: u64, room: usize) -> (EventSink, Recorder, Results) {
    let clock = Clock::runtime(Now {
        boot: BootNanos(0),
        wall: at(0),
    });
    let (_, uid) = watch::channel("uid-1".to_owned());
    let reporter = Reporter {
        node: "worker-1".to_owned(),
        uid,
        queue: room,
    };
    let (sender, deliveries) = mpsc::channel(64);
    let client = server.client();
    client.spread_by(Jitter::seeded(seed));
    let (send_outcomes, outcomes) = mpsc::unbounded_channel();
    let (sink, recorder) = Recorder::new(client, clock, reporter, sender, send_outcomes);
    (sink, recorder, (deliveries, outcomes))
}

impl Started {
    /// Records an Event, and waits until it is written.
    async fn deliver(&mut self, draft: Draft) -> Box<Delivered> {
        self.sink.record(draft);
        self.deliveries.recv().await.unwrap()
    }

    async fn end(self) -> EventCounts {
        let tally = Arc::clone(&self.sink.tally);
        drop(self.sink);
        self.task.await.unwrap();
        tally.counts()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_expected_fields() {
    let server = Scripted::new([accepted(), accepted()]);
    let started = start(&server, 0);
    started.sink.record(input("SystemOOM", "victim: java"));
    let mut kill = input("OOMKilled", "victim: java");
    kill.object = pod("cart-0", "uid-7", Some("spec.containers{web}"));
    started.sink.record(kill);
    assert_eq!(started.end().await.delivered, 2);

    assert_eq!(
        server.lines(),
        [EVENTS, "POST /api/v1/namespaces/shop/events"]
    );
    assert_eq!(
        server.body(0),
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": "worker-1.17979cfe362a0000", "namespace": "default" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "uid-1",
            },
            "reason": "SystemOOM", "message": "victim: java", "type": "Warning",
            "source": { "component": "nodepulse", "host": "worker-1" },
            "reportingComponent": "nodepulse", "reportingInstance": "worker-1",
            "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": "2023-11-14T22:13:20Z",
            "count": 1,
        })
    );
    assert_eq!(
        server.body(1)["metadata"],
        json!({ "name": "cart-0.17979cfe362a0001", "namespace": "shop" }),
        "the same nanosecond, another name"
    );
    assert_eq!(
        server.body(1)["involvedObject"],
        json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "cart-0", "uid": "uid-7",
            "fieldPath": "spec.containers{web}",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_counts_up_and_an_expired_one_is_created_again() {
    let server = Scripted::new([accepted(), accepted(), refusal(404, "NotFound"), accepted()]);
    let started = start(&server, 0);
    for _ in 0..3 {
        started.sink.record(input("SystemOOM", "m"));
    }
    assert_eq!(started.end().await.delivered, 3);
    let patch = "PATCH /api/v1/namespaces/default/events/worker-1.17979cfe362a0000";
    assert_eq!(server.lines(), [EVENTS, patch, patch, EVENTS]);
    assert_eq!(
        server.content_type(1),
        "application/strategic-merge-patch+json"
    );
    assert_eq!(
        server.body(1),
        json!({ "count": 2, "lastTimestamp": "2023-11-14T22:13:20Z" })
    );
    assert_eq!(server.body(3)["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_is_dropped_and_a_temporary_error_is_retried() {
    #[rustfmt::skip]
    let rows = [
        ("forbidden", vec![refusal(403, "Forbidden")], 1, 0),
        ("invalid", vec![refusal(422, "Invalid")], 1, 0),
        ("no such namespace", vec![refusal(404, "NotFound")], 1, 0),
        ("throttled", vec![refusal(429, "").retry_after(2), accepted()], 0, 2),
        ("broken once", vec![refusal(500, ""), accepted()], 0, 0),
        ("broken twice", vec![refusal(500, ""), refusal(503, ""), accepted()], 0, 10),
        ("created by an attempt that failed", vec![Reply::Cut, refusal(409, "AlreadyExists")], 0, 0),
        ("a name taken", vec![refusal(409, "AlreadyExists")], 1, 0),
    ];
    for (name, replies, refused, seconds) in rows {
        let requests = replies.len();
        let server = Scripted::new(replies);
        let before = tokio::time::Instant::now();
        let started = start(&server, 0);
        started.sink.record(input("SystemOOM", "m"));
        let counts = started.end().await;
        assert_eq!(counts.lost_refused, refused, "{name}");
        assert_eq!(counts.delivered, 1 - refused, "{name}");
        assert_eq!(server.lines().len(), requests, "{name}");
        assert_eq!(before.elapsed(), Duration::from_secs(seconds), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_pods_namespace_rejects_is_recorded_on_the_node() {
    for code in [403, 404] {
        let server = Scripted::new([refusal(code, "no"), accepted()]);
        let started = start(&server, 0);
        let mut kill = input("OOMKilled", "victim: java");
        kill.object = pod("cart-0", "uid-7", None);
        started.sink.record(kill);
        let counts = started.end().await;
        assert_eq!((counts.delivered, counts.lost_refused), (1, 0), "{code}");
        assert_eq!(
            server.lines(),
            ["POST /api/v1/namespaces/shop/events", EVENTS]
        );
        assert_eq!(server.body(1)["involvedObject"]["kind"], "Node");
        assert_eq!(server.body(1)["message"], "Pod shop/cart-0: victim: java");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_loses_no_event_and_after_repeated_errors_one_is_written_later() {
    let away = Scripted::new(std::iter::repeat_n(Reply::Cut, 40).chain([accepted(), accepted()]));
    let mut started = start(&away, 0);
    let before = tokio::time::Instant::now();
    started.sink.record(input("SystemOOM", "first"));
    started.sink.record(input("Rebooted", "second"));
    for message in ["first", "second"] {
        assert_eq!(started.deliveries.recv().await.unwrap().message, message);
    }
    let counts = started.end().await;
    assert_eq!((counts.delivered, counts.lost()), (2, 0), "{counts:?}");
    // At once, then every second because no other request is sent.
    let tried = Duration::from_secs(39);
    let paced = Duration::from_millis(200);
    assert_eq!(before.elapsed(), tried + paced, "jitter is 0 here");

    let fails = vec![refusal(500, ""); 12].into_iter();
    let fails = Scripted::new(fails.chain([accepted(), accepted()]));
    let mut started = start(&fails, 0);
    let before = tokio::time::Instant::now();
    started.sink.record(input("SystemOOM", "first"));
    started.sink.record(input("Rebooted", "second"));
    for message in ["second", "first"] {
        assert_eq!(started.deliveries.recv().await.unwrap().message, message);
    }
    assert_eq!(before.elapsed(), Duration::from_secs(100));
    let counts = started.end().await;
    assert_eq!((counts.delivered, counts.lost()), (2, 0), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_cannot_process_within_an_hour_is_lost() {
    let server = Scripted::new(vec![refusal(500, ""); 600]);
    let before = tokio::time::Instant::now();
    let mut started = start(&server, 0);
    started.sink.record(Draft {
        id: Some(id(7)),
        position: Some(Position(7)),
        at: at(0),
        ..input("OOMKilled", "m")
    });
    let outcome = started.outcomes.recv().await.unwrap();
    assert_eq!(
        (outcome.position, outcome.is_accepted),
        (Position(7), false)
    );
    let tried = before.elapsed();
    assert!((RETRIED..RETRIED * 2).contains(&tried), "{tried:?}");
    assert_eq!(started.end().await.lost_refused, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_event_lets_others_pass_if_other_requests_are_answered() {
    let others = std::iter::repeat_n([Reply::json(200, json!({})), Reply::Cut], 60).flatten();
    let replies = [Reply::Cut, Reply::Cut].into_iter().chain(others);
    let server = Scripted::new(replies.chain([accepted(), accepted()]));
    let mut started = start(&server, 0);
    started.sink.record(input("SystemOOM", "first"));
    started.sink.record(input("Rebooted", "second"));
    for other_requests in 0..60 {
        // After an attempt, and before the next one.
        while server.lines().len() < 2 + 2 * other_requests {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let other = server.client();
        other.get(&crate::Endpoint::node("worker-1")).await.unwrap();
    }
    for message in ["second", "first"] {
        assert_eq!(started.deliveries.recv().await.unwrap().message, message);
    }
    assert_eq!(started.end().await.lost(), 0);
    assert_eq!(server.lines().len(), 122 + 2);
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_one_event_is_sent_within_two_seconds_and_the_others_later_and_paced() {
    const REPLIES: usize = 8;
    let mut firsts = std::collections::BTreeSet::new();
    let mut moments = std::collections::BTreeSet::new();
    for seed in 1..=50 {
        let replies = vec![Reply::Cut; REPLIES].into_iter();
        let server = Scripted::new(replies.chain(vec![accepted(); 8]));
        let mut started = start(&server, seed);
        for n in 0..6 {
            started.sink.record(input("SystemOOM", &n.to_string()));
        }
        while server.lines().len() < REPLIES {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let back = tokio::time::Instant::now();
        let mut last: Option<BootNanos> = None;
        for n in 0..6 {
            let delivered = started.deliveries.recv().await.unwrap();
            let between = last
                .replace(delivered.sent)
                .map(|last| delivered.sent.since(last));
            match (n, between) {
                (0, _) => {
                    let after = back.elapsed();
                    assert!(after <= Duration::from_secs(2), "seed {seed}: {after:?}");
                    firsts.insert(after.as_millis() / 200);
                }
                (1, Some(between)) => {
                    assert!(
                        (PACE..PACE + SPREAD).contains(&between),
                        "seed {seed}: {between:?}"
                    );
                    moments.insert(between.as_secs());
                }
                _ => assert_eq!(between, Some(PACE), "seed {seed}"),
            }
        }
        // The next one is not delayed any more.
        let delivered = started.deliver(input("Rebooted", "m")).await;
        assert!(delivered.sent.since(last.unwrap()) <= PACE, "seed {seed}");
    }
    assert!(moments.len() >= 9, "all at once: {moments:?}");
    assert!(firsts.len() >= 4, "all at once: {firsts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_requests_while_it_starts_gets_the_event() {
    let rows = [
        (vec![Reply::Cut, refusal(403, "Forbidden")], true),
        (vec![Reply::Cut, refusal(503, "")], true),
        (vec![refusal(403, "Forbidden")], false),
    ];
    for (replies, delivered) in rows {
        let tried = replies.len();
        let server = Scripted::new(replies.into_iter().chain([accepted()]));
        let started = start(&server, 0);
        let before = tokio::time::Instant::now();
        started.sink.record(input("Rebooted", "m"));
        let counts = started.end().await;
        assert_eq!(counts.delivered > 0, delivered, "{tried}: {counts:?}");
        assert!(
            before.elapsed() <= Duration::from_secs(2),
            "{:?}",
            before.elapsed()
        );
    }
    let refuses = std::iter::once(Reply::Cut).chain(vec![refusal(403, "Forbidden"); 6]);
    let server = Scripted::new(refuses);
    let started = start(&server, 0);
    started.sink.record(input("Rebooted", "m"));
    let counts = started.end().await;
    assert_eq!(
        (counts.delivered, counts.lost_refused),
        (0, 1),
        "not for ever"
    );
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_the_recorder_does_not_wait_and_counts_what_is_left() {
    let server = Scripted::new(vec![Reply::Cut; 6]);
    let started = start(&server, 0);
    for n in 0..3 {
        started.sink.record(input("SystemOOM", &n.to_string()));
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(server.lines().len(), 4, "waits for the server");
    let before = tokio::time::Instant::now();
    started.sink.leave();
    started.task.await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(server.lines().len(), 5, "one last attempt");
    let counts = started.sink.counts();
    assert_eq!((counts.recorded, counts.pending()), (3, 3), "{counts:?}");

    // During catch-up it does not wait for its turn any more.
    let replies = vec![Reply::Cut; 5].into_iter();
    let server = Scripted::new(replies.chain(vec![accepted(); 60]));
    let mut started = start(&server, 0);
    for n in 0..20 {
        started.sink.record(input("SystemOOM", &n.to_string()));
    }
    started.deliveries.recv().await.unwrap();
    let before = tokio::time::Instant::now();
    started.sink.leave();
    started.task.await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(started.sink.counts().pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_limited_and_accounted_for() {
    let server = Scripted::new(std::iter::repeat_n(accepted(), 26));
    let mut started = start(&server, 0);
    for _ in 0..25 {
        let delivered = started.deliver(input("SystemOOM", "m")).await;
        assert_eq!(delivered.times, 1);
    }
    for _ in 25..60 {
        started.sink.record(input("SystemOOM", "m"));
    }
    let last = started.deliveries.recv().await.unwrap();
    assert_eq!(last.times, 35);
    assert_eq!(last.sent, BootNanos(0).plus(Duration::from_mins(5)));
    assert_eq!(server.body(25)["count"], 60);
    let counts = started.end().await;
    assert_eq!((counts.delayed, counts.delivered), (35, 60));
}

/// Without pacing, the recorder would run continuously until the next write is allowed.
#[tokio::test(start_paused = true)]
async fn releases_of_the_rate_limit_are_paced_too() {
    let server = Scripted::new([]);
    let mut recorder = recorder(&server, 0, ROOM).1;
    for _ in 0..60 {
        recorder.queue(input("SystemOOM", "m"));
        recorder.next_write(false);
    }
    let released = recorder.next_due().unwrap();
    tokio::time::sleep(released).await;
    assert_eq!(recorder.next_due(), Some(Duration::ZERO));
    recorder.back(released, recorder.clock.now().boot);
    assert!(recorder.next_write(false).is_none());
    assert_eq!(recorder.next_due(), Some(PACE));
    tokio::time::sleep(PACE).await;
    assert!(recorder.next_write(false).is_some());
}

mod queue;
mod versions;
