//! EDGE: records incidents in the history on the disk, and passes them to the sinks that deliver
//! them to other programs, without delaying anything else.
//!
//! ```text
//! record ──► outbox, in memory ─────────────► sinks
//!       └──► queue ──► history, on the disk ──┘ what the outbox no longer has
//! ```
//!
//! A disk that does not answer blocks only its own lane. Meanwhile incidents wait here, as far as
//! there is room.

#![forbid(unsafe_code)]

mod disk;
pub mod outbox;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use nodepulse_core::checked_line;
use nodepulse_core::incident::{BootId, Cursor, Entry, Incident, JsonIncident, Position};
use nodepulse_io::clock::Clock;
use nodepulse_io::lane::{Lanes, Purpose};
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::convert;
use nodepulse_linux::state::StateError;
use nodepulse_linux::store::Store;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::sinks::{Delivery, Sink};
use crate::telemetry::metering::Metering;
use crate::telemetry::series::HistoryCounters;

pub use disk::{Disk, ReadFailed};
use disk::{Line, Recorder, cursor_file};
use outbox::{Outbox, SinkState};

/// The number of incidents that wait for the disk. So many can be open at the same time.
const QUEUE: usize = 512;

/// Time for what is left to be recorded, and then to be delivered, at the exit.
const LAST: Duration = Duration::from_secs(1);

/// The directory of a history.
#[derive(Debug)]
pub struct HistoryFiles {
    directory: PathBuf,
    first: u64,
    store: Option<Store>,
    /// The first incidents to be recorded.
    unsettled: Vec<JsonIncident>,
}

/// Where incidents are recorded and to whom they are sent.
#[derive(Debug, Default)]
pub struct HistorySetup {
    pub files: Option<HistoryFiles>,
    pub sinks: Vec<Sink>,
}

impl HistoryFiles {
    /// Opens the history of a directory. If that fails for a reason that may pass, such as a full
    /// disk, it is opened later, and `warn` is called.
    ///
    /// # Errors
    ///
    /// Fails if the directory belongs to others or is used by others.
    pub fn open(directory: &Path, warn: impl FnOnce(&str)) -> Result<Self, StateError> {
        // Segments of a later start have larger numbers, also if the earlier ones were deleted.
        let since_epoch = Clock::kernel().now().wall.duration_since(UNIX_EPOCH);
        let first = since_epoch.unwrap_or_default().as_secs();
        let store = match disk::open(directory, first) {
            Ok(store) => Some(store),
            Err(StateError::Io(err)) => {
                warn(&err.to_string());
                None
            }
            Err(err) => return Err(err),
        };
        let unsettled = store.as_ref().map_or(Ok(Vec::new()), disk::unsettled);
        Ok(Self {
            unsettled: ok_or_log!(warn, unsettled, "cannot read the history").unwrap_or_default(),
            directory: directory.to_owned(),
            first: store.as_ref().map_or(first, Store::next_segment),
            store,
        })
    }

    /// Returns true if no other process uses the directory.
    pub const fn is_open(&self) -> bool {
        self.store.is_some()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the cursor of a sink, and `None` if the sink is new.
    fn cursor(&self, sink: &str) -> Option<Cursor> {
        let store = self.store.as_ref()?;
        match store.load(&cursor_file(sink)) {
            Ok(None) => None,
            // Everything is delivered again if the file is damaged.
            Ok(Some(bytes)) => Some(parse_cursor(&bytes).unwrap_or_default()),
            Err(err) => {
                let err = &err as &dyn std::error::Error;
                warn!(
                    sink,
                    err, "cannot read what was delivered; it is delivered again"
                );
                Some(Cursor::default())
            }
        }
    }
}

fn parse_cursor(bytes: &[u8]) -> Option<Cursor> {
    let line = str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let line = Some(line).filter(|line| checked_line::is_intact(line))?;
    serde_json::from_str(line).ok()
}

/// The history of this agent and its sinks.
pub struct History {
    newest: Position,
    recording: Option<Recording>,
    outbox: Option<Arc<Outbox>>,
    counters: HistoryCounters,
}

struct Recording {
    lines: mpsc::Sender<Line>,
    ended: oneshot::Receiver<()>,
}

impl History {
    /// Must be called in a runtime.
    pub fn start(
        setup: HistorySetup,
        boot: BootId,
        lanes: &Lanes,
        metering: &Metering,
        tasks: &mut Tasks,
    ) -> Self {
        let HistorySetup { mut files, sinks } = setup;
        let first = files.as_ref().map_or(1, |files| files.first);
        let begin = Position::before_start(first);
        let names: Vec<_> = sinks.iter().map(|sink| cursor_file(sink.name())).collect();
        let states = sinks.iter().map(|sink| SinkState {
            cursor: files
                .as_ref()
                .and_then(|files| files.cursor(sink.name()))
                .map_or(Cursor::new(begin), |cursor| cursor.limited_to(begin)),
            series: metering.sink_series(sink.name()),
        });
        let has_history = files.is_some();
        let outbox =
            (!sinks.is_empty()).then(|| Arc::new(Outbox::new(begin, states, boot, has_history)));
        let counters = metering.history_counters();
        let unsettled = files
            .as_mut()
            .map(|files| std::mem::take(&mut files.unsettled));
        let disk = files.map(|files| {
            let outbox = outbox.clone().map(|outbox| (outbox, names));
            let recorder = Recorder::new(files, outbox, counters.clone());
            Disk::new(recorder, lanes.of(Purpose::History))
        });
        for (number, sink) in sinks.into_iter().enumerate() {
            if let Some(outbox) = outbox.clone() {
                let delivery = Delivery::new(sink, number, outbox, disk.clone(), metering);
                tasks.spawn("sink", delivery.run());
            }
        }
        let recording = disk.map(|disk| {
            let (sender, queued) = mpsc::channel(QUEUE);
            Recording {
                lines: sender,
                ended: tasks.spawn_finite("history", disk.record_all(queued)),
            }
        });
        let mut history = Self {
            newest: begin,
            recording,
            outbox,
            counters,
        };
        for incident in unsettled.unwrap_or_default() {
            history.append(incident);
        }
        history
    }

    /// Queues a revision.
    pub fn record(&mut self, incident: &Incident) {
        if self.recording.is_some() || self.outbox.is_some() {
            self.append(JsonIncident::new(incident, convert::micro_time));
        }
    }

    fn append(&mut self, incident: JsonIncident) {
        self.newest = self.newest.next();
        let entry = Entry {
            position: self.newest,
            incident,
        };
        // Serialization fails only for a map whose keys are not strings.
        let line = checked_line::line(&entry).ok();
        if let Some(outbox) = &self.outbox {
            outbox.push(entry);
        }
        let Some(Recording { lines, .. }) = &self.recording else {
            return;
        };
        let queued = line.map(|line| lines.try_send((self.newest, line)));
        if !matches!(queued, Some(Ok(()))) {
            self.counters.lost.inc();
        }
    }

    /// Waits until everything queued is on the disk and delivered, within limits.
    pub async fn finish(self) {
        if let Some(Recording { lines, ended }) = self.recording {
            drop(lines);
            if timeout(LAST, ended).await.is_err() {
                warn!("the last incidents may be missing in the history: the disk does not answer");
            }
        }
        if let Some(outbox) = self.outbox {
            let mut changes = outbox.changes();
            let delivered =
                async { while !outbox.is_empty() && changes.changed().await.is_ok() {} };
            // The rest is delivered after the next start.
            let _delivered = timeout(LAST, delivered).await;
        }
    }
}
