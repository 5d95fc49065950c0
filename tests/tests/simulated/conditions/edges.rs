//! When a condition begins and ends.

use nodepulse_tests::node::pass;

use super::*;

#[tokio::test(start_paused = true)]
async fn falling_memory_is_detected_within_a_quarter_of_a_second() {
    // MiB a second; the quickest is as quick as one thread touches memory.
    for rate in [100_u64, 500, 1_000, 2_000] {
        let host = Arc::new(MadeUpHost::calm());
        host.mem_working_set("11Gi");
        let sim = on(host, |node| node.hard("memory.available<1Gi")).await;
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
