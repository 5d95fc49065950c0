//! Examines OOM kills, from the record to the finding: the owner of the cgroup, the limit, and if
//! the node itself is short of memory.
//!
//! A kill is examined in steps, since each needs an answer of the host. The loop answers at once,
//! so one kill is examined after the other. Findings of records that came together are passed on
//! together: the kernel may have killed a group.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Input, KillCounterInput, Query, SignalInput, pass_on};
use crate::clock::{BootNanos, Now};
use crate::kube_event::Finding;
use crate::pods::RecentPods;
use crate::pressure::oom::{
    Doubt, Evidence, KillVerdict, LimitCounters, MissingEvidence, RemainingMemory, verdict_on,
};
use crate::reading::Resource;
use crate::record::{LoggedKill, RecordedKill};
use crate::units::CgroupId;

mod case;
pub(crate) mod causes;
mod consequence;
mod limit_hits;
#[cfg(test)]
mod tests;

use case::{Case, cgroups_of};
use causes::Causes;
pub use causes::GROUP;
use limit_hits::LimitHits;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum KillInput {
    CgroupsRead {
        /// Cgroups of pods, by id and path.
        pods: Vec<(CgroupId, String)>,
        /// The number of times that each cgroup had hit its own limit; those that never had are
        /// left out.
        limit_hits: Vec<(CgroupId, u64)>,
    },
    /// Cgroups of pods that may be removed before a kill in them is examined.
    CgroupsSeen(Vec<(CgroupId, String)>),
    Recorded {
        kill: Box<RecordedKill>,
        read: BootNanos,
        /// Path of the cgroup of all pods.
        pods: String,
    },
    Logged {
        kill: Box<LoggedKill>,
        read: BootNanos,
        /// Path of the cgroup of all pods.
        pods: String,
    },
    /// The answer to [`Query::CgroupPaths`], in its order; `None` for a cgroup that no longer
    /// exists.
    CgroupPaths(Vec<Option<String>>),
    /// The answer to [`Query::LimitHits`], from the cgroup upwards; an inner `None` is a cgroup
    /// that could not be read. `None` if no cgroup can be read.
    LimitHits(Option<Vec<Option<(CgroupId, u64)>>>),
    /// The answer to [`Query::RemainingMemory`].
    RemainingMemory(RemainingMemory),
    LiveLimitHits(Vec<CgroupId>),
    /// All records that came together have been passed on.
    BatchRead,
    /// The Events of the batch are on the way, so there is time for work that is not urgent.
    BatchReported,
}

/// The state of one kill on its way from the record to the finding.
///
/// ```text
///       Recorded                 paths               limit hits              memory
/// Idle ──────────► AwaitsPaths ───────► judge ─┬──► AwaitsLimitHits ─┬──► AwaitsMemory ──► Idle
///   └───────────────── Logged ───────────────► ┤                     └── verdict ──────► Idle
///                                              └── verdict ─────────────────────────────► Idle
/// ```
///
/// Only what the verdict depends on is requested: a kill is reported in less time than a request
/// takes.
#[derive(Debug, Serialize, Deserialize)]
enum Examination {
    Idle,
    /// The paths of its cgroups have been requested.
    AwaitsPaths {
        kill: Box<RecordedKill>,
        read: BootNanos,
        pods: String,
    },
    /// The counters of limit hits of the victim's cgroup and its ancestors have been requested.
    AwaitsLimitHits(Box<Case>),
    /// The remaining memory has been requested.
    AwaitsMemory {
        case: Box<Case>,
        /// `None` if the verdict does not depend on them.
        counters: Option<LimitCounters>,
    },
}

/// The verdict after a query without an answer.
const NOT_JUDGED: KillVerdict = KillVerdict::EventOnly {
    why: Doubt::MemoryUnread,
};

#[derive(Debug, Serialize, Deserialize)]
pub struct Kills {
    /// In bytes.
    page: u64,
    examination: Examination,
    limit_hits: LimitHits,
    /// Cgroups of victims whose counters did not decide, but must be read all the same.
    uncounted: BTreeSet<String>,
    /// Paths of cgroups that have been removed.
    recent: RecentPods,
    causes: Causes,
    /// The findings of the records that came together so far.
    found: Vec<Finding>,
}

impl Kills {
    /// Creates the state for a kernel with pages of `page` bytes.
    pub fn new(page: u64) -> Self {
        Self {
            page,
            examination: Examination::Idle,
            limit_hits: LimitHits::default(),
            uncounted: BTreeSet::new(),
            recent: RecentPods::default(),
            causes: Causes::default(),
            found: Vec::new(),
        }
    }

    pub fn on(&mut self, input: KillInput, now: Now) -> Vec<Effect> {
        match input {
            KillInput::CgroupsRead { pods, limit_hits } => {
                self.limit_hits = LimitHits::new(limit_hits);
                self.remember(&pods);
                Vec::new()
            }
            KillInput::CgroupsSeen(pods) => {
                self.remember(&pods);
                Vec::new()
            }
            KillInput::Recorded { kill, read, pods } => {
                let mut effects = self.abandon(now);
                effects.push(Effect::Query(Query::CgroupPaths(cgroups_of(&kill))));
                self.examination = Examination::AwaitsPaths { kill, read, pods };
                effects
            }
            KillInput::Logged { kill, read, pods } => {
                let mut effects = self.abandon(now);
                let case = Box::new(Case::logged(*kill, read, pods));
                effects.extend(self.judge(case, Evidence::default(), now));
                effects
            }
            KillInput::CgroupPaths(paths) => self.paths_found(paths, now),
            KillInput::LimitHits(counted) => self.limit_hits_read(counted, now),
            KillInput::RemainingMemory(left) => self.memory_read(left, now),
            KillInput::LiveLimitHits(live) => {
                self.limit_hits.forget_removed(&live, now.boot);
                Vec::new()
            }
            KillInput::BatchRead => {
                let found = std::mem::take(&mut self.found);
                let found = Input::KillCounter(KillCounterInput::Found(found));
                vec![pass_on(found)]
            }
            KillInput::BatchReported => {
                let uncounted = std::mem::take(&mut self.uncounted).into_iter();
                let read = |cgroup| Effect::Query(Query::LimitHits(cgroup));
                uncounted.map(read).collect()
            }
        }
    }

