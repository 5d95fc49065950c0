//! Conditions of node mode, from signals to the API server.

/// Disks that are slow, hang, fail or are not measured.
mod disks;
/// When a condition begins and ends.
mod edges;
/// Sources that appear late.
mod sources;
/// Which patches are sent at once.
mod urgent;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::Side;

use nodepulse_tests::SOON;
use nodepulse_tests::days::Stage;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Node, in_memory};

/// What a request takes in memory.
const AT_ONCE: Duration = Duration::from_millis(5);
/// The longest time to the next regular computation, with which changes are sent that are not
/// urgent.
const REGULAR: Duration = Duration::from_millis(10_405);
const TRANSITION: Duration = Duration::from_mins(5);
/// A capacity of 10,000 pids; the threshold is 500.
const FEW: u64 = 200;
/// The longest time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Two sampling periods, after which a source that cannot be read is lost.
const LOST: Duration = Duration::from_secs(20);

/// A node that is registered and calm.
async fn start(configure: impl FnOnce(Node) -> Node) -> Stage {
    on(Arc::new(MadeUpHost::calm()), configure).await
}

/// The same, on this host.
async fn on(host: Arc<MadeUpHost>, configure: impl FnOnce(Node) -> Node) -> Stage {
    host.pid_max(10_000);
    let stage = Stage::on(&in_memory(), host, configure);
    stage.view().settled(SOON).await;
    stage
}

/// A link to itself: it exists, but cannot be read, like a mount whose server is unavailable.
fn unreadable(host: &MadeUpHost, rel: &str) {
    host.remove(rel);
    let path = host.path().join(rel);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(path.file_name().unwrap(), &path).unwrap();
}
