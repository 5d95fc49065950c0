//! Keys whose new value applies without a restart.

use std::time::Duration;

use nodepulse_core::reading::{StallKind, StallOf};

use nodepulse_tests::SOON;
use nodepulse_tests::node::pass;

use super::{AT_ONCE, Cause, KILLED_PODS, REGULAR, SAMPLE_INTERVAL, SHORTAGE, Sim};

#[tokio::test(start_paused = true)]
async fn a_reload_changes_from_when_on_kills_are_frequent() {
    let sim = Sim::start().await;
    let [pod, ..] = KILLED_PODS;
    sim.kills_in(&[pod], 2).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(sim.view().status("FrequentOOMKills"), "False");
    sim.node
        .reload(|now| {
            now.oom_frequent_incidents = Some("3".to_owned());
            now.oom_frequent_pods = Some("1".to_owned());
        })
        .await;
    pass(SAMPLE_INTERVAL).await;
    sim.kills_in(&[pod], 1).await;
    sim.view().becomes("FrequentOOMKills", "True", SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_shorter_transition_period_ends_a_stall_sooner() {
    const SHORTER: Duration = Duration::from_secs(30);

    let sim = Sim::start().await;
    let view = sim.view();
    let stall = Cause::Stall(StallOf::Node, StallKind::Memory);
    sim.begin(stall).await;
    view.becomes("MemoryStallPressure", "True", SHORTAGE + AT_ONCE)
        .await;
    sim.end(stall).await;
    sim.node
        .reload(|now| now.eviction_pressure_transition_period = Some("30s".to_owned()))
        .await;
    let longest = SHORTER + SAMPLE_INTERVAL + REGULAR;
    view.becomes("MemoryStallPressure", "False", longest).await;
}
