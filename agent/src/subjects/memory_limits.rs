//! Containers that reach their memory limit again and again: an Event before they are killed, if the
//! memory grows that the kernel cannot reclaim (`oom.earlyWarning`).
//!
//! A limit that page cache reaches costs nothing: the kernel notifies of the first time only, and
//! then the counters are read, in longer and longer intervals.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Announced, Decision, Effect, IncidentInput, Input, Query, pass_on};
use crate::clock::{BootNanos, Now};
use crate::escape::escape;
use crate::kube_event::{Incident, MemoryLimitReached, Occurrence, ReportedKills};
use crate::pods::{PodRef, classify};
use crate::pressure::memory_growth::{Forecast, LONGEST_PAUSE, MemoryGrowth, NextStep};
use crate::reading::memory_limit::LimitedCgroup;
use crate::units::CgroupId;

#[cfg(test)]
mod tests;

/// Pauses of at least one of these times end at a multiple of it, so that many pods are read in one
/// wake-up.
const TOGETHER: [Duration; 2] = [LONGEST_PAUSE, Duration::from_mins(1)];

/// Everything that can happen to the memory limits of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryLimitInput {
    /// The agent has started.
    Started,
    /// `oom.earlyWarning`.
    Configured(bool),
    /// Cgroups of pods were created or removed.
    CgroupsChanged,
    /// The answer to [`Query::LimitedPods`]: the cgroup of each pod.
    Pods(Vec<(CgroupId, String)>),
    /// To [`Query::WatchMemoryLimits`]: a cgroup of this pod has reached a limit, or had another
    /// event of memory. It is not watched any more.
    Reached(CgroupId),
    /// To [`Query::LimitedMemory`].
    Read {
        /// Path of the cgroup of all pods.
        pods: String,
        /// The cgroups with a limit by the pod's. `None`: the pod was removed, or was not read.
        read: Vec<(CgroupId, Option<Vec<LimitedCgroup>>)>,
    },
    /// Time has passed. What is due by `soon` is done in the same wake-up.
    Tick {
        /// See [`ALIGN`](crate::clock::ALIGN).
        soon: BootNanos,
    },
}

/// The cgroup of a pod.
///
/// ```text
///         the kernel notifies            read, reached again and again
/// Watched ───────────────────► Asked ──────────────────────────────────► Paused
///    ▲                         │   ▲                                        │
///    └─── not reached again ───┘   └──────────────── is due ────────────────┘
/// ```
#[derive(Debug)]
struct LimitedPod {
    path: String,
    state: PodState,
    /// The cgroups of the pod that reach their limits.
    growth: BTreeMap<CgroupId, (String, MemoryGrowth)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodState {
    Watched { since: BootNanos },
    Paused { until: BootNanos },
    Asked,
}

/// The memory limits of pods.
#[derive(Debug)]
pub struct MemoryLimits {
    enabled: bool,
    announced: Announced,
    pods: BTreeMap<CgroupId, LimitedPod>,
}

impl MemoryLimits {
    /// Nothing is watched yet. `announced`: whether the kernel notifies of reached limits.
    pub const fn new(enabled: bool, announced: Announced) -> Self {
        Self {
            enabled,
            announced,
            pods: BTreeMap::new(),
        }
    }

    /// When a pod must be read.
    pub fn due(&self) -> Option<BootNanos> {
        let due = self.pods.values().filter_map(|pod| match pod.state {
            PodState::Paused { until } => Some(until),
            PodState::Watched { .. } | PodState::Asked => None,
        });
        due.min()
    }

    /// Takes an input, and returns what follows from it.
    pub fn on(&mut self, input: MemoryLimitInput, now: Now) -> Vec<Effect> {
        match input {
            MemoryLimitInput::Started => self.turned_on(),
            MemoryLimitInput::Configured(enabled) => self.configured(enabled),
            MemoryLimitInput::CgroupsChanged if self.is_on() => {
                vec![Effect::Query(Query::LimitedPods)]
            }
            MemoryLimitInput::Pods(found) if self.is_on() => self.found(found, now.boot),
            MemoryLimitInput::Reached(id) => self.reached(id, now.boot),
            MemoryLimitInput::Read { pods, read } if self.is_on() => self.read(&pods, read, now),
            MemoryLimitInput::Tick { soon } => self.read_due(soon),
            MemoryLimitInput::CgroupsChanged
            | MemoryLimitInput::Pods(_)
            | MemoryLimitInput::Read { .. } => Vec::new(),
        }
    }

    fn is_on(&self) -> bool {
        self.enabled && self.announced == Announced::Yes
    }

    fn configured(&mut self, enabled: bool) -> Vec<Effect> {
        if self.enabled == enabled {
            return Vec::new();
        }
        let was_on = self.is_on();
        self.enabled = enabled;
        if enabled {
            return self.turned_on();
        }
        self.pods.clear();
        let unwatch = Effect::Query(Query::WatchMemoryLimits(Vec::new()));
        if was_on { vec![unwatch] } else { Vec::new() }
    }

    fn turned_on(&self) -> Vec<Effect> {
        match (self.enabled, self.announced) {
            (false, _) => Vec::new(),
            (true, Announced::Yes) => vec![Effect::Query(Query::LimitedPods)],
            (true, Announced::No) => vec![Effect::Log(Decision::EarlyWarningUnavailable)],
        }
    }

