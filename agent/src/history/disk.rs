//! The calls that can wait for the disk of the history, one at a time on a separate thread.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nodepulse_core::checked_line;
use nodepulse_core::incident::{Entry, JsonCondition, JsonFacts, JsonIncident, Position};
use nodepulse_core::kube_event::ReportedKills;
use nodepulse_core::node_status::ledger::{LastChange, NOT_REPORTED, problem_after};
use nodepulse_io::lane::{Lane, NoAnswer};
use nodepulse_kube::convert;
use nodepulse_linux::state::{StateError, holder};
use nodepulse_linux::store::write_ahead::{self, Lines};
use nodepulse_linux::store::{Bounds, Reader, Store};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::HistoryFiles;
use super::outbox::Outbox;
use crate::config::key;
use crate::telemetry::series::HistoryCounters;

/// After this time without an answer, the disk counts as hanging.
const LIMIT: Duration = Duration::from_secs(5);

/// An incident survives a power cut after this time.
const DURABLE: Duration = Duration::from_secs(1);

/// The number of lines that are kept while the disk refuses them, without those that the
/// write-ahead log has. Of more, the oldest are lost.
const REFUSED: usize = 64;

/// A revision to be recorded.
pub struct Line {
    pub position: Position,
    pub text: String,
    /// The write-ahead log has it.
    pub is_logged: bool,
}

/// The history on the disk, as used by one call at a time.
pub struct Recorder {
    directory: PathBuf,
    first: u64,
    /// `None` until it can be opened.
    store: Option<Store>,
    /// Lines that are not recorded yet.
    lines: VecDeque<Line>,
    outbox: Arc<Outbox>,
    /// Names of the files with the cursors of the sinks.
    cursors: Vec<String>,
    counters: HistoryCounters,
    /// The last call failed.
    is_failing: bool,
    has_failed_sinks: bool,
}

/// The history could not be read. The log has the reason.
#[derive(Debug)]
pub struct ReadFailed;

/// Opens the history of `directory`. `first`: see [`Store::open`].
pub fn open(directory: &Path, first: u64) -> Result<Store, StateError> {
    let store = Store::open(directory, Bounds::default(), first, is_known)?;
    store.ok_or_else(|| {
        let holder = holder(directory).map(|holder| i64::from(holder.pid));
        let why = if holder == Some(std::process::id().into()) {
            format!("it is the {}", key::state_directory)
        } else {
            "another nodepulse appends to it".to_owned()
        };
        io::Error::other(format!("{why}; use another directory")).into()
    })
}

/// The end of the history of a former agent.
#[derive(Debug, Default)]
pub struct End {
    /// The incidents that the agent could not settle, as it was killed: settled.
    pub unsettled: Vec<JsonIncident>,
    /// The kills of each revision.
    pub kills: Vec<(Position, ReportedKills)>,
    /// By type of the condition.
    pub conditions: BTreeMap<String, LastChange>,
    /// The last revision about a condition.
    pub last_condition: Position,
    /// The end of the last gap.
    pub gap: Option<SystemTime>,
}

