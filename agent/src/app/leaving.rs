//! The way out: what is known by now is told, written down and sent.

use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::App;
use super::parts::LoopInputs;
use crate::record::Received;
use crate::subjects::{IncidentInput, Input, KillCounterInput};

/// Records that are there when we are asked to stop get so long, which is enough for full rings. A
/// storm that goes on is not waited out.
const LAST_RECORDS: Duration = Duration::from_millis(500);
/// Counting kills gets so long, and so does writing down what was acknowledged.
const LAST_COUNTS: Duration = Duration::from_secs(1);

impl App {
    pub(super) async fn leave(mut self, events: mpsc::Receiver<Received>, inputs: LoopInputs) {
        self.last_events(events, inputs).await;
        self.last_counts().await;
        self.feed(Input::Incident(IncidentInput::Stopping), self.clock.now());
        if let Some(reporting) = self.reporting.take() {
            let events = reporting.sink();
            reporting.finish(&mut self.tasks).await;
            // Only now it is known what was acknowledged.
            let outcomes = KillCounterInput::Settled(events.kill_outcomes());
            self.feed(Input::KillCounter(outcomes), self.clock.now());
        }
        self.save_counts().await;
    }

    /// Takes what the kernel has told by now: on the way out, what waits in the rings is news too.
    async fn last_events(&mut self, mut events: mpsc::Receiver<Received>, inputs: LoopInputs) {
        let LoopInputs {
            leaving,
            mut readers,
            _watchers: watchers,
            ..
        } = inputs;
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
                self.kernel_records(received, &mut events, self.clock.now());
            }
            while let Ok(received) = events.try_recv() {
                self.kernel_records(received, &mut events, self.clock.now());
            }
        };
        if tokio::time::timeout(LAST_RECORDS, rest).await.is_err() {
            warn!("the kernel tells more than could be read before the end");
        }
    }

    /// Reports what only the counters know of.
    async fn last_counts(&mut self) {
        self.feed(
            Input::KillCounter(KillCounterInput::Stopping),
            self.clock.now(),
        );
        let counted = async {
            while self.subjects.kill_counters.is_asked() {
                let answer = self.blocking.answer().await;
                self.answered(answer, self.clock.now());
            }
        };
        if tokio::time::timeout(LAST_COUNTS, counted).await.is_err() {
            warn!("OOM kills could not be counted before the end; the next start reports them");
        }
    }

    /// Writes down what was acknowledged, and when each condition was last exceeded.
    async fn save_counts(&mut self) {
        let written = async {
            while self.subjects.kill_counters.is_saving() {
                let answer = self.blocking.answer().await;
                self.answered(answer, self.clock.now());
            }
            self.keep_exactly(self.clock.now());
            while self.subjects.kill_counters.is_saving() || self.exceeded.is_writing() {
                let answer = self.blocking.answer().await;
                self.answered(answer, self.clock.now());
            }
        };
        if tokio::time::timeout(LAST_COUNTS, written).await.is_err() {
            warn!("what was reported could not be written down; the next start reports it again");
        }
    }
}
