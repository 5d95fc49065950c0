//! What tells of the node beside the probes' rings: each a task that waits for the kernel, decodes,
//! and sends the same [`Received`] as a ring does.
//!
//! Unlike a ring, a watcher that cannot start or that ends is a warning and a slower line, never the
//! end of the agent.

use std::fs::File;
use std::future::Future;
use std::io;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use crate::clock::Clock;
use crate::event::Received;
use crate::kernel::kmsg;

/// Runs until dropped.
pub(super) struct Watchers {
    tasks: JoinSet<()>,
}

impl Watchers {
    /// Starts those that this configuration and this kernel need. Must be called in a runtime.
    ///
    /// `log` is the kernel's, opened where no program reports kills.
    pub(super) fn start(log: Option<File>, clock: Clock, events: &mpsc::Sender<Received>) -> Self {
        let mut watchers = Self {
            tasks: JoinSet::new(),
        };
        if let Some(log) = log {
            watchers.spawn("kmsg", kmsg::read(log, clock, events.clone()));
        }
        watchers
    }

    /// `what` reads for as long as the agent runs.
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
