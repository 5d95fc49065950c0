//! Words the Events about incidents, from one revision to the next.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::SystemTime;

use super::settled::{self, Settled};
use super::{Draft, EventId, NodeEvents};
use crate::incident::{Incident, IncidentId, MAX_OPEN, Position};

/// The Events about incidents of which more revisions follow.
#[derive(Debug)]
pub struct EventWords {
    /// The name of the Node.
    node: String,
    node_events: NodeEvents,
    open: BTreeMap<IncidentId, IncidentEvents>,
}

#[derive(Debug)]
struct IncidentEvents {
    /// As of the first revision.
    node_events: NodeEvents,
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
    pub fn new(node: &str, node_events: NodeEvents) -> Self {
        Self {
            node: node.to_owned(),
            node_events,
            open: BTreeMap::new(),
        }
    }

    /// Applies to incidents of which no revision was worded.
    pub const fn configure(&mut self, node_events: NodeEvents) {
        self.node_events = node_events;
    }

    /// Returns new Events, and later versions of Events if something is added.
    pub fn word(&mut self, incident: &Incident, position: Option<Position>) -> Vec<Draft> {
        let mut events = self.take(incident.id);
        let on_node = incident.on_node(events.node_events, &self.node);
        let on_node = on_node.filter(|_| !matches!(events.on_node, Some(EventText::Absent)));
        let on_object = match incident.on_pod() {
            None if on_node.is_some() || incident.occurred.pod.is_none() => None,
            None => Some(incident.on_node_instead()),
            on_pod => on_pod,
        };
        let mut revision = Revision {
            id: incident.id,
            until: incident.occurred.until,
            is_last: incident.settled,
            position,
            drafts: Vec::new(),
        };
        events.on_node = Some(revision.add(on_node, true, events.on_node));
        if incident.object.is_resolved {
            events.on_object = Some(revision.add(on_object, false, events.on_object));
        }
        if !incident.settled {
            self.open.insert(incident.id, events);
            // The settled revision of the oldest was removed from the history.
            if self.open.len() > MAX_OPEN {
                self.open.pop_first();
            }
        }
        revision.drafts
    }

    /// Like [`Self::word`], for a settled incident from the history, possibly of an earlier start.
    pub fn word_settled(&mut self, incident: &Settled<'_>, position: Position) -> Vec<Draft> {
        let Settled {
            id,
            json,
            at,
            until,
        } = *incident;
        let events = self.take(id);
        let (on_node, on_object) = settled::drafts(json, (events.node_events, &self.node), at);
        let on_node = on_node.filter(|_| !matches!(events.on_node, Some(EventText::Absent)));
        let mut revision = Revision {
            id,
            until,
            is_last: true,
            position: Some(position),
            drafts: Vec::new(),
        };
        revision.add(on_node, true, events.on_node);
        revision.add(on_object, false, events.on_object);
        revision.drafts
    }

    fn take(&mut self, id: IncidentId) -> IncidentEvents {
        self.open.remove(&id).unwrap_or(IncidentEvents {
            node_events: self.node_events,
            on_node: None,
            on_object: None,
        })
    }
}

struct Revision {
    id: IncidentId,
    until: SystemTime,
    is_last: bool,
    position: Option<Position>,
    drafts: Vec<Draft>,
}

impl Revision {
    /// Adds a draft, unless it is the same as before.
    fn add(&mut self, draft: Option<Draft>, on_node: bool, before: Option<EventText>) -> EventText {
        let Some(mut draft) = draft else {
            return EventText::Absent;
        };
        draft.id = Some(EventId {
            incident: self.id,
            on_node,
        });
        draft.is_last = self.is_last;
        draft.position = self.position;
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
            draft.at = self.until;
        }
        self.drafts.push(draft);
        text
    }
}

fn hash(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::by_cause;
    use crate::kube_event::Finding;
    use crate::pressure::oom::{Grounds, KillVerdict};
    use crate::reading::oom::OomScope;
    use crate::tests::{finding, incident, now};

    /// Returns the revision with these victims, killed because the node was out of memory.
    fn revision(victims: &[u32], settled: bool) -> Incident {
        let killed = victims.iter().map(|pid| Finding {
            cause: finding(1).cause,
            scope: OomScope::Global,
            verdict: KillVerdict::NodePressure {
                why: Grounds::ConfirmedGlobal,
            },
            ..finding(*pid)
        });
        let occurred = by_cause(killed.collect(), now(9)).pop().unwrap();
        Incident {
            settled,
            ..incident(occurred)
        }
    }

    #[test]
    fn a_change_of_the_recorder_on_the_node_applies_to_new_incidents_only() {
        let rows = [
            (NodeEvents::Companion, NodeEvents::Off, true),
            (NodeEvents::Off, NodeEvents::Companion, false),
        ];
        for (first, later, is_recorded) in rows {
            let mut words = EventWords::new("n", first);
            for (victims, settled) in [(&[1][..], false), (&[1, 2], true)] {
                let drafts = words.word(&revision(victims, settled), None);
                let kinds: Vec<_> = drafts.iter().map(|draft| draft.is_later).collect();
                let expected: &[bool] = if is_recorded { &[settled] } else { &[] };
                assert_eq!(kinds, expected, "{first:?}");
                words.configure(later);
            }
            assert!(words.open.is_empty(), "{first:?}");
        }
    }

    #[test]
    fn a_revision_without_anything_new_changes_no_event() {
        let mut words = EventWords::new("n", NodeEvents::Companion);
        assert_eq!(words.word(&revision(&[1], false), None).len(), 1);
        assert_eq!(words.word(&revision(&[1], true), None), []);
    }
}
