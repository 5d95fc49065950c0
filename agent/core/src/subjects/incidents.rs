//! Incidents from the decision on: each gets an id, and revisions as more is known about it.
//!
//! ```text
//! Occurred ──► revision 1, at once ──► object, group, details: up to two more ──► settled
//!    └── a kill for the cause of an open incident: added to that
//! ```
//!
//! An incident is open until its object, its group and its details are known or cannot come.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pods::{KnownPods, ReadFailure};
use super::{Decision, Effect};
use crate::clock::{BootNanos, Now};
use crate::incident::{
    BootId, Incident, IncidentId, IncidentIds, MAX_OPEN, Object, Occurred, Occurrence,
};
use crate::node_status::ledger::LastChange;
use crate::node_status::transition::ground;
use crate::pods::{Pod, PodChange};
use crate::subjects::kills::GROUP;

mod conditions;
mod details;
mod links;
mod names;
mod pod_watch;
#[cfg(test)]
mod tests;

use conditions::Conditions;
pub use details::{DetailsOf, DetailsRead};
use details::{DetailsReading, DetailsWait};
use links::Links;
pub use links::LinksRead;
pub use names::MAX_READS;
use names::{LastRead, Waiting};

/// How long an incident is open, unless nothing can be known about pods before that.
const OPEN: Duration = Duration::from_millis(3500);
/// How long the first process that no revision has waits for others of its group.
const INTERVAL: Duration = Duration::from_millis(250);
/// The number of incidents whose object is decided at a time, and of others that are settled, of
/// about 30 µs each. Hundreds that wait for their pods may be due together.
const AT_ONCE: usize = 32;
/// The number of revisions before the settled one.
const REVISIONS: u8 = 3;

/// Everything that can happen to incidents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum IncidentInput {
    /// The API server answered for the first time.
    ServerAnswered,
    /// These things happened.
    Happened(Vec<Occurred>),
    /// The watch reported a change, which is applied to the known pods.
    PodChanged(PodChange),
    /// The answer to [`Effect::ReadContainers`]; the containers are stored with the known pods.
    ContainersRead {
        /// The UID of the pod.
        uid: Box<str>,
        read: Result<(), ReadFailure>,
    },
    /// To [`BlockingQuery::ContainerLinks`](super::BlockingQuery::ContainerLinks).
    Links(LinksRead),
    /// The API server has an Event about it.
    Delivered(IncidentId),
    /// To [`BlockingQuery::KillDetails`](super::BlockingQuery::KillDetails).
    DetailsRead(DetailsRead),
    /// Time has passed, or more may be known.
    Due,
    /// The agent stops: everything is settled with what is known.
    Stopping,
}

/// An incident without its settled revision.
#[derive(Debug, Serialize, Deserialize)]
struct Open {
    incident: Incident,
    decided: BootNanos,
    /// `None`: its object is resolved.
    waiting: Option<Waiting>,
    details: DetailsWait,
    /// The time of the last process of its group; `None` if no other can follow.
    last_kill: Option<BootNanos>,
    /// Since when there are processes that no revision has.
    added: Option<BootNanos>,
    /// The kills that were handed on.
    reported: u64,
}

/// The open incidents, and what is known about their objects.
#[derive(Debug, Serialize, Deserialize)]
pub struct Incidents {
    /// There is an API server, which knows the pods.
    has_server: bool,
    ids: IncidentIds,
    /// The oldest first. There can be hundreds, of a kilobyte each, which are not to be moved.
    open: VecDeque<Box<Open>>,
    links: Links,
    details: Option<DetailsReading>,
    conditions: Conditions,
    /// Kills that were reported before the watch reported their pod, by its uid.
    uncounted: BTreeMap<Box<str>, u64>,
    /// By uid of the pod.
    reads: BTreeMap<Box<str>, LastRead>,
    /// The API server has answered since the start. Before, no name is waited for in vain.
    answered: bool,
    /// More objects can be decided at once.
    #[serde(default)]
    is_due: bool,
    effects: Vec<Effect>,
}

