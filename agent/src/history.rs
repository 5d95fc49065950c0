//! EDGE: records incidents in the history on the disk, without delaying anything else.
//!
//! A disk that does not answer blocks only its own lane. Meanwhile incidents wait here, as far as
//! there is room.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nodepulse_core::checked_line;
use nodepulse_core::incident::{Incident, JsonIncident};
use nodepulse_io::lane::{Lane, Lanes, NoAnswer, Purpose};
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::convert;
use nodepulse_linux::store::Store;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::telemetry::metering::{HistoryCounters, Metering};

/// The number of incidents that wait for the disk. So many can be open at the same time.
const QUEUE: usize = 512;

/// After this time without an answer, the disk counts as hanging.
const LIMIT: Duration = Duration::from_secs(5);

/// An incident survives a power cut after this time.
const DURABLE: Duration = Duration::from_secs(1);

/// Time for what is left to be recorded at the exit.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The history of this agent, if it records one.
pub struct History {
    recording: Option<Recording>,
    counters: HistoryCounters,
}

struct Recording {
    lines: mpsc::Sender<String>,
    ended: oneshot::Receiver<()>,
}

impl History {
    /// Must be called in a runtime.
    pub fn start(
        store: Option<Store>,
        lanes: &Lanes,
        metering: &Metering,
        tasks: &mut Tasks,
    ) -> Self {
        let counters = metering.history_counters();
        let recording = store.map(|store| {
            let (sender, queued) = mpsc::channel(QUEUE);
            let (end, ended) = oneshot::channel();
            let disk = Disk {
                store: Arc::new(Mutex::new(Recorder {
                    store,
                    counters: counters.clone(),
                    is_failing: false,
                })),
                lane: lanes.of(Purpose::History),
            };
            tasks.spawn("history", async move {
                disk.record_all(queued).await;
                // The agent is not waiting if it is being aborted.
                let _awaited = end.send(());
                std::future::pending::<()>().await;
            });
            Recording {
                lines: sender,
                ended,
            }
        });
        Self {
            recording,
            counters,
        }
    }

    /// Queues a revision.
    pub fn record(&self, incident: &Incident) {
        let Some(Recording { lines, .. }) = &self.recording else {
            return;
        };
        let json = JsonIncident::new(incident, convert::micro_time);
        // Serialization fails only for a map whose keys are not strings.
        let queued = checked_line::line(&json)
            .ok()
            .map(|line| lines.try_send(line));
        if !matches!(queued, Some(Ok(()))) {
            self.counters.lost.inc();
        }
    }

    /// Waits until everything queued is on the disk, within limits.
    pub async fn finish(self) {
        let Some(Recording { lines, ended }) = self.recording else {
            return;
        };
        drop(lines);
        if timeout(LAST_WRITE, ended).await.is_err() {
            warn!("the last incidents may be missing in the history: the disk does not answer");
        }
    }
}

/// The store, as used by one call at a time.
struct Recorder {
    store: Store,
    counters: HistoryCounters,
    is_failing: bool,
}

impl Recorder {
    fn append(&mut self, lines: &[String]) {
        for line in lines {
            while self.store.excess(line.len()).is_some() {
                self.store.remove_oldest();
            }
            let appended = self.store.append(line);
            if appended.is_ok() {
                self.counters.recorded.inc();
            } else {
                self.counters.lost.inc();
            }
            self.log_change(appended);
        }
    }

    fn sync(&mut self) {
        if let Err(err) = self.store.sync() {
            self.log_change(Err(err));
        }
    }

    /// Logs a failure once, and its end.
    fn log_change(&mut self, result: std::io::Result<()>) {
        let directory = self.store.directory().display();
        match result {
            Ok(()) if self.is_failing => info!(%directory, "incidents are recorded again"),
            Err(err) if !self.is_failing => {
                let err = &err as &dyn std::error::Error;
                warn!(%directory, err, "incidents are not recorded in the history");
            }
            Ok(()) | Err(_) => return,
        }
        self.is_failing = !self.is_failing;
    }
}

struct Disk {
    store: Arc<Mutex<Recorder>>,
    lane: Lane,
}

impl Disk {
    /// Returns when there will be no further lines and all are recorded.
    async fn record_all(&self, mut queued: mpsc::Receiver<String>) {
        while let Some(first) = queued.recv().await {
            let durable = Instant::now() + DURABLE;
            let mut next = Some(first);
            while let Some(line) = next {
                let mut lines = vec![line];
                while let Ok(line) = queued.try_recv() {
                    lines.push(line);
                }
                self.call(move |recorder| recorder.append(&lines)).await;
                next = timeout_at(durable, queued.recv()).await.ok().flatten();
            }
            self.call(Recorder::sync).await;
        }
    }

    /// Returns when the call has ended, however long that takes. It is made at the latest when the
    /// kernel has a thread again.
    async fn call(&self, call: impl FnOnce(&mut Recorder) + Send + 'static) {
        let call = Arc::new(Mutex::new(Some(call)));
        loop {
            let (store, call) = (Arc::clone(&self.store), Arc::clone(&call));
            let run = move || {
                // A panic elsewhere leaves the values consistent.
                let call = call.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(call) = call {
                    call(&mut store.lock().unwrap_or_else(PoisonError::into_inner));
                }
            };
            match self.lane.run(LIMIT, run).await {
                Ok(()) | Err(NoAnswer::Ended) => return,
                Err(NoAnswer::Late(_) | NoAnswer::Blocked) => self.lane.free().await,
                Err(NoAnswer::NoThread(_)) => tokio::time::sleep(DURABLE).await,
            }
        }
    }
}
