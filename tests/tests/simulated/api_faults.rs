//! Each way in which the API server can fail.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use nodepulse_core::record::ScopeSource;
use nodepulse_io::names::Names;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::Recorded;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{COMPANION, COMPANION_PERMISSIONS, Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::view::{LEASES, View, gaps};
use serde_json::json;
use tempfile::tempdir;

const STATUS: &str = "/api/v1/nodes/worker-1/status";
const PERIOD: Duration = Duration::from_secs(10);
/// Timers have a resolution of a millisecond.
const MILLISECOND: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_at_start_gets_the_whole_status_when_it_returns() {
    let api = in_memory();
    let host = MadeUpHost::calm();
    host.pid_max(10_000);
    let node = Node::named("worker-1")
        .host(host)
        .out_of_reach()
        .start(&api);
    pass(Duration::from_mins(10)).await;
    node.kernel().crowd().await;
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

/// Observations in the server's Events about kills.
fn observed_kills(api: &nodepulse_tests::api_server::ApiServer) -> u64 {
    let kills = api.list("/api/v1/events").into_iter();
    let kills = kills.filter(|event| event["reason"] == "OOMKilled");
    kills.filter_map(|event| event["count"].as_u64()).sum()
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_of_outage_the_server_gets_an_event_within_two_seconds_and_every_kill() {
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
    // Lease and watch every seven seconds, from the fifth minute on a status that is due: five
    // tries every ten seconds, and an Event every one to two seconds while no other request is
    // sent.
    let tried = node.dials().iter().filter(|at| left < **at).count();
    assert!(tried < 600 * 13 / 10, "{tried} connections tried");

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
    // The answer to the Event wakes the lease; the status is tried every ten seconds.
    let second = Duration::from_secs(1);
    assert!(event - back <= 2 * second, "{:?}", event - back);
    assert!(lease.abs_diff(event) <= second, "{lease:?} {event:?}");
    assert!(
        status - back <= PERIOD + second,
        "{back:?} {status:?} {event:?}"
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
async fn watches_leave_room_for_lease_and_status_if_the_server_limits_streams() {
    for streams in [1, 2, 3] {
        let api = in_memory();
        api.limit_streams(streams);
        let host = MadeUpHost::calm();
        host.pid_max(10_000);
        let node = Node::named("worker-1").host(host).start(&api);
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        pass(Duration::from_mins(12)).await;
        for gap in gaps(&view.renewals()) {
            let longest = PERIOD + Duration::from_secs(1);
            assert!((PERIOD..=longest).contains(&gap), "{streams}: {gap:?}");
        }
        let crossed = api.now();
        node.kernel().crowd().await;
        let (_, at) = view.becomes("PIDPressure", "True", SOON).await;
        assert!(
            at - crossed <= 5 * MILLISECOND,
            "{streams}: {:?}",
            at - crossed
        );
        // Both watches are open, each on a separate connection.
        let watches = api.requests_where(|request| request.query.contains("watch=true"));
        let paths: BTreeSet<_> = watches.iter().map(|watch| watch.path.clone()).collect();
        assert_eq!(paths.len(), 2, "{streams}: {paths:?}");
        assert_eq!(api.connections().open, 3, "{streams}");
        let all = api.requests();
        let unanswered = all
            .iter()
            .filter(|request| request.status.is_none())
            .count();
        assert_eq!(unanswered, 0, "{streams}");
        node.stop().await.unwrap();
    }
}

/// A resolver whose only server, on the socket, does not answer.
fn silent_names(dir: &Path) -> (Names, UdpSocket) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    fs::write(dir.join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    let port = socket.local_addr().unwrap().port();
    (Names::with(dir, port), socket)
}

#[tokio::test(start_paused = true)]
async fn a_node_is_registered_without_its_addresses_while_no_name_server_answers() {
    let dir = tempdir().unwrap();
    let (names, queries) = silent_names(dir.path());
    let api = in_memory();
    let node = Node::named("worker-1").names(names).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(Duration::from_secs(1)).await;
    assert_eq!(view.status("Ready"), "True");
    assert!(view.node().unwrap()["status"]["addresses"].is_null());
    // The lookup ends, and the addresses are those of the default route.
    pass(Duration::from_secs(5)).await;
    assert!(queries.recv(&mut [0; 512]).is_ok(), "a query was sent");
    let addresses = view.node().unwrap()["status"]["addresses"].clone();
    assert_eq!(addresses[0]["type"], "InternalIP", "{addresses}");
    assert_eq!(addresses[1]["address"], "worker-1", "{addresses}");

    // The next start keeps them.
    node.stop().await.unwrap();
    let (names, _queries) = silent_names(dir.path());
    let node = Node::named("worker-1").names(names).start(&api);
    for _ in 0..20 {
        pass(Duration::from_millis(500)).await;
        assert_eq!(view.node().unwrap()["status"]["addresses"], addresses);
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_companion_does_not_look_up_the_name_of_its_node() {
    let dir = tempdir().unwrap();
    let (names, queries) = silent_names(dir.path());
    let api = in_memory();
    api.grant_all(COMPANION, &COMPANION_PERMISSIONS);
    api.put_object(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker-1" },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }));
    let node = Node::companion("worker-1").names(names).start(&api);
    let view = View::of(&api, "worker-1");
    view.becomes("MemoryLow", "False", Duration::from_secs(1))
        .await;
    pass(Duration::from_mins(1)).await;
    let query = queries.recv(&mut [0; 512]);
    assert_eq!(query.unwrap_err().kind(), ErrorKind::WouldBlock);
    node.stop().await.unwrap();
}
