//! When a keep-alive message is due.

use super::Notify;
use crate::clock::BootNanos;

/// Keep-alive messages to the watchdog of the service manager.
#[derive(Debug)]
pub struct Heartbeat {
    /// The service manager.
    pub notify: Notify,
    /// `None`: there is no watchdog.
    due: Option<BootNanos>,
}

impl Heartbeat {
    /// The first one is due after one interval.
    #[must_use]
    pub fn new(notify: Notify, now: BootNanos) -> Self {
        let due = notify.watchdog().map(|every| now.plus(every));
        Self { notify, due }
    }

    /// When the next one is due.
    #[must_use]
    pub fn due(&self) -> Option<BootNanos> {
        self.due
    }

    /// Sends a keep-alive message if one is due by `soon`.
    pub fn beat(&mut self, now: BootNanos, soon: BootNanos) {
        if self.due.is_some_and(|due| due <= soon) {
            self.notify.alive();
            self.due = self.notify.watchdog().map(|every| now.plus(every));
        }
    }
}
