//! The machine goes down: said before it does.

use tokio::sync::mpsc;
use tracing::info;

use super::App;
use crate::clock::Now;
use crate::kube_event::{Draft, Involved, ReportedKills};
use crate::logind::{Lock, PowerMessage};
use crate::node_status::Shutdown;
use crate::node_status::transition::EventType;
use crate::reporting::{Reporting, Why};

/// What logind says.
pub(super) struct Power {
    words: Option<mpsc::Receiver<PowerMessage>>,
    /// Held until what is to be said is said.
    lock: Option<Lock>,
}

impl Power {
    /// Listens to `words`, if there are any.
    pub(super) const fn listening_to(words: Option<mpsc::Receiver<PowerMessage>>) -> Self {
        Self { words, lock: None }
    }

    /// The next word; never, where there is no logind.
    pub(super) async fn word(&mut self) -> PowerMessage {
        let word = match &mut self.words {
            Some(words) => words.recv().await,
            None => std::future::pending().await,
        };
        if let Some(word) = word {
            return word;
        }
        self.words = None;
        std::future::pending().await
    }
}

impl App {
    /// Says at once that the node goes down, or that it does not after all. The budget of edges is
    /// for conditions that come and go; this is about the last one.
    pub(super) fn power(&mut self, word: PowerMessage, now: Now) {
        let (shutdown, message) = match word {
            PowerMessage::ShuttingDown(lock) => {
                self.power.lock = lock;
                (
                    Shutdown::Announced,
                    "Shutdown manager detected shutdown event",
                )
            }
            PowerMessage::Cancelled => {
                self.power.lock = None;
                (
                    Shutdown::NotAnnounced,
                    "Shutdown manager detected shutdown cancellation",
                )
            }
        };
        info!(?shutdown, "logind");
        self.facts.shutdown = shutdown;
        self.record_all(vec![Draft {
            object: Involved::Node,
            type_: EventType::Normal,
            reason: "Shutdown".to_owned(),
            message: message.to_owned(),
            of: 1,
            times: 1,
            kills: ReportedKills::default(),
            at: now.wall,
            stamp: None,
        }]);
        self.sync(Why::Edge, now);
    }

    /// Lets the machine go down once nothing more is to be said, or cannot be.
    pub(super) fn let_go(&mut self) {
        let syncing = self.reporting.as_ref().is_some_and(Reporting::is_syncing);
        if !syncing && self.power.lock.take().is_some() {
            info!("shutdown goes on");
        }
    }
}
