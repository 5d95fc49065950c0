//! The configuration, read again while we run.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::App;
use super::blocking::Question;
use super::pod_updates::node_events;
use crate::clock::Now;
use crate::config::{Config, ConfigChanges, LogFormat, LogLevel};
use crate::subjects::{DiskInput, IncidentInput, Input, StallInput};

/// Ports below this need a right that is gone by now.
const PRIVILEGED: u16 = 1024;

/// Reads all layers of the configuration. Can wait for a disk.
#[derive(Clone)]
pub struct ReadConfig(Arc<dyn Fn() -> Result<Config, String> + Send + Sync>);

impl ReadConfig {
    /// By this; an error is one line.
    #[must_use]
    pub fn new(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(super) fn read(&self) -> Result<Config, String> {
        (self.0)()
    }
}

impl fmt::Debug for ReadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadConfig")
    }
}

/// Changes what is logged, and how.
pub type SetLogging = Box<dyn Fn(LogLevel, LogFormat) + Send>;

/// Where the wish to read the configuration again comes from, and what is needed for that.
pub struct Reloads {
    /// A signal, or a file that changed. Holds one: a word that waits stands for all that follow it.
    pub asked: mpsc::Receiver<()>,
    /// How it is read.
    pub read: ReadConfig,
    /// How logging follows.
    pub logging: SetLogging,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").finish_non_exhaustive()
    }
}

/// What the loop knows of it.
pub(super) struct Reloading {
    asked: mpsc::Receiver<()>,
    logging: SetLogging,
    /// It is being read.
    busy: bool,
    /// Asked for again meanwhile.
    again: bool,
}

impl Reloading {
    pub(super) fn new(reloads: Reloads) -> Self {
        Self {
            asked: reloads.asked,
            logging: reloads.logging,
            busy: false,
            again: false,
        }
    }
}

impl Reloading {
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }
}

/// Somebody wants the configuration read again; never, where nobody can.
pub(super) async fn asked(reloading: Option<&mut Reloading>) {
    let asked = match reloading {
        Some(reloading) => reloading.asked.recv().await,
        None => None,
    };
    if asked.is_none() {
        std::future::pending::<()>().await;
    }
}

impl App {
    /// Has the configuration read, once more where that is under way.
    pub(super) fn reload(&mut self) {
        let Some(reloading) = &mut self.reloading else {
            return;
        };
        reloading.again = reloading.busy;
        if reloading.busy {
            return;
        }
        reloading.busy = true;
        self.heartbeat.notify.reloading(self.clock.monotonic());
        self.blocking.ask(Question::Configuration);
    }

    /// The configuration was read, or why not.
    pub(super) fn configured(&mut self, read: Result<Box<Config>, String>, now: Now) {
        let result = match read {
            Err(why) => {
                error!(why, "configuration refused; the last good one stays");
                "refused"
            }
            Ok(new) => {
                let changes = self.adopt(*new, now);
                tell(&changes);
                if !changes.pending_restart.is_empty() {
                    "needs_restart"
                } else if changes.applied.is_empty() {
                    "unchanged"
                } else {
                    "applied"
                }
            }
        };
        self.metering.reloaded(result);
        let again = self.reloading.as_mut().is_some_and(|reloading| {
            reloading.busy = false;
            std::mem::take(&mut reloading.again)
        });
        self.tell_ready();
        if again {
            self.reload();
        }
    }

    /// Takes over what can be, everywhere that it matters.
    fn adopt(&mut self, new: Config, now: Now) -> ConfigChanges {
        let served = self.config.serve;
        let mut changes = self.config.apply(new);
        if changes.applied.is_empty() {
            return changes;
        }
        let config = &self.config;
        self.evaluator.set_policy(config.policy.clone());
        if let Some(own) = &mut self.own {
            own.set_transition_period(config.policy.transition_period);
        }
        super::facts::configure(&mut self.facts, config);
        let node_events = IncidentInput::Configured(node_events(config));
        self.feed(Input::Incident(node_events), now);
        let config = &self.config;
        self.metering.set_per_pod(config.per_pod_metrics);
        if let Some(reloading) = &self.reloading {
            (reloading.logging)(config.log_level, config.log_format);
        }
        if config.serve != served && !self.serve_elsewhere() {
            self.config.serve = served;
            changes.applied.retain(|key| *key != "serve.address");
            changes.pending_restart.push("serve.address");
        }
        let transition_period = self.config.policy.transition_period;
        let stalls = StallInput::Configured { transition_period };
        self.feed(Input::Stall(stalls), now);
        let disks = DiskInput::Configured(self.config.disk_io.clone());
        self.feed(Input::Disk(disks), now);
        self.configure_pids(now);
        // By the new thresholds, at once.
        self.sample(now, None);
        self.ask_storage();
        changes
    }

    /// `false` where the new port cannot be had.
    fn serve_elsewhere(&mut self) -> bool {
        let address = self.config.serve;
        let privileged = |port| 0 < port && port < PRIVILEGED;
        if address.is_some_and(|address| privileged(address.port())) {
            return false;
        }
        self.metering.serve_at(address)
    }
}

fn tell(changes: &ConfigChanges) {
    let ConfigChanges {
        applied: taken,
        pending_restart: waiting,
    } = changes;
    info!(changed = ?taken, "configuration read again");
    if !waiting.is_empty() {
        warn!(keys = ?waiting, "needs restart");
    }
}
