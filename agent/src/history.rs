//! EDGE: records incidents in the history on the disk, and passes them to the sinks that deliver
//! them to other programs, without delaying anything else.
//!
//! ```text
//! record ──► outbox, in memory ─────────────► sinks, first of them Kubernetes
//!       ├──► write-ahead log, in tmpfs ──────► the next start
//!       └──► queue ──► history, on the disk ──┘ what the outbox no longer has
//! ```
//!
//! A disk that does not answer blocks only its own lane. Meanwhile incidents wait here, as far as
//! there is room, and those in the write-ahead log survive the process.

#![forbid(unsafe_code)]

mod disk;
pub mod outbox;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nodepulse_core::checked_line;
use nodepulse_core::incident::{
    BootId, Cursor, Entry, Incident, JsonFacts, JsonIncident, MAX_OPEN, Position,
};
use nodepulse_core::kube_event::{NodeEvents, ReportedKills};
use nodepulse_core::node_status::ledger::LastChange;
use nodepulse_io::clock::Clock;
use nodepulse_io::lane::{Lanes, Purpose};
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::convert;
use nodepulse_linux::state::StateError;
use nodepulse_linux::store::Store;
use nodepulse_linux::store::write_ahead::{self, Lines, WriteAheadLog};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::sinks::kubernetes::{self, Kubernetes, Reported, Source};
use crate::sinks::{Delivery, Sink};
use crate::telemetry::metering::Metering;
use crate::telemetry::series::HistoryCounters;

pub use disk::{Disk, ReadFailed};
use disk::{End, Line, Recorder, cursor_file, entries};
use outbox::{Outbox, SinkState};

/// Time for what is left to be recorded, and then to be delivered, at the exit.
const LAST: Duration = Duration::from_secs(1);

/// Time for the recorder of Events to take what is left. It takes no more than it has room for.
const HAND_OVER: Duration = Duration::from_millis(200);

/// The directory of a history.
#[derive(Debug)]
pub struct HistoryFiles {
    directory: PathBuf,
    first: u64,
    store: Option<Store>,
    end: End,
    log: Option<WriteAheadLog>,
    /// The lines of a former agent that the segments lack. The log has them.
    logged: Lines,
}

/// Where incidents are recorded and to whom they are sent.
#[derive(Debug, Default)]
pub struct HistorySetup {
    pub files: Option<HistoryFiles>,
    pub sinks: Vec<Sink>,
}

impl HistorySetup {
    /// Returns the kills of the last revisions that a former agent recorded.
    pub fn kills(&mut self) -> Vec<(Position, ReportedKills)> {
        let files = self.files.as_mut();
        files.map_or_else(Vec::new, |files| std::mem::take(&mut files.end.kills))
    }

    /// Returns the last changes of conditions that a former agent recorded.
    pub fn conditions(&self) -> BTreeMap<String, LastChange> {
        let files = self.files.as_ref();
        files.map_or_else(BTreeMap::new, |files| files.end.conditions.clone())
    }
}

impl HistoryFiles {
    /// Opens the history of a directory. If that fails for a reason that may pass, such as a full
    /// disk, it is opened later, and `warn` is called. `state`: the state directory, if no other
    /// process uses it.
    ///
    /// # Errors
    ///
    /// Fails if the directory belongs to others or is used by others.
    pub fn open(
        directory: &Path,
        state: Option<&Path>,
        warn: impl FnOnce(&str),
    ) -> Result<Self, StateError> {
        // Files of a former boot are not read.
        let state = state.filter(|state| write_ahead::is_in_memory(state).is_ok_and(|is| is));
        let logged = state.and_then(|state| {
            let read = write_ahead::read(state);
            ok_or_log!(warn, read, "the last incidents in memory are ignored")
        });
        let mut logged = logged.unwrap_or_default();
        // Segments of a later start have larger numbers, also if the earlier ones were deleted.
        let since_epoch = Clock::kernel().now().wall.duration_since(UNIX_EPOCH);
        let later = logged.last().map_or(0, |(last, _)| last.start() + 1);
        let first = since_epoch.unwrap_or_default().as_secs().max(later);
        let store = match disk::open(directory, first) {
            Ok(store) => Some(store),
            Err(StateError::Io(err)) => {
                warn(&err.to_string());
                None
            }
            Err(err) => return Err(err),
        };
        if let Some(store) = store.as_ref().filter(|_| !logged.is_empty()) {
            let found = write_ahead::positions(store, logged.first().map(|(first, _)| *first));
            let found = ok_or_log!(warn, found, "cannot read the history").unwrap_or_default();
            logged.retain(|(position, _)| !found.contains(position));
        }
        let log = state.and_then(|state| {
            let created = WriteAheadLog::create(state, &logged);
            ok_or_log!(warn, created, "incidents are only recorded on the disk")
        });
        Ok(Self {
            end: disk::end(store.as_ref(), &logged),
            directory: directory.to_owned(),
            first: store.as_ref().map_or(first, Store::next_segment),
            store,
            log,
            logged,
        })
    }