    /// Watches new pods, and forgets those that were removed.
    fn found(&mut self, found: Vec<(CgroupId, String)>, now: BootNanos) -> Vec<Effect> {
        let mut known = std::mem::take(&mut self.pods);
        let mut new = Vec::new();
        for (id, path) in found {
            let pod = known.remove(&id).unwrap_or_else(|| {
                new.push((id, path.clone()));
                LimitedPod {
                    path,
                    state: PodState::Watched { since: now },
                    growth: BTreeMap::new(),
                }
            });
            self.pods.insert(id, pod);
        }
        watch(new)
    }

    fn reached(&mut self, id: CgroupId, now: BootNanos) -> Vec<Effect> {
        let Some(pod) = self.pods.get_mut(&id) else {
            return Vec::new();
        };
        if let PodState::Watched { since } = pod.state {
            if LONGEST_PAUSE <= now.since(since) {
                pod.growth
                    .values_mut()
                    .for_each(|(_, growth)| growth.was_calm());
            }
            pod.state = PodState::Paused { until: now };
        }
        self.read_due(now)
    }

    /// Reads all pods that are due in one query.
    fn read_due(&mut self, soon: BootNanos) -> Vec<Effect> {
        let mut due = Vec::new();
        for (id, pod) in &mut self.pods {
            if let PodState::Paused { until } = pod.state
                && until <= soon
            {
                pod.state = PodState::Asked;
                due.push((*id, pod.path.clone()));
            }
        }
        if due.is_empty() {
            return Vec::new();
        }
        vec![Effect::Query(Query::LimitedMemory(due))]
    }

    fn read(
        &mut self,
        pods: &str,
        read: Vec<(CgroupId, Option<Vec<LimitedCgroup>>)>,
        now: Now,
    ) -> Vec<Effect> {
        let (mut effects, mut unpaused) = (Vec::new(), Vec::new());
        for (id, cgroups) in read {
            let Some(pod) = self.pods.get_mut(&id) else {
                continue;
            };
            let (pause, forecasts) = pod.apply(cgroups.unwrap_or_default(), now.boot);
            pod.state = if let Some(pause) = pause {
                PodState::Paused {
                    until: end_of(pause, now.boot),
                }
            } else {
                unpaused.push((id, pod.path.clone()));
                PodState::Watched { since: now.boot }
            };
            for (path, forecast) in forecasts {
                effects.extend(report(pods, path, forecast, now));
            }
        }
        effects.extend(watch(unpaused));
        effects
    }
}

impl LimitedPod {
    /// Takes the present memory of its cgroups. Returns when to read them again, unless that is when
    /// the kernel notifies, and what is to be reported.
    fn apply(
        &mut self,
        cgroups: Vec<LimitedCgroup>,
        now: BootNanos,
    ) -> (Option<Duration>, Vec<(String, Forecast)>) {
        let mut known = std::mem::take(&mut self.growth);
        let (mut pause, mut forecasts) = (None::<Duration>, Vec::<(String, Forecast)>::new());
        for LimitedCgroup { id, path, memory } in cgroups {
            let (_, mut growth) = known.remove(&id).unwrap_or_default();
            let next = match growth.on(now, memory) {
                NextStep::Wait => None,
                NextStep::Sample(pause) => Some(pause),
                NextStep::Report(forecast) => {
                    forecasts.push((path.clone(), forecast));
                    Some(forecast.pause())
                }
            };
            pause = [pause, next].into_iter().flatten().min();
            self.growth.insert(id, (path, growth));
        }
        // The limits of a pod and of its container are usually reached together. The container has the
        // name.
        let container = forecasts.iter().any(|(path, _)| *path != self.path);
        forecasts.retain(|(path, _)| !container || *path != self.path);
        for (path, growth) in self.growth.values_mut() {
            let is_pod = *path == self.path;
            let is_related = |(other, _): &(String, Forecast)| is_pod || *other == self.path;
            if forecasts.iter().any(is_related) {
                growth.reported_with_another(now);
            }
        }
        (pause, forecasts)
    }
}

/// The end of a pause. A long one is cut to a multiple of its length, see [`TOGETHER`].
fn end_of(pause: Duration, now: BootNanos) -> BootNanos {
    let until = now.plus(pause);
    let grid = TOGETHER.into_iter().find(|grid| *grid <= pause);
    let grid = grid.and_then(|grid| u64::try_from(grid.as_nanos()).ok());
    let beyond = grid.and_then(|grid| until.0.checked_rem(grid));
    BootNanos(until.0.saturating_sub(beyond.unwrap_or_default()))
}

fn watch(pods: Vec<(CgroupId, String)>) -> Vec<Effect> {
    if pods.is_empty() {
        return Vec::new();
    }
    vec![Effect::Query(Query::WatchMemoryLimits(pods))]
}

fn report(pods: &str, path: String, forecast: Forecast, now: Now) -> [Effect; 2] {
    let log = Decision::MemoryLimitReached {
        cgroup: escape(&path),
        forecast,
    };
    let incident = Incident {
        pod: PodRef::of(classify(&path, pods)),
        at: now.wall,
        stamp: None,
        kills: ReportedKills::default(),
        occurrence: Occurrence::MemoryLimitReached(MemoryLimitReached {
            cgroup: path,
            forecast,
        }),
    };
    let report = Input::Incident(IncidentInput::Happened(vec![incident]));
    [Effect::Log(log), pass_on(report)]
}
