//! Details of kills, which are added to their Events: see [`KillDetails`].
//!
//! ```text
//! Sent ── the API server has the Event ──► Delivered ── details are read ──► added
//!   └── too old, or another read is under way or began less than INTERVAL ago ──► no details
//! ```
//!
//! One incident can have an Event on the Node and one on the Pod. Both get what was read once.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingQuery, Effect, Incidents, KnownPods};
use crate::clock::{BootNanos, Stamp};
use crate::kube_event::{
    Amendment, Draft, EventId, EventPlace, Incident, KillDetails, NodeEvents, Occurrence,
};
use crate::pods::LargestMemory;
use crate::pressure::oom::KillVerdict;
use crate::reading::memory_use::{LargestProcesses, MemorySplit};
use crate::reading::oom::LimitOwner;
use crate::units::Pid;

/// Minimum interval between two reads.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long after the kill what is read still describes it. During an outage no details are read.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum number of Events that wait for the API server. Beyond it the oldest gets no details.
const MAX_SENT: usize = 8;

/// What to read about a kill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DetailsOf {
    /// A cgroup that reached its limit.
    Cgroup {
        /// Its path.
        path: String,
        /// The processes that were killed.
        victims: Vec<Pid>,
        /// Path of a cgroup whose processes were all killed.
        #[serde(default)]
        group: Option<String>,
    },
    /// All pods: they reached their common limit.
    Pods,
    /// The node was out of memory: the units outside of pods, too.
    Node {
        /// The processes that were killed.
        victims: Vec<Pid>,
    },
}

/// What was read. What could not be read is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DetailsRead {
    /// The memory of the cgroup by kind.
    pub split: Option<MemorySplit>,
    /// Whether a killed process had not released its memory yet.
    #[serde(default)]
    pub releasing: bool,
    /// The largest processes of the cgroup.
    pub processes: LargestProcesses,
    /// If the limit is that of all pods or the node's: who uses most.
    pub memory: LargestMemory,
}

/// An Event that may get details.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    id: EventId,
    /// Of the incident.
    stamp: Stamp,
    incident: Incident,
    place: EventPlace,
    of: DetailsOf,
    delivered: bool,
}

/// The last read.
#[derive(Debug, Serialize, Deserialize)]
struct Read {
    stamp: Stamp,
    asked: BootNanos,
    /// `None`: not answered yet.
    found: Option<KillDetails>,
}

impl Read {
    /// An answer does not name its incident, so there is one query at a time. Each is answered.
    fn is_recent(&self, now: BootNanos) -> bool {
        self.found.is_none() || now.since(self.asked) < INTERVAL
    }
}

/// The Events that may get details.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Details {
    last_id: u64,
    sent: VecDeque<Sent>,
    last: Option<Read>,
}

impl Details {
    /// Returns the id of an Event that is about to be sent, if it may get details.
    pub fn register(
        &mut self,
        incident: &Incident,
        place: EventPlace,
        now: BootNanos,
    ) -> Option<EventId> {
        let stamp = incident.stamp?;
        let of = details_of(incident)?;
        if self.is_too_soon(stamp, now) {
            return None;
        }
        let id = self.next_id();
        if self.sent.len() == MAX_SENT {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            id,
            stamp,
            incident: incident.clone(),
            place,
            of,
            delivered: false,
        });
        Some(id)
    }

    /// An id that no Event has.
    pub const fn next_id(&mut self) -> EventId {
        self.last_id += 1;
        EventId(self.last_id)
    }

    /// More processes of a group were killed.
    pub fn add_to_group(&mut self, later: &Incident) {
        let of_group = |sent: &&mut Sent| sent.incident.is_group_of(later);
        for sent in self.sent.iter_mut().filter(of_group) {
            sent.incident.add_to_group(later);
            // Their memory is waited for, too.
            if let Some(of) = details_of(&sent.incident) {
                sent.of = of;
            }
        }
    }

    /// The API server has the Event. Returns what to read, if it is the first of its incident.
    pub fn delivered(&mut self, id: EventId, now: BootNanos) -> Option<DetailsOf> {
        let at = self.sent.iter().position(|sent| sent.id == id)?;
        let sent = self.sent.get_mut(at)?;
        sent.delivered = true;
        let (stamp, of) = (sent.stamp, sent.of.clone());
        if self.last.as_ref().is_some_and(|last| last.stamp == stamp) {
            return None;
        }
        if MAX_AGE < now.since(stamp.kernel) || self.is_too_soon(stamp, now) {
            self.sent.remove(at);
            return None;
        }
        self.last = Some(Read {
            stamp,
            asked: now,
            found: None,
        });
        Some(of)
    }

    /// Details were read.
    pub fn read(&mut self, found: KillDetails) {
        if let Some(last) = &mut self.last {
            last.found.get_or_insert(found);
        }
    }

    /// The Events of the incident that was read last, with what was read.
    fn take_ready(&mut self) -> Vec<(Sent, KillDetails)> {
        let Some(Read {
            stamp,
            found: Some(found),
            ..
        }) = &self.last
        else {
            return Vec::new();
        };
        let sent = std::mem::take(&mut self.sent).into_iter();
        let (ready, others) = sent.partition(|sent| sent.delivered && sent.stamp == *stamp);
        self.sent = others;
        let ready: VecDeque<Sent> = ready;
        ready
            .into_iter()
            .map(|sent| (sent, found.clone()))
            .collect()
    }

    fn is_too_soon(&self, stamp: Stamp, now: BootNanos) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|last| last.stamp != stamp && last.is_recent(now))
    }
}

