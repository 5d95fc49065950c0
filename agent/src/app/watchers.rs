//! What tells of the node beside the probes' rings: each a task that waits for the kernel, decodes,
//! and sends the same [`Received`] as a ring does.
//!
//! Unlike a ring, a watcher that cannot start or that ends is a warning and a slower line, never the
//! end of the agent.

use std::future::Future;
use std::io;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use crate::clock::Clock;
use crate::config::Config;
use crate::event::Received;
use crate::kernel::Support;

/// Runs until dropped.
pub(super) struct Watchers {
    tasks: JoinSet<()>,
}

impl Watchers {
    /// Starts those that this configuration and this kernel need. Must be called in a runtime.
    pub(super) fn start(
        _config: &Config,
        _support: &Support,
        _clock: Clock,
        _events: &mpsc::Sender<Received>,
    ) -> Self {
        Self {
            tasks: JoinSet::new(),
        }
    }

    /// `what` reads for as long as the agent runs.
    #[expect(dead_code, reason = "the first watcher is on its way")]
    fn spawn(
        &mut self,
        name: &'static str,
        what: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            match what.await {
                Ok(()) => warn!(watcher = name, "ended"),
                Err(err) => {
                    warn!(
                        watcher = name,
                        err = &err as &dyn std::error::Error,
                        "not running"
                    );
                }
            }
        });
    }
}
