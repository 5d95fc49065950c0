//! What sinks have still to deliver: recent revisions in memory, older ones in the history.
//!
//! A sink that keeps up never waits for the disk, which may be what an incident is about.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use nodepulse_core::incident::{BootId, Cursor, Entry, IncidentId, JsonIncident, Position};
use nodepulse_io::clock::Clock;
use nodepulse_kube::convert;
use tokio::sync::watch;

use crate::telemetry::series::SinkSeries;

/// The number of revisions in memory that a sink has not delivered. Of more, the oldest are only in
/// the history; without one, they are summed up.
const RECENT: usize = 64;

/// The number of revisions that the history may lack while sinks leave revisions to it.
const UNRECORDED: u64 = 32;

/// Incidents of former boots are delivered up to this age.
const EXPIRY: Duration = Duration::from_hours(24);

/// A sink, as known before it starts.
pub struct SinkState {
    pub cursor: Cursor,
    pub series: SinkSeries,
    /// Set for a sink that does not wait for each answer: the position up to which it has taken
    /// revisions.
    pub taken: Option<Position>,
}

struct Tracked {
    state: SinkState,
    /// The sink waits for the answer to what it is sending. What is removed meanwhile waits here:
    /// it may have been delivered.
    removed: Option<Vec<Entry>>,
}

/// The next thing that a sink has to do.
pub enum Work {
    /// Nothing before the next change.
    Wait,
    Summary(Box<JsonIncident>),
    Entries(Vec<Arc<Entry>>),
    /// The revisions after `after` are to be read from the history. Those up to `through` are
    /// there, or were lost.
    Read {
        after: Position,
        through: Position,
    },
}

/// Revisions on their way to the sinks.
pub struct Outbox {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    boot: BootId,
    has_history: bool,
}

struct State {
    recent: VecDeque<Arc<Entry>>,
    /// The number of revisions in memory that were only in the write-ahead log at the start.
    logged: usize,
    newest: Position,
    /// Revisions up to here are not in memory.
    evicted: Position,
    /// Revisions up to here are in the history, or could not be recorded.
    recorded: Position,
    /// The last one that could not be recorded.
    lost: Position,
    sinks: Vec<Tracked>,
}

impl Outbox {
    /// `begin`: the position before the first revision of this start.
    pub fn new(
        begin: Position,
        sinks: impl IntoIterator<Item = SinkState>,
        boot: BootId,
        has_history: bool,
    ) -> Self {
        let tracked = |state| Tracked {
            state,
            removed: None,
        };
        Self {
            state: Mutex::new(State {
                recent: VecDeque::new(),
                logged: 0,
                newest: begin,
                evicted: begin,
                recorded: begin,
                lost: Position::default(),
                sinks: sinks.into_iter().map(tracked).collect(),
            }),
            changes: watch::Sender::new(0),
            boot,
            has_history,
        }
    }

