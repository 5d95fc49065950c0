//! A restart neither ends nor prolongs a condition.

use std::time::Duration;

use nodepulse_core::reading::{StallKind, StallOf};

use nodepulse_tests::node::pass;
use nodepulse_tests::view::View;
use serde_json::{Value, json};

use super::{
    Cause, SAMPLE_INTERVAL, Sim, TRANSITION, calm, cluster, companion, kubelets_node, types,
};

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_last_transition_time_and_a_true_condition() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let all = [
        ("MemoryLow", Cause::GlobalKill),
        ("PIDsLow", Cause::Pids),
        ("FrequentOOMKills", Cause::Kills),
        (
            "MemoryStallPressure",
            Cause::Stall(StallOf::Node, StallKind::Memory),
        ),
    ];
    for (type_, cause) in all {
        sim.begin(cause).await;
        sim.view().becomes(type_, "True", SAMPLE_INTERVAL * 2).await;
        pass(Duration::from_secs(11)).await;
    }
    for (_, cause) in all {
        sim.end(cause).await;
    }
    let words = |view: View<'_>| -> Vec<Value> {
        let mut all: Vec<Value> = types().into_iter().map(|t| view.condition(t)).collect();
        for condition in &mut all {
            condition
                .as_object_mut()
                .unwrap()
                .remove("lastHeartbeatTime");
        }
        all
    };
    let before = words(sim.view());
    sim.node.stop().await.unwrap();
    pass(Duration::from_mins(30)).await;

    let restarted = sim.api.now();
    let sim = Sim::on(&sim.api, |node| node).await;
    assert_eq!(words(sim.view()), before);
    pass(TRANSITION - Duration::from_secs(1)).await;
    assert_eq!(words(sim.view()), before, "still True");
    for (type_, _) in all {
        let (_, at) = sim
            .view()
            .becomes(type_, "False", SAMPLE_INTERVAL * 2)
            .await;
        let lasted = at - restarted;
        assert!(lasted >= TRANSITION, "{type_} lasted {lasted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_transition_period_of_a_stored_true_begins_with_the_first_sample_however_late_the_server_is()
 {
    let kept_true = [
        "MemoryLow",
        "PIDsLow",
        "DiskIOPressure",
        "DiskFailing",
        "FrequentOOMKills",
        "DiskStallPressure",
    ];
    for minutes in [3, 6] {
        let api = cluster();
        let mut node = kubelets_node();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for type_ in kept_true {
            let long_ago = "2025-12-01T00:00:00Z";
            let stored = json!({ "type": type_, "status": "True", "lastTransitionTime": long_ago });
            conditions.insert(0, stored);
        }
        api.put_object(node);
        let started = api.now();
        let node = companion().host(calm()).out_of_reach();
        let node = node.start(&api);
        pass(Duration::from_mins(minutes)).await;
        node.reach();
        let view = View::of(&api, "worker-1");
        for type_ in kept_true {
            let (_, at) = view.becomes(type_, "False", TRANSITION * 2).await;
            let late = Duration::from_mins(minutes) + Duration::from_secs(46);
            let (least, most) = (TRANSITION, late.max(TRANSITION + SAMPLE_INTERVAL));
            let after = at - started;
            assert!(least <= after && after <= most, "{type_}: {after:?}");
        }
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_only_a_full_disk_stays_true() {
    let of_former_boot = [
        "MemoryLow",
        "PIDsLow",
        "DiskSpaceLow",
        "DiskIOPressure",
        "DiskFailing",
        "FrequentOOMKills",
        "MemoryStallPressure",
        "DiskStallPressure",
    ];
    let api = cluster();
    let mut node = kubelets_node();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    for type_ in of_former_boot {
        let [changed, reported] = ["2025-12-01T00:00:00Z", "2025-12-02T00:00:00Z"];
        conditions.insert(
            0,
            json!({
                "type": type_,
                "status": "True",
                "lastTransitionTime": changed,
                "lastHeartbeatTime": reported,
            }),
        );
    }
    api.put_object(node);
    let node = companion().host(calm()).start(&api);
    let view = View::of(&api, "worker-1");
    for type_ in of_former_boot {
        if type_ != "DiskSpaceLow" {
            view.becomes(type_, "False", SAMPLE_INTERVAL * 2).await;
        }
    }
    assert_eq!(view.status("DiskSpaceLow"), "True");
    view.becomes("DiskSpaceLow", "False", TRANSITION + 2 * SAMPLE_INTERVAL)
        .await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_prolongs_no_condition_and_corrects_a_true_of_another_client() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(33)).await;
    let all = [
        ("MemoryLow", Cause::GlobalKill),
        ("PIDsLow", Cause::Pids),
        (
            "MemoryStallPressure",
            Cause::Stall(StallOf::Node, StallKind::Memory),
        ),
    ];
    for (type_, cause) in all {
        sim.begin(cause).await;
        sim.view().becomes(type_, "True", SAMPLE_INTERVAL * 2).await;
        sim.end(cause).await;
    }
    sim.begin(Cause::Kills).await;
    let killed = sim.api.now();
    sim.view()
        .becomes("FrequentOOMKills", "True", SAMPLE_INTERVAL * 2)
        .await;
    pass(Duration::from_secs(11)).await;
    let over = sim.api.now();
    let (mut sim, meddled) = (sim, ["DiskSpaceLow", "DiskStallPressure"]);
    for _ in 0..3 {
        pass(Duration::from_secs(40)).await;
        sim.node.stop().await.unwrap();
        let mut node = View::of(&sim.api, "worker-1").node().unwrap();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for condition in conditions {
            if meddled.iter().any(|type_| condition["type"] == *type_) {
                condition["status"] = json!("True");
            }
        }
        sim.api.put_object(node);
        sim = Sim::with(&sim.api, sim.host, |node| node).await;
        for type_ in meddled {
            assert_eq!(sim.view().status(type_), "False", "{type_}");
        }
        for (type_, _) in all {
            assert_eq!(sim.view().status(type_), "True", "{type_}");
        }
    }
    for (type_, _) in all {
        let (_, at) = sim.view().becomes(type_, "False", TRANSITION).await;
        let lasted = at - over;
        assert!(
            lasted <= TRANSITION,
            "{type_} lasted {lasted:?} from the last"
        );
    }
    let window = Duration::from_mins(10);
    let longest = window + TRANSITION;
    let (_, at) = sim
        .view()
        .becomes("FrequentOOMKills", "False", longest)
        .await;
    let lasted = at - killed;
    assert!(
        (longest..=longest + SAMPLE_INTERVAL).contains(&lasted),
        "lasted {lasted:?}"
    );
}
