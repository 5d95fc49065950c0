//! What each sink still has to deliver of the history.
//!
//! The history is a log of numbered entries: revisions of incidents, and receipts of what was
//! delivered. The same calls in the order of the log lead to the same state, so a start applies the
//! entries that it finds, and goes on as if there had been no restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::IncidentId;

/// The number of an entry of the log, from 1 on. Grows over restarts and boots.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position(pub u64);

/// A sink, by its place in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sink(pub u8);

/// A set of up to 16 sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sinks(u16);

impl Sinks {
    pub const NONE: Self = Self(0);

    #[must_use]
    pub const fn with(self, sink: Sink) -> Self {
        Self(self.0 | 1 << (sink.0 & 15))
    }

    #[must_use]
    const fn without(self, sink: Sink) -> Self {
        Self(self.0 & !(1 << (sink.0 & 15)))
    }

    pub const fn contains(self, sink: Sink) -> bool {
        self.0 & (1 << (sink.0 & 15)) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Sink> {
        (0..16).map(Sink).filter(move |sink| self.contains(*sink))
    }
}

impl FromIterator<Sink> for Sinks {
    fn from_iter<I: IntoIterator<Item = Sink>>(sinks: I) -> Self {
        sinks.into_iter().fold(Self::NONE, Self::with)
    }
}

/// The part of a recorded revision on which its delivery depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    pub id: IncidentId,
    /// From 1 on.
    pub revision: u8,
    /// It is the last one.
    pub settled: bool,
    /// The number of killed processes of the incident, those of earlier revisions included.
    pub kills: u64,
    /// A hash of the object. What concerns one object is delivered in order.
    pub object: u64,
}

/// A revision that a sink has delivered, or that its receiver has refused for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub id: IncidentId,
    pub revision: u8,
    /// [`Revision::kills`].
    pub kills: u64,
}

/// What an entry of the log changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A revision that these sinks are to deliver. Sinks that have not delivered an earlier one of
    /// the incident will only deliver this one.
    Revision(Revision, Sinks),
    Receipt(Sink, Receipt),
    /// The beginning of a segment: [`History::reported`].
    Segment(Vec<((IncidentId, Sink), u64)>),
}

/// The latest revision of an incident, and the sinks that do not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undelivered {
    pub position: Position,
    pub revision: Revision,
    pub sinks: Sinks,
}

/// What a sink did not have of an incident that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    pub sink: Sink,
    pub position: Position,
    /// The number of kills of which the sink had no report.
    pub kills: u64,
}

/// The entries that are not delivered to each sink, or whose incident is still open.
///
/// Of each incident only the latest revision is here, because a revision is a whole value. Takes
/// about 80 bytes for each.
#[derive(Debug, Clone, Default)]
pub struct History {
    last: Position,
    entries: VecDeque<Undelivered>,
    /// The kills that a sink has a report of, for incidents of which it does not have the settled
    /// revision.
    reported: BTreeMap<(IncidentId, Sink), u64>,
}

impl History {
    /// Returns the number of the next entry of the log.
    pub const fn end(&self) -> Position {
        Position(self.last.0 + 1)
    }

    /// Applies the next entry of the log.
    pub fn apply(&mut self, position: Position, change: &Change) {
        self.last = self.last.max(position);
        match change {
            Change::Revision(revision, sinks) => self.record(position, *revision, *sinks),
            Change::Receipt(sink, receipt) => self.delivered(*sink, *receipt),
            Change::Segment(reported) => self.reported.extend(reported.iter().copied()),
        }
    }

    fn record(&mut self, position: Position, revision: Revision, sinks: Sinks) {
        let earlier = self.latest(revision.id);
        if let Some(earlier) = earlier {
            self.entries.remove(earlier);
        }
        if revision.settled {
            let has_all = |sink: &Sink| !sinks.contains(*sink);
            let sinks = (0..16).map(Sink).filter(has_all);
            for sink in sinks {
                self.reported.remove(&(revision.id, sink));
            }
        }
        if !sinks.is_empty() || !revision.settled {
            self.entries.push_back(Undelivered {
                position,
                revision,
                sinks,
            });
        }
    }

    fn delivered(&mut self, sink: Sink, receipt: Receipt) {
        let Receipt {
            id,
            revision,
            kills,
        } = receipt;
        let Some(latest) = self.latest(id) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(latest) else {
            return;
        };
        if entry.revision.revision <= revision {
            entry.sinks = entry.sinks.without(sink);
        }
        if entry.revision.settled && !entry.sinks.contains(sink) {
            self.reported.remove(&(id, sink));
        } else {
            self.reported.insert((id, sink), kills);
        }
        if entry.revision.settled && entry.sinks.is_empty() {
            self.entries.remove(latest);
        }
    }

    /// Returns the oldest entry that a sink is to deliver, and that concerns none of the `busy`
    /// objects, whose deliveries are under way.
    pub fn next(&self, sink: Sink, busy: &BTreeSet<u64>) -> Option<&Undelivered> {
        let is_next = |entry: &&Undelivered| {
            entry.sinks.contains(sink) && !busy.contains(&entry.revision.object)
        };
        self.entries.iter().find(is_next)
    }

    /// Returns the incidents without a settled revision.
    pub fn open(&self) -> impl Iterator<Item = &Undelivered> {
        self.entries.iter().filter(|entry| !entry.revision.settled)
    }

    /// Returns the entries of open incidents with positions below `end`, which have to be recorded
    /// again before the entries up to there are removed.
    pub fn open_before(&self, end: Position) -> Vec<Undelivered> {
        let old = self.open().filter(|entry| entry.position < end);
        old.copied().collect()
    }

    /// Removes the entries with positions below `end`. Returns what sinks had not delivered of
    /// them.
    pub fn remove_before(&mut self, end: Position) -> Vec<Owed> {
        let mut owed = Vec::new();
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.position < end) {
            for sink in entry.sinks.iter() {
                let id = entry.revision.id;
                let reported = self.reported.remove(&(id, sink)).unwrap_or(0);
                owed.push(Owed {
                    sink,
                    position: entry.position,
                    kills: entry.revision.kills.saturating_sub(reported),
                });
            }
        }
        owed
    }

    /// Returns the kills that sinks have reports of without having the settled revision. A segment
    /// begins with them, since the receipts may be in removed ones.
    pub const fn reported(&self) -> &BTreeMap<(IncidentId, Sink), u64> {
        &self.reported
    }

    fn latest(&self, id: IncidentId) -> Option<usize> {
        self.entries
            .iter()
            .rposition(|entry| entry.revision.id == id)
    }
}
