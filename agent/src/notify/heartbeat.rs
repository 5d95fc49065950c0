//! Schedule of keep-alive messages.

use nodepulse_core::clock::BootNanos;

use super::Notify;

#[derive(Debug)]
pub struct Heartbeat {
    pub notify: Notify,
    /// `None` without a watchdog.
    due: Option<BootNanos>,
}

impl Heartbeat {
    /// The first message is due after one interval.
    pub fn new(notify: Notify, now: BootNanos) -> Self {
        let due = notify.watchdog().map(|every| now.plus(every));
        Self { notify, due }
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const EVERY: Duration = Duration::from_secs(15);

    fn at(secs: u64) -> BootNanos {
        BootNanos(0).plus(Duration::from_secs(secs))
    }

    #[test]
    fn a_message_is_sent_an_interval_after_the_last_one() {
        let path = std::env::temp_dir().join(format!("nodepulse-beat-{}", std::process::id()));
        let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let notify = Notify::connect(&path.display().to_string(), Some(EVERY)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut heartbeat = Heartbeat::new(notify, at(100));
        // Now, the end of the wake-up, whether a message is sent, and when the next one is due.
        let rows = [
            (100, 101, false, 115),
            (114, 114, false, 115),
            (114, 115, true, 129),
            (115, 116, false, 129),
            (140, 140, true, 155),
        ];
        for (now, soon, sent, due) in rows {
            heartbeat.beat(at(now), at(soon));
            assert_eq!(manager.recv(&mut [0; 64]).is_ok(), sent, "{now}");
            assert_eq!(heartbeat.due(), Some(at(due)), "{now}");
        }
    }

    #[test]
    fn without_a_watchdog_nothing_is_due() {
        let heartbeat = Heartbeat::new(Notify::default(), at(100));
        assert_eq!(heartbeat.due(), None);
    }
}
