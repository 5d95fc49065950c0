//! A program that embeds the agent can add a condition: the example does.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::days::Stage;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{in_memory, pass};

#[path = "../../../agent/examples/custom_condition.rs"]
#[expect(
    dead_code,
    reason = "its own `main` starts it against a real API server"
)]
mod example;

#[tokio::test(start_paused = true)]
async fn a_condition_of_an_embedding_program_is_written_with_the_agents() {
    for (swap_kib, status, reason) in [(0, "False", "SwapIsOff"), (2048, "True", "SwapIsOn")] {
        let host = Arc::new(MadeUpHost::calm());
        host.meminfo("SwapTotal", swap_kib);
        let stage = Stage::on(&in_memory(), host, |node| node.setters(example::setters()));
        let view = stage.view();
        view.settled(SOON).await;
        let expected = [
            "MemoryPressure",
            "DiskPressure",
            "PIDPressure",
            "DiskIOPressure",
            "DiskFailing",
            "SwapOn",
            "Ready",
        ];
        assert_eq!(view.condition_types(), expected);
        let condition = view.condition("SwapOn");
        assert_eq!(condition["status"], status, "{swap_kib} KiB");
        assert_eq!(condition["reason"], reason, "{swap_kib} KiB");

        // Another client writes an invalid status: it is corrected, which is no change.
        pass(Duration::from_mins(1)).await;
        let mut node = view.node().unwrap();
        node["status"]["conditions"][5]["status"] = "Unknown".into();
        stage.api.put_object(node);
        view.becomes("SwapOn", status, SOON * 2).await;
        pass(SOON).await;
        let expected = usize::from(status == "True");
        let counts = view.event_counts();
        assert_eq!(
            counts.get(reason).copied().unwrap_or_default(),
            expected,
            "{counts:?}"
        );
        let metrics = stage.node.scrape().await;
        let labels = [("status", status), ("type", "SwapOn")];
        assert_eq!(
            metrics.value("nodepulse_condition_status", &labels),
            Some(1.0)
        );
        stage.node.stop().await.unwrap();
    }
}
