//! Containers that the kernel kills as a whole (`memory.oom.group`): one Event each, although the
//! records of the processes may arrive one after the other.
//!
//! ```text
//! first record ──► the Event, at once
//! later ones ────► added ── details were read, or INTERVAL has passed ──► a later version of the Event
//! ```
//!
//! An Event that still waits for a name gets the later ones before it is recorded.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Effect, Incidents, KnownPods};
use crate::clock::BootNanos;
use crate::kube_event::{Draft, EventId, EventPlace, Incident, KillDetails, Kills, ReportedKills};
use crate::pods::Pod;
use crate::subjects::kills::GROUP;

/// How long the first process that no Event reports yet waits for others.
const INTERVAL: Duration = Duration::from_millis(250);
/// Groups to which processes can be added. The kernel kills one after the other in each memory
/// cgroup.
const MAX_GROUPS: usize = 8;

/// The last groups, the oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Groups(VecDeque<Group>);

#[derive(Debug, Serialize, Deserialize)]
struct Group {
    /// With all processes so far. The kills that no Event reports yet are in `added`.
    incident: Incident,
    /// When the last process was killed.
    last: BootNanos,
    events: Vec<GroupEvent>,
    /// If an Event is about it.
    pod: Option<Pod>,
    added: Option<Added>,
    details: Option<KillDetails>,
}

/// A recorded Event about a group.
#[derive(Debug, Serialize, Deserialize)]
struct GroupEvent {
    /// Its last version, with the kills left out.
    draft: Draft,
    place: EventPlace,
    /// Its message is a kubelet's.
    keeps_words: bool,
    /// Processes in its last version.
    processes: u64,
}

/// What the Events do not report yet.
#[derive(Debug, Serialize, Deserialize)]
struct Added {
    kills: ReportedKills,
    at: SystemTime,
    since: BootNanos,
}

impl Groups {
    /// The group that `later` is a part of.
    fn of(&mut self, later: &Incident) -> Option<&mut Group> {
        let first = later.group()?.first()?.stamp.kernel;
        let mut groups = self.0.iter_mut();
        groups.find(|group| first.since(group.last) < GROUP && group.incident.is_group_of(later))
    }

    /// The kernel has begun to kill a container as a whole. Returns what the group before it did
    /// not report yet, if there is no room for both.
    fn begin(&mut self, incident: &Incident) -> Vec<Draft> {
        let Some(last) = incident.group().and_then(last_kill) else {
            return Vec::new();
        };
        self.0.push_back(Group {
            incident: incident.clone(),
            last,
            events: Vec::new(),
            pod: None,
            added: None,
            details: None,
        });
        if self.0.len() <= MAX_GROUPS {
            return Vec::new();
        }
        let oldest = self.0.pop_front();
        oldest.map_or_else(Vec::new, |mut oldest| oldest.report())
    }

    /// Details of the group of an Event were read. `None`: the Event is about no group.
    pub fn detailed(&mut self, id: EventId, found: &KillDetails) -> Option<Vec<Draft>> {
        let is_about = |group: &&mut Group| {
            group
                .events
                .iter()
                .any(|event| event.draft.version_of == Some(id))
        };
        let group = self.0.iter_mut().find(is_about)?;
        if group.details.is_some() {
            return Some(Vec::new());
        }
        group.details = Some(found.clone());
        Some(group.report())
    }

    /// When processes are reported that were added.
    pub fn due(&self) -> Option<BootNanos> {
        self.0.iter().filter_map(Group::due).min()
    }

    /// Later versions of Events that are due.
    fn take_due(&mut self, now: BootNanos) -> Vec<Draft> {
        let is_due = |group: &&mut Group| group.due().is_some_and(|due| due <= now);
        let due = self.0.iter_mut().filter(is_due);
        due.flat_map(Group::report).collect()
    }

    /// Forgets groups to which nothing is added any more.
    fn forget(&mut self, now: BootNanos) {
        self.0
            .retain(|group| now.since(group.last) < GROUP || group.added.is_some());
    }
}

impl Group {
    fn due(&self) -> Option<BootNanos> {
        self.added.as_ref().map(|added| added.since.plus(INTERVAL))
    }

    fn add(&mut self, later: &Incident, now: BootNanos) {
        let added = self.added.get_or_insert(Added {
            kills: ReportedKills::default(),
            at: later.at,
            since: now,
        });
        added.kills.add_all(later.kills.clone());
        added.at = added.at.max(later.at);
    }

