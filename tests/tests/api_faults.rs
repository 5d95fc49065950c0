//! Each way in which the API server can fail.

use std::time::Duration;

use nodepulse::event::Side;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{Effect, Fault};
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::view::{EVENTS, LEASES, View, gaps};

const STATUS: &str = "/api/v1/nodes/worker-1/status";
const PERIOD: Duration = Duration::from_secs(10);
/// Timers have a resolution of a millisecond.
const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_at_start_gets_the_whole_truth_when_it_returns() {
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
async fn a_silent_connection_is_given_up_after_ten_seconds() {
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
async fn nothing_waits_for_a_request_that_hangs_elsewhere() {
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
            // Where a new connection is opened, the first request on it goes ahead by up to 1 s.
            let longest = PERIOD + Duration::from_secs(1);
            assert!(PERIOD <= gap && gap <= longest, "{name}: {gap:?}");
        }
        api.faults().clear();
        view.becomes("PIDPressure", "True", SOON * 2).await;
        view.event("NodeHasInsufficientPID", SOON * 3).await;
        node.stop().await.unwrap();
    }
}
