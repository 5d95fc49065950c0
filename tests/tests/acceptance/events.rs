//! Events, kills, shutdown, and what can be asked on this machine.

use std::time::Duration;

use nodepulse_core::record::ScopeSource;
use nodepulse_linux::logind::PowerMessage;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::days::{NAME, Stage};
use nodepulse_tests::node::{Kill, Limit, pass};
use nodepulse_tests::view::{EVENTS, gaps};
use serde_json::{Value, json};

pub const PERIOD: Duration = Duration::from_secs(10);
pub const CONTAINER: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11/ctr";

pub async fn settled() -> Stage {
    let stage = Stage::open(|node| node);
    stage.view().settled(SOON).await;
    pass(Duration::from_millis(1_500)).await;
    stage
}

/// The kernel itself reports that the machine had no memory left.
pub fn global(pid: u32) -> Kill<'static> {
    Kill {
        victim: ("stress", pid),
        cgroup: CONTAINER,
        limit: Limit::Machine,
        source: ScopeSource::Exact,
    }
}

/// Writes of Events from `from` on.
pub fn writes(api: &ApiServer, from: Duration) -> Vec<Recorded> {
    api.requests_where(|request| from <= request.at && request.path.starts_with(EVENTS))
}

/// Events of the node are in `default` and name the Node by name, core/v1 and UID, and their
/// source: nodepulse. A kubelet names itself, and omits the UID.
#[tokio::test(start_paused = true)]
async fn a088_an_event_names_its_object_and_its_source() {
    let stage = settled().await;
    stage.node.kernel().crowd().await;
    stage.node.kernel().oom_kill(global(4321)).await;
    stage.view().event("SystemOOM", SOON).await;
    stage.view().event("NodeHasInsufficientPID", SOON).await;
    let uid = stage.view().node().unwrap()["metadata"]["uid"].clone();
    let about = json!({"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": uid});
    let events = stage.api.list(EVENTS);
    assert!(events.len() > 2);
    for event in events {
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["involvedObject"], about);
        assert_eq!(
            event["source"],
            json!({"component": "nodepulse", "host": NAME})
        );
        assert_eq!(event["reportingComponent"], "nodepulse");
        assert_eq!(event["reportingInstance"], NAME);
        assert_eq!(event["eventTime"], Value::Null);
        let warns = event["reason"] == "SystemOOM" || event["reason"] == "GlobalOOMKill";
        let expected = if warns { "Warning" } else { "Normal" };
        assert_eq!(event["type"], expected, "{event}");
        let name = event["metadata"]["name"].as_str().unwrap();
        let (node, nanos) = name.rsplit_once('.').unwrap();
        assert_eq!(node, NAME);
        u128::from_str_radix(nanos, 16).unwrap();
    }
}

/// The start on a new Node is recorded as Events: the start, and its first conditions, each once
/// and after the Node was created. A kubelet records them at every try. The next start adds one.
#[tokio::test(start_paused = true)]
async fn a088_a_start_is_recorded_as_events() {
    let api = nodepulse_tests::node::in_memory();
    let create = |request: &Recorded| request.method == "POST" && request.path == "/api/v1/nodes";
    api.faults()
        .push(Fault::when(create, Effect::Status(500)).times(3));
    let stage = Stage::at(&api, |node| node);
    stage.view().settled(SOON).await;
    pass(Duration::from_mins(1)).await;
    let recorded = |stage: &Stage| -> Vec<(String, usize)> {
        stage.view().event_counts().into_iter().collect()
    };
    let once = |reason: &str| (reason.to_owned(), 1);
    // A condition of nodepulse that is False at the start is no change.
    let mut expected = [
        "NodeHasNoDiskPressure",
        "NodeHasSufficientMemory",
        "NodeHasSufficientPID",
        "Starting",
    ]
    .map(once);
    assert_eq!(recorded(&stage), expected);
    let starting = stage.view().event("Starting", SOON).await;
    assert_eq!(starting["message"], "Starting kubelet.");
    assert_eq!(
        starting["firstTimestamp"], "2026-01-01T00:00:00Z",
        "not when it came through"
    );

    let Stage { api, host, node } = stage;
    node.stop().await.unwrap();
    let stage = Stage::on(&api, host, |node| node);
    pass(Duration::from_mins(1)).await;
    expected[3].1 = 2;
    assert_eq!(recorded(&stage), expected);
}

