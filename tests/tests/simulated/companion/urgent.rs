//! Which patches are sent at once.

use std::time::Duration;

use nodepulse_tests::node::pass;

use super::{AT_ONCE, REGULAR, SAMPLE_INTERVAL, SHORT, Sim, cluster, patches};

#[tokio::test(start_paused = true)]
async fn the_end_of_a_condition_is_sent_with_the_next_regular_computation() {
    let sim = Sim::on(&cluster(), |node| {
        node.config(|overrides| {
            overrides.eviction_pressure_transition_period = Some("20s".to_owned());
        })
    })
    .await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    sim.host.mem_working_set(SHORT);
    view.becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2).await;
    sim.crowd().await;
    let (_, began) = view.becomes("PIDsLow", "True", SAMPLE_INTERVAL).await;
    sim.host.tasks(200).mem_working_set("4Gi");
    let before = patches(&sim.api).len();
    view.becomes("PIDsLow", "False", Duration::from_mins(1))
        .await;
    let sent = patches(&sim.api).split_off(before);
    assert_eq!(sent.len(), 1, "both with one");
    assert_eq!(view.status("MemoryLow"), "False");
    assert!(sent[0].at - began > Duration::from_secs(20) + AT_ONCE);
    let longest = Duration::from_secs(20) + SAMPLE_INTERVAL + REGULAR;
    assert!(sent[0].at - began <= longest, "{:?}", sent[0].at - began);
}
