//! A restart neither ends nor prolongs a condition.

use std::time::Duration;

use nodepulse_core::reading::{StallKind, StallOf};

use nodepulse_tests::node::pass;
use nodepulse_tests::view::View;
use serde_json::{Value, json};

use super::{Cause, SAMPLE_INTERVAL, Sim, TRANSITION, types};

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
    let events = sim.view().event_counts();
    sim.node.stop().await.unwrap();
    pass(Duration::from_mins(30)).await;

    let restarted = sim.api.now();
    let sim = Sim::on(&sim.api, |node| node).await;
    assert_eq!(words(sim.view()), before);
    pass(TRANSITION - Duration::from_secs(1)).await;
    assert_eq!(words(sim.view()), before, "still True");
    assert_eq!(sim.view().event_counts(), events, "nothing has changed");
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
