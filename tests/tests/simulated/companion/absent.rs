//! A Node that does not exist, and a server that refuses or does not answer.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{Effect, Fault};
use nodepulse_tests::node::{in_memory, pass};
use nodepulse_tests::view::{EVENTS, View};

use super::{
    NODE, SAMPLE_INTERVAL, SHORT, STATUS, Sim, TRANSITION, calm, cluster, companion, grant,
    kubelets_node, lines, patches, writes_only_nodepulse_fields,
};

#[tokio::test(start_paused = true)]
async fn a_permanently_rejected_write_is_tried_again_with_heartbeats_only() {
    let api = in_memory();
    grant(&api, "get", "nodes");
    api.put_object(kubelets_node());
    let node = companion().host(calm()).start(&api);
    pass(Duration::from_mins(20)).await;
    let refused = || patches(&api).len();
    assert!((2..=5).contains(&refused()), "{} at the start", refused());
    grant(&api, "patch", "nodes/status");
    let view = View::of(&api, "worker-1");
    view.becomes("MemoryLow", "False", Duration::from_mins(6))
        .await;

    // The right is lost while the agent runs, and a heartbeat is overdue.
    let forbidden = Fault::on("PATCH", STATUS, Effect::Status(403));
    api.faults().push(forbidden.always());
    let before = refused();
    pass(Duration::from_mins(20)).await;
    let more = refused() - before;
    assert!((2..=5).contains(&more), "{more} later");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_is_waited_for_and_never_created() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    sim.node.kernel().crowd().await;
    sim.view().becomes("PIDsLow", "True", SOON).await;
    sim.view().event("LowPIDs", SOON).await;
    sim.api.delete_object(NODE);
    pass(Duration::from_mins(20)).await;
    let reads = sim.api.requests_where(|r| r.status == Some(404));
    assert!((5..60).contains(&reads.len()), "{}", reads.len());
    let creates = sim.api.requests_where(|r| r.method == "POST");
    let creates = creates.iter().filter(|r| !r.path.starts_with(EVENTS));
    assert_eq!(creates.count(), 0);

    let created = sim.api.now();
    sim.api.put_object(kubelets_node());
    let (condition, at) = sim.view().becomes("PIDsLow", "True", TRANSITION).await;
    let late = at - created;
    assert!(late <= Duration::from_secs(46), "{late:?} late");
    assert_eq!(condition["reason"], "LowPIDs");
    assert_eq!(sim.view().condition_types().len(), 15);
    writes_only_nodepulse_fields(&sim.api);
}

#[tokio::test(start_paused = true)]
async fn companion_mode_waits_for_the_node_and_for_the_server() {
    let api = cluster();
    api.delete_object(NODE);
    let host = calm();
    let node = companion()
        .host(Arc::clone(&host))
        .out_of_reach()
        .start(&api);
    host.mem_working_set(SHORT);
    pass(Duration::from_mins(2)).await;
    assert_eq!(lines(&api.requests()), [""; 0]);
    node.reach();
    pass(Duration::from_mins(2)).await;
    api.put_object(kubelets_node());
    let view = View::of(&api, "worker-1");
    let (condition, _) = view
        .becomes("MemoryLow", "True", Duration::from_mins(1))
        .await;
    assert_eq!(condition["reason"], "LowMemory");

    // The Node is absent in between: only the edge is sent when it exists again.
    let before = patches(&api).len();
    api.faults()
        .push(Fault::on("*", "/", Effect::Status(503)).always());
    node.kernel().crowd().await;
    pass(Duration::from_mins(3)).await;
    assert_eq!(view.status("PIDsLow"), "False");
    api.faults().clear();
    let back = api.now();
    let (_, at) = view
        .becomes("PIDsLow", "True", Duration::from_mins(1))
        .await;
    assert!(at - back <= Duration::from_secs(11), "{:?}", at - back);
    view.event("LowPIDs", Duration::from_mins(5)).await;
    let taken = patches(&api).split_off(before);
    let taken = taken.iter().filter(|patch| patch.status == Some(200));
    assert_eq!(taken.count(), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_patch_with_a_lost_response_is_still_an_event_if_later_attempts_fail() {
    let sim = Sim::start().await;
    let faults = sim.api.faults();
    let refused = || Fault::on("PATCH", STATUS, Effect::Status(503));
    // Until a heartbeat is overdue, so that there is something to send at each try.
    faults.push(refused().always());
    pass(Duration::from_mins(8)).await;
    faults.clear();
    faults.push(Fault::on("PATCH", STATUS, Effect::ResetAfterwards));
    faults.push(refused().times(4));
    sim.node.kernel().crowd().await;
    sim.view().becomes("PIDsLow", "True", SOON).await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(faults.pending(), 0, "all five tries have failed");
    sim.view().event("LowPIDs", SAMPLE_INTERVAL * 2).await;
    pass(Duration::from_mins(6)).await;
    assert_eq!(sim.view().event_counts()["LowPIDs"], 1, "reported once");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_ended_in_an_outage_has_its_events_when_the_server_has_a_later_status() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let refused = Fault::on("PATCH", STATUS, Effect::Status(503));
    sim.api.faults().push(refused.always());
    sim.node.kernel().crowd().await;
    pass(Duration::from_secs(30)).await;
    sim.host.tasks(200);
    pass(TRANSITION * 2).await;
    assert_eq!(sim.view().event_reasons(), [""; 0]);
    sim.api.faults().clear();
    pass(TRANSITION).await;
    assert_eq!(sim.view().event_reasons(), ["LowPIDs", "PIDsAvailable"]);
}

#[tokio::test(start_paused = true)]
async fn it_stops_at_once_while_it_waits_for_its_node() {
    let api = cluster();
    api.delete_object(NODE);
    let node = companion().host(calm()).start(&api);
    pass(Duration::from_mins(2)).await;
    let asked = api.now();
    node.stop().await.unwrap();
    let took = api.now() - asked;
    assert!(took < Duration::from_secs(1), "{took:?}");
}
