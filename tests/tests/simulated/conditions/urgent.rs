//! Which patches are sent at once.

use nodepulse_tests::api_server::{Effect, Fault};
use nodepulse_tests::flapping::{self, CROSSINGS, Exceeds, Flapping};
use nodepulse_tests::node::pass;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A node whose conditions end a second after their cause, and how late each True was.
async fn flap(phases: &[(Exceeds, &'static str, u64)]) -> Vec<Vec<Option<Duration>>> {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0");
    let sim = on(host, |node| {
        let node = node.hard("memory.available<1Gi,pid.available<5%");
        node.config(|overrides| {
            overrides.eviction_pressure_transition_period = Some("1s".to_owned());
        })
    })
    .await;
    pass(Duration::from_secs(33)).await;
    let flapping = |&(exceeds, type_, phase)| Flapping {
        exceeds,
        type_,
        phase: Duration::from_millis(phase),
    };
    let all: Vec<_> = phases.iter().map(flapping).collect();
    flapping::cross(&all, &sim.api, &sim.host, &sim.node).await
}

#[tokio::test(start_paused = true)]
async fn among_flapping_conditions_each_true_is_as_quick_as_alone_and_every_one_is_seen() {
    use Exceeds::{Disk, Memory, Pids};

    let rows = [
        [0, 0, 0],
        [0, 300, 600],
        [0, 700, 1_400],
        [3_100, 3_050, 3_000],
        [11_930, 4_410, 17_220],
        [5_310, 12_870, 13_090],
    ];
    for [pids, memory, disk] in rows {
        let all = [
            (Pids, "PIDPressure", pids),
            (Memory, "MemoryPressure", memory),
            (Disk, "DiskIOPressure", disk),
        ];
        let together = flap(&all).await;
        for (one, together) in all.iter().zip(together) {
            let alone = latencies(&flap(&[*one]).await.remove(0));
            let together = latencies(&together);
            assert_eq!(alone.len(), CROSSINGS as usize, "{one:?}: alone");
            assert_eq!(together.len(), CROSSINGS as usize, "{one:?}: {together:?}");
            let (median, largest) = (alone[alone.len() / 2], alone[alone.len() - 1]);
            assert!(largest <= AT_ONCE, "{one:?}: {alone:?}");
            // Another condition can have been patched less than a second before.
            let spaced = largest + SECOND;
            assert!(
                together.iter().all(|late| *late <= spaced),
                "{one:?}: {together:?}"
            );
            let near = |phase: u64| phase.abs_diff(one.2) < 1_000;
            if all.iter().filter(|other| near(other.2)).count() == 1 {
                assert_eq!(
                    together[together.len() / 2],
                    median,
                    "{one:?}: {together:?}"
                );
            }
        }
    }
}

/// Those of every True that was seen, in order of their size.
fn latencies(late: &[Option<Duration>]) -> Vec<Duration> {
    let mut all: Vec<_> = late.iter().flatten().copied().collect();
    all.sort_unstable();
    all
}

/// A node with a disk whose conditions end a second after their cause.
async fn with_short_transitions() -> Stage {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0");
    let sim = on(host, |node| {
        node.config(|overrides| {
            overrides.eviction_pressure_transition_period = Some("1s".to_owned());
        })
    })
    .await;
    pass(Duration::from_secs(33)).await;
    sim
}

/// The number of tasks exceeds the threshold for 100 ms.
async fn exceed_shortly(sim: &Stage) {
    sim.node.kernel().crowd().await;
    pass(Duration::from_millis(100)).await;
    sim.host.tasks(FEW);
    sim.node.kernel().pid_crossing(Side::Under, 200).await;
}

/// The first time a condition is patched at once. The second time it would have to wait until ten
/// seconds after the first, and ends before.
#[tokio::test(start_paused = true)]
async fn a_true_that_ends_before_its_turn_is_recorded_with_the_next_computation() {
    let sim = with_short_transitions().await;
    let view = sim.view();
    let before = view.patches().len();
    exceed_shortly(&sim).await;
    pass(SECOND * 2).await;
    assert_eq!(view.status("PIDPressure"), "True", "its end is not urgent");
    sim.node.kernel().slow_window((8, 0)).await;
    pass(SECOND + AT_ONCE).await;
    assert_eq!(view.status("PIDPressure"), "False", "carried");
    exceed_shortly(&sim).await;
    pass(SECOND * 4).await;
    assert_eq!(view.patches().len() - before, 2, "it had to wait");
    assert_eq!(view.event_counts()["NodeHasInsufficientPID"], 1);
    pass(REGULAR).await;
    let counts = view.event_counts();
    assert_eq!(counts["NodeHasInsufficientPID"], 2, "{counts:?}");
    let began = view.event("NodeHasInsufficientPID", SOON).await;
    assert_eq!(began["lastTimestamp"], "2026-01-01T00:00:36Z", "not later");
    // That of the new Node, and those of both ends.
    assert_eq!(counts["NodeHasSufficientPID"], 3, "{counts:?}");
}

/// The patch with the end of the first True is applied, but its answer is lost. Then the condition
/// becomes True and ends again, without a patch.
#[tokio::test(start_paused = true)]
async fn the_end_in_a_patch_with_a_lost_response_is_recorded_before_a_true_without_a_patch() {
    const STATUS: &str = "/api/v1/nodes/worker-1/status";

    let sim = with_short_transitions().await;
    let view = sim.view();
    exceed_shortly(&sim).await;
    pass(SECOND * 2).await;
    assert_eq!(view.status("PIDPressure"), "True", "its end is not urgent");
    let faults = sim.api.faults();
    faults.push(Fault::on("PATCH", STATUS, Effect::ResetAfterwards));
    // Neither is the Node read again.
    faults.push(Fault::on("*", "/api/v1/nodes/", Effect::Status(503)).always());
    sim.node.kernel().slow_window((8, 0)).await;
    pass(SECOND + AT_ONCE).await;
    assert_eq!(view.status("PIDPressure"), "False", "applied");
    exceed_shortly(&sim).await;
    pass(SECOND * 2).await;
    faults.clear();
    assert_eq!(view.event_counts()["NodeHasInsufficientPID"], 1);
    pass(REGULAR * 2).await;
    let counts = view.event_counts();
    assert_eq!(counts["NodeHasInsufficientPID"], 2, "{counts:?}");
    // That of the new Node, and those of both ends.
    assert_eq!(counts["NodeHasSufficientPID"], 3, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_true_that_becomes_unknown_while_a_sync_fails_is_recorded_once_like_its_end() {
    const STATUS: &str = "/api/v1/nodes/worker-1/status";

    let sim = start(|node| node.hard("memory.available<1Gi,pid.available<500")).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    sim.api
        .faults()
        .push(Fault::on("PATCH", STATUS, Effect::Hang).always());
    sim.node.kernel().crowd().await;
    pass(SECOND).await;
    sim.host.mem_working_set("15500Mi");
    pass(SAMPLE_INTERVAL).await;
    unreadable(&sim.host, "sys/fs/cgroup/memory.stat");
    pass(LOST + SAMPLE_INTERVAL).await;
    sim.api.faults().clear();
    view.becomes("MemoryPressure", "Unknown", Duration::from_mins(1))
        .await;
    pass(SECOND).await;
    let counts = view.event_counts();
    assert_eq!(counts["NodeHasInsufficientMemory"], 1, "{counts:?}");
    assert_eq!(counts["SourceUnavailable"], 1, "{counts:?}");
}
