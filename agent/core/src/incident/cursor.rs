//! How far a sink has delivered the history, and what was removed from it before.
//!
//! ```text
//! revisions of the history ──► Cursor::delivered   when the receiver has acknowledged them
//!                         └──► Cursor::removed     when there is no more room for them
//!                                   └──► Cursor::summary ──► Cursor::summarized
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::json::{API_VERSION, JsonFacts, JsonIncident, JsonObject, JsonSummary};
use super::{IncidentId, MAX_OPEN};
use crate::kube_event::ReportedKills;
use crate::units::counted;

/// The number of objects of which a summary is made; further ones have a common summary.
const OBJECTS: usize = 64;

/// The place of a revision in the history: the number of the agent's start, and the number of the
/// revision since then. Grows over restarts and boots.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position(pub u64);

/// Bits of the number of a revision since the start.
const REVISIONS: u32 = 32;

impl Position {
    /// Returns the position before the first revision of a start.
    pub const fn before_start(start: u64) -> Self {
        Self(start << REVISIONS)
    }

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub const fn start(self) -> u64 {
        self.0 >> REVISIONS
    }
}

/// A revision in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub position: Position,
    /// The kills that earlier revisions did not have, for the account of kills of the next start:
    /// see [`Incident::added_kills`](super::Incident::added_kills).
    #[serde(default, skip_serializing_if = "ReportedKills::is_empty")]
    pub added: ReportedKills,
    #[serde(flatten)]
    pub incident: JsonIncident,
}

impl Entry {
    /// Returns true if sinks deliver this revision: of each incident the first, because it is new,
    /// and the last, because it is complete.
    pub const fn is_wanted(&self) -> bool {
        self.incident.revision == 1 || self.incident.settled
    }
}

/// What a cursor has to know of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub position: Position,
    pub id: IncidentId,
    pub kills: u64,
    pub settled: bool,
}

/// What one sink has delivered. After a restart it continues there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cursor {
    position: Position,
    /// What was delivered or removed after `position`, of a sink that does not wait for each
    /// answer: the positions after the first and up to the second.
    #[serde(with = "crate::pairs")]
    above: BTreeMap<Position, Position>,
    /// The kills that were delivered of each incident that is not settled.
    unsettled: BTreeMap<String, u64>,
    /// What was removed since the last summaries.
    removed: Removed,
    /// The summaries that are being delivered.
    summed_up: Removed,
}

/// Revisions that were removed from the history before a sink had delivered them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Removed {
    /// The id of the first summary. Those after it have the numbers that follow.
    first: Option<IncidentId>,
    objects: Vec<RemovedOfObject>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RemovedOfObject {
    object: JsonObject,
    incidents: u64,
    kills: u64,
    since: String,
    until: String,
}

impl Cursor {
    pub fn new(position: Position) -> Self {
        Self {
            position,
            ..Self::default()
        }
    }

    /// Returns the position up to which everything was delivered or removed.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Continues after `position`. What is between was recorded, but is not in the history.
    pub fn skip_to(&mut self, position: Position) {
        self.position = self.position.max(position);
    }

    /// Continues where the history of this start begins if the sink is beyond it: a history was
    /// removed, so that positions began again.
    #[must_use]
    pub fn limited_to(mut self, start: Position) -> Self {
        self.position = self.position.min(start);
        self.above.retain(|_, last| *last <= start);
        self
    }

    /// Returns true if this revision was delivered or removed.
    pub fn has(&self, position: Position) -> bool {
        let range = self.above.range(..position).next_back();
        position <= self.position || range.is_some_and(|(_, last)| position <= *last)
    }

    /// Returns true if a summary is to be delivered, or waits for its answer.
    pub const fn has_summary(&self) -> bool {
        self.removed.first.is_some() || self.summed_up.first.is_some()
    }

    /// The receiver has this revision, or has refused it for good. `first`: the first of the
    /// revisions that wait for their outcome, or else the one after those that were taken.
    pub fn delivered_before(&mut self, revision: &Revision, first: Position) {
        let Revision {
            id, kills, settled, ..
        } = revision;
        self.remember(&id.to_string(), *kills, *settled);
        self.add(
            Position(revision.position.0.saturating_sub(1)),
            revision.position,
        );
        self.advance(first);
    }

    /// Everything before `first` was delivered or removed.
    fn advance(&mut self, first: Position) {
        while let Some(range) = self
            .above
            .first_entry()
            .filter(|range| *range.get() < first)
        {
            self.position = self.position.max(range.remove());
        }
    }

    /// Adds what is after `after` and up to `last`.
    fn add(&mut self, mut after: Position, mut last: Position) {
        if let Some((start, end)) = self.above.range(..=after).next_back()
            && after <= *end
        {
            (after, last) = (*start, last.max(*end));
        }
        while let Some((start, end)) = self.above.range(after..=last).next() {
            let start = *start;
            last = last.max(*end);
            self.above.remove(&start);
        }
        self.above.insert(after, last);
    }