    /// Later versions of the Events, with everything that is known. The first Event reports the
    /// kills.
    fn report(&mut self) -> Vec<Draft> {
        let processes = self.incident.new_kills();
        let added = self.added.take();
        let (mut kills, at) = added.map_or_else(Default::default, |of| (of.kills, Some(of.at)));
        let mut versions = Vec::new();
        for event in &mut self.events {
            let before = std::mem::replace(&mut event.processes, processes);
            let new = processes.saturating_sub(before);
            let details = self.details.as_ref();
            let described = self.incident.described(&event.place, details);
            let described = described
                .filter(|(message, _)| !event.keeps_words && *message != event.draft.message);
            if new == 0 && described.is_none() {
                continue;
            }
            if let Some((message, annotations)) = described {
                event.draft.message = message;
                event.draft.annotations = annotations;
            }
            event.draft.at = at.unwrap_or(event.draft.at);
            versions.push(Draft {
                of: u32::try_from(new).unwrap_or(u32::MAX),
                kills: std::mem::take(&mut kills),
                ..event.draft.clone()
            });
        }
        versions
    }
}

impl Incidents {
    /// Adds an incident to the group that it is a part of. Returns it if there is none.
    pub(super) fn add_to_group(
        &mut self,
        mut later: Incident,
        pods: &KnownPods,
        now: BootNanos,
    ) -> Option<Incident> {
        let Some(group) = self.groups.of(&later) else {
            let earlier = self.groups.begin(&later);
            self.effects.extend(earlier.into_iter().map(Effect::Event));
            return Some(later);
        };
        let mut waiting = self.waiting.iter_mut();
        let waiting = waiting.find(|waiting| waiting.incident.is_group_of(&later));
        if waiting.is_none() && group.events.is_empty() {
            return Some(later);
        }
        group.incident.add_to_group(&later);
        self.details.add_to_group(&later);
        group.last = later.group().and_then(last_kill).unwrap_or(group.last);
        if let Some(waiting) = waiting {
            waiting.incident.add_to_group(&later);
            if group.events.is_empty() {
                let kills = std::mem::take(&mut later.kills);
                waiting.incident.kills.add_all(kills);
            }
        }
        if !group.events.is_empty() {
            group.add(&later, now);
        }
        if let Some(pod) = group.pod.clone() {
            self.count_kills(&later, &pod, pods);
        }
        None
    }

    /// An Event is recorded, which is `draft`; later versions of it may follow if it is about a
    /// group. Returns its id then.
    pub(super) fn record_of_group(
        &mut self,
        draft: &Draft,
        incident: &Incident,
        place: EventPlace,
    ) -> Option<EventId> {
        let keeps_words = self.keeps_words(&place);
        let is_about = |group: &&mut Group| group.incident.is_group_of(incident);
        let group = self.groups.0.iter_mut().rev().find(is_about)?;
        let id = draft.id.unwrap_or_else(|| self.details.next_id());
        group.events.push(GroupEvent {
            draft: Draft {
                times: 0,
                id: None,
                version_of: Some(id),
                kills: ReportedKills::default(),
                stamp: None,
                ..draft.clone()
            },
            place,
            keeps_words,
            processes: incident.new_kills(),
        });
        Some(id)
    }

    /// The Event about the pod of a group is recorded: later kills in it are counted at once, and
    /// later versions name the same containers.
    pub(super) fn set_pod_of_group(&mut self, incident: &Incident, pod: &Pod) {
        let is_about = |group: &&mut Group| group.incident.is_group_of(incident);
        if let Some(group) = self.groups.0.iter_mut().rev().find(is_about) {
            group.pod = Some(pod.clone());
            let first = incident.group().and_then(Kills::first);
            if let Some(named) = first.and_then(|first| first.trigger_container.clone()) {
                group.incident.name_trigger(|_| named);
            }
        }
    }

    /// Records later versions of Events that are due.
    pub(super) fn report_groups(&mut self, now: BootNanos) {
        let due = self.groups.take_due(now).into_iter();
        self.effects.extend(due.map(Effect::Event));
        self.groups.forget(now);
    }
}

fn last_kill(kills: &Kills) -> Option<BootNanos> {
    kills.findings.iter().map(|one| one.stamp.kernel).max()
}