/// An Event that repeats another is a patch of its count.
#[tokio::test(start_paused = true)]
async fn a089_a_repeated_event_is_counted() {
    let stage = Stage::open(|node| {
        node.config(|overrides| {
            overrides.eviction_pressure_transition_period = Some("1s".to_owned());
        })
    });
    stage.view().settled(SOON).await;
    for _ in 0..2 {
        stage.node.kernel().crowd().await;
        stage.view().becomes("PIDPressure", "True", SOON).await;
        stage.host.tasks(200);
        stage.view().becomes("PIDPressure", "False", SOON * 2).await;
        pass(PERIOD).await;
    }
    let event = stage.view().event("NodeHasInsufficientPID", SOON).await;
    assert_eq!(event["count"], 2);
    assert_ne!(event["firstTimestamp"], event["lastTimestamp"]);
    let about = |request: &Recorded| request.path.contains(&name_of(&event));
    let patches = stage
        .api
        .requests_where(|request| request.method == "PATCH" && about(request));
    let [patch] = patches.as_slice() else {
        panic!("{} patches", patches.len());
    };
    let content_type = "application/strategic-merge-patch+json";
    assert_eq!(patch.headers["content-type"], content_type);
    assert_eq!(patch.body.clone().unwrap()["count"], 2);
}

