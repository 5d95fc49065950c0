//! Sources of records other than the probes' rings. Each is a task that waits for the kernel,
//! decodes, and sends the same [`Received`] as a ring does.
//!
//! If a watcher cannot start or ends, the agent logs a warning and uses a slower source. If a ring
//! fails, the agent exits.

use std::fs::File;
use std::future::Future;
use std::io;

use nodepulse_core::record::{Received, Record};
use nodepulse_io::clock::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::cgroup_watch::{self, WatchedTree};
use super::psi::Trigger;
use super::{kmsg, psi, uevent};

/// The running watchers, which end on drop.
#[derive(Debug)]
pub struct Watchers {
    tasks: JoinSet<()>,
}

impl Watchers {
    /// Starts the watchers that this node and kernel need. Must be called in a runtime.
    ///
    /// `trees` are the pods' cgroups; `log` is the kernel's log, opened if no program reports
    /// kills.
    pub fn start(
        trees: Vec<WatchedTree>,
        log: Option<File>,
        triggers: Vec<Trigger>,
        clock: Clock,
        records: &mpsc::Sender<Received>,
    ) -> Self {
        let mut watchers = Self {
            tasks: JoinSet::new(),
        };
        if !trees.is_empty() {
            let read = cgroup_watch::read(trees, clock, records.clone());
            watchers.spawn("cgroups", read);
        }
        match uevent::open() {
            Ok(socket) => {
                let read = uevent::read(socket, clock, records.clone());
                watchers.spawn("disks", read);
            }
            Err(err) => warn!(
                err = &err as &dyn std::error::Error,
                "disk changes are detected within five minutes only; allow netlink sockets \
                 (AF_NETLINK) to this process"
            ),
        }
        for trigger in triggers {
            watchers.spawn("stall", psi::read(trigger, clock, records.clone()));
        }
        if let Some(log) = log {
            watchers.spawn("kmsg", kills_logged(log, clock, records.clone()));
        }
        watchers
    }

    /// Runs `watch` until the agent ends.
    fn spawn(
        &mut self,
        name: &'static str,
        watch: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            match watch.await {
                Ok(()) => warn!(watcher = name, "watcher ended"),
                Err(err) => {
                    let err = &err as &dyn std::error::Error;
                    warn!(watcher = name, err, "watcher failed");
                }
            }
        });
    }
}

/// Reads kills from the kernel's log, and sends [`Record::LogEnded`] when it ends.
async fn kills_logged(log: File, clock: Clock, records: mpsc::Sender<Received>) -> io::Result<()> {
    let ended = kmsg::read(log, clock, records.clone()).await;
    let last = Received {
        read: clock.now().boot,
        record: Ok(Record::LogEnded),
    };
    if records.send(last).await.is_err() {
        debug!("the loop ended before the kernel's log did");
    }
    ended
}
