//! Details of kills: see [`KillDetails`].
//!
//! ```text
//! Until ── the API server has an Event, or LATEST after the decision ──► Reading ── answer ──► Ended
//!   └── too old, or another read is under way or began less than INTERVAL ago ─────────────────► Ended
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Incidents, Open};
use crate::clock::BootNanos;
use crate::incident::{Incident, IncidentId, Occurrence};
use crate::kube_event::KillDetails;
use crate::pods::LargestMemory;
use crate::pressure::oom::KillVerdict;
use crate::reading::memory_use::{LargestProcesses, MemorySplit};
use crate::reading::oom::LimitOwner;
use crate::subjects::pods::KnownPods;
use crate::subjects::{BlockingQuery, Effect};
use crate::units::Pid;

/// Minimum interval between two reads.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long after the kill what is read still describes it.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How long a read waits for the answer to the Event, which must not wait for it.
const LATEST: Duration = Duration::from_millis(20);

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

/// The details of one incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DetailsWait {
    Until(BootNanos),
    Reading,
    Ended,
}

/// The last read. An answer does not name its incident, so there is one query at a time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DetailsReading {
    incident: IncidentId,
    asked: BootNanos,
    is_answered: bool,
}

impl Incidents {
    pub(super) fn wait_for_details(&self, incident: &Incident, now: BootNanos) -> DetailsWait {
        if let Occurrence::Condition(change) = &incident.occurred.occurrence {
            return self.conditions.wait_for_details(change);
        }
        if incident.occurred.stamp.is_none()
            || details_of(incident).is_none()
            || self.is_too_soon(now)
        {
            return DetailsWait::Ended;
        }
        DetailsWait::Until(now.plus(LATEST))
    }

    fn is_too_soon(&self, now: BootNanos) -> bool {
        let last = self.details.as_ref();
        last.is_some_and(|last| !last.is_answered || now.since(last.asked) < INTERVAL)
    }

    /// The API server has an Event about the incident.
    pub(super) fn delivered(&mut self, id: IncidentId, now: BootNanos) {
        let mut all = self.open.iter_mut();
        let open = all.find(|open| open.incident.id == id);
        if let Some(open) = open
            && let DetailsWait::Until(at) = &mut open.details
        {
            *at = now;
        }
    }

    pub(super) fn read_details(&mut self, open: &mut Open, now: BootNanos) {
        let stamp = open.incident.occurred.stamp;
        let is_old = stamp.is_none_or(|stamp| MAX_AGE < now.since(stamp.kernel));
        let of = details_of(&open.incident);
        let Some(of) = of.filter(|_| !is_old && !self.is_too_soon(now)) else {
            open.details = DetailsWait::Ended;
            return;
        };
        open.details = DetailsWait::Reading;
        self.details = Some(DetailsReading {
            incident: open.incident.id,
            asked: now,
            is_answered: false,
        });
        let query = BlockingQuery::KillDetails(of);
        self.effects.push(Effect::BlockingQuery(query));
    }

    /// Details were read, or could not be.
    pub(super) fn details_read(&mut self, read: DetailsRead, pods: &KnownPods, now: BootNanos) {
        let Some(last) = self.details.as_mut().filter(|last| !last.is_answered) else {
            return;
        };
        last.is_answered = true;
        let id = last.incident;
        let mut open = self.open.iter();
        let Some(at) = open.position(|open| open.incident.id == id) else {
            return;
        };
        let Some(mut open) = self.open.remove(at) else {
            return;
        };
        open.details = DetailsWait::Ended;
        let mut memory = read.memory;
        memory.name_pods(|pod| pods.index().find(pod));
        let details = KillDetails {
            split: read.split,
            releasing: read.releasing,
            processes: read.processes,
            memory,
        };
        let is_empty = details.is_empty();
        open.incident.details = (!is_empty).then_some(details);
        let adds = !is_empty || open.added.is_some();
        // One that is due is settled with its object next.
        let open = if open.may_revise() && adds && now < open.settles() {
            self.hand_on(open, now)
        } else {
            Some(open)
        };
        if let Some(open) = open {
            self.open.insert(at, open);
        }
    }
}

/// What is worth knowing about kills. `None`: no limit is known whose memory could be read.
fn details_of(incident: &Incident) -> Option<DetailsOf> {
    let Occurrence::Kills(kills) = &incident.occurred.occurrence else {
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
