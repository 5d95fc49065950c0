//! The way out: what is known by now is told, written down and sent.

use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::App;
use super::blocking::Answer;
use super::outside::Doors;
use crate::event::Received;

/// Records that are there when we are asked to stop get so long, which is enough for full rings. A
/// storm that goes on is not waited out.
const LAST_RECORDS: Duration = Duration::from_millis(500);
/// Counting kills and writing the counts down get so long.
const LAST_COUNTS: Duration = Duration::from_secs(2);

impl App {
    pub(super) async fn leave(mut self, events: mpsc::Receiver<Received>, doors: Doors) {
        self.last_events(events, doors).await;
        self.remember().await;
        self.tell_all_waiting();
        if let Some(reporting) = self.reporting {
            reporting.finish().await;
        }
    }

    /// Takes what the kernel has told by now: on the way out, what waits in the rings is news too.
    async fn last_events(&mut self, mut events: mpsc::Receiver<Received>, doors: Doors) {
        let Doors {
            leaving,
            mut readers,
            _watchers: watchers,
            ..
        } = doors;
        // They tell of nothing that would not be looked at anew by the next.
        drop(watchers);
        leaving.send_replace(true);
        let rest = async {
            let mut reading = true;
            while reading {
                let received = tokio::select! {
                    biased;
                    Some(received) = events.recv() => received,
                    ended = readers.join_next() => {
                        reading = ended.is_some();
                        continue;
                    }
                };
                self.kernel_events(received, &mut events, self.clock.now());
            }
            while let Ok(received) = events.try_recv() {
                self.kernel_events(received, &mut events, self.clock.now());
            }
        };
        if tokio::time::timeout(LAST_RECORDS, rest).await.is_err() {
            warn!("the kernel tells more than could be read before the end");
        }
    }

    /// Writes down what the next start is to know.
    async fn remember(&mut self) {
        self.blocking.ask(self.counts.last());
        let mut counted = false;
        let written = async {
            while !counted || self.counts.is_writing() {
                let answer = self.blocking.answer().await;
                counted |= matches!(answer, Answer::Kills(_));
                self.answered(answer, self.clock.now());
            }
        };
        if tokio::time::timeout(LAST_COUNTS, written).await.is_err() {
            warn!("kills until now could not be written down");
        }
    }
}
