//! Words the Events about incidents, from one revision to the next.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{Draft, EventId, NodeEvents, ReportedKills};
use crate::incident::{Incident, IncidentId};

/// The Events about incidents of which more revisions follow.
#[derive(Debug)]
pub struct EventWords {
    node_events: NodeEvents,
    open: BTreeMap<IncidentId, IncidentEvents>,
}

/// What follows from a revision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Worded {
    /// New Events, and later versions of Events if something is added.
    pub drafts: Vec<Draft>,
    /// The kills for which there is no Event, because another program records it.
    pub unwanted: ReportedKills,
}

#[derive(Debug, Default)]
struct IncidentEvents {
    /// The kills that an Event reports, or for which there is none.
    kills: u64,
    /// Set with the first revision.
    on_node: Option<EventText>,
    on_object: Option<EventText>,
}

/// The state of one Event.
#[derive(Debug, Clone, Copy)]
enum EventText {
    /// The incident has no such Event.
    Absent,
    Recorded {
        message: u64,
        processes: u32,
    },
}

impl EventWords {
    pub const fn new(node_events: NodeEvents) -> Self {
        Self {
            node_events,
            open: BTreeMap::new(),
        }
    }

    /// Applies to incidents of which no revision was worded.
    pub const fn configure(&mut self, node_events: NodeEvents) {
        self.node_events = node_events;
    }

    pub fn word(&mut self, incident: &Incident) -> Worded {
        let mut events = self.open.remove(&incident.id).unwrap_or_default();
        let mut revision = Revision {
            incident,
            kills: incident.occurred.kills.beyond(events.kills),
            worded: Worded::default(),
        };
        let on_node = match events.on_node {
            Some(EventText::Absent) => None,
            Some(EventText::Recorded { .. }) | None => incident.on_node(self.node_events),
        };
        let is_on_node = on_node.is_some();
        events.on_node = Some(revision.add(on_node, true, events.on_node));
        if incident.object.is_resolved {
            let on_object = match incident.on_pod() {
                None if is_on_node || incident.occurred.pod.is_none() => None,
                None => Some(incident.on_node_instead()),
                on_pod => on_pod,
            };
            events.on_object = Some(revision.add(on_object, false, events.on_object));
            revision.worded.unwanted = std::mem::take(&mut revision.kills);
        }
        events.kills = incident.occurred.kills.total() - revision.kills.total();
        if !incident.settled {
            self.open.insert(incident.id, events);
        }
        revision.worded
    }
}

struct Revision<'a> {
    incident: &'a Incident,
    /// The kills that no Event reports yet.
    kills: ReportedKills,
    worded: Worded,
}

impl Revision<'_> {
    /// Adds a draft, unless it is the same as before. The first one reports the kills.
    fn add(&mut self, draft: Option<Draft>, on_node: bool, before: Option<EventText>) -> EventText {
        let Some(mut draft) = draft else {
            return EventText::Absent;
        };
        draft.id = Some(EventId {
            incident: self.incident.id,
            on_node,
        });
        let text = EventText::Recorded {
            message: hash(&draft.message),
            processes: draft.of,
        };
        if let Some(EventText::Recorded { message, processes }) = before {
            draft.of = draft.of.saturating_sub(processes);
            if draft.of == 0 && hash(&draft.message) == message {
                return text;
            }
            draft.is_later = true;
            draft.times = 0;
            draft.stamp = None;
            draft.at = self.incident.occurred.until;
        }
        draft.kills = std::mem::take(&mut self.kills);
        self.worded.drafts.push(draft);
        text
    }
}

fn hash(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}