impl Incidents {
    pub fn new(boot: BootId, has_server: bool, conditions: &BTreeMap<String, LastChange>) -> Self {
        Self {
            has_server,
            ids: IncidentIds::new(boot),
            open: VecDeque::new(),
            links: Links::new(),
            details: None,
            conditions: Conditions::new(conditions),
            uncounted: BTreeMap::new(),
            reads: BTreeMap::new(),
            answered: false,
            is_due: false,
            effects: Vec::new(),
        }
    }

    /// Takes an input, and returns what follows from it.
    pub fn on(&mut self, input: IncidentInput, pods: &KnownPods, now: Now) -> Vec<Effect> {
        let now = now.boot;
        match input {
            IncidentInput::ServerAnswered => self.server_answered(now),
            IncidentInput::Happened(occurred) => self.happened(occurred, pods, now),
            IncidentInput::PodChanged(change) => {
                self.server_answered(now);
                self.pod_changed(change);
            }
            IncidentInput::ContainersRead { uid, read } => self.containers_read(&uid, read, now),
            IncidentInput::Links(read) => self.links_read(&read, pods, now),
            IncidentInput::Delivered(id) => self.delivered(id, now),
            IncidentInput::DetailsRead(read) => self.details_read(read, pods, now),
            IncidentInput::Due => self.due_objects(pods, now),
            IncidentInput::Stopping => self.due_all(pods, now, true),
        }
        self.due_all(pods, now, false);
        self.read_links(now);
        std::mem::take(&mut self.effects)
    }

    /// The next time at which something is due.
    pub fn due(&self) -> Option<BootNanos> {
        let due = |open: &Open| {
            let object = open.waiting.as_ref().map(|waiting| {
                let link = self.links.due(waiting.link);
                link.map_or(waiting.until(), |at| at.min(waiting.until()))
            });
            let details = match open.details {
                DetailsWait::Until(at) => Some(at),
                DetailsWait::Reading | DetailsWait::Ended => None,
            };
            let added = open.added.filter(|_| open.may_revise());
            let added = added.map(|since| since.plus(INTERVAL));
            let all = [object, details, added, Some(open.settles())];
            all.into_iter().flatten().min()
        };
        let at_once = self.is_due.then_some(BootNanos(0));
        at_once.or_else(|| self.open.iter().filter_map(|open| due(open)).min())
    }

    fn happened(&mut self, all: Vec<Occurred>, pods: &KnownPods, now: BootNanos) {
        for occurred in all {
            if let Some(occurred) = self.add_to_open(occurred, pods, now) {
                self.decide(occurred, pods, now);
            }
        }
    }

    /// Adds kills to the open incident with their cause. Returns them if there is none.
    fn add_to_open(
        &mut self,
        later: Occurred,
        pods: &KnownPods,
        now: BootNanos,
    ) -> Option<Occurred> {
        let cause = later.cause();
        let mut open = self.open.iter_mut();
        let has_cause =
            |open: &&mut Box<Open>| cause.is_some() && open.incident.occurred.cause() == cause;
        let Some(open) = open.find(has_cause) else {
            return Some(later);
        };
        let kills = later.killed();
        open.last_kill = open.last_kill.max(later.last_kill());
        open.incident.occurred.add(later);
        open.added.get_or_insert(now);
        if open.waiting.is_some() {
            // They are counted when their pod is known.
            return None;
        }
        if let Some(pod) = open.incident.object.pod.clone() {
            self.count_kills(kills, &pod, pods);
        }
        None
    }

