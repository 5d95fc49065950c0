//! Which patches are sent at once.

use std::time::Duration;

use nodepulse_tests::flapping::{self, CROSSINGS, Exceeds, Flapping};
use nodepulse_tests::node::pass;

use super::{AT_ONCE, REGULAR, SAMPLE_INTERVAL, SHORT, Sim, cluster, patches};

#[tokio::test(start_paused = true)]
async fn among_flapping_conditions_every_true_is_seen_within_a_second_and_alone_at_once() {
    let sim = Sim::on(&cluster(), |node| {
        node.config(|overrides| {
            overrides.eviction_pressure_transition_period = Some("1s".to_owned());
        })
    })
    .await;
    pass(Duration::from_secs(33)).await;
    for [pids, memory, disk] in [[0, 300, 600], [11_930, 4_410, 17_220]] {
        let flapping = |exceeds, type_, phase| Flapping {
            exceeds,
            type_,
            phase: Duration::from_millis(phase),
        };
        let all = [
            flapping(Exceeds::Pids, "PIDsLow", pids),
            flapping(Exceeds::Memory, "MemoryLow", memory),
            flapping(Exceeds::Disk, "DiskIOPressure", disk),
        ];
        let apart = pids.abs_diff(memory) > 1_000;
        let longest = if apart {
            AT_ONCE
        } else {
            Duration::from_secs(1) + AT_ONCE
        };
        let late = flapping::cross(&all, &sim.api, &sim.host, &sim.node).await;
        for (one, late) in all.iter().zip(late) {
            let seen = late.iter().flatten().filter(|late| **late <= longest);
            assert_eq!(seen.count(), CROSSINGS as usize, "{one:?}: {late:?}");
        }
    }
}

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