pub fn name_of(event: &Value) -> String {
    event["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Of a burst of more than 25 Events of one type, 25 are written, and then one in five minutes. The
/// suppressed ones are added to the count of the next; a kubelet drops them.
#[tokio::test(start_paused = true)]
async fn a090_a_burst_is_limited_and_every_event_is_counted() {
    const KILLS: u32 = 40;
    let stage = settled().await;
    let from = stage.api.now();
    for pid in 1..=KILLS {
        stage.node.kernel().oom_kill(global(pid)).await;
        pass(Duration::from_secs(1)).await;
    }
    let of_kills = |from| -> Vec<Recorded> {
        let writes = writes(&stage.api, from).into_iter();
        let about = |write: &Recorded| {
            let body = write.body.clone().unwrap_or_default().to_string();
            body.contains("System OOM")
        };
        writes.filter(about).collect()
    };
    assert_eq!(of_kills(from).len(), 25);
    let later = stage.api.now();
    pass(Duration::from_mins(11)).await;
    let rest = of_kills(later);
    assert!((1..=2).contains(&rest.len()), "{} more", rest.len());
    for gap in gaps(&rest) {
        assert!(
            Duration::from_mins(5) <= gap + Duration::from_secs(1),
            "{gap:?}"
        );
    }
    let events = stage.view().event_counts()["SystemOOM"];
    assert_eq!(events, usize::try_from(KILLS).unwrap());
}

/// An Event that the server rejects with 403 is not tried again.
#[tokio::test(start_paused = true)]
async fn a091_a_rejected_event_is_not_tried_again() {
    let stage = settled().await;
    let fault = Fault::on("POST", EVENTS, Effect::Status(403)).always();
    stage.api.faults().push(fault);
    let from = stage.api.now();
    stage.node.kernel().crowd().await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    pass(Duration::from_mins(10)).await;
    assert_eq!(writes(&stage.api, from).len(), 1);
}

/// The same line: an Event without a response is tried again until it has one, but not without a
/// pause; an outage is no fault of the Event.
#[tokio::test(start_paused = true)]
async fn a091_an_event_without_a_response_is_tried_again() {
    let stage = settled().await;
    let fault = Fault::on("POST", EVENTS, Effect::Reset).times(6);
    stage.api.faults().push(fault);
    let from = stage.api.now();
    stage.node.kernel().crowd().await;
    let longest = Duration::from_mins(5);
    let event = stage.view().event("NodeHasInsufficientPID", longest).await;
    assert_eq!(event["count"], 1);
    let tries = writes(&stage.api, from);
    assert_eq!(tries.len(), 7);
    let waited: Duration = gaps(&tries).iter().sum();
    assert!(waited >= Duration::from_secs(5), "{waited:?}");
}

/// Events that the server does not accept delay neither lease nor status.
#[tokio::test(start_paused = true)]
async fn a092_a_blocked_sink_of_events_delays_nothing() {
    let stage = settled().await;
    let fault = Fault::on("*", EVENTS, Effect::Hang).always();
    stage.api.faults().push(fault);
    stage.node.kernel().oom_kill(global(1)).await;
    pass(Duration::from_secs(5)).await;
    let crossed = stage.api.now();
    stage.node.kernel().crowd().await;
    let (_, at) = stage.view().becomes("PIDPressure", "True", SOON).await;
    assert!(
        at - crossed <= Duration::from_millis(5),
        "{:?}",
        at - crossed
    );
    pass(Duration::from_mins(2)).await;
    let renewals = stage.view().renewals();
    assert!(renewals.len() >= 12);
    for gap in gaps(&renewals) {
        // On a new connection the lease is renewed first, up to a second early or late.
        let longest = PERIOD + Duration::from_secs(1);
        assert!((PERIOD..=longest).contains(&gap), "{gap:?}");
    }
}

/// An OOM kill of the whole machine is one `SystemOOM` that names victim and PID; one at a
/// cgroup's limit is none.
#[tokio::test(start_paused = true)]
async fn a093_only_kills_of_the_whole_node_are_system_oom() {
    let stage = settled().await;
    stage.host.oom(CONTAINER, 1, 1);
    let container_limit = Kill {
        limit: Limit::Of(CONTAINER),
        ..global(1234)
    };
    stage.node.kernel().oom_kill(container_limit).await;
    pass(PERIOD).await;
    assert_eq!(stage.view().messages("SystemOOM"), [""; 0]);

    stage.node.kernel().oom_kill(global(4321)).await;
    stage.view().event("SystemOOM", SOON).await;
    pass(Duration::from_mins(1)).await;
    let messages = stage.view().messages("SystemOOM");
    assert_eq!(
        messages,
        ["System OOM encountered, victim process: stress, pid: 4321"]
    );
    assert_eq!(stage.view().event_counts()["SystemOOM"], 1);
}

/// A shutdown that logind announces sets Ready to False at once, with an Event; if it is cancelled,
/// Ready is True again at once, not at the next tick. The lease is renewed meanwhile.
#[tokio::test(start_paused = true)]
async fn a094_a_shutdown_is_reported_at_once_and_so_is_its_cancellation() {
    let stage = settled().await;
    let view = stage.view();
    let before = stage.api.now();
    stage
        .node
        .send_from_logind(PowerMessage::ShuttingDown(None))
        .await;
    let (ready, at) = view.becomes("Ready", "False", SOON).await;
    assert!(at - before < Duration::from_millis(1), "{:?}", at - before);
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert_eq!(ready["message"], "node is shutting down");
    view.event("Shutdown", SOON).await;
    view.event("NodeNotReady", SOON).await;
    let renewed = view.renewals().len();
    pass(Duration::from_secs(31)).await;
    assert_eq!(view.renewals().len(), renewed + 3, "it still lives");

    let before = stage.api.now();
    stage.node.send_from_logind(PowerMessage::Cancelled).await;
    let (_, at) = view.becomes("Ready", "True", SOON).await;
    assert!(at - before < Duration::from_millis(1), "{:?}", at - before);
    pass(PERIOD).await;
    let word = |end: &str| format!("Shutdown manager detected shutdown {end}");
    assert_eq!(
        view.messages("Shutdown"),
        [word("event"), word("cancellation")]
    );
    stage.node.stop().await.unwrap();
}
