//! A taint follows its condition.

use std::time::Duration;

use nodepulse_tests::api_server::{Effect, Fault, Recorded};
use nodepulse_tests::node::pass;
use serde_json::json;

use super::{
    LOST, MEMORY_TAINT, NODE, PLENTY, SAMPLE_INTERVAL, SHORT, STATUS, Sim, TRANSITION, cluster,
    grant, taint_keys, tainting,
};

#[tokio::test(start_paused = true)]
async fn a_taint_is_set_while_its_condition_is_true_and_removed_when_it_is_unknown() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let sim = Sim::on(&api, tainting).await;
    sim.host.mem_working_set(SHORT);
    sim.view()
        .becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2)
        .await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated", MEMORY_TAINT]);
    let spec = &sim.view().node().unwrap()["spec"];
    let plain = json!({ "key": MEMORY_TAINT, "effect": "NoSchedule" });
    assert_eq!(spec["taints"][1], plain);
    let reads = api.requests_where(|request| request.method == "GET" && request.path == NODE);
    let reads = reads.len();
    assert_eq!(reads, 1, "the answer to the patch is as good as a read");

    sim.host.remove("sys/fs/cgroup/memory.stat");
    sim.view().becomes("MemoryLow", "Unknown", LOST).await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);

    sim.host.mem_working_set(SHORT);
    sim.view()
        .becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2)
        .await;
    sim.host.mem_working_set(PLENTY);
    sim.view()
        .becomes("MemoryLow", "False", TRANSITION * 2)
        .await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);
    let written = sim.node.scrape().await;
    let name = "nodepulse_taint_patches_total";
    assert_eq!(written.value(name, &[("result", "written")]), Some(4.0));
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_cannot_be_written_now_is_written_later() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let sim = Sim::on(&api, tainting).await;
    // More conflicts than one change has tries.
    let taint = |request: &Recorded| request.path == NODE && request.method == "PATCH";
    api.faults()
        .push(Fault::when(taint, Effect::Status(409)).times(10));
    sim.host.mem_working_set(SHORT);
    let (_, at) = sim
        .view()
        .becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2)
        .await;
    let tainted = api
        .wait_for(SAMPLE_INTERVAL * 2, "the taint", |api| {
            let written = api.requests_where(|r| taint(r) && r.status == Some(200));
            written.first().map(|request| request.at)
        })
        .await;
    let late = tainted - at;
    assert!(late <= Duration::from_secs(15), "{late:?}");
    assert_eq!(taint_keys(sim.view()), ["dedicated", MEMORY_TAINT]);
}

#[tokio::test(start_paused = true)]
async fn without_permission_to_taint_the_conditions_are_still_written() {
    let sim = Sim::on(&cluster(), tainting).await;
    sim.host.mem_working_set(SHORT);
    sim.view()
        .becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2)
        .await;
    pass(Duration::from_mins(20)).await;
    let refused = sim.api.requests_where(|r| r.status == Some(403)).len();
    assert!(
        (2..=6).contains(&refused),
        "{refused}: at the edge and with heartbeats"
    );
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);
    sim.host.mem_working_set(PLENTY);
    sim.view()
        .becomes("MemoryLow", "False", TRANSITION * 2)
        .await;
    let read = sim.node.scrape().await;
    let denied = read.value("nodepulse_taint_patches_total", &[("result", "denied")]);
    assert!(denied >= Some(2.0), "{denied:?}");

    grant(&sim.api, "patch", "nodes");
    sim.host.mem_working_set(SHORT);
    sim.view()
        .becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2)
        .await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(taint_keys(sim.view()), ["dedicated", MEMORY_TAINT]);
}

#[tokio::test(start_paused = true)]
async fn taints_follow_the_conditions_although_the_status_is_rejected_and_wait_for_a_server() {
    // The answer to a status, and whether the taint is written all the same.
    for (code, follows) in [(403, true), (422, true), (409, true), (503, false)] {
        let api = cluster();
        grant(&api, "patch", "nodes");
        let sim = Sim::on(&api, tainting).await;
        pass(Duration::from_secs(33)).await;
        let refused = Fault::on("PATCH", STATUS, Effect::Status(code));
        api.faults().push(refused.always());
        sim.host.mem_working_set(SHORT);
        pass(Duration::from_secs(30)).await;
        assert_eq!(sim.view().status("MemoryLow"), "False", "{code}");
        let tainted = taint_keys(sim.view()).contains(&MEMORY_TAINT.to_owned());
        assert_eq!(tainted, follows, "{code}");
        sim.host.mem_working_set(PLENTY);
        pass(TRANSITION * 2).await;
        assert_eq!(taint_keys(sim.view()), ["dedicated"], "{code}");
        let written = |r: &Recorded| r.path == NODE && r.method == "PATCH";
        let times = usize::from(follows) * 2;
        assert_eq!(api.requests_where(written).len(), times, "{code}");
    }
}
