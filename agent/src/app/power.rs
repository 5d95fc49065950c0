//! Announces a shutdown of the machine before it takes place.

use tokio::sync::mpsc;
use tracing::info;

use super::App;
use crate::clock::Now;
use crate::kube_event::{Draft, Involved, ReportedKills};
use crate::logind::{Lock, PowerMessage};
use crate::node_status::Shutdown;
use crate::node_status::transition::EventType;
use crate::reporting::{Reporting, Why};

/// The connection to logind.
pub(super) struct Power {
    messages: Option<mpsc::Receiver<PowerMessage>>,
    /// Delays the shutdown until the status has been written.
    lock: Option<Lock>,
}

impl Power {
    /// `None`: there is no logind.
    pub(super) const fn new(messages: Option<mpsc::Receiver<PowerMessage>>) -> Self {
        Self {
            messages,
            lock: None,
        }
    }

    /// The next message. Stays pending if there is no logind.
    pub(super) async fn message(&mut self) -> PowerMessage {
        let message = match &mut self.messages {
            Some(messages) => messages.recv().await,
            None => std::future::pending().await,
        };
        if let Some(message) = message {
            return message;
        }
        self.messages = None;
        std::future::pending().await
    }
}

impl App {
    /// Reports at once that the machine shuts down, or that the shutdown was cancelled. The rate limit
    /// of status writes for changed conditions does not apply.
    pub(super) fn power(&mut self, message: PowerMessage, now: Now) {
        let (shutdown, text) = match message {
            PowerMessage::ShuttingDown(lock) => {
                info!("logind announced a shutdown");
                self.power.lock = lock;
                (
                    Shutdown::Announced,
                    "Shutdown manager detected shutdown event",
                )
            }
            PowerMessage::Cancelled => {
                info!("logind cancelled the shutdown");
                self.power.lock = None;
                (
                    Shutdown::NotAnnounced,
                    "Shutdown manager detected shutdown cancellation",
                )
            }
        };
        self.facts.shutdown = shutdown;
        self.record(Draft {
            object: Involved::Node,
            type_: EventType::Normal,
            reason: "Shutdown".to_owned(),
            message: text.to_owned(),
            of: 1,
            times: 1,
            kills: ReportedKills::default(),
            at: now.wall,
            stamp: None,
        });
        self.sync(Why::Edge, now);
    }

    /// Lets the machine shut down once no status write is in progress.
    pub(super) fn release_shutdown_lock(&mut self) {
        let syncing = self.reporting.as_ref().is_some_and(Reporting::is_syncing);
        if !syncing && self.power.lock.take().is_some() {
            info!("released the shutdown inhibitor lock");
        }
    }
}