    /// Returns true if no other process uses the directory.
    pub const fn is_open(&self) -> bool {
        self.store.is_some()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the end of the last time in which no agent ran.
    pub const fn last_gap(&self) -> Option<SystemTime> {
        self.end.gap
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
    log: Option<WriteAheadLog>,
    recording: Option<Recording>,
    outbox: Option<Arc<Outbox>>,
    counters: HistoryCounters,
    /// `None` without an API server.
    events: Option<Source>,
    /// Set until the recorder is started.
    start_events: Option<oneshot::Sender<Reported>>,
    events_ended: Option<oneshot::Receiver<()>>,
    /// Kills of revisions that would be lost with this process.
    unsafe_kills: VecDeque<(Position, ReportedKills)>,
}

struct Recording {
    lines: mpsc::Sender<Line>,
    ended: oneshot::Receiver<()>,
}

/// Maximum number of revisions with kills of which each is known not to be recorded. Of more, they
/// are recorded with the newest.
const UNSAFE: usize = 4096;

impl History {
    /// Must be called in a runtime. `node`: its name, if there is an API server, so that
    /// [`Self::start_events`] follows.
    pub fn start(
        setup: HistorySetup,
        (boot, node): (BootId, Option<&str>),
        lanes: &Lanes,
        metering: &Metering,
        tasks: &mut Tasks,
    ) -> Self {
        let HistorySetup { mut files, sinks } = setup;
        let first = files.as_ref().map_or(1, |files| files.first);
        let begin = Position::before_start(first);
        metering.set_sinks(sinks.iter().map(Sink::name));
        let events = node.map(|_| kubernetes::NAME);
        let names: Vec<_> = sinks.iter().map(Sink::name).chain(events).collect();
        let states = names.iter().map(|name| {
            let saved = files.as_ref().and_then(|files| files.cursor(name));
            let cursor = saved.map_or(Cursor::new(begin), |cursor| cursor.limited_to(begin));
            SinkState {
                taken: (*name == kubernetes::NAME).then(|| cursor.position()),
                cursor,
                series: metering.sink_series(name),
            }
        });
        let has_history = files.is_some();
        let outbox = (has_history || !names.is_empty())
            .then(|| Arc::new(Outbox::new(begin, states, boot, has_history)));
        let counters = metering.history_counters();
        let unsettled = files
            .as_mut()
            .map(|files| std::mem::take(&mut files.end.unsettled));
        let mut last_condition = files.as_ref().map(|files| files.end.last_condition);
        // These follow, in this order.
        for (incident, at) in unsettled.iter().flatten().zip(begin.0.saturating_add(1)..) {
            if matches!(incident.facts, Some(JsonFacts::Condition(_))) {
                last_condition = Some(Position(at));
            }
        }
        let log = files.as_mut().and_then(|files| files.log.take());
        if let (Some(outbox), Some(files)) = (&outbox, &files) {
            outbox.lacks(entries(files.logged.iter().map(|(_, line)| line)));
        }
        let disk = files.zip(outbox.clone()).map(|(files, outbox)| {
            let names = names.iter().map(|name| cursor_file(name)).collect();
            let recorder = Recorder::new(files, (outbox, names), counters.clone());
            Disk::new(recorder, lanes.of(Purpose::History))
        });
        let number = sinks.len();
        for (number, sink) in sinks.into_iter().enumerate() {
            if let Some(outbox) = outbox.clone() {
                let delivery = Delivery::new(sink, number, outbox, disk.clone(), metering);
                tasks.spawn("sink", delivery.run());
            }
        }
        let (mut start_events, mut events_ended, mut events) = (None, None, None);
        if let Some((outbox, node)) = outbox.clone().zip(node) {
            let series = metering.sink_series(kubernetes::NAME);
            let last_condition = last_condition.filter(|at| !outbox.has(number, *at));
            let last_condition = last_condition.unwrap_or_default();
            let (source, sink) =
                Kubernetes::new((outbox, number), node, disk.clone(), series, last_condition);
            let (start, started) = oneshot::channel();
            (start_events, events) = (Some(start), Some(source));
            events_ended = Some(tasks.spawn_finite("events", sink.run(started)));
        }
        let recording = disk.map(|disk| {
            // What the log has waits, and all that are open can be settled while the disk is busy.
            let (sender, queued) = mpsc::channel(1024 + MAX_OPEN);
            Recording {
                lines: sender,
                ended: tasks.spawn_finite("history", disk.record_all(queued)),
            }
        });
        let mut history = Self {
            newest: begin,
            log,
            recording,
            outbox,
            counters,
            events,
            start_events,
            events_ended,
            unsafe_kills: VecDeque::new(),
        };
        for incident in unsettled.unwrap_or_default() {
            history.append(incident, ReportedKills::default());
        }
        history
    }

    /// Returns the position of the newest revision.
    pub const fn newest(&self) -> Position {
        self.newest
    }

    /// Starts to deliver Events.
    pub fn start_events(&mut self, reported: Reported) {
        if let Some(start) = self.start_events.take() {
            // Fails if the task has ended, which is reported separately.
            let _ended = start.send(reported);
        }
    }

    /// Sets who records Events on the Node about incidents from now on.
    pub fn node_events(&self, node_events: NodeEvents) {
        if let Some(events) = &self.events {
            events.node_events.send_replace(node_events);
        }
    }

    /// Queues a revision. Events about it are written before anything else is done with it.
    pub fn record(&mut self, incident: &Incident) {
        let kills = incident.added_kills();
        if !kills.is_empty() {
            self.add_unsafe(kills.clone());
        }
        if self.outbox.is_none() {
            return;
        }
        if let Some(events) = &self.events {
            events.record(self.newest.next(), incident);
        }
        self.append(JsonIncident::new(incident, convert::micro_time), kills);
    }

    fn add_unsafe(&mut self, kills: ReportedKills) {
        let position = self.newest.next();
        let is_full = self.unsafe_kills.len() >= UNSAFE;
        match self.unsafe_kills.back_mut().filter(|_| is_full) {
            Some((newest, sum)) => {
                *newest = position;
                sum.add_all(kills);
            }
            None => self.unsafe_kills.push_back((position, kills)),
        }
    }

    /// Returns the kills that will survive this process, and did not at the last call, up to which
    /// revision.
    pub fn recorded_kills(&mut self) -> (ReportedKills, Position) {
        let (mut recorded, mut until) = (ReportedKills::default(), Position(0));
        let (outbox, log) = (self.outbox.as_ref(), self.log.as_ref());
        let is_safe = |(position, _): &mut (Position, ReportedKills)| {
            log.is_some_and(|log| log.has(*position))
                || outbox.is_none_or(|outbox| outbox.is_safe(*position))
        };
        while let Some((position, kills)) = self.unsafe_kills.pop_front_if(is_safe) {
            recorded.add_all(kills);
            until = position;
        }
        (recorded, until)
    }

    fn append(&mut self, incident: JsonIncident, added: ReportedKills) {
        self.newest = self.newest.next();
        let entry = Entry {
            position: self.newest,
            added,
            incident,
        };
        // Serialization fails only for a map whose keys are not strings.
        let line = checked_line::line(&entry).ok();
        let Some(outbox) = &self.outbox else {
            return;
        };
        outbox.push(entry);
        let Some(Recording { lines, .. }) = &self.recording else {
            return;
        };
        let (Some(text), Ok(place)) = (line, lines.try_reserve()) else {
            self.counters.lost.inc();
            outbox.lost(self.newest);
            return;
        };
        let log = self.log.as_mut();
        let is_logged = log.is_some_and(|log| log.write(self.newest, &text, outbox.on_disk()));
        place.send(Line {
            position: self.newest,
            text,
            is_logged,
        });
    }

    /// Waits until the recorder has what it can take, within a limit.
    pub async fn hand_over(&self) {
        if let Some(events) = &self.events {
            let mut handed_over = events.handed_over.clone();
            let all = handed_over.wait_for(|position| self.newest <= *position);
            // The rest is delivered after the next start.
            let _taken = timeout(HAND_OVER, all).await;
        }
    }

    /// Waits until all outcomes of Events are known, and everything queued is on the disk, within
    /// limits. Nothing is recorded after that.
    pub async fn flush(&mut self) {
        if let Some(ended) = self.events_ended.take() {
            let _ended = timeout(LAST, ended).await;
        }
        let Some(Recording { lines, ended }) = self.recording.take() else {
            return;
        };
        drop(lines);
        if timeout(LAST, ended).await.is_err() {
            warn!("the last incidents may be missing in the history: the disk does not answer");
        }
    }

    /// Waits until everything is delivered, within a limit.
    pub async fn finish(self) {
        if let Some(outbox) = self.outbox {
            let mut changes = outbox.changes();
            let delivered =
                async { while !outbox.is_empty() && changes.changed().await.is_ok() {} };
            // The rest is delivered after the next start.
            let _delivered = timeout(LAST, delivered).await;
        }
    }
}