impl Incidents {
    /// Records an Event, which may get details. The kubelet's words stay as they are.
    pub(super) fn record(
        &mut self,
        mut draft: Draft,
        incident: &Incident,
        place: EventPlace,
        now: BootNanos,
    ) {
        if !self.keeps_words(&place) {
            draft.id = self.details.register(incident, place.clone(), now);
        }
        draft.id = self.record_of_group(&draft, incident, place).or(draft.id);
        self.effects.push(Effect::Event(draft));
    }

    /// Whether the message of an Event is a kubelet's.
    pub(super) fn keeps_words(&self, place: &EventPlace) -> bool {
        *place == EventPlace::Node && self.node_events == NodeEvents::Kubelet
    }

    /// The API server has an Event.
    pub(super) fn delivered(&mut self, id: EventId, now: BootNanos) {
        let query = self
            .details
            .delivered(id, now)
            .map(BlockingQuery::KillDetails);
        self.effects.extend(query.map(Effect::BlockingQuery));
        self.amend();
    }

    /// Details were read, or could not be.
    pub(super) fn details_read(&mut self, read: DetailsRead, pods: &KnownPods) {
        let mut memory = read.memory;
        memory.name_pods(|pod| pods.index().find(pod));
        self.details.read(KillDetails {
            split: read.split,
            releasing: read.releasing,
            processes: read.processes,
            memory,
        });
        self.amend();
    }

    fn amend(&mut self) {
        for (sent, found) in self.details.take_ready() {
            if let Some(versions) = self.groups.detailed(sent.id, &found) {
                self.effects.extend(versions.into_iter().map(Effect::Event));
                continue;
            }
            let described = sent.incident.with_details(&sent.place, &found);
            self.effects.extend(described.map(|(message, annotations)| {
                Effect::Amend(Amendment {
                    id: sent.id,
                    message,
                    annotations,
                })
            }));
        }
    }
}

/// What is worth knowing about kills. `None`: no limit is known whose memory could be read.
fn details_of(incident: &Incident) -> Option<DetailsOf> {
    let Occurrence::Kills(kills) = &incident.occurrence else {
        return None;
    };
    let kill = kills.first()?;
    let victims = || kills.findings.iter().map(|one| one.victim).collect();
    if kill.is_global() {
        let is_short = matches!(kill.verdict, KillVerdict::NodePressure { .. });
        return is_short.then(|| DetailsOf::Node { victims: victims() });
    }
    let limiting = kill.scope.as_ref().memcg()?;
    match limiting.owner {
        LimitOwner::PodsCgroup => Some(DetailsOf::Pods),
        LimitOwner::Container | LimitOwner::Pod | LimitOwner::Other => {
            let path = limiting.path.clone()?;
            path.starts_with('/').then(|| DetailsOf::Cgroup {
                path,
                victims: victims(),
                group: kill.group.clone(),
            })
        }
    }
}
