//! Sources of records other than the probes' rings: each a task that waits for the kernel, decodes,
//! and sends the same [`Received`] as a ring does.
//!
//! If a watcher cannot start or ends, the agent logs a warning and uses a slower source. If a ring
//! fails, the agent exits.

use std::fs::File;
use std::future::Future;
use std::io;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Hierarchy, Layout};
use crate::os::cgroup_watch::{self, WatchedTree};
use crate::os::psi::Trigger;
use crate::os::{kmsg, psi, uevent};
use crate::queries::cgroups::LEVELS;
use crate::record::{Received, Record};

/// The counters of forks that a limit refused: see [`crate::host::cgroup::pids::refused`].
const PIDS_FILES: &[&str] = &["pids.events.local", "pids.events"];

/// Runs until dropped.
pub(super) struct Watchers {
    tasks: JoinSet<()>,
}

impl Watchers {
    /// Starts the watchers that this node and kernel need. Must be called in a runtime.
    ///
    /// `log` is the kernel's log, opened if no program reports kills.
    pub(super) fn start(
        pods: &PodsPath,
        log: Option<File>,
        triggers: Vec<Trigger>,
        clock: Clock,
        records: &mpsc::Sender<Received>,
    ) -> Self {
        let mut watchers = Self {
            tasks: JoinSet::new(),
        };
        // `pods_path` has logged why there is no layout.
        if let Some(layout) = pods.layout() {
            let trees = pods.possible().iter();
            let trees = trees.flat_map(|cgroup| pod_cgroups(layout, cgroup));
            let read = cgroup_watch::read(trees.collect(), clock, records.clone());
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
                    warn!(
                        watcher = name,
                        err = &err as &dyn std::error::Error,
                        "watcher failed"
                    );
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

/// The pods' cgroups in the hierarchy that kills refer to, and in the one that counts pids. In
/// version 2 these are the same.
fn pod_cgroups(layout: &Layout, cgroup: &str) -> Vec<WatchedTree> {
    let tree = |hierarchy: &Hierarchy, files| WatchedTree {
        top: hierarchy.dir(cgroup),
        depth: LEVELS,
        files,
    };
    let counting = layout.pids.iter();
    let mut trees: Vec<WatchedTree> = counting.map(|pids| tree(pids, PIDS_FILES)).collect();
    if layout.pids.as_ref() != Some(&layout.memory) {
        trees.push(tree(&layout.memory, &[]));
    }
    trees
}
