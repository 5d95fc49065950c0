//! Reloads the configuration while the agent runs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use nodepulse_core::clock::Now;
use nodepulse_core::reading::{AbsentSource, Stall};
use nodepulse_core::subjects::{Input, Settings};
use tokio::sync::mpsc;
use tracing::error;

use super::App;
use crate::config::{Config, ConfigChanges, LogFormat, LogLevel, key};
use crate::queries::pressure_files;
use crate::queries::read_config::ReadConfig;
use crate::reporting::Why;
use crate::telemetry::Telemetry;

/// Ports below this require a capability that the agent has dropped by now.
const PRIVILEGED: u16 = 1024;

pub type SetLogging = Box<dyn Fn(LogLevel, LogFormat) + Send>;

/// The source of reload requests, and the functions that carry them out.
pub struct Reloads {
    /// Receives a request after a signal or a change of the file. The capacity is one, since one
    /// pending request covers all later ones.
    pub asked: mpsc::Receiver<()>,
    pub read: ReadConfig,
    pub logging: SetLogging,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").finish_non_exhaustive()
    }
}

/// Progress of reading the configuration.
///
/// ```text
/// Idle ──request──► Reading ──request──► ReadingAgain
///   ▲                │  ▲                     │
///   └─────finish─────┘  └───────finish────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Idle,
    Reading,
    /// Another reload was requested during the read.
    ReadingAgain,
}

pub(super) struct Reloading {
    asked: mpsc::Receiver<()>,
    logging: SetLogging,
    progress: Progress,
}

impl Reloading {
    pub(super) fn new(reloads: Reloads) -> Self {
        Self {
            asked: reloads.asked,
            logging: reloads.logging,
            progress: Progress::Idle,
        }
    }

    pub(super) fn is_reading(&self) -> bool {
        self.progress != Progress::Idle
    }

    /// Returns `true` if the configuration is to be read now.
    pub(super) fn start(&mut self) -> bool {
        let start = self.progress == Progress::Idle;
        self.progress = match self.progress {
            Progress::Idle => Progress::Reading,
            Progress::Reading | Progress::ReadingAgain => Progress::ReadingAgain,
        };
        start
    }

    /// Returns `true` if the configuration is to be read again.
    pub(super) fn finish(&mut self) -> bool {
        let again = self.progress == Progress::ReadingAgain;
        self.progress = Progress::Idle;
        again
    }
}

/// Returns when a reload is requested. Stays pending if reloads are not possible.
pub(super) async fn requested(reloading: Option<&mut Reloading>) {
    let asked = match reloading {
        Some(reloading) => reloading.asked.recv().await,
        None => None,
    };
    if asked.is_none() {
        std::future::pending::<()>().await;
    }
}

pub(super) fn logged(read: Result<Box<Config>, String>) -> Option<Box<Config>> {
    read.inspect_err(|why| {
        error!(
            why,
            "configuration refused; the last valid one remains in effect"
        );
    })
    .ok()
}

/// Applies the keys that can change without a restart.
pub(super) fn apply(app: &mut App, new: Config, now: Now) -> ConfigChanges {
    let served = app.config.serve;
    let mut changes = app.config.apply(new);
    if changes.applied.is_empty() {
        return changes;
    }
    let config = &app.config;
    app.facts.set(super::facts::configured(config));
    app.telemetry.metering.set_per_pod(config.per_pod_metrics);
    app.telemetry.record_omitted(config.mode, &app.facts);
    if let Some(reloading) = &app.service.reloading {
        (reloading.logging)(config.log_level, config.log_format);
    }
    if config.serve != served && !serve_at(config.serve, &mut app.telemetry) {
        app.config.serve = served;
        let address = key::serve_address.spec.name;
        changes.applied.retain(|key| key != address);
        changes.pending_restart.push(address.to_owned());
    }
    let settings = settings(&app.config, &app.facts.companion.absent);
    app.feed(Input::Configured(Box::new(settings)), now);
    // A condition that was turned off is removed without waiting for the next regular computation.
    app.sync(Why::Tick, now);
    changes
}

/// Returns the settings of the subjects, at the start and after a reload.
pub(super) fn settings(config: &Config, absent: &BTreeMap<Stall, AbsentSource>) -> Settings {
    Settings {
        policy: config.policy.clone(),
        disk_io: config.disk_io.clone(),
        node_events: config.oom_node_events,
        frequent_oom: config.frequent_oom,
        stalls: pressure_files::watched(config, absent),
    }
}

/// Returns `false` if the new address cannot be bound.
fn serve_at(address: Option<SocketAddr>, telemetry: &mut Telemetry) -> bool {
    let privileged = |port| 0 < port && port < PRIVILEGED;
    if address.is_some_and(|address| privileged(address.port())) {
        return false;
    }
    telemetry.metering.serve_at(address)
}
