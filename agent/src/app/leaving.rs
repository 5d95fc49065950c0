//! The orderly exit: reports, saves and sends what is pending.

use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::App;
use super::parts::LoopInputs;
use crate::record::Received;
use crate::subjects::{IncidentInput, Input, KillCounterInput};

/// Time limit for records that are pending when the agent is asked to stop. It is enough for full
/// rings; a storm that continues is cut off.
const LAST_RECORDS: Duration = Duration::from_millis(500);
/// Time limit for counting kills, and for saving what was acknowledged.
const LAST_COUNTS: Duration = Duration::from_secs(1);

impl App {
    pub(super) async fn shut_down(mut self, events: mpsc::Receiver<Received>, inputs: LoopInputs) {
        self.last_events(events, inputs).await;
        self.last_counts().await;
        self.feed(Input::Incident(IncidentInput::Stopping), self.clock.now());
        if let Some(reporting) = self.reporting.take() {
            let events = reporting.sink();
            reporting.finish(&mut self.tasks).await;
            // Only now all acknowledgements are known.
            let outcomes = KillCounterInput::Settled(events.kill_outcomes());
            self.feed(Input::KillCounter(outcomes), self.clock.now());
        }
        self.save_state().await;
    }

    /// Handles the records that are still in the rings.
    async fn last_events(&mut self, mut events: mpsc::Receiver<Received>, inputs: LoopInputs) {
        let LoopInputs {
            stop,
            mut readers,
            _watchers: watchers,
            ..
        } = inputs;
        // The next agent reads everything that the watchers report.
        drop(watchers);
        stop.send_replace(true);
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
            warn!("kernel records were left unread at exit");
        }
    }

    /// Reports kills that only the counters show.
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
            warn!("OOM kills could not be counted before exit; the next start reports them");
        }
    }

    /// Saves what was acknowledged, and when each condition was last exceeded.
    async fn save_state(&mut self) {
        let written = async {
            while self.subjects.kill_counters.is_saving() {
                let answer = self.blocking.answer().await;
                self.answered(answer, self.clock.now());
            }
            self.save_exact_times(self.clock.now());
            while self.subjects.kill_counters.is_saving() || self.exceeded.is_writing() {
                let answer = self.blocking.answer().await;
                self.answered(answer, self.clock.now());
            }
        };
        if tokio::time::timeout(LAST_COUNTS, written).await.is_err() {
            warn!("acknowledged OOM kills could not be saved; the next start reports them again");
        }
    }
}
