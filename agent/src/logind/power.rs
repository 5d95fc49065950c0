//! The messages of logind, and the inhibitor lock that one of them carries.

use tokio::sync::mpsc;

use super::{Lock, PowerMessage};

/// The connection to logind.
#[derive(Debug)]
pub struct Power {
    messages: Option<mpsc::Receiver<PowerMessage>>,
    /// Delays the shutdown until the status has been written.
    lock: Option<Lock>,
}

impl Power {
    /// `None`: there is no logind.
    #[must_use]
    pub const fn new(messages: Option<mpsc::Receiver<PowerMessage>>) -> Self {
        Self {
            messages,
            lock: None,
        }
    }

    /// The next message. Stays pending if there is no logind.
    pub async fn message(&mut self) -> PowerMessage {
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

    /// Delays the shutdown until [`Power::release`]; `None` does not, or no longer.
    pub fn keep(&mut self, lock: Option<Lock>) {
        self.lock = lock;
    }

    /// Lets the machine shut down. Returns whether there was a lock.
    pub fn release(&mut self) -> bool {
        self.lock.take().is_some()
    }
}