    /// Returns a receiver that changes when there may be new work.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn push(&self, entry: Entry) {
        let mut state = self.lock();
        state.newest = entry.position;
        state.recent.push_back(Arc::new(entry));
        if state.recent.len() > RECENT.saturating_add(state.logged)
            && let Some(oldest) = state.recent.pop_front()
        {
            state.evicted = oldest.position;
            if !self.has_history {
                self.remove(&mut state, &oldest);
            }
        }
        self.changed(&mut state);
    }

    /// The history has everything up to `position` that it will ever have.
    pub fn recorded(&self, position: Position) {
        let mut state = self.lock();
        state.recorded = state.recorded.max(position);
        // The others have it from memory.
        if state.needs_history() {
            self.changed(&mut state);
        }
    }

    /// The history lacks these revisions of former starts. No sink waits for the disk to have them.
    pub fn lacks(&self, entries: Vec<Entry>) {
        if let Some(first) = entries.first() {
            let mut state = self.lock();
            state.recorded = Position(first.position.0.saturating_sub(1));
            state.evicted = state.recorded;
            // The size of the log limits them.
            state.logged = entries.len();
        }
        for entry in entries {
            self.push(entry);
        }
    }

    /// Returns the position up to which the history has everything that it will ever have.
    pub fn on_disk(&self) -> Position {
        self.lock().recorded
    }

    /// The history will not have this revision.
    pub fn lost(&self, position: Position) {
        let mut state = self.lock();
        state.lost = state.lost.max(position);
    }

    /// Returns true if a sink needs revisions that are only in the history.
    pub fn needs_history(&self) -> bool {
        self.lock().needs_history()
    }

    /// These revisions, in their order, will be removed from the history. The cursors are to be
    /// saved before.
    pub fn removed(&self, entries: &[Entry]) {
        let mut state = self.lock();
        for entry in entries {
            if entry.position <= state.evicted {
                self.remove(&mut state, entry);
            }
        }
        self.changed(&mut state);
    }

    fn remove(&self, state: &mut State, entry: &Entry) {
        for Tracked { state, removed } in &mut state.sinks {
            match removed {
                Some(removed) => removed.push(entry.clone()),
                None => state.remove(entry, self.boot),
            }
        }
    }

    /// Returns the next work of a sink, by its number.
    pub fn work(&self, sink: usize) -> Work {
        if let Some(summary) = self.summary(sink) {
            return Work::Summary(summary);
        }
        self.revisions(sink)
    }

    /// Returns the next work of a sink, without summaries.
    pub fn revisions(&self, sink: usize) -> Work {
        let state = self.lock();
        let (evicted, recorded) = (state.evicted, state.recorded);
        let Some(tracked) = state.sinks.get(sink) else {
            return Work::Wait;
        };
        let after = tracked.state.reached();
        if evicted <= after {
            let next = state.recent.iter().filter(|entry| after < entry.position);
            let entries: Vec<_> = next.cloned().collect();
            return if entries.is_empty() {
                Work::Wait
            } else {
                Work::Entries(entries)
            };
        }
        // Whatever is between is still being written.
        if recorded <= after && recorded < evicted {
            return Work::Wait;
        }
        Work::Read {
            after,
            // Those after `evicted` are in memory, also if the disk lost them.
            through: recorded.min(evicted),
        }
    }

    /// Returns the next summary for a sink; the same one until it is delivered.
    pub fn summary(&self, sink: usize) -> Option<Box<JsonIncident>> {
        let mut state = self.lock();
        let tracked = state.sinks.get_mut(sink)?;
        tracked.state.cursor.summary().map(Box::new)
    }

    /// Returns the position up to which a sink has taken revisions.
    pub fn taken(&self, sink: usize) -> Position {
        let state = self.lock();
        let tracked = state.sinks.get(sink);
        tracked.map_or(Position::default(), |tracked| tracked.state.reached())
    }

    /// Returns how many revisions of this start a sink has not taken.
    pub fn behind(&self, sink: usize) -> u64 {
        let state = self.lock();
        let tracked = state.sinks.get(sink);
        tracked.map_or(0, |tracked| state.behind(&tracked.state))
    }

    /// Returns true if what a sink has not taken can stay in the history: it lacks nothing but the
    /// last few revisions, which are in memory too.
    pub fn keeps_up(&self, sink: usize) -> bool {
        let state = self.lock();
        let Some(tracked) = state.sinks.get(sink) else {
            return false;
        };
        let unrecorded = state.newest.0.saturating_sub(state.recorded.0);
        self.has_history && state.lost <= tracked.state.reached() && unrecorded <= UNRECORDED
    }

    /// Returns true if a sink has delivered this revision.
    pub fn has(&self, sink: usize, position: Position) -> bool {
        let state = self.lock();
        let tracked = state.sinks.get(sink);
        tracked.is_none_or(|tracked| tracked.state.cursor.has(position))
    }

    /// The sink takes what follows up to `position`.
    pub fn take(&self, sink: usize, position: Position) {
        let mut state = self.lock();
        if let Some(tracked) = state.sinks.get_mut(sink) {
            tracked.state.taken = Some(tracked.state.reached().max(position));
        }
        self.changed(&mut state);
    }

    /// Returns true if an incident would not be lost with this process: it is in the history, or
    /// delivered by a sink that takes several at a time.
    pub fn is_safe(&self, position: Position) -> bool {
        let state = self.lock();
        if self.has_history && position <= state.recorded && state.lost < position {
            return true;
        }
        let mut sinks = state.sinks.iter().map(|sink| &sink.state);
        match sinks.find(|sink| sink.taken.is_some()) {
            Some(sink) => sink.cursor.has(position) && !sink.cursor.has_summary(),
            None => !self.has_history,
        }
    }

    pub fn cursor(&self, sink: usize) -> Option<Cursor> {
        let state = self.lock();
        state.sinks.get(sink).map(|sink| sink.state.cursor.clone())
    }

    /// Changes the cursor of a sink.
    pub fn advance(&self, sink: usize, change: impl FnOnce(&mut Cursor)) {
        let mut state = self.lock();
        let Some(tracked) = state.sinks.get_mut(sink) else {
            return;
        };
        change(&mut tracked.state.cursor);
        for entry in tracked.removed.take().unwrap_or_default() {
            tracked.state.remove(&entry, self.boot);
        }
        self.changed(&mut state);
    }

    /// The sink begins to send what follows the returned position. The answer ends with
    /// [`Self::advance`].
    pub fn begin(&self, sink: usize) -> Position {
        let mut state = self.lock();
        let Some(tracked) = state.sinks.get_mut(sink) else {
            return Position::default();
        };
        tracked.removed = Some(Vec::new());
        tracked.state.cursor.position()
    }

    /// Returns true for an incident of a former boot that is too old to be delivered.
    pub fn is_expired(&self, incident: &JsonIncident, now: SystemTime) -> bool {
        let id = incident.id.parse::<IncidentId>();
        let is_of_boot = id.is_ok_and(|id| id.boot == self.boot);
        let at = convert::parse_time(Some(&incident.time.as_str().into()));
        let age = at.and_then(|at| now.duration_since(at).ok());
        !is_of_boot && age.is_some_and(|age| EXPIRY < age)
    }

    /// Returns true if no sink has work, or has not taken it.
    pub fn is_empty(&self) -> bool {
        let state = self.lock();
        let mut sinks = state.sinks.iter();
        sinks.all(|sink| state.newest <= sink.state.reached())
    }

    fn changed(&self, state: &mut State) {
        self.forget(state);
        for sink in state.sinks.iter().filter(|sink| sink.state.taken.is_none()) {
            sink.state.series.set_lag(state.behind(&sink.state));
        }
        self.changes
            .send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Removes from memory what no sink needs there: those that are further behind read the
    /// history.
    fn forget(&self, state: &mut State) {
        let State {
            newest,
            evicted,
            lost,
            ..
        } = *state;
        let reached = state.sinks.iter().map(|sink| sink.state.reached());
        let by_all = reached.clone().min().unwrap_or(newest);
        let from_memory = reached.filter(|reached| evicted <= *reached).min();
        let recorded = from_memory.unwrap_or(newest).min(state.recorded);
        let is_taken = |entry: &mut Arc<Entry>| {
            let position = entry.position;
            position <= by_all || (self.has_history && lost < position && position <= recorded)
        };
        while let Some(taken) = state.recent.pop_front_if(is_taken) {
            state.logged = state.logged.saturating_sub(1);
            if by_all < taken.position {
                state.evicted = taken.position;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the values consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns how many revisions of this start a sink needs.
    fn behind(&self, sink: &SinkState) -> u64 {
        let begin = Position::before_start(self.newest.start());
        self.newest.0.saturating_sub(sink.reached().max(begin).0)
    }

    fn needs_history(&self) -> bool {
        let mut reached = self.sinks.iter().map(|sink| sink.state.reached());
        reached.any(|position| position < self.evicted)
    }
}

impl SinkState {
    /// Returns the position up to which the sink needs nothing any more.
    fn reached(&self) -> Position {
        let delivered = self.cursor.position();
        self.taken.map_or(delivered, |taken| taken.max(delivered))
    }

    fn remove(&mut self, entry: &Entry, boot: BootId) {
        // What was taken is in memory.
        if entry.position <= self.reached() {
            return;
        }
        self.series.removed.inc();
        let reached = self.reached();
        self.taken = self.taken.map(|_| entry.position);
        let id = || IncidentId {
            boot,
            number: Clock::kernel().now().boot.0,
        };
        self.cursor.removed(entry, reached, id);
    }
}