    /// The receiver has this revision, or has refused it for good.
    pub fn delivered(&mut self, entry: &Entry) {
        self.position = self.position.max(entry.position);
        if entry.is_wanted() {
            let incident = &entry.incident;
            self.remember(&incident.id, incident.kills(), incident.settled);
        }
    }

    fn remember(&mut self, id: &str, kills: u64, is_settled: bool) {
        if is_settled {
            self.unsettled.remove(id);
            return;
        }
        let known = self.unsettled.entry(id.to_owned()).or_default();
        *known = kills.max(*known);
        if self.unsettled.len() > MAX_OPEN {
            self.unsettled.pop_first();
        }
    }

    /// This revision is no longer in the history. If the sink has not delivered it, and it is the
    /// last one of its incident, it is added to a summary. `taken`: the sink is delivering what is
    /// up to there. `id` is for the first summary.
    pub fn removed(&mut self, entry: &Entry, taken: Position, id: impl FnOnce() -> IncidentId) {
        let incident = &entry.incident;
        if self.has(entry.position) {
            return;
        }
        if self.position < taken {
            self.add(taken, entry.position);
        } else {
            self.position = entry.position;
            self.advance(entry.position.next());
        }
        if !incident.settled {
            return;
        }
        let delivered = self.unsettled.remove(&incident.id);
        let kills = incident.kills().saturating_sub(delivered.unwrap_or(0));
        let incidents = u64::from(delivered.is_none());
        if 0 < kills || 0 < incidents {
            self.removed.first.get_or_insert_with(id);
            self.removed.add(incident, incidents, kills);
        }
    }

    /// Returns the summary that is to be delivered before anything else; the same one until
    /// [`Self::summarized`].
    pub fn summary(&mut self) -> Option<JsonIncident> {
        if self.summed_up.first.is_none() {
            self.summed_up = std::mem::take(&mut self.removed);
        }
        let Removed { first, objects } = &self.summed_up;
        Some(objects.first()?.summary((*first)?))
    }

    /// The receiver has the summary.
    pub fn summarized(&mut self) {
        let Removed { first, objects } = &mut self.summed_up;
        objects.drain(..objects.len().min(1));
        *first = first.filter(|_| !objects.is_empty()).map(|id| IncidentId {
            number: id.number.wrapping_add(1),
            ..id
        });
    }
}

impl Removed {
    /// Adds to what was removed of the object of `incident`, or of further objects.
    fn add(&mut self, incident: &JsonIncident, incidents: u64, kills: u64) {
        let objects = &mut self.objects;
        let known = objects.iter().position(|one| one.object == incident.object);
        let at = known.unwrap_or(objects.len()).min(OBJECTS - 1);
        if at == objects.len() {
            let is_common = at + 1 == OBJECTS;
            let object = (!is_common).then(|| incident.object.clone());
            objects.push(RemovedOfObject {
                object: object.unwrap_or_default(),
                incidents: 0,
                kills: 0,
                since: incident.time.clone(),
                until: incident.time.clone(),
            });
        }
        if let Some(object) = objects.get_mut(at) {
            object.incidents = object.incidents.saturating_add(incidents);
            object.kills = object.kills.saturating_add(kills);
            if object.until < incident.time {
                object.until.clone_from(&incident.time);
            }
        }
    }
}

impl RemovedOfObject {
    fn summary(&self, id: IncidentId) -> JsonIncident {
        let Self {
            incidents, kills, ..
        } = *self;
        let mut message = counted(incidents, "incident");
        if 0 < kills {
            // Writing to a String cannot fail.
            let _written = write!(message, ", with {},", counted(kills, "OOM kill"));
        }
        let (were, they) = if incidents == 1 {
            ("was", "it")
        } else {
            ("were", "they")
        };
        let _written = write!(
            message,
            " {were} removed from the history before {they} could be delivered here"
        );
        JsonIncident {
            api_version: API_VERSION.to_owned(),
            id: id.to_string(),
            revision: 1,
            settled: true,
            time: self.since.clone(),
            until: (self.since < self.until).then(|| self.until.clone()),
            object: self.object.clone(),
            reason: "IncidentsRemoved".to_owned(),
            message,
            facts: Some(JsonFacts::Summary(JsonSummary { incidents, kills })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::BootId;

    #[test]
    fn a_summary_of_one_incident_is_in_the_singular() {
        let message = |incidents, kills| {
            let removed = RemovedOfObject {
                object: JsonObject::default(),
                incidents,
                kills,
                since: String::new(),
                until: String::new(),
            };
            let boot = BootId(1);
            removed.summary(IncidentId { boot, number: 1 }).message
        };
        let rows = [
            (1, 0, "1 incident was", "it"),
            (1, 1, "1 incident, with 1 OOM kill, was", "it"),
            (3, 7, "3 incidents, with 7 OOM kills, were", "they"),
        ];
        for (incidents, kills, were, they) in rows {
            let expected =
                format!("{were} removed from the history before {they} could be delivered here");
            assert_eq!(message(incidents, kills), expected);
        }
    }
}
