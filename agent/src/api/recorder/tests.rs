//! The recorder against a server in memory, on a paused clock.

use std::time::Duration;

use serde_json::json;

use super::correlate::tests::input;
use super::*;
use crate::api::convert::tests::at;
use crate::api::scripted::{Reply, Scripted, refusal};
use crate::clock::Now;

const EVENTS: &str = "POST /api/v1/namespaces/default/events";

fn accepted() -> Reply {
    Reply::json(201, json!({}))
}

struct Started {
    sink: EventSink,
    deliveries: mpsc::Receiver<Delivered>,
    task: tokio::task::JoinHandle<()>,
}

fn start(server: &Scripted) -> Started {
    let clock = Clock::runtime(Now {
        boot: BootNanos(0),
        wall: at(0),
    });
    let (_, uid) = watch::channel("uid-1".to_owned());
    let reporter = Reporter {
        node: "worker-1".to_owned(),
        uid,
    };
    let (sender, deliveries) = mpsc::channel(64);
    let (sink, recorder) = Recorder::new(server.client(), clock, reporter, Jitter::NONE, sender);
    Started {
        sink,
        deliveries,
        task: tokio::spawn(recorder.run()),
    }
}

impl Started {
    /// Ends the recorder and gives what became of everything.
    async fn end(self) -> Counts {
        let tally = Arc::clone(&self.sink.tally);
        drop(self.sink);
        self.task.await.unwrap();
        EventSink {
            inputs: mpsc::channel(1).0,
            tally,
        }
        .counts()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_fields_that_people_look_for() {
    let server = Scripted::new([accepted(), accepted()]);
    let started = start(&server);
    started.sink.record(input("SystemOOM", "victim: java"));
    let mut pod = input("OOMKilled", "victim: java");
    pod.object = Involved::Pod {
        namespace: "shop".to_owned(),
        name: "cart-0".to_owned(),
        uid: "uid-7".to_owned(),
        field_path: Some("spec.containers{web}".into()),
    };
    started.sink.record(pod);
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
async fn a_repeated_event_counts_up_and_one_that_expired_is_created_anew() {
    let server = Scripted::new([accepted(), accepted(), refusal(404, "NotFound"), accepted()]);
    let started = start(&server);
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
        json!({ "count": 2, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "m" })
    );
    assert_eq!(server.body(3)["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_dropped_and_what_it_cannot_do_now_is_tried_again() {
    let rows = [
        ("forbidden", vec![refusal(403, "Forbidden")], 1, 0),
        ("invalid", vec![refusal(422, "Invalid")], 1, 0),
        ("no such namespace", vec![refusal(404, "NotFound")], 1, 0),
        (
            "throttled",
            vec![refusal(429, "").retry_after(2), accepted()],
            0,
            2,
        ),
        ("broken once", vec![refusal(500, ""), accepted()], 0, 0),
        (
            "broken twice",
            vec![refusal(500, ""), refusal(503, ""), accepted()],
            0,
            10,
        ),
        (
            "made by a try that broke off",
            vec![Reply::Cut, refusal(409, "AlreadyExists")],
            0,
            0,
        ),
        ("a name taken", vec![refusal(409, "AlreadyExists")], 1, 0),
    ];
    for (name, replies, refused, seconds) in rows {
        let requests = replies.len();
        let server = Scripted::new(replies);
        let before = tokio::time::Instant::now();
        let started = start(&server);
        started.sink.record(input("SystemOOM", "m"));
        let counts = started.end().await;
        assert_eq!(counts.lost_refused, refused, "{name}");
        assert_eq!(counts.delivered, 1 - refused, "{name}");
        assert_eq!(server.lines().len(), requests, "{name}");
        assert_eq!(before.elapsed(), Duration::from_secs(seconds), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_pods_namespace_does_not_take_is_told_of_the_node() {
    for code in [403, 404] {
        let server = Scripted::new([refusal(code, "no"), accepted()]);
        let started = start(&server);
        let mut pod = input("OOMKilled", "victim: java");
        pod.object = Involved::Pod {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
            uid: "uid-7".to_owned(),
            field_path: None,
        };
        started.sink.record(pod);
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
async fn nobody_is_waited_for_more_than_twelve_times() {
    let server = Scripted::new(std::iter::repeat_n(Reply::Cut, 12).chain([accepted()]));
    let before = tokio::time::Instant::now();
    let started = start(&server);
    started.sink.record(input("SystemOOM", "lost"));
    started.sink.record(input("Rebooted", "kept"));
    let counts = started.end().await;
    assert_eq!((counts.lost_unreachable, counts.delivered), (1, 1));
    assert_eq!(server.lines().len(), 13);
    assert_eq!(
        before.elapsed(),
        Duration::from_secs(100),
        "jitter is 0 here"
    );
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_cut_to_the_limit_and_still_accounted_for() {
    let server = Scripted::new(std::iter::repeat_n(accepted(), 26));
    let mut started = start(&server);
    for _ in 0..60 {
        started.sink.record(input("SystemOOM", "m"));
    }
    let mut times = 0;
    for _ in 0..25 {
        times += started.deliveries.recv().await.unwrap().times;
    }
    assert_eq!(times, 25);
    let last = started.deliveries.recv().await.unwrap();
    assert_eq!(last.times, 35);
    assert_eq!(last.sent, BootNanos(0).plus(Duration::from_mins(5)));
    assert_eq!(server.body(25)["count"], 60);
    let counts = started.end().await;
    assert_eq!((counts.held, counts.delivered), (35, 60));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_wait_for_an_api_server_and_the_rest_is_folded_or_lost_by_count() {
    let server = Scripted::new([Reply::Silent].into_iter().chain(vec![accepted(); 2000]));
    let started = start(&server);
    let record = |reason, n: u32| {
        for _ in 0..n {
            started.sink.record(input(reason, "m"));
        }
    };
    record("Starting", 1);
    tokio::task::yield_now().await;
    record("SystemOOM", 999);
    while started.sink.inputs.capacity() < ROOM {
        tokio::task::yield_now().await;
    }
    record("SystemOOM", 500);
    while started.sink.inputs.capacity() < ROOM {
        tokio::task::yield_now().await;
    }
    let counts = started.end().await;
    assert_eq!(counts.lost_full, 0);
    assert!(counts.folded >= 498, "{counts:?}");
    assert_eq!(counts.delivered, 1500, "{counts:?}");
}
