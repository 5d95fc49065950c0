//! Reports forks that the limits of pods refused.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Effect, IncidentInput, Input, Query, pass_on};
use crate::clock::{BootNanos, Now};
use crate::incident::{Occurred, Occurrence};
use crate::kube_event::{RefusedForks, ReportedKills};
use crate::pods::{PodRef, classify};
use crate::pressure::refusals::{Refusals, Refused};
use crate::pressure::sample::LONGEST;
use crate::units::CgroupId;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PodPidInput {
    /// Cgroups of pods were created or removed, or one of them refused a fork.
    CgroupsChanged,
    /// The answer to [`Query::RefusedForks`]: by cgroup id and path, counted since each was
    /// created. `None` if not read.
    Counted(Option<Vec<(CgroupId, String, u64)>>),
    /// The answer to [`Query::PidLimits`].
    PidLimits {
        /// Path of the cgroup of all pods.
        pods: String,
        /// The limits from the cgroup up to that of all pods, without cgroups that have no limit.
        limits: Vec<PidLimit>,
        /// If the cgroup is that of a pod: the paths of its containers, and their tasks.
        #[serde(default)]
        containers: Vec<(String, u64)>,
    },
    Sampled,
}

/// The tasks of one cgroup, and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidLimit {
    pub cgroup: String,
    /// `pids.current`.
    pub current: u64,
    /// `pids.max`.
    pub max: u64,
}

/// The announcement of refused forks by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Announced {
    /// A change of `pids.events` announces them: version 2.
    Yes,
    /// They have to be counted: version 1.
    No,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PodPids {
    announced: Announced,
    refusals: Refusals,
    counted_at: BootNanos,
    /// The refused forks whose limits were queried, in the order of the queries.
    unlimited: VecDeque<Refused>,
}

impl PodPids {
    pub fn new(announced: Announced, now: BootNanos) -> Self {
        Self {
            announced,
            refusals: Refusals::default(),
            counted_at: now,
            unlimited: VecDeque::new(),
        }
    }

    pub fn on(&mut self, input: PodPidInput, now: Now) -> Vec<Effect> {
        match input {
            PodPidInput::CgroupsChanged => vec![Effect::Query(Query::RefusedForks)],
            PodPidInput::Counted(counts) => {
                self.counted_at = now.boot;
                if let Some(counts) = counts {
                    self.refusals.apply_counts(counts);
                }
                self.due_refusals(now.boot)
            }
            PodPidInput::PidLimits {
                pods,
                limits,
                containers,
            } => self.limits_read(&pods, limits, containers, now),
            PodPidInput::Sampled => {
                let waited = LONGEST <= now.boot.since(self.counted_at);
                match self.announced {
                    Announced::No if waited => vec![Effect::Query(Query::RefusedForks)],
                    Announced::No | Announced::Yes => self.due_refusals(now.boot),
                }
            }
        }
    }

    /// Returns the refused forks to report, once their limits are known.
    fn due_refusals(&mut self, now: BootNanos) -> Vec<Effect> {
        let mut effects = Vec::new();
        for refused in self.refusals.due(now) {
            effects.push(Effect::Query(Query::PidLimits(refused.path.clone())));
            self.unlimited.push_back(refused);
        }
        effects
    }

    fn limits_read(
        &mut self,
        pods: &str,
        limits: Vec<PidLimit>,
        containers: Vec<(String, u64)>,
        now: Now,
    ) -> Vec<Effect> {
        let Some(Refused { path, forks }) = self.unlimited.pop_front() else {
            return Vec::new();
        };
        let limit = least_room(limits).map(|limit| {
            let kind = classify(&limit.cgroup, pods);
            (limit.cgroup, kind, limit.max)
        });
        let of_cgroup = PodRef::of(classify(&path, pods));
        let with_most = with_most_tasks(containers).and_then(|(path, tasks)| {
            let pod = PodRef::of(classify(&path, pods))?;
            pod.container.is_some().then_some((pod, tasks))
        });
        let (pod, tasks) =
            with_most.map_or((of_cgroup, None), |(pod, tasks)| (Some(pod), Some(tasks)));
        let refused = RefusedForks {
            cgroup: path,
            forks,
            limit,
            tasks,
        };
        let occurred = Occurred {
            pod,
            at: now.wall,
            until: now.wall,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence: Occurrence::RefusedForks(refused),
        };
        let report = Input::Incident(IncidentInput::Happened(vec![occurred]));
        vec![pass_on(report)]
    }
}

/// Returns the container that has more tasks than all others of its pod together: it is taken for
/// the one that forked, because the kernel counts at the pod's limit only that a fork was refused.
fn with_most_tasks(containers: Vec<(String, u64)>) -> Option<(String, u64)> {
    let all = containers.iter().map(|(_, tasks)| *tasks);
    let all = all.fold(0, u64::saturating_add);
    let largest = containers.into_iter().max_by_key(|(_, tasks)| *tasks)?;
    (all - largest.1 < largest.1).then_some(largest)
}

/// Returns the limit that refused: of those from the cgroup up to the pods', the one with the least
/// room. The kernel counts at that one, or at the cgroup of the process that forked.
fn least_room(limits: Vec<PidLimit>) -> Option<PidLimit> {
    let room = |limit: &PidLimit| limit.max.saturating_sub(limit.current);
    limits.into_iter().min_by_key(room)
}
