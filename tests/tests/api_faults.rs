//! Each way in which the API server can fail.

use std::time::Duration;

use nodepulse::record::{ScopeSource, Side};
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{Effect, Fault, Recorded};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::view::{EVENTS, LEASES, View, gaps, moments};

const STATUS: &str = "/api/v1/nodes/worker-1/status";
const PERIOD: Duration = Duration::from_secs(10);
/// Timers have a resolution of a millisecond.
const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_at_start_gets_the_whole_status_when_it_returns() {
    let api = in_memory();
    let host = nodepulse_tests::host_root::MadeUpHost::calm();
    host.pid_max(10_000);
    let host = std::sync::Arc::new(host);
    let node = Node::named("worker-1")
        .host(host.clone())
        .out_of_reach()
        .start(&api);
    pass(Duration::from_mins(10)).await;
    host.tasks(9_600);
    node.kernel().pid_crossing(Side::Over, 9_600).await;
    pass(Duration::from_mins(2)).await;
    // Two tasks that try every seven seconds, and a hundred tries at the very start.
    let dials = node.dials().len();
    assert!(
        dials < 2 * 720 / 7 + 40,
        "{dials} connections tried in twelve minutes"
    );

    let back = api.now();
    node.reach();
    let view = View::of(&api, "worker-1");
    let (condition, at) = view.becomes("PIDPressure", "True", SOON).await;
    assert!(
        at - back <= Duration::from_secs(7),
        "{:?} after it",
        at - back
    );
    assert_eq!(
        view.creates().len(),
        1,
        "created with the pressure that there was"
    );
    assert_eq!(condition["status"], "True");
    view.settled(SOON).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_connection_is_closed_after_ten_seconds() {
    //  a way to be silent
    type Silence = fn(&nodepulse_tests::api_server::ApiServer);
    let rows: [(&str, Silence); 3] = [
        ("black hole", |api| api.freeze_connections()),
        ("reset", |api| api.reset_connections()),
        ("one request hangs", |api| {
            api.faults().push(Fault::on("PUT", LEASES, Effect::Hang));
        }),
    ];
    for (name, silence) in rows {
        let api = in_memory();
        let _node = Node::named("worker-1").start(&api);
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        pass(Duration::from_secs(15)).await;
        let before = view.lease().unwrap()["spec"]["renewTime"].clone();
        silence(&api);
        let from = api.now();
        let renewed = |_: &_| {
            let renewed = view.lease()?["spec"]["renewTime"].clone();
            (renewed != before).then(|| api.now())
        };
        let at = api
            .wait_for(Duration::from_mins(1), "a renewed lease", renewed)
            .await;
        // It was due within ten seconds, and the deadline is ten more.
        let late = at - from;
        assert!(
            late <= PERIOD * 2 + MILLISECOND * 5,
            "{name}: renewed after {late:?}"
        );
        pass(Duration::from_mins(1)).await;
        let connections = api.connections();
        assert_eq!(connections.opened, 2, "{name}");
        let gaps = gaps(&view.renewals());
        assert_eq!(gaps.last(), Some(&PERIOD), "{name}: {gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_an_unrelated_request_without_a_response() {
    //  what never answers
    let rows = [("status", "PATCH", STATUS), ("events", "POST", EVENTS)];
    for (name, method, path) in rows {
        let api = in_memory();
        let host = nodepulse_tests::host_root::MadeUpHost::calm();
        host.pid_max(10_000);
        let host = std::sync::Arc::new(host);
        let node = Node::named("worker-1").host(host.clone()).start(&api);
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        pass(Duration::from_secs(15)).await;
        api.faults()
            .push(Fault::on(method, path, Effect::Hang).always());
        host.tasks(9_600);
        node.kernel().pid_crossing(Side::Over, 9_600).await;
        if name == "events" {
            let crossed = api.now();
            let (_, at) = view.becomes("PIDPressure", "True", SOON).await;
            assert!(at - crossed <= MILLISECOND * 5, "{name}");
        }
        pass(Duration::from_mins(3)).await;
        let renewals = view.renewals();
        assert!(18 <= renewals.len(), "{name}: {} renewals", renewals.len());
        for gap in gaps(&renewals) {
            // If a new connection is opened, the first request on it is ahead by up to 1 s.
            let longest = PERIOD + Duration::from_secs(1);
            assert!(PERIOD <= gap && gap <= longest, "{name}: {gap:?}");
        }
        api.faults().clear();
        view.becomes("PIDPressure", "True", SOON * 2).await;
        view.event("NodeHasInsufficientPID", SOON * 3).await;
        node.stop().await.unwrap();
    }
}

/// Observations in the server's Events about kills.
fn observed_kills(api: &nodepulse_tests::api_server::ApiServer) -> u64 {
    let kills = api.list("/api/v1/events").into_iter();
    let kills = kills.filter(|event| event["reason"] == "OOMKilled");
    kills.filter_map(|event| event["count"].as_u64()).sum()
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_of_outage_the_server_gets_every_kill_after_lease_and_status() {
    const KILLS: u32 = 500;

    let api = in_memory();
    let node = Node::named("worker-1").seed(7).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    pass(Duration::from_secs(15)).await;
    let (left, wall) = (api.now(), api.wall());
    node.lose();
    for pid in 1..=KILLS {
        let pod = format!("kubepods/pod{}", pid % 50);
        let kill = Kill {
            victim: ("java", pid),
            cgroup: &pod,
            limit: Limit::Of(&pod),
            source: ScopeSource::Exact,
        };
        node.kernel().oom_kill(kill).await;
        pass(Duration::from_millis(1200)).await;
    }
    let waiting = node.scrape().await;
    let waiting = waiting.value("nodepulse_api_queue_depth", &[]);
    assert!(waiting <= Some(1000.0), "{waiting:?}");
    // Lease and watch every seven seconds, and from the fifth minute on a status that is due: five
    // tries every ten seconds. The Events add nothing.
    let tried = node.dials().iter().filter(|at| left < **at).count();
    assert!(
        tried < 2 * 600 / 7 + 5 * 300 / 10 + 10,
        "{tried} connections tried"
    );

    let back = api.now();
    node.reach();
    // The Node has one limit for all its Events: what it suppresses comes with the next write.
    pass(Duration::from_mins(15)).await;
    let first = |wanted: &dyn Fn(&Recorded) -> bool| {
        let seen = api.requests_where(|request| back < request.at && wanted(request));
        seen.first().map(|request| request.at).expect("a request")
    };
    let lease = first(&|request| request.path.starts_with(LEASES));
    let status = first(&|request| request.path == STATUS);
    let event = first(&|request| request.path.ends_with("/events"));
    assert!(lease - back <= Duration::from_secs(8), "{:?}", lease - back);
    assert!(
        lease <= status && status < event,
        "{lease:?} {status:?} {event:?}"
    );
    assert_eq!(observed_kills(&api), u64::from(KILLS));

    let kills = api.list("/api/v1/events").into_iter();
    let oldest = kills.filter_map(|event| {
        let first = event["firstTimestamp"].as_str()?.to_owned();
        (event["reason"] == "OOMKilled").then_some(first)
    });
    // The kernel's time, not that of the return.
    let oldest = oldest.min().unwrap();
    let minute = wall.as_secs() / 60 % 60;
    assert_eq!(oldest[14..16], format!("{minute:02}"), "{oldest}");
    let read = node.scrape().await;
    let events = |result| read.value("nodepulse_api_events_total", &[("result", result)]);
    assert_eq!(events("lost_full"), Some(0.0));
    assert_eq!(events("lost_unreachable"), Some(0.0));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_use_one_connection() {
    let api = in_memory();
    let slow = Effect::Latency(Duration::from_secs(4));
    api.faults().push(Fault::on("*", "/", slow).always());
    let host = std::sync::Arc::new(nodepulse_tests::host_root::MadeUpHost::calm());
    host.pid_max(10_000);
    let node = Node::named("worker-1").host(host.clone()).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(Duration::from_mins(1)).await;
    pass(Duration::from_secs(20)).await;
    let kill = Kill {
        victim: ("java", 1),
        cgroup: "system.slice/db",
        limit: Limit::Of("system.slice/db"),
        source: ScopeSource::Exact,
    };
    // Just before the next renewal is due.
    let last = moments(&view.renewals()).pop().unwrap();
    pass((last + PERIOD + Duration::from_secs(3)).saturating_sub(api.now())).await;
    host.tasks(9_600);
    node.kernel().pid_crossing(Side::Over, 9_600).await;
    node.kernel().oom_kill(kill).await;
    pass(Duration::from_secs(2)).await;
    let open = api.requests_where(|request| request.status.is_none());
    let mut open: Vec<_> = open.iter().map(|one| one.method.as_str()).collect();
    open.sort_unstable();
    assert_eq!(open, ["PATCH", "POST", "PUT"], "status, Event and lease");
    assert_eq!(api.connections().opened, 1);
    node.stop().await.unwrap();
}
