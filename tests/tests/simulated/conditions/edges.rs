//! When a condition begins and ends.

use nodepulse_tests::node::pass;
use serde_json::Value;

use super::*;

/// `lastTransitionTime` of every condition.
fn transitions(view: View<'_>) -> Vec<Value> {
    let types = view.condition_types();
    types
        .iter()
        .map(|type_| view.condition(type_)["lastTransitionTime"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn exceeding_the_pid_threshold_is_reported_at_once_and_ends_after_the_transition_period() {
    let sim = Sim::start(|node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    let before = transitions(view);

    let crossed = sim.api.now();
    sim.crowd().await;
    let (condition, at) = view.becomes("PIDPressure", "True", SOON).await;
    assert!(at - crossed <= AT_ONCE, "{:?} after it", at - crossed);
    assert_eq!(condition["reason"], "KubeletHasInsufficientPID");
    assert_eq!(
        condition["message"],
        "kubelet has insufficient PID available"
    );
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:33Z");
    let event = view.event("NodeHasInsufficientPID", SOON).await;
    assert_eq!(
        event["involvedObject"]["uid"],
        view.node().unwrap()["metadata"]["uid"]
    );

    // Exceeded again a minute later: no second transition, and the period starts again.
    sim.host.tasks(FEW);
    pass(Duration::from_mins(1)).await;
    let again = sim.api.now();
    sim.crowd().await;
    pass(Duration::from_secs(1)).await;
    sim.host.tasks(FEW);
    let (condition, at) = view.becomes("PIDPressure", "False", TRANSITION * 2).await;
    let lasted = at - again;
    assert!(
        TRANSITION <= lasted && lasted <= TRANSITION + REGULAR,
        "lasted {lasted:?}"
    );
    assert_eq!(condition["reason"], "KubeletHasSufficientPID");
    pass(AT_ONCE).await;
    assert_eq!(
        view.event_reasons(),
        ["NodeHasInsufficientPID", "NodeHasSufficientPID"]
    );

    let after = transitions(view);
    assert_ne!(after[2], before[2]);
    for n in [0, 1, 3, 4] {
        assert_eq!(after[n], before[n], "condition {n} did not change");
    }
}

#[tokio::test(start_paused = true)]
async fn falling_memory_is_detected_within_a_quarter_of_a_second() {
    // MiB a second; the quickest is as quick as one thread touches memory.
    for rate in [100_u64, 500, 1_000, 2_000] {
        let host = Arc::new(MadeUpHost::calm());
        host.mem_working_set("11Gi");
        let sim = Sim::on(&in_memory(), host, |node| node.hard("memory.available<1Gi")).await;
        pass(Duration::from_millis(12_345)).await;
        let mut used = 11 << 10;
        let mut crossed = None;
        while sim.view().status("MemoryPressure") != "True" {
            used += rate / 20;
            sim.host.mem_working_set(&format!("{used}Mi"));
            if crossed.is_none() && used > 15 << 10 {
                crossed = Some(sim.api.now());
            }
            pass(Duration::from_millis(50)).await;
            assert!(used < 20 << 10, "{rate} MiB/s: not met at all");
        }
        let (_, at) = sim.view().becomes("MemoryPressure", "True", SOON).await;
        let late = at - crossed.expect("no pressure before the threshold");
        let limit = Duration::from_millis(250) + AT_ONCE;
        assert!(late <= limit, "{rate} MiB/s: {late:?} late");
    }
}