/// Parts of the lines that matter also if they are old.
const OLD: [&str; 2] = [r#""kind":"Condition""#, r#""kind":"Gap""#];

/// The incidents that are not settled, by their ids.
type OpenIncidents = BTreeMap<String, (Position, JsonIncident)>;

/// Reads the end of the history: the segments, if they can be opened, and then the lines of the
/// write-ahead log that they lack. A part that cannot be read is left out.
pub fn end(store: Option<&Store>, logged: &Lines) -> End {
    let mut end = End::default();
    let mut open = OpenIncidents::new();
    let read = store.map_or(Ok(()), |store| end.read(store, &mut open));
    let _read = ok_or_log!(warn, read, "cannot read the history");
    let logged = logged.iter().map(|(_, line)| line);
    end.take(entries(logged), &mut open);
    let mut open: Vec<_> = open.into_values().collect();
    open.sort_by_key(|(position, _)| *position);
    let settle = |(_, incident): (_, JsonIncident)| JsonIncident {
        revision: incident.revision.saturating_add(1),
        settled: true,
        ..incident
    };
    end.unsettled = open.into_iter().map(settle).collect();
    end
}

impl End {
    /// Reads the segments. Incidents were open for seconds, and kills are saved after seconds, so
    /// that they are in the newest ones. The last change of a condition can be old.
    fn read(&mut self, store: &Store, open: &mut OpenIncidents) -> io::Result<()> {
        let newest = store.newest().segment();
        let mut reader = store.all();
        while let Some(mut lines) = reader.next_chunk(READ)? {
            if reader.segment() < newest {
                lines.retain(|line| OLD.iter().any(|part| line.contains(part)));
            }
            self.take(entries(&lines), open);
            if let Some(fault) = reader.take_fault() {
                let err = &fault as &dyn Error;
                warn!(err, "a part of the history cannot be read");
            }
        }
        Ok(())
    }

    fn take(&mut self, entries: Vec<Entry>, open: &mut OpenIncidents) {
        for entry in entries {
            let (position, incident) = (entry.position, entry.incident);
            self.note_last(&incident);
            if matches!(incident.facts, Some(JsonFacts::Condition(_))) {
                self.last_condition = position;
            }
            if !entry.added.is_empty() {
                self.kills.push((position, entry.added));
            }
            if incident.settled {
                open.remove(&incident.id);
            } else {
                open.insert(incident.id.clone(), (position, incident));
            }
        }
    }

    /// Takes into account the next incident, of whatever age.
    fn note_last(&mut self, incident: &JsonIncident) {
        match &incident.facts {
            // A later revision can come after the next change.
            Some(JsonFacts::Condition(change)) if incident.revision == 1 => {
                self.note_change(change, &incident.id);
            }
            Some(JsonFacts::Gap(_)) => {
                let until = incident.until.as_deref().map(Into::into);
                self.gap = convert::parse_time(until.as_ref());
            }
            _ => {}
        }
    }

    fn note_change(&mut self, change: &JsonCondition, id: &str) {
        let Some(change) = change.change() else {
            return;
        };
        if change.reason == NOT_REPORTED {
            self.conditions.remove(&change.type_);
            return;
        }
        let before = self
            .conditions
            .get(&change.type_)
            .and_then(|last| last.problem);
        let problem = problem_after(before, change.is_problem(), id.parse().ok());
        let last = LastChange {
            status: change.status,
            problem,
        };
        self.conditions.insert(change.type_, last);
    }
}

/// Files that sinks have in the directory.
fn is_known(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(SINK.as_bytes())
}

const SINK: &str = "sink-";

/// Returns the name of the file with the cursor of a sink.
pub fn cursor_file(sink: &str) -> String {
    format!("{SINK}{sink}.json")
}

impl Recorder {
    pub fn new(
        files: HistoryFiles,
        (outbox, cursors): (Arc<Outbox>, Vec<String>),
        counters: HistoryCounters,
    ) -> Self {
        let logged = files.logged.into_iter().map(|(position, text)| Line {
            position,
            text,
            is_logged: true,
        });
        Self {
            directory: files.directory,
            first: files.first,
            is_failing: files.store.is_none(),
            has_failed_sinks: false,
            store: files.store,
            lines: logged.collect(),
            outbox,
            cursors,
            counters,
        }
    }

    fn append(&mut self, lines: Vec<Line>) {
        self.lines.extend(lines);
        if let Err(err) = self.append_all() {
            self.failed(&*err);
        }
        let refused = |lines: &VecDeque<Line>| lines.iter().filter(|line| !line.is_logged).count();
        while REFUSED < refused(&self.lines)
            && let Some(oldest) = self.lines.iter().position(|line| !line.is_logged)
            && let Some(Line { position, .. }) = self.lines.remove(oldest)
        {
            self.counters.lost.inc();
            self.outbox.lost(position);
            if oldest == 0 {
                self.outbox.recorded(position);
            }
        }
    }

    fn append_all(&mut self) -> Result<(), Box<dyn Error>> {
        if self.store.is_none() && !self.lines.is_empty() {
            let store = open(&self.directory, self.first)?;
            let since = self.lines.front().map(|line| line.position);
            let found = write_ahead::positions(&store, since)?;
            self.lines.retain(|line| !found.contains(&line.position));
            self.store = Some(store);
        }
        while let Some(line) = self.lines.pop_front() {
            if let Err(err) = self.append_line(&line.text) {
                self.lines.push_front(line);
                return Err(err.into());
            }
            self.counters.recorded.inc();
            self.outbox.recorded(line.position);
        }
        // Nothing of former agents is missing.
        self.outbox.recorded(Position::before_start(self.first));
        Ok(())
    }

    fn append_line(&mut self, line: &str) -> io::Result<()> {
        while let Some(store) = &mut self.store
            && let Some(oldest) = store.excess(line.len())
        {
            self.remove(oldest);
        }
        self.store
            .as_mut()
            .map_or(Ok(()), |store| store.append(line))
    }

    /// Removes the oldest segment. What sinks still needed of it becomes part of a summary.
    fn remove(&mut self, oldest: u64) {
        let outbox = Arc::clone(&self.outbox);
        if outbox.needs_history() {
            let mut reader = Reader::new(self.directory.clone()).starting_at(oldest);
            while reader.segment() == Some(oldest)
                && let Ok(Some(lines)) = reader.next_chunk(READ)
                && reader.segment() == Some(oldest)
            {
                outbox.removed(&entries(&lines));
            }
            for sink in 0..self.cursors.len() {
                self.save(sink);
            }
        }
        if let Some(store) = &mut self.store {
            store.remove_oldest();
        }
    }

    /// Saves the cursor of a sink. If that fails, the sink delivers something twice after a
    /// restart.
    fn save(&mut self, sink: usize) {
        let cursor = self.outbox.cursor(sink);
        let (Some(store), Some(file), Some(cursor)) = (&self.store, self.cursors.get(sink), cursor)
        else {
            return;
        };
        // Serialization fails only for a map whose keys are not strings.
        let saved = checked_line::line(&cursor).map(|line| store.replace(file, line.as_bytes()));
        if let Ok(Err(err)) = saved {
            self.cannot(&err, "cannot record what a sink has delivered");
        }
    }

    fn sync(&mut self) {
        let synced = self.store.as_mut().map_or(Ok(()), Store::sync);
        match synced {
            Err(err) => self.failed(&err),
            Ok(()) if self.lines.is_empty() && self.is_failing => {
                self.is_failing = false;
                info!(directory = %self.directory.display(), "incidents are recorded again");
            }
            Ok(()) => {}
        }
    }

    /// Logs the first failure for sinks.
    fn cannot(&mut self, err: &io::Error, what: &str) {
        if !std::mem::replace(&mut self.has_failed_sinks, true) {
            let err = err as &dyn Error;
            warn!(directory = %self.directory.display(), err, "{what}");
        }
    }

    /// Logs the first of several failures.
    fn failed(&mut self, err: &(dyn Error + 'static)) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let directory = self.directory.display();
            warn!(%directory, err, "incidents are not recorded in the history");
        }
    }
}

/// The number of bytes of the history that are read at a time. A sink keeps what it has read until
/// that is delivered.
const READ: u64 = 16 << 10;

pub(super) fn entries(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Entry> {
    // Lines of earlier versions have no position. Those of newer ones may have another form.
    let parsed = lines.into_iter();
    let parsed = parsed.map(|line| serde_json::from_str(line.as_ref()));
    parsed.filter_map(Result::ok).collect()
}

/// The disk of the history. Clones share it.
#[derive(Clone)]
pub struct Disk {
    recorder: Arc<Mutex<Recorder>>,
    lane: Lane,
}

impl Disk {
    pub fn new(recorder: Recorder, lane: Lane) -> Self {
        Self {
            recorder: Arc::new(Mutex::new(recorder)),
            lane,
        }
    }

    /// Returns when there will be no further lines and all are recorded.
    pub async fn record_all(self, mut queued: mpsc::Receiver<Line>) {
        // What the log of a former agent has.
        self.call(|recorder| recorder.append(Vec::new())).await;
        while let Some(first) = queued.recv().await {
            let durable = Instant::now() + DURABLE;
            let mut next = Some(first);
            while let Some(line) = next {
                let mut lines = vec![line];
                while let Ok(line) = queued.try_recv() {
                    lines.push(line);
                }
                self.call(move |recorder| recorder.append(lines)).await;
                next = if Instant::now() < durable {
                    timeout_at(durable, queued.recv()).await.ok().flatten()
                } else {
                    None
                };
            }
            self.call(Recorder::sync).await;
        }
        // The disk may have room by now.
        let last = |recorder: &mut Recorder| {
            recorder.append(Vec::new());
            recorder.sync();
        };
        self.call(last).await;
    }

    /// Saves the cursor of a sink, by its number.
    pub async fn save(&self, sink: usize) {
        self.call(move |recorder| recorder.save(sink)).await;
    }

    /// Reads further entries. `None`: there are no further ones at present. `skips`: a file that
    /// cannot be read is left out.
    pub async fn read(
        &self,
        reader: Option<Reader>,
        after: Position,
        skips: bool,
    ) -> Result<Option<(Reader, Vec<Entry>)>, ReadFailed> {
        let read = move |recorder: &mut Recorder| {
            let new = || Reader::new(recorder.directory.clone()).starting_at(after.start());
            let mut reader = reader.unwrap_or_else(new);
            let read = reader.next_chunk(READ);
            let fault = reader.take_fault().filter(|_| !skips);
            match fault.map_or(read, Err) {
                Ok(lines) => Ok(lines.map(|lines| (reader, entries(&lines)))),
                Err(err) => {
                    recorder.cannot(&err, "cannot read the history for a sink");
                    Err(ReadFailed)
                }
            }
        };
        self.call(read).await.unwrap_or(Err(ReadFailed))
    }

    /// Returns when the call has ended, however long that takes. It is made at the latest when the
    /// kernel has a thread again.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Recorder) -> T + Send + 'static,
    ) -> Option<T> {
        let call = Arc::new(Mutex::new(Some(call)));
        let result = Arc::new(Mutex::new(None));
        loop {
            let (recorder, call) = (Arc::clone(&self.recorder), Arc::clone(&call));
            let returned = Arc::clone(&result);
            let run = move || {
                let call = lock(&call).take();
                if let Some(call) = call {
                    let value = call(&mut lock(&recorder));
                    *lock(&returned) = Some(value);
                }
            };
            match self.lane.run(LIMIT, run).await {
                Ok(()) | Err(NoAnswer::Ended) => return lock(&result).take(),
                Err(NoAnswer::Late(_) | NoAnswer::Blocked) => self.lane.free().await,
                Err(NoAnswer::NoThread(_)) => tokio::time::sleep(DURABLE).await,
            }
        }
    }
}

/// A panic elsewhere leaves the values consistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use nodepulse_core::incident::BootId;
    use nodepulse_core::node_status::Status;
    use nodepulse_io::lane::Lanes;
    use nodepulse_linux::host::scratch::Scratch;
    use serde_json::json;

    use super::*;
    use crate::telemetry::metering::Metering;

    const ID: &str = "00000000-0000-0000-0000-000000000007-";

    fn line(number: u64, revision: u8, kind: &str, facts: &serde_json::Value) -> String {
        let incident = json!({
            "apiVersion": "nodepulse.dev/incident/v1", "id": format!("{ID}{number}"),
            "revision": revision, "settled": true, "time": "", "object": {}, "reason": "", "message": "",
            "kind": kind, "facts": facts,
        });
        let entry = Entry {
            position: Position(number),
            added: ReportedKills::default(),
            incident: serde_json::from_value(incident).unwrap(),
        };
        checked_line::line(&entry).unwrap()
    }

    #[test]
    fn the_last_changes_are_found_in_old_segments_and_a_part_that_cannot_be_read_is_left_out() {
        let change = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": ""});
        let line = |number, revision, facts| line(number, revision, "Condition", &facts);
        let segments = [
            vec![
                line(1, 1, change("PIDsLow", "True", "")),
                line(2, 1, change("PIDsLow", "Unknown", "")),
                line(3, 1, change("MemoryLow", "True", "")),
                line(4, 1, change("Removed", "True", "")),
            ],
            vec![
                line(5, 1, change("MemoryLow", "False", "")),
                line(3, 2, change("MemoryLow", "True", "")),
            ],
            vec![line(6, 1, change("Removed", "Unknown", NOT_REPORTED))],
            vec![],
        ];
        let dir = Scratch::new();
        for (number, lines) in (1..).zip(segments) {
            dir.write(&format!("incidents-{number:010}.jsonl"), lines.concat());
        }
        std::fs::create_dir(dir.path().join("incidents-0000000000.jsonl")).unwrap();
        let store = open(dir.path(), 1).unwrap();
        let found = end(Some(&store), &Lines::new());
        let last = |status, problem: Option<u64>| LastChange {
            status,
            problem: problem.map(|number| format!("{ID}{number}").parse().unwrap()),
        };
        let expected = BTreeMap::from([
            ("MemoryLow".to_owned(), last(Status::False, None)),
            ("PIDsLow".to_owned(), last(Status::Unknown, Some(1))),
        ]);
        assert_eq!(found.conditions, expected);
        assert_eq!(found.last_condition, Position(6));
    }

    #[test]
    fn of_what_a_disk_refuses_only_what_the_log_lacks_is_lost() {
        let dir = Scratch::new();
        dir.write("history", "no directory");
        let files = HistoryFiles::open(&dir.path().join("history"), None, |_| {}).unwrap();
        let outbox = Outbox::new(Position::default(), [], BootId(7), true);
        let lanes = Lanes::new(&[]);
        let metering = Metering::start("worker-1", "files", Vec::new(), None, lanes);
        let counters = metering.history_counters();
        let mut recorder = Recorder::new(files, (Arc::new(outbox), Vec::new()), counters);
        let change = json!({"type": "PIDsLow", "status": "True", "reason": "", "message": ""});
        let refused = |number| Line {
            position: Position(number),
            text: line(number, 1, "Condition", &change),
            is_logged: (11..=110).contains(&number),
        };
        recorder.append((1..=200).map(refused).collect());
        std::fs::remove_file(dir.path().join("history")).unwrap();
        recorder.append(Vec::new());
        let texts = recorder.store.unwrap().all().next_lines().unwrap();
        let found: Vec<_> = entries(&texts).iter().map(|one| one.position.0).collect();
        let expected: Vec<_> = (11..=110).chain(137..=200).collect();
        assert_eq!(found, expected);
        assert_eq!(recorder.counters.lost.get(), 36);
    }
}