    fn decide(&mut self, mut occurred: Occurred, pods: &KnownPods, now: BootNanos) {
        let id = self.ids.assign(occurred.first_fact(now));
        if let Occurrence::Condition(change) = &mut occurred.occurrence {
            self.conditions.changed(change, id);
            if change.is_problem() == Some(false)
                && let Some(of) = ground(&change.type_)
            {
                // The next problem has other details.
                let details = Some(String::new());
                self.effects.push(Effect::ConditionDetails { of, details });
            }
        }
        let incident = Incident {
            id,
            revision: 0,
            settled: false,
            added: 0,
            object: Object {
                pod: None,
                container: None,
                is_resolved: occurred.pod.is_none(),
            },
            occurred,
            details: None,
        };
        let mut open = Box::new(Open {
            waiting: self.wait_for_object(&incident, now),
            details: self.wait_for_details(&incident, now),
            last_kill: incident.occurred.last_kill(),
            incident,
            decided: now,
            added: None,
            reported: 0,
        });
        self.find_object(&mut open, pods, now);
        let open = self.hand_on(open, now);
        self.open.extend(open);
        // The oldest is settled with what is known, first of those that do not wait for their
        // object.
        while self.open.len() > MAX_OPEN {
            let mut all = self.open.iter();
            let resolved = all.position(|open| open.waiting.is_none()).unwrap_or(0);
            let Some(mut oldest) = self.open.remove(resolved) else {
                return;
            };
            self.resolve_as_known(&mut oldest, pods);
            oldest.details = DetailsWait::Ended;
            self.hand_on_settled(*oldest);
        }
    }

    /// Hands on a revision. Returns the incident if another can follow.
    fn hand_on(&mut self, mut open: Box<Open>, now: BootNanos) -> Option<Box<Open>> {
        if open.settles() <= now {
            self.hand_on_settled(*open);
            return None;
        }
        open.revise();
        open.added = None;
        let revision = Box::new(open.incident.clone());
        self.effects.push(Effect::Incident(revision));
        Some(open)
    }

    fn hand_on_settled(&mut self, mut open: Open) {
        open.revise();
        open.incident.settled = true;
        self.effects.push(Effect::Incident(Box::new(open.incident)));
    }

    /// Hands on what is due. At the end of the agent that is everything.
    fn due_all(&mut self, pods: &KnownPods, now: BootNanos, stopping: bool) {
        let mut settled = 0;
        for mut open in std::mem::take(&mut self.open) {
            if stopping {
                self.resolve_as_known(&mut open, pods);
                self.hand_on_settled(*open);
                continue;
            }
            if matches!(open.details, DetailsWait::Until(at) if at <= now) {
                self.read_details(&mut open, now);
            }
            let settles = open.settles() <= now;
            if (self.is_due && open.waiting.is_some()) || (settles && AT_ONCE <= settled) {
                self.open.push_back(open);
                continue;
            }
            if settles {
                settled += 1;
                self.resolve_as_known(&mut open, pods);
                self.hand_on_settled(*open);
                continue;
            }
            let is_due = |since: BootNanos| since.plus(INTERVAL) <= now;
            let revised = open.may_revise() && open.added.is_some_and(is_due);
            let open = if revised {
                self.hand_on(open, now)
            } else {
                Some(open)
            };
            self.open.extend(open);
        }
    }

    fn count_kills(&mut self, kills: u64, pod: &Pod, pods: &KnownPods) {
        if pods.index().exists(&pod.uid) {
            self.count_in_metric(pod, kills);
        } else if !pods.index().is_known(&pod.uid) && self.uncounted.len() < MAX_OPEN {
            *self.uncounted.entry(pod.uid.clone()).or_default() += kills;
        }
    }

    fn count_in_metric(&mut self, pod: &Pod, kills: u64) {
        self.effects.push(Effect::Log(Decision::PodKilled {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            kills,
        }));
    }
}

impl Open {
    fn revise(&mut self) {
        let kills = self.incident.occurred.kills.total();
        self.incident.revision += 1;
        self.incident.added = kills - std::mem::replace(&mut self.reported, kills);
    }

    /// Whether another revision before the settled one, and before the one with the object, can be
    /// handed on.
    const fn may_revise(&self) -> bool {
        let left = if self.waiting.is_some() { 1 } else { 0 };
        self.incident.revision + left < REVISIONS
    }

    /// When the incident is settled, by what is known now.
    fn settles(&self) -> BootNanos {
        let latest = match &self.waiting {
            // The settled revision has the object, which an outage delays.
            Some(waiting) => waiting.until().max(self.decided.plus(OPEN)),
            None => self.decided.plus(OPEN),
        };
        if self.waiting.is_some() || self.details != DetailsWait::Ended {
            return latest;
        }
        let group = self.last_kill.map(|last| last.plus(GROUP));
        group.unwrap_or(BootNanos(0)).min(latest)
    }
}
