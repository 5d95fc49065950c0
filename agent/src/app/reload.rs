//! Reloads the configuration while the agent runs.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::App;
use super::blocking::Question;
use super::pod_updates::node_events;
use crate::clock::Now;
use crate::config::{Config, ConfigChanges, LogFormat, LogLevel, key};
use crate::subjects::{DiskInput, IncidentInput, Input, StallInput};

/// Ports below this require a capability that the agent has dropped by now.
const PRIVILEGED: u16 = 1024;

/// Reads all layers of the configuration. Can block on a disk.
#[derive(Clone)]
pub struct ReadConfig(Arc<dyn Fn() -> Result<Config, String> + Send + Sync>);

impl ReadConfig {
    /// `read` returns an error as one line.
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

/// Changes the level and the format of the log.
pub type SetLogging = Box<dyn Fn(LogLevel, LogFormat) + Send>;

/// The source of reload requests, and the functions that carry them out.
pub struct Reloads {
    /// Receives a request after a signal or a change of the file. The capacity is one, since one pending
    /// request covers all later ones.
    pub asked: mpsc::Receiver<()>,
    /// Reads the configuration.
    pub read: ReadConfig,
    /// Applies the log settings.
    pub logging: SetLogging,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").finish_non_exhaustive()
    }
}

/// The state of reloads.
pub(super) struct Reloading {
    asked: mpsc::Receiver<()>,
    logging: SetLogging,
    /// A read is in progress.
    busy: bool,
    /// Another reload was requested during the read.
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

/// Returns when a reload is requested. Stays pending if reloads are not possible.
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
    /// Starts to read the configuration, or schedules a second read if one is in progress.
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

    /// Applies a configuration that was read, or logs why it is refused.
    pub(super) fn configured(&mut self, read: Result<Box<Config>, String>, now: Now) {
        let result = match read {
            Err(why) => {
                error!(
                    why,
                    "configuration refused; the last valid one remains in effect"
                );
                "refused"
            }
            Ok(new) => {
                let changes = self.adopt(*new, now);
                log_changes(&changes);
                if !changes.pending_restart.is_empty() {
                    "needs_restart"
                } else if changes.applied.is_empty() {
                    "unchanged"
                } else {
                    "applied"
                }
            }
        };
        self.metering.record_reload(result);
        let again = self.reloading.as_mut().is_some_and(|reloading| {
            reloading.busy = false;
            std::mem::take(&mut reloading.again)
        });
        self.notify_ready();
        if again {
            self.reload();
        }
    }

    /// Applies the keys that can change without a restart.
    fn adopt(&mut self, new: Config, now: Now) -> ConfigChanges {
        let served = self.config.serve;
        let mut changes = self.config.apply(new);
        if changes.applied.is_empty() {
            return changes;
        }
        let config = &self.config;
        self.evaluator.set_policy(config.policy.clone());
        if let Some(companion) = &mut self.companion {
            companion.set_transition_period(config.policy.transition_period);
        }
        super::facts::configure(&mut self.facts, config);
        let node_events = IncidentInput::Configured(node_events(config));
        self.feed(Input::Incident(node_events), now);
        let config = &self.config;
        self.metering.set_per_pod(config.per_pod_metrics);
        if let Some(reloading) = &self.reloading {
            (reloading.logging)(config.log_level, config.log_format);
        }
        if config.serve != served && !self.change_serve_address() {
            self.config.serve = served;
            let address = key::serve_address.spec.name;
            changes.applied.retain(|key| key != address);
            changes.pending_restart.push(address.to_owned());
        }
        let transition_period = self.config.policy.transition_period;
        let stalls = StallInput::Configured { transition_period };
        self.feed(Input::Stall(stalls), now);
        let disks = DiskInput::Configured(self.config.disk_io.clone());
        self.feed(Input::Disk(disks), now);
        self.configure_pids(now);
        // Apply the new thresholds at once.
        self.sample(now, None);
        self.ask_storage();
        changes
    }

    /// `false` if the new address cannot be bound.
    fn change_serve_address(&mut self) -> bool {
        let address = self.config.serve;
        let privileged = |port| 0 < port && port < PRIVILEGED;
        if address.is_some_and(|address| privileged(address.port())) {
            return false;
        }
        self.metering.serve_at(address)
    }
}

fn log_changes(changes: &ConfigChanges) {
    let ConfigChanges {
        applied,
        pending_restart,
    } = changes;
    info!(changed = %applied.join(", "), "configuration read again");
    if !pending_restart.is_empty() {
        warn!(keys = %pending_restart.join(","), "needs restart");
    }
}