    fn remember(&mut self, pods: &[(CgroupId, String)]) {
        for (id, path) in pods {
            self.recent.remember(*id, path);
        }
    }

    /// Reports a kill by what is known, because a query stayed without an answer.
    fn abandon(&mut self, now: Now) -> Vec<Effect> {
        match std::mem::replace(&mut self.examination, Examination::Idle) {
            Examination::Idle => Vec::new(),
            Examination::AwaitsPaths { kill, read, pods } => {
                let case = self.recorded(*kill, read, pods, Vec::new());
                self.conclude(case, NOT_JUDGED, now)
            }
            Examination::AwaitsLimitHits(case) | Examination::AwaitsMemory { case, .. } => {
                self.conclude(*case, NOT_JUDGED, now)
            }
        }
    }

    fn paths_found(&mut self, paths: Vec<Option<String>>, now: Now) -> Vec<Effect> {
        match std::mem::replace(&mut self.examination, Examination::Idle) {
            Examination::AwaitsPaths { kill, read, pods } => {
                let case = self.recorded(*kill, read, pods, paths);
                self.judge(Box::new(case), Evidence::default(), now)
            }
            other => {
                self.examination = other;
                Vec::new()
            }
        }
    }

    fn limit_hits_read(
        &mut self,
        counted: Option<Vec<Option<(CgroupId, u64)>>>,
        now: Now,
    ) -> Vec<Effect> {
        let counters = match counted {
            Some(counted) => self.limit_hits.compare(&counted, now.boot),
            None => LimitCounters::Unknown,
        };
        let mut effects = Vec::new();
        if self.limit_hits.is_full() {
            effects.push(Effect::Query(Query::LiveLimitHits));
        }
        match std::mem::replace(&mut self.examination, Examination::Idle) {
            Examination::AwaitsLimitHits(case) => {
                let evidence = Evidence {
                    counters: Some(counters),
                    left: None,
                };
                effects.extend(self.judge(case, evidence, now));
            }
            other => self.examination = other,
        }
        effects
    }

    fn memory_read(&mut self, left: RemainingMemory, now: Now) -> Vec<Effect> {
        match std::mem::replace(&mut self.examination, Examination::Idle) {
            Examination::AwaitsMemory { case, counters } => {
                let left = Some(left);
                self.judge(case, Evidence { counters, left }, now)
            }
            other => {
                self.examination = other;
                Vec::new()
            }
        }
    }

    /// Judges by the evidence so far, or requests what is missing.
    fn judge(&mut self, case: Box<Case>, evidence: Evidence, now: Now) -> Vec<Effect> {
        let (verdict, counters) = match verdict_on(&case.kill(), &evidence) {
            Ok(verdict) => (verdict, evidence.counters),
            Err(MissingEvidence::LimitCounters) => {
                let Some(path) = case.path.clone() else {
                    let counters = Some(LimitCounters::Unknown);
                    let left = evidence.left;
                    return self.judge(case, Evidence { counters, left }, now);
                };
                self.examination = Examination::AwaitsLimitHits(case);
                return vec![Effect::Query(Query::LimitHits(path))];
            }
            Err(MissingEvidence::RemainingMemory) => {
                let counters = evidence.counters;
                self.examination = Examination::AwaitsMemory { case, counters };
                return vec![Effect::Query(Query::RemainingMemory)];
            }
        };
        if counters.is_none() {
            self.uncounted.extend(case.path.clone());
        }
        self.conclude(*case, verdict, now)
    }

    fn conclude(&mut self, case: Case, verdict: KillVerdict, now: Now) -> Vec<Effect> {
        let finding = self.causes.assign(case.judged(verdict));
        let mut effects = vec![Effect::Log(Decision::KillFound(Box::new(finding.clone())))];
        if let KillVerdict::NodePressure { why } = verdict {
            effects.push(pass_on(Input::Signal(SignalInput::Forced {
                resource: Resource::Memory,
                why,
                at: finding.stamp.kernel.min(now.boot),
                stamp: finding.stamp,
            })));
        }
        effects.push(pass_on(Input::Signal(SignalInput::MemoryMayBeShort)));
        self.found.push(finding);
        effects
    }

    /// Takes the current paths; those of removed cgroups are from memory.
    fn recorded(
        &mut self,
        kill: RecordedKill,
        read: BootNanos,
        pods: String,
        found: Vec<Option<String>>,
    ) -> Case {
        let found = found.into_iter().chain(std::iter::repeat(None));
        let paths = cgroups_of(&kill).into_iter().zip(found);
        let paths = paths.map(|(id, found)| {
            let Some(path) = found else {
                return self.recent.path(id).map(str::to_owned);
            };
            self.recent.remember(id, &path);
            Some(path)
        });
        let paths = paths.collect();
        Case::recorded(kill, read, pods, paths, self.page)
    }
}
