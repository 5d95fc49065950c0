//! The agent as a service: reloads, keep-alive messages, shutdowns of the machine and `--once`.

use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::node_status::Shutdown;
use nodepulse_linux::logind::PowerMessage;
use nodepulse_linux::logind::power::Power;
use tracing::info;

use super::reload::Reloading;
use crate::notify::heartbeat::Heartbeat;
use crate::reporting::once::Once;

pub(super) struct Service {
    pub(super) heartbeat: Heartbeat,
    pub(super) power: Power,
    /// `None` if the configuration is not reloaded.
    pub(super) reloading: Option<Reloading>,
    /// `None` if the agent runs until it is stopped.
    pub(super) once: Option<Once>,
}

impl Service {
    pub(super) fn due(&self) -> Option<BootNanos> {
        let once = self.once.as_ref().map(Once::deadline);
        [self.heartbeat.due(), once].into_iter().flatten().min()
    }

    /// Returns `true` if the configuration is to be read now; otherwise it is read once more after
    /// the read in progress. `monotonic` is the time of the request.
    pub(super) fn start_reload(&mut self, monotonic: Duration) -> bool {
        let start = self.reloading.as_mut().is_some_and(Reloading::start);
        if start {
            self.heartbeat.notify.reloading(monotonic);
        }
        start
    }

    pub(super) fn is_reloading(&self) -> bool {
        self.reloading.as_ref().is_some_and(Reloading::is_reading)
    }

    /// Records the end of a read. Returns `true` if the configuration has to be read again.
    pub(super) fn reloaded(&mut self) -> bool {
        self.reloading.as_mut().is_some_and(Reloading::finish)
    }
}

/// Handles a message of logind. Returns the state of the shutdown for the status.
pub(super) fn follow(message: PowerMessage, power: &mut Power) -> Shutdown {
    match message {
        PowerMessage::ShuttingDown(lock) => {
            info!("logind announced a shutdown");
            power.keep(lock);
            Shutdown::Announced
        }
        PowerMessage::Cancelled => {
            info!("logind cancelled the shutdown");
            power.keep(None);
            Shutdown::NotAnnounced
        }
    }
}
