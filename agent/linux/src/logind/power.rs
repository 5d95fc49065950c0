//! The messages of logind, and the inhibitor lock that one of them carries.

use tokio::sync::mpsc;

use super::{Lock, PowerMessage};

#[derive(Debug)]
pub struct Power {
    messages: Option<mpsc::Receiver<PowerMessage>>,
    /// Delays the shutdown until the status has been written.
    lock: Option<Lock>,
}

impl Power {
    /// `None` means that there is no logind.
    pub const fn new(messages: Option<mpsc::Receiver<PowerMessage>>) -> Self {
        Self {
            messages,
            lock: None,
        }
    }

    /// Returns the next message. Stays pending if there is no logind.
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

    /// Delays the shutdown until [`Power::release`]. `None` ends the delay, if there is one.
    pub fn keep(&mut self, lock: Option<Lock>) {
        self.lock = lock;
    }

    /// Lets the machine shut down. Returns `true` if there was a lock.
    pub fn release(&mut self) -> bool {
        self.lock.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn messages_end_when_logind_does() {
        let pending = Duration::from_mins(1);
        let (send, messages) = mpsc::channel(1);
        let mut power = Power::new(Some(messages));
        send.send(PowerMessage::Cancelled).await.unwrap();
        drop(send);
        let message = timeout(pending, power.message()).await;
        assert!(matches!(message, Ok(PowerMessage::Cancelled)));
        // It stays pending if the future is dropped and created again, as in the main loop.
        for _ in 0..2 {
            assert!(timeout(pending, power.message()).await.is_err());
        }
    }

    #[test]
    fn the_last_lock_is_released_once() {
        let lock = || {
            let file = std::fs::File::open("/dev/null").unwrap();
            let descriptor = std::os::fd::OwnedFd::from(file);
            Lock {
                _descriptor: descriptor,
            }
        };
        let mut power = Power::new(None);
        assert!(!power.release());
        power.keep(Some(lock()));
        assert!(power.release());
        assert!(!power.release());
        power.keep(Some(lock()));
        power.keep(None);
        assert!(!power.release(), "the shutdown was cancelled");
    }
}
