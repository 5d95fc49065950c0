//! The lines again, in short stories, on days when the API server is late or fails.

use std::time::Duration;

use nodepulse_tests::days::{Stage, end_alike};
use nodepulse_tests::node::pass;

/// For what a bad day can hold up: a hung request costs ten seconds, and a sync has five tries.
const PATIENCE: Duration = Duration::from_mins(3);

#[tokio::test(start_paused = true)]
async fn a_node_is_created_and_kept() {
    let open = || {
        Stage::open(|node| {
            node.config(|overrides| overrides.node_labels = Some("rack=7".to_owned()))
        })
    };
    end_alike(open, |stage| async move {
        stage.view().settled(PATIENCE).await;
        pass(Duration::from_mins(10)).await;
    })
    .await;
}
