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

#[derive(Debug)]
struct IncidentEvents {
    /// The kills that an Event reports, or for which there is none.
    kills: u64,
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
        let known = self.open.remove(&incident.id);
        let mut events = known.unwrap_or(IncidentEvents {
            kills: 0,
            node_events: self.node_events,
            on_node: None,
            on_object: None,
        });
        let mut revision = Revision {
            incident,
            kills: incident.occurred.kills.beyond(events.kills),
            worded: Worded::default(),
        };
        let on_node = match events.on_node {
            Some(EventText::Absent) => None,
            Some(EventText::Recorded { .. }) | None => incident.on_node(events.node_events),
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
        let id = EventId {
            incident: self.incident.id,
            on_node,
        };
        // Nothing follows an Event about a settled incident.
        draft.id = (!self.incident.settled || before.is_some()).then_some(id);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::by_cause;
    use crate::kube_event::{Finding, KillOwner};
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
        let one = |kills| ReportedKills::of(KillOwner::NoPod, kills);
        let rows = [
            (NodeEvents::Companion, NodeEvents::Off, true),
            (NodeEvents::Off, NodeEvents::Companion, false),
        ];
        for (first, later, is_recorded) in rows {
            let mut words = EventWords::new(first);
            for (victims, settled) in [(&[1][..], false), (&[1, 2], true)] {
                let worded = words.word(&revision(victims, settled));
                let kills: Vec<_> = worded.drafts.iter().map(|draft| &draft.kills).collect();
                if is_recorded {
                    assert_eq!(kills, [&one(1)], "{first:?}");
                    assert_eq!(worded.drafts[0].is_later, settled);
                    assert!(worded.unwanted.is_empty());
                } else {
                    assert_eq!((kills.len(), worded.unwanted), (0, one(1)), "{first:?}");
                }
                words.configure(later);
            }
            assert!(words.open.is_empty(), "{first:?}");
        }
    }

    #[test]
    fn a_revision_without_anything_new_changes_no_event() {
        let mut words = EventWords::new(NodeEvents::Companion);
        assert_eq!(words.word(&revision(&[1], false)).drafts.len(), 1);
        assert_eq!(words.word(&revision(&[1], true)), Worded::default());
        // Nothing follows the Event of a settled incident.
        assert_eq!(words.word(&revision(&[1], true)).drafts[0].id, None);
    }
}
